"""Agents of a project: matching, latest traces, pass rates, runs; create, edit, delete."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from proctor.pages.form_page import Form, refuse_if_changed, returning_form, show_form
from proctor.pages.inputs import derive_fields, read_inputs, write_record
from proctor.pages.places import Record
from proctor.pages.rendering import redirect
from proctor.pages.visit import Visit, read_if_allowed
from proctor.service.access import agents
from proctor.service.access.agents import AgentChanges, NewAgent
from proctor.service.runs.run import ShownRun
from proctor.service.traces import search
from proctor.service.traces.search import ResultSearch, TraceSearch
from proctor.service.verification.shared.fields import Table

_ROWS = 20
_LATEST = 10
"""Traces, and runs, on the page of an agent."""
_COUNTED = 100
"""Newest results that a pass rate covers; newest runs searched for the agent."""
_ABOUT = {
    "service_name": "the OpenTelemetry service.name that OTLP traces are assigned by",
    "external_ref": "the workflow or chatflow id that traces of n8n and Flowise are assigned by",
    "settings": 'a JSON object, such as {"evidence": {"map": {"text": "$.reply"}, "complete": ["tool_calls"]}}',
    "paused": "new traces are rejected",
}
"""Descriptions besides those of REST."""
_NEW: Table = {
    name: replace(field, about=_ABOUT.get(name, field.about)) for name, field in derive_fields(NewAgent).items() if name != "project_id"
}
_CHANGED: Table = {**_NEW, "paused": replace(derive_fields(AgentChanges, "paused")["paused"], about=_ABOUT["paused"])}


async def show_agents(visit: Visit) -> Response:
    """Show a page of agents, each with its last trace and pass rate."""
    await visit.find_project()
    page = await visit.call(agents.list_agents, project_id=visit.project_id, limit=_ROWS, cursor=visit.cursor)
    rows = [{"agent": agent, **await _summarise_agent(visit, agent, traces=1)} for agent in page["data"]]
    return visit.render("agents.html", page=page, rows=rows, counted=_COUNTED)


async def show_agent(visit: Visit) -> Response:
    """Show one agent."""
    agent = await _find_agent(visit)
    summary = await _summarise_agent(visit, agent, traces=_LATEST)
    return visit.render("agent.html", agent=agent, counted=_COUNTED, runs=await _list_runs(visit, agent), **summary)


async def show_new_agent(visit: Visit) -> Response:
    """Show the form of a new agent."""
    visit.require_writer()
    await visit.find_project()
    return show_form(visit, _make_form(visit), {"kind": "http"})


async def send_new_agent(visit: Visit) -> Response:
    """Create an agent."""
    body = await visit.read_form()
    visit.require_writer()
    await visit.find_project()
    with returning_form(visit, _make_form(visit), body):
        # The service rejects an empty name.
        inputs: dict[str, Any] = {"name": "", **read_inputs(_NEW, body)}
        agent = await visit.call(agents.create_agent, NewAgent(project_id=visit.project_id, **inputs))
    return redirect(visit.find_address("agents", agent["id"]))


async def show_edit_agent(visit: Visit) -> Response:
    """Show the form of an agent."""
    visit.require_writer()
    agent = await _find_agent(visit)
    return show_form(visit, _make_form(visit, agent), write_record(_CHANGED, agent))


async def send_edit_agent(visit: Visit) -> Response:
    """Save an agent."""
    body = await visit.read_form()
    visit.require_writer()
    agent = await _find_agent(visit)
    with returning_form(visit, _make_form(visit, agent), body):
        refuse_if_changed(body, agent)
        changes = read_inputs(_CHANGED, body, before=write_record(_CHANGED, agent))
        # Empty settings are an empty object.
        changes = {name: {} if name == "settings" and value is None else value for name, value in changes.items()}
        if changes:
            await visit.call(agents.update_agent, agent["id"], changes)
    return redirect(visit.find_address("agents", agent["id"]))


async def delete_agent(visit: Visit) -> Response:
    """Delete an agent after confirmation."""
    body = await visit.read_form()
    visit.require_writer()
    agent = await _find_agent(visit)
    if body.get("sure") != "yes":
        return redirect(visit.find_address("agents", agent["id"]) + "#delete")
    await visit.call(agents.delete_agent, agent["id"])
    return redirect(visit.find_address("agents"))


async def _find_agent(visit: Visit) -> Record:
    return await visit.find("agent", agents.get_agent)


async def _summarise_agent(visit: Visit, agent: Record, *, traces: int) -> Record:
    """Return the newest traces of an agent, and the outcomes of its newest results."""
    latest = await visit.call(search.list_traces, TraceSearch(agent_id=agent["id"]), limit=traces)
    results = await visit.call(search.list_results, ResultSearch(agent_id=agent["id"]), limit=_COUNTED)
    return {"traces": latest["data"], "counts": Counter(result["outcome"] for result in results["data"])}


async def _list_runs(visit: Visit, agent: Record) -> list[ShownRun] | None:
    """Return the newest runs with a target of the agent's name; None if the key may not read runs."""
    page = await read_if_allowed(visit.source.list_runs(agent["project_id"], limit=_COUNTED))
    return None if page is None else [run for run in page["data"] if run["target"] == agent["name"]][:_LATEST]


def _make_form(visit: Visit, agent: Record | None = None) -> Form:
    back = visit.find_address("agents", *([] if agent is None else [agent["id"]]))
    return Form(
        title="New agent" if agent is None else "Edit agent",
        action=f"{back}/new" if agent is None else f"{back}/edit",
        button="Save agent",
        back=back,
        fields=_NEW if agent is None else _CHANGED,
        record=agent,
        crumbs=[*visit.list_crumbs("agents", "Agents"), *([] if agent is None else [(back, agent["name"])])],
    )
