"""The routes of the pages.

Static words (`new`, `check`) come before path parameters at the same position. `proctor view` has only `SCREENS`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.desk import Source, Visit
from proctor.pages.error_page import find_login_address
from proctor.pages.form_page import FormRefused
from proctor.pages.rendering import redirect
from proctor.pages.screens import (
    agents,
    alerts,
    case_edit,
    cases,
    compare,
    examinations,
    keys,
    labels,
    login,
    noun_forms,
    nouns,
    project_settings,
    projects,
    proposals,
    result,
    run,
    schedules,
    service,
    trace,
    traces,
)
from proctor.pages.static_files import serve_static_file
from proctor.service.refusals import Refusal

_MOST_PROJECTS = 20
"""Newest projects in the header."""
Screen = Callable[[Visit], Awaitable[Response]]
MakeSource = Callable[[Request], "Source | None"]
"""Returns the source for a request; None without a login."""
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
    ("GET", "/ui/p/{project}/schedules", schedules.show_schedules),
    ("GET", "/ui/p/{project}/schedules/new", schedules.show_edit),
    ("POST", "/ui/p/{project}/schedules/new", schedules.save_schedule),
    ("GET", "/ui/p/{project}/schedules/{schedule}", schedules.show_schedule),
    ("GET", "/ui/p/{project}/schedules/{schedule}/change", schedules.show_edit),
    ("POST", "/ui/p/{project}/schedules/{schedule}/change", schedules.save_schedule),
    ("GET", "/ui/p/{project}/schedules/{schedule}/delete", schedules.ask_delete),
    ("POST", "/ui/p/{project}/schedules/{schedule}/{action}", schedules.act),
    ("GET", "/ui/p/{project}/proposals", proposals.show_proposals),
    ("POST", "/ui/p/{project}/proposals", proposals.generate),
    ("GET", "/ui/p/{project}/proposals/{proposal}", proposals.show_proposal),
    ("GET", "/ui/p/{project}/proposals/{proposal}/edit", case_edit.show_edit_proposal),
    ("POST", "/ui/p/{project}/proposals/{proposal}/edit", case_edit.send_edit_proposal),
    ("GET", "/ui/p/{project}/proposals/{proposal}/delete", proposals.ask_delete),
    ("POST", "/ui/p/{project}/proposals/{proposal}/{action}", proposals.act),
    ("GET", "/ui/p/{project}/settings", project_settings.show_settings),
    ("GET", "/ui/p/{project}/settings/change", project_settings.show_change),
    ("POST", "/ui/p/{project}/settings/change", project_settings.change_project),
    ("GET", "/ui/p/{project}/retention", project_settings.show_retention),
    ("POST", "/ui/p/{project}/retention", project_settings.send_retention),
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
    ("GET", "/ui/leaderboard/{slug}", nouns.show_leaderboard),
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
"""Last: they match any address."""
SCREENS: tuple[tuple[str, str, Screen], ...] = (
    ("GET", "/ui/", projects.show_projects),
    ("GET", "/ui/p/{project}", projects.show_project),
    ("POST", "/ui/p/{project}/example", projects.load_example),
    ("GET", "/ui/p/{project}/runs", run.show_runs),
    ("GET", "/ui/p/{project}/runs/new", run.show_new_run),
    ("POST", "/ui/p/{project}/runs/new", run.send_new_run),
    ("GET", "/ui/p/{project}/runs/{run}", run.show_run),
    ("GET", "/ui/p/{project}/runs/{run}/rows", run.show_rows),
    ("GET", "/ui/p/{project}/runs/{run}/mutation", run.show_mutation),
    ("POST", "/ui/p/{project}/runs/{run}/cancel", run.cancel_run),
    ("GET", "/ui/p/{project}/runs/{run}/r/{result}", result.show_result),
    ("GET", "/ui/p/{project}/runs/{run}/r/{result}/json", result.show_json),
    ("GET", "/ui/p/{project}/runs/{run}/r/{result}/text", result.show_text),
    ("GET", "/ui/p/{project}/examinations", examinations.show_examinations),
    ("GET", "/ui/p/{project}/examinations/new", examinations.show_new_examination),
    ("POST", "/ui/p/{project}/examinations/new", examinations.send_new_examination),
    ("GET", "/ui/p/{project}/examinations/{run}", examinations.show_examination),
    ("GET", "/ui/p/{project}/history", result.show_history),
    ("GET", "/ui/p/{project}/compare", compare.show_comparison),
    ("GET", "/ui/p/{project}/compare/answers", compare.show_answers),
    ("GET", "/ui/p/{project}/cases", cases.show_cases),
    ("GET", "/ui/p/{project}/cases/new", case_edit.show_new_case),
    ("POST", "/ui/p/{project}/cases/new", case_edit.send_new_case),
    ("POST", "/ui/p/{project}/cases/check", case_edit.check_document),
    ("GET", "/ui/p/{project}/cases/{case}", cases.show_case),
    ("GET", "/ui/p/{project}/cases/{case}/edit", case_edit.show_edit_case),
    ("POST", "/ui/p/{project}/cases/{case}/edit", case_edit.send_edit_case),
    ("POST", "/ui/p/{project}/cases/{case}/active", cases.switch_case),
    ("POST", "/ui/p/{project}/cases/{case}/backtest", cases.start_backtest),
    ("POST", "/ui/p/{project}/cases/{case}/delete", cases.delete_case),
    ("GET", "/ui/p/{project}/agents", agents.show_agents),
    ("GET", "/ui/p/{project}/agents/new", agents.show_new_agent),
    ("POST", "/ui/p/{project}/agents/new", agents.send_new_agent),
    ("GET", "/ui/p/{project}/agents/{agent}", agents.show_agent),
    ("GET", "/ui/p/{project}/agents/{agent}/edit", agents.show_edit_agent),
    ("POST", "/ui/p/{project}/agents/{agent}/edit", agents.send_edit_agent),
    ("POST", "/ui/p/{project}/agents/{agent}/delete", agents.delete_agent),
    ("GET", "/ui/p/{project}/traces", traces.show_traces),
    ("GET", "/ui/p/{project}/traces/reevaluate", traces.show_reevaluation),
    ("POST", "/ui/p/{project}/traces/reevaluate", traces.send_reevaluation),
    ("GET", "/ui/p/{project}/traces/{trace}", trace.show_trace),
    ("POST", "/ui/p/{project}/traces/{trace}/label", trace.label_trace),
    ("GET", "/ui/p/{project}/labels", labels.show_labels),
    ("POST", "/ui/p/{project}/labels", labels.save_label),
    ("GET", "/ui/p/{project}/labels/export", labels.export_labels),
    ("GET", "/ui/p/{project}/labels/all", labels.show_all_labels),
    ("GET", "/ui/p/{project}/labels/{label}", labels.show_label),
    ("GET", "/ui/p/{project}/labels/{label}/change", labels.show_change),
    ("POST", "/ui/p/{project}/labels/{label}/change", labels.change_label),
    ("POST", "/ui/p/{project}/labels/{label}/undo", labels.undo_label),
    ("GET", "/ui/p/{project}/labels/{label}/delete", labels.ask_delete),
    ("POST", "/ui/p/{project}/labels/{label}/delete", labels.delete_label),
)
"""Screens that need a source."""


def make_router(make_source: MakeSource, *, with_login: bool = True) -> APIRouter:
    """Return the router of the pages."""
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/static/{name}", serve_static_file, methods=["GET"], response_model=None)
    for path in ("/", "/ui"):
        router.add_api_route(path, _go_to_pages, methods=["GET"], response_model=None)
    for method, path, screen in (*SCREENS, *(SERVICE_SCREENS if with_login else ())):
        router.add_api_route(path, _guard(make_source, screen), methods=[method], response_model=None)
    router.add_api_route("/ui/p/{project}/{rest:path}", _guard(make_source, projects.show_missing), methods=["GET"], response_model=None)
    if with_login:
        router.add_api_route("/ui/login", login.show_login, methods=["GET"], response_model=None)
        router.add_api_route("/ui/login", login.log_in, methods=["POST"], response_model=None)
        router.add_api_route("/ui/logout", login.log_out, methods=["POST"], response_model=None)
        router.add_api_route("/ui/shared/{token}", nouns.show_shared_run, methods=["GET"], response_model=None)
        for method, path, screen in NOUN_SCREENS:
            router.add_api_route(path, _guard(make_source, screen), methods=[method], response_model=None)
    return router


def _guard(make_source: MakeSource, screen: Screen) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a screen: without a login, redirect reads to the login page."""

    async def answer(request: Request) -> Response:
        source = make_source(request)
        if source is None:
            if request.method == "GET":
                return redirect(find_login_address(request))
            raise Refusal("UNAUTHORIZED", "log in first")
        # For the header, also of an error page.
        request.state.source = source
        if not source.is_local:
            request.state.projects_to_choose = (await source.list_projects(None))["data"][:_MOST_PROJECTS]
        try:
            return await screen(Visit(request, source))
        except FormRefused as refused:
            return refused.response

    return answer


async def _go_to_pages(request: Request) -> Response:
    return redirect("/ui/")
