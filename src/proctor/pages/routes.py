"""The routes of the pages.

Static words (`new`, `check`) come before path parameters at the same position. `proctor view` has only `SCREENS`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

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
from proctor.pages.visit import Source, Visit
from proctor.service.refusals import Refusal

_MOST_PROJECTS = 20
"""Newest projects in the header."""
Screen = Callable[[Visit], Awaitable[Response]]
MakeSource = Callable[[Request], "Source | None"]
"""Returns the source for a request; None without a login."""


def _list_screens(*rows: tuple[str, Screen | None] | tuple[str, Screen | None, Screen]) -> tuple[tuple[str, str, Screen], ...]:
    """Return method, path and screen of each route from rows of a path and its screens for GET and POST."""
    return tuple(
        (method, path, screen) for path, *screens in rows for method, screen in zip(("GET", "POST"), screens, strict=False) if screen
    )


SERVICE_SCREENS = _list_screens(
    ("/ui/p/{project}/alerts", alerts.show_alerts),
    ("/ui/p/{project}/alerts/new", alerts.show_new_alert, alerts.create_alert),
    ("/ui/p/{project}/alerts/{alert}", alerts.show_alert),
    ("/ui/p/{project}/alerts/{alert}/change", alerts.show_change, alerts.change_alert),
    ("/ui/p/{project}/alerts/{alert}/switch", None, alerts.switch_alert),
    ("/ui/p/{project}/alerts/{alert}/test", None, alerts.test_alert),
    ("/ui/p/{project}/alerts/{alert}/delete", alerts.ask_delete, alerts.delete_alert),
    ("/ui/p/{project}/schedules", schedules.show_schedules),
    ("/ui/p/{project}/schedules/new", schedules.show_edit, schedules.save_schedule),
    ("/ui/p/{project}/schedules/{schedule}", schedules.show_schedule),
    ("/ui/p/{project}/schedules/{schedule}/change", schedules.show_edit, schedules.save_schedule),
    ("/ui/p/{project}/schedules/{schedule}/delete", schedules.ask_delete),
    ("/ui/p/{project}/schedules/{schedule}/{action}", None, schedules.act),
    ("/ui/p/{project}/proposals", proposals.show_proposals, proposals.generate),
    ("/ui/p/{project}/proposals/{proposal}", proposals.show_proposal),
    ("/ui/p/{project}/proposals/{proposal}/edit", case_edit.show_edit_proposal, case_edit.send_edit_proposal),
    ("/ui/p/{project}/proposals/{proposal}/delete", proposals.ask_delete),
    ("/ui/p/{project}/proposals/{proposal}/{action}", None, proposals.act),
    ("/ui/p/{project}/settings", project_settings.show_settings),
    ("/ui/p/{project}/settings/change", project_settings.show_change, project_settings.change_project),
    ("/ui/p/{project}/retention", project_settings.show_retention, project_settings.send_retention),
    ("/ui/p/{project}/pause", None, project_settings.pause_project),
    ("/ui/p/{project}/delete", project_settings.ask_delete, project_settings.delete_project),
    ("/ui/p/{project}/secrets", project_settings.show_secret, project_settings.keep_secret),
    ("/ui/p/{project}/secrets/delete", project_settings.ask_delete_secret, project_settings.delete_secret),
    ("/ui/projects/new", project_settings.show_new_project, project_settings.create_project),
    ("/ui/keys", keys.show_keys),
    ("/ui/keys/new", keys.show_new_key, keys.create_key),
    ("/ui/keys/{key}/revoke", keys.ask_revoke, keys.revoke_key),
    ("/ui/leaderboard/{slug}", nouns.show_leaderboard),
    ("/ui/audit", service.show_audit),
    ("/ui/health", service.show_health),
    ("/ui/search", service.show_search),
)
NOUN_SCREENS = _list_screens(
    ("/ui/{noun}", nouns.show, noun_forms.act),
    ("/ui/{noun}/{rest:path}", nouns.show, noun_forms.act),
)
"""Last: they match any address."""
SCREENS = _list_screens(
    ("/ui/", projects.show_projects),
    ("/ui/p/{project}", projects.show_project),
    ("/ui/p/{project}/example", None, projects.load_example),
    ("/ui/p/{project}/runs", run.show_runs),
    ("/ui/p/{project}/runs/new", run.show_new_run, run.send_new_run),
    ("/ui/p/{project}/runs/{run}", run.show_run),
    ("/ui/p/{project}/runs/{run}/rows", run.show_rows),
    ("/ui/p/{project}/runs/{run}/mutation", run.show_mutation),
    ("/ui/p/{project}/runs/{run}/cancel", None, run.cancel_run),
    ("/ui/p/{project}/runs/{run}/r/{result}", result.show_result),
    ("/ui/p/{project}/runs/{run}/r/{result}/json", result.show_json),
    ("/ui/p/{project}/runs/{run}/r/{result}/text", result.show_text),
    ("/ui/p/{project}/examinations", examinations.show_examinations),
    ("/ui/p/{project}/examinations/new", examinations.show_new_examination, examinations.send_new_examination),
    ("/ui/p/{project}/examinations/{run}", examinations.show_examination),
    ("/ui/p/{project}/history", result.show_history),
    ("/ui/p/{project}/compare", compare.show_comparison),
    ("/ui/p/{project}/compare/answers", compare.show_answers),
    ("/ui/p/{project}/cases", cases.show_cases),
    ("/ui/p/{project}/cases/new", case_edit.show_new_case, case_edit.send_new_case),
    ("/ui/p/{project}/cases/check", None, case_edit.check_document),
    ("/ui/p/{project}/cases/{case}", cases.show_case),
    ("/ui/p/{project}/cases/{case}/edit", case_edit.show_edit_case, case_edit.send_edit_case),
    ("/ui/p/{project}/cases/{case}/active", None, cases.switch_case),
    ("/ui/p/{project}/cases/{case}/backtest", None, cases.start_backtest),
    ("/ui/p/{project}/cases/{case}/delete", None, cases.delete_case),
    ("/ui/p/{project}/agents", agents.show_agents),
    ("/ui/p/{project}/agents/new", agents.show_new_agent, agents.send_new_agent),
    ("/ui/p/{project}/agents/{agent}", agents.show_agent),
    ("/ui/p/{project}/agents/{agent}/edit", agents.show_edit_agent, agents.send_edit_agent),
    ("/ui/p/{project}/agents/{agent}/delete", None, agents.delete_agent),
    ("/ui/p/{project}/traces", traces.show_traces),
    ("/ui/p/{project}/traces/reevaluate", traces.show_reevaluation, traces.send_reevaluation),
    ("/ui/p/{project}/traces/{trace}", trace.show_trace),
    ("/ui/p/{project}/traces/{trace}/label", None, trace.label_trace),
    ("/ui/p/{project}/labels", labels.show_labels, labels.save_label),
    ("/ui/p/{project}/labels/export", labels.export_labels),
    ("/ui/p/{project}/labels/all", labels.show_all_labels),
    ("/ui/p/{project}/labels/{label}", labels.show_label),
    ("/ui/p/{project}/labels/{label}/change", labels.show_change, labels.change_label),
    ("/ui/p/{project}/labels/{label}/undo", None, labels.undo_label),
    ("/ui/p/{project}/labels/{label}/delete", labels.ask_delete, labels.delete_label),
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
