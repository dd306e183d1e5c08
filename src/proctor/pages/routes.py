"""The addresses of the pages, and the screen behind each.

/ui/                                     projects
/ui/p/{project}                          one project: its trend, its alerts, its latest runs
/ui/p/{project}/runs                     its runs
/ui/p/{project}/runs/new                 a run to be started, with a dry run first
/ui/p/{project}/runs/{run}               one run, live while it goes on
/ui/p/{project}/runs/{run}/rows          some rows of its list of attempts, for the window over a long one
/ui/p/{project}/runs/{run}/cancel        ends it (a form)
/ui/p/{project}/runs/{run}/r/{result}    one attempt; `#a3` its third assertion, `#s5` the fifth step of its timeline
/ui/p/{project}/runs/{run}/r/{result}?with=ID   beside other attempts of its case
/ui/p/{project}/runs/{run}/r/{result}/json
/ui/p/{project}/runs/{run}/r/{result}/text?at=$.text   a text of its evidence, as it is
/ui/p/{project}/compare?runs=A,B,C       runs side by side, the oldest as the base
/ui/p/{project}/compare/answers?runs=A,B&case=ID   what was answered to one case in them
/ui/p/{project}/cases                    its cases; `/new` and `/{case}/edit` the editor
/ui/p/{project}/cases/{case}             one case: its document, versions, and history; `?from=1&to=2` what changed
/ui/p/{project}/cases/check              the problems of a document, for the editor (JSON)
/ui/p/{project}/agents                   its agents; one of them under its id
/ui/p/{project}/traces                   what agents did, as it comes in; filters stand in the address
/ui/p/{project}/traces/reevaluate        traces to be evaluated again (a form)
/ui/p/{project}/traces/{trace}           one trace as a tree of spans; `?span=ID` one of them in full
/ui/p/{project}/traces/{trace}/label     keeps what somebody says about it (a form)
/ui/p/{project}/labels                   answers that wait for a person, and how far the judge agrees with the labels there are
/ui/p/{project}/labels/all               everything that people said
/ui/p/{project}/labels/{label}           one label with what was judged; `/change` and `/delete` its forms
/ui/p/{project}/labels/export            the labels as the file that a judge is calibrated on
/ui/login, /ui/logout                    the way in and out
/ui/shared/{token}                       a benchmark run by a link to it, for anybody

Those that exist over the service only are in `service_screens.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.error_page import find_login_address
from proctor.pages.ports import MakeSource, Source
from proctor.pages.rendering import redirect
from proctor.pages.screens import (
    agents,
    case_edit,
    cases,
    compare,
    label,
    labels,
    login,
    projects,
    reevaluation,
    result,
    run,
    run_new,
    runs,
    shared_run,
    trace,
    traces,
)
from proctor.pages.service_screens import NOUN_SCREENS, SERVICE_SCREENS
from proctor.pages.static_files import serve_static_file
from proctor.service.refusals import Refusal

Screen = Callable[[Request, Source], Awaitable[Response]]
# The first address that fits is taken: those with a word (`new`, `check`) stand before those with a name in the same place.
SCREENS: tuple[tuple[str, str, Screen], ...] = (
    ("GET", "/ui/", projects.show_projects),
    ("GET", "/ui/p/{project}", projects.show_project),
    ("GET", "/ui/p/{project}/runs", runs.show_runs),
    ("GET", "/ui/p/{project}/runs/new", run_new.show_new_run),
    ("POST", "/ui/p/{project}/runs/new", run_new.send_new_run),
    ("GET", "/ui/p/{project}/runs/{run}", run.show_run),
    ("GET", "/ui/p/{project}/runs/{run}/rows", run.show_rows),
    ("POST", "/ui/p/{project}/runs/{run}/cancel", run.cancel_run),
    ("GET", "/ui/p/{project}/runs/{run}/r/{result}", result.show_result),
    ("GET", "/ui/p/{project}/runs/{run}/r/{result}/json", result.show_json),
    ("GET", "/ui/p/{project}/runs/{run}/r/{result}/text", result.show_text),
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
    ("GET", "/ui/p/{project}/traces/reevaluate", reevaluation.show_reevaluation),
    ("POST", "/ui/p/{project}/traces/reevaluate", reevaluation.send_reevaluation),
    ("GET", "/ui/p/{project}/traces/{trace}", trace.show_trace),
    ("POST", "/ui/p/{project}/traces/{trace}/label", trace.label_trace),
    ("GET", "/ui/p/{project}/labels", labels.show_labels),
    ("POST", "/ui/p/{project}/labels", labels.save_label),
    ("GET", "/ui/p/{project}/labels/export", labels.export_labels),
    ("GET", "/ui/p/{project}/labels/all", label.show_all_labels),
    ("GET", "/ui/p/{project}/labels/{label}", label.show_label),
    ("GET", "/ui/p/{project}/labels/{label}/change", label.show_change),
    ("POST", "/ui/p/{project}/labels/{label}/change", label.change_label),
    ("GET", "/ui/p/{project}/labels/{label}/delete", label.ask_delete),
    ("POST", "/ui/p/{project}/labels/{label}/delete", label.delete_label),
)
"""Every screen that needs to know who looks at it."""


def make_router(make_source: MakeSource, *, with_login: bool = True) -> APIRouter:
    """Return the pages over a source."""
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/static/{name}", serve_static_file, methods=["GET"], response_model=None)
    for path in ("/", "/ui"):
        router.add_api_route(path, _go_to_pages, methods=["GET"], response_model=None)
    for method, path, screen in (*SCREENS, *(SERVICE_SCREENS if with_login else ())):
        router.add_api_route(path, _guard(make_source, screen), methods=[method], response_model=None)
    if with_login:
        router.add_api_route("/ui/login", login.show_login, methods=["GET"], response_model=None)
        router.add_api_route("/ui/login", login.log_in, methods=["POST"], response_model=None)
        router.add_api_route("/ui/logout", login.log_out, methods=["POST"], response_model=None)
        router.add_api_route("/ui/shared/{token}", shared_run.show_shared_run, methods=["GET"], response_model=None)
        for method, path, screen in NOUN_SCREENS:
            router.add_api_route(path, _guard(make_source, screen), methods=[method], response_model=None)
    return router


def _guard(make_source: MakeSource, screen: Screen) -> Callable[[Request], Awaitable[Response]]:
    """Return the screen for who is known; others are shown the way in."""

    async def answer(request: Request) -> Response:
        source = make_source(request)
        if source is not None:
            return await screen(request, source)
        if request.method == "GET":
            return redirect(find_login_address(request))
        raise Refusal("UNAUTHORIZED", "log in first")

    return answer


async def _go_to_pages(request: Request) -> Response:
    return redirect("/ui/")
