"""Agents of a project: matching, latest traces, pass rates, runs; create, edit, delete."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.desk import Desk, find_in_project, find_project, open_desk, read_if_allowed
from proctor.pages.forms import read_form
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.screens.case_edit import read_object
from proctor.pages.words import find_project_address
from proctor.service.access import agents
from proctor.service.access.agents import AgentKind, NewAgent
from proctor.service.refusals import Refusal
from proctor.service.runs.run import ShownRun
from proctor.service.traces import search
from proctor.service.traces.search import ResultSearch, TraceSearch

_ROWS = 20
_LATEST = 10
"""Traces, and runs, on the page of an agent."""
_COUNTED = 100
"""Newest results that a pass rate covers; newest runs searched for the agent."""
KINDS: tuple[str, ...] = get_args(AgentKind)


async def show_agents(request: Request, source: Source) -> Response:
    """Show a page of agents, each with its last trace and pass rate."""
    desk = open_desk(request, source)
    project = await find_project(request, source)
    page = await agents.list_agents(desk.hub, desk.caller, project_id=project["id"], limit=_ROWS, cursor=request.query_params.get("cursor"))
    rows = [{"agent": agent, **await _summarise_agent(desk, agent, traces=1)} for agent in page["data"]]
    return render_page(request, "agents.html", {"page": page, "rows": rows, "counted": _COUNTED})


async def show_agent(request: Request, source: Source) -> Response:
    """Show one agent."""
    desk, _, agent = await _find_agent(request, source)
    values = {
        "agent": agent,
        "counted": _COUNTED,
        "runs": await _list_runs(source, agent),
        **await _summarise_agent(desk, agent, traces=_LATEST),
    }
    return render_page(request, "agent.html", values)


async def show_new_agent(request: Request, source: Source) -> Response:
    """Show the form of a new agent."""
    open_desk(request, source, to_write=True)
    await find_project(request, source)
    return _show_form(request, None, {"kind": "http"})


async def send_new_agent(request: Request, source: Source) -> Response:
    """Create an agent."""
    form: Record = dict(await read_form(request, proven=False))
    desk = open_desk(request, source, to_write=True)
    project = await find_project(request, source)
    if not request.state.form_proven:
        return _show_form(request, None, form, lost="proof", status=403)
    try:
        agent = await agents.create_agent(desk.hub, desk.caller, NewAgent(project_id=project["id"], **_read_agent(form)))
    except Refusal as refusal:
        return _show_form(request, None, form, refusal=refusal, status=refusal.status)
    return redirect(_find_address(project["id"], agent["id"]))


async def show_edit_agent(request: Request, source: Source) -> Response:
    """Show the form of an agent."""
    _, _, agent = await _find_agent(request, source, to_write=True)
    return _show_form(request, agent, _write_form(agent))


async def send_edit_agent(request: Request, source: Source) -> Response:
    """Save an agent."""
    form: Record = dict(await read_form(request, proven=False))
    desk, project, agent = await _find_agent(request, source, to_write=True)
    if not request.state.form_proven:
        return _show_form(request, agent, form, lost="proof", status=403)
    try:
        changes = {**_read_agent(form), "paused": form.get("paused") == "yes"}
        await agents.update_agent(desk.hub, desk.caller, agent["id"], changes)
    except Refusal as refusal:
        return _show_form(request, agent, form, refusal=refusal, status=refusal.status)
    return redirect(_find_address(project["id"], agent["id"]))


async def delete_agent(request: Request, source: Source) -> Response:
    """Delete an agent after confirmation."""
    form = await read_form(request)
    desk, project, agent = await _find_agent(request, source, to_write=True)
    if form.get("sure") != "yes":
        return redirect(_find_address(project["id"], agent["id"]) + "#delete")
    await agents.delete_agent(desk.hub, desk.caller, agent["id"])
    return redirect(find_project_address(project["id"], "agents"))


async def _find_agent(request: Request, source: Source, *, to_write: bool = False) -> tuple[Desk, Record, Record]:
    return open_desk(request, source, to_write=to_write), *await find_in_project(request, source, "agent", agents.get_agent)


async def _summarise_agent(desk: Desk, agent: Record, *, traces: int) -> Record:
    """Return the newest traces of an agent, and the outcomes of its newest results."""
    latest = await search.list_traces(desk.hub, desk.caller, TraceSearch(agent_id=agent["id"]), limit=traces)
    results = await search.list_results(desk.hub, desk.caller, ResultSearch(agent_id=agent["id"]), limit=_COUNTED)
    counts: dict[str, int] = {}
    for result in results["data"]:
        counts[result["outcome"]] = counts.get(result["outcome"], 0) + 1
    return {"traces": latest["data"], "counts": counts}


async def _list_runs(source: Source, agent: Record) -> list[ShownRun] | None:
    """Return the newest runs with a target of the agent's name; None if the key may not read runs."""
    page = await read_if_allowed(source.list_runs(agent["project_id"], limit=_COUNTED))
    return None if page is None else [run for run in page["data"] if run["target"] == agent["name"]][:_LATEST]


def _find_address(project_id: str, agent_id: str) -> str:
    return find_project_address(project_id, "agents", agent_id)


def _read_agent(form: Record) -> Record:
    kind = form.get("kind", "")
    if kind not in KINDS:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={"kind": [f"expected one of {', '.join(KINDS)}"]})
    settings = form.get("settings", "").strip()
    return {
        # The service rejects an empty name.
        "name": form.get("name", "").strip(),
        "kind": kind,
        "service_name": form.get("service_name", "").strip() or None,
        "external_ref": form.get("external_ref", "").strip() or None,
        "settings": read_object(settings, "settings") if settings else {},
    }


def _write_form(agent: Record) -> Record:
    settings = msgspec.json.format(msgspec.json.encode(agent["settings"]), indent=2).decode() if agent["settings"] else ""
    return {
        **{name: agent[name] or "" for name in ("name", "kind", "service_name", "external_ref")},
        "paused": "yes" if agent["paused"] else "",
        "settings": settings,
    }


def _show_form(request: Request, agent: Record | None, form: Record, *, status: int = 200, **more: Any) -> Response:
    values = {"agent": agent, "form": form, "kinds": KINDS, "lost": None, "refusal": None, **more}
    return render_page(request, "agent_edit.html", values, status=status)
