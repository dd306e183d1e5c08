"""Traces to be evaluated again, against the cases as they are now: which ones, and afterwards how many."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.model.json_values import read_digits
from proctor.pages.desk import Desk, open_desk
from proctor.pages.forms import read_form
from proctor.pages.ports import Page, Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.screens.cases import list_project_agents
from proctor.pages.words import find_project_address
from proctor.service.refusals import Refusal
from proctor.service.traces.cases import list_cases
from proctor.service.traces.reevaluation import MOST_TRACES, ReevaluationRequest, request_reevaluation

_MOST_CASES = 100
_NAMES = ("agent", "case", "since", "until", "trace_ids")
_LONGEST = 200
"""Characters of an address that a field is filled with."""


async def show_reevaluation(request: Request, source: Source) -> Response:
    """Show the form, filled with what the address names; or how many traces were asked for."""
    desk = open_desk(request, source, to_write=True)
    project = await source.get_project(request.path_params["project"])
    form = {name: request.query_params.get(name, "")[:_LONGEST] for name in _NAMES}
    return await _show_form(request, source, desk, project, form, done=read_digits(request.query_params.get("done"), 11))


async def send_reevaluation(request: Request, source: Source) -> Response:
    """Have the traces evaluated again, and say how many they are."""
    form: Record = dict(await read_form(request, proven=False))
    desk = open_desk(request, source, to_write=True)
    project = await source.get_project(request.path_params["project"])
    if not request.state.form_proven:
        return await _show_form(request, source, desk, project, form, lost="proof", status=403)
    try:
        asked = await request_reevaluation(desk.hub, desk.caller, _read_request(project["id"], form))
    except Refusal as refusal:
        return await _show_form(request, source, desk, project, form, refusal=refusal, status=refusal.status)
    return redirect(f"{find_project_address(project['id'], 'traces', 'reevaluate')}?done={asked['traces']}")


def _read_request(project_id: str, form: Record) -> ReevaluationRequest:
    ids = tuple(dict.fromkeys(form.get("trace_ids", "").split()))
    return ReevaluationRequest(
        project_id=project_id,
        agent_id=form.get("agent") or None,
        case_id=form.get("case") or None,
        trace_ids=ids or None,
        since=form.get("since", "").strip() or None,
        until=form.get("until", "").strip() or None,
    )


async def _show_form(
    request: Request, source: Source, desk: Desk, project: Record, form: Record, *, status: int = 200, **more: Any
) -> Response:
    cases: Page = await list_cases(desk.hub, desk.caller, project_id=project["id"], limit=_MOST_CASES)
    values = {
        "project": project,
        "source": source,
        "form": form,
        "agents": [(one["id"], one["name"]) for one in await list_project_agents(desk, project["id"])],
        "cases": [(one["id"], one["name"]) for one in cases["data"]],
        "most": MOST_TRACES,
        "done": None,
        "lost": None,
        "refusal": None,
        **more,
    }
    return render_page(request, "reevaluation.html", values, status=status)
