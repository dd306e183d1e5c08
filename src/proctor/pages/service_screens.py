"""The screens that exist over the service only: `proctor view` shows none of them.

/ui/p/{project}/alerts                   its alert rules, one with what it would have done, and its forms
/ui/p/{project}/settings                 its settings and secrets
/ui/p/{project}/retention                how long its traces and runs stay, with what would go
/ui/projects/new                         a new project
/ui/keys                                 keys of the organization
/ui/audit, /ui/health, /ui/search        about the service
/ui/leaderboard/{slug}                   the agents on a published benchmark
/ui/{noun}, /ui/{noun}/...               whatever the verification API declares: benchmarks, tasks, criteria, solvers, ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.ports import Source
from proctor.pages.screens import alerts, keys, leaderboard, noun_forms, nouns, project_settings, retention, service

Screen = Callable[[Request, Source], Awaitable[Response]]
SERVICE_SCREENS: tuple[tuple[str, str, Screen], ...] = (
    ("GET", "/ui/p/{project}/alerts", alerts.show_alerts),
    ("GET", "/ui/p/{project}/alerts/new", alerts.show_new_alert),
    ("POST", "/ui/p/{project}/alerts/new", alerts.create_alert),
    ("GET", "/ui/p/{project}/alerts/{alert}", alerts.show_alert),
    ("GET", "/ui/p/{project}/alerts/{alert}/change", alerts.show_change),
    ("POST", "/ui/p/{project}/alerts/{alert}/change", alerts.change_alert),
    ("POST", "/ui/p/{project}/alerts/{alert}/switch", alerts.switch_alert),
    ("POST", "/ui/p/{project}/alerts/{alert}/test", alerts.test_alert),
    ("GET", "/ui/p/{project}/alerts/{alert}/delete", alerts.ask_delete),
    ("POST", "/ui/p/{project}/alerts/{alert}/delete", alerts.delete_alert),
    ("GET", "/ui/p/{project}/settings", project_settings.show_settings),
    ("GET", "/ui/p/{project}/settings/change", project_settings.show_change),
    ("POST", "/ui/p/{project}/settings/change", project_settings.change_project),
    ("GET", "/ui/p/{project}/retention", retention.show_retention),
    ("POST", "/ui/p/{project}/retention", retention.send_retention),
    ("POST", "/ui/p/{project}/pause", project_settings.pause_project),
    ("GET", "/ui/p/{project}/delete", project_settings.ask_delete),
    ("POST", "/ui/p/{project}/delete", project_settings.delete_project),
    ("GET", "/ui/p/{project}/secrets", project_settings.show_secret),
    ("POST", "/ui/p/{project}/secrets", project_settings.keep_secret),
    ("GET", "/ui/p/{project}/secrets/delete", project_settings.ask_delete_secret),
    ("POST", "/ui/p/{project}/secrets/delete", project_settings.delete_secret),
    ("GET", "/ui/projects/new", project_settings.show_new_project),
    ("POST", "/ui/projects/new", project_settings.create_project),
    ("GET", "/ui/keys", keys.show_keys),
    ("GET", "/ui/keys/new", keys.show_new_key),
    ("POST", "/ui/keys/new", keys.create_key),
    ("GET", "/ui/keys/{key}/revoke", keys.ask_revoke),
    ("POST", "/ui/keys/{key}/revoke", keys.revoke_key),
    ("GET", "/ui/leaderboard/{slug}", leaderboard.show_leaderboard),
    ("GET", "/ui/audit", service.show_audit),
    ("GET", "/ui/health", service.show_health),
    ("GET", "/ui/search", service.show_search),
)
NOUN_SCREENS: tuple[tuple[str, str, Screen], ...] = (
    ("GET", "/ui/{noun}", nouns.show),
    ("POST", "/ui/{noun}", noun_forms.act),
    ("GET", "/ui/{noun}/{rest:path}", nouns.show),
    ("POST", "/ui/{noun}/{rest:path}", noun_forms.act),
)
"""Last of all: their addresses fit whatever the others do not."""
