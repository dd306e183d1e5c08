"""Agents: senders of traces, how traces are assigned to them, and how their bodies are read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Literal, TypedDict, Unpack

import msgspec
import sqlalchemy as sa

from proctor.errors import InputError
from proctor.formats.native.declared_evidence import build_declared
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_writer, select_visible
from proctor.service.access.projects import empty_place
from proctor.service.access.transactions import Transaction, read_visible, writing
from proctor.service.caches import Agent as KnownAgent
from proctor.service.caches import Reading, make_agent
from proctor.service.field_checks import check_settings
from proctor.service.hub import Hub
from proctor.service.paging import read_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import Page, Paging, about, operation, show_row
from proctor.store.accounts.tenants import query_owned
from proctor.store.runs.retention import delete_agents_of, delete_some_of
from proctor.store.sql.pages import Row, fetch_all
from proctor.store.sql.tables import agents, projects

AgentKind = Literal["http", "n8n", "flowise", "otlp", "custom"]
Name = Annotated[str, about(min_length=1, max_length=200)]
Reference = Annotated[str | None, about(min_length=1, max_length=200)]


class Agent(TypedDict):
    """An agent that sends traces."""

    id: str
    project_id: str
    name: str
    kind: str
    service_name: Annotated[str | None, about("the `service.name` that OTLP traces are assigned by")]
    external_ref: Annotated[str | None, about("the workflow id of n8n or chatflow id of Flowise that traces are assigned by")]
    paused: Annotated[bool, about("its traces are rejected")]
    settings: dict[str, Json]
    created_at: str
    updated_at: str


class NewAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A new agent."""

    project_id: str
    name: Name
    kind: Annotated[AgentKind, about("how the bodies of its traces are read")] = "http"
    service_name: Reference = None
    external_ref: Reference = None
    settings: dict[str, Json] = {}


class AgentChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changed fields; omitted fields stay unchanged."""

    name: Name = ""
    kind: AgentKind = "http"
    service_name: Reference = None
    external_ref: Reference = None
    paused: bool = False
    settings: dict[str, Json] = {}


@operation("agents", "POST /api/agents", status=201, doing="creating agents")
async def create_agent(hub: Hub, caller: Caller, spec: NewAgent) -> Agent:
    """Create an agent; requires an organization key."""
    values: dict[str, Json] = msgspec.structs.asdict(spec)
    _check(values)
    async with writing(hub, caller) as tx:
        await tx.check_place(spec.project_id)
        await _check_unique(tx, spec.project_id, None, values)
        row = await tx.insert_row(agents, "agent", "agent", values, {"name": spec.name})
    hub.agent_cache.forget(caller.organization_id)
    return _show_agent(row)


@operation("agents", "GET /api/agents")
async def list_agents(hub: Hub, caller: Caller, *, project_id: str | None = None, **paging: Unpack[Paging]) -> Page[Agent]:
    """List agents, newest first."""
    return await read_page(hub, select_visible(agents, caller, project_id=project_id), agents, _show_agent, **paging)


@operation("agents", "GET /api/agents/{agent_id}")
async def get_agent(hub: Hub, caller: Caller, id: str) -> Agent:
    """Read an agent."""
    return _show_agent(await read_visible(hub, caller, agents, "agent", id))


@operation("agents", "PATCH /api/agents/{agent_id}")
async def update_agent(hub: Hub, caller: Caller, id: str, changes: Annotated[Mapping[str, Json], AgentChanges]) -> Agent:
    """Change an agent; requires an organization key."""
    return await _change_agent(hub, caller, id, changes, "update")


@operation("agents", "POST /api/agents/{agent_id}/pause")
async def pause_agent(hub: Hub, caller: Caller, id: str) -> Agent:
    """Reject traces of the agent until it is resumed; requires an organization key."""
    return await _change_agent(hub, caller, id, {"paused": True}, "pause")


@operation("agents", "POST /api/agents/{agent_id}/resume")
async def resume_agent(hub: Hub, caller: Caller, id: str) -> Agent:
    """Accept traces of the agent again; requires an organization key."""
    return await _change_agent(hub, caller, id, {"paused": False}, "resume")


async def _change_agent(hub: Hub, caller: Caller, id: str, changes: Mapping[str, Json], action: str) -> Agent:
    require_writer(caller, "changing agents")
    values = {name: value for name, value in changes.items() if name in AgentChanges.__struct_fields__}
    _check(values)
    async with writing(hub, caller) as tx:
        # Before the project: deleting a project locks its agents first, and the order prevents a deadlock.
        old = await tx.require_row(agents, "agent", id, locked=True)
        await _check_unique(tx, old["project_id"], id, values)
        row = await tx.change_row(agents, "agent", id, values, action)
    # After the commit: a read before it would cache the old agents.
    hub.agent_cache.forget(caller.organization_id)
    return _show_agent(row)


@operation("agents", "DELETE /api/agents/{agent_id}", doing="deleting agents")
async def delete_agent(hub: Hub, caller: Caller, id: str) -> None:
    """Delete an agent with its cases, traces, results and alerts; requires an organization key."""
    await empty_place(
        hub, caller, agents, "agent", id, lambda connection: delete_some_of(connection, "trace", caller.organization_id, agent_id=id)
    )
    async with writing(hub, caller) as tx:
        if not await delete_agents_of(tx.connection, caller.organization_id, agent_id=id):
            raise not_found("agent", id)
        await tx.note("delete", "agent", id)
    hub.agent_cache.forget(caller.organization_id)


def _check(values: Mapping[str, Json]) -> None:
    check_settings(values.get("settings"))
    declaration = (values.get("settings") or {}).get("evidence")
    try:
        if declaration is not None:
            build_declared(declaration if isinstance(declaration, dict) else {"map": declaration}, source="")
    except InputError as error:
        reasons = [f"{problem.origin.path.replace('$', 'evidence', 1)}: {problem.message}" for problem in error.problems] or [str(error)]
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"settings": reasons}) from None


async def _check_unique(tx: Transaction, project_id: str, id: str | None, values: Mapping[str, Json]) -> None:
    """Reject a value of another agent of the project: traces are assigned by it."""
    unique = {field: values[field] for field in ("service_name", "external_ref") if values.get(field) is not None}
    # Locked: of two concurrent requests with the same name the second finds the agent of the first.
    if unique:
        await tx.require_row(projects, "project", project_id, locked=True)
    for field, value in unique.items():
        query = query_owned(agents, tx.owner, project_id=project_id, **{field: value}).with_only_columns(agents.c.id)
        if id is not None:
            query = query.where(agents.c.id != id)
        other = (await tx.connection.execute(query.limit(1))).scalar_one_or_none()
        if other is not None:
            raise Refusal("CONFLICT", f"agent {other!r} of this project already has this {field}", fields={field: ["taken"]})


def _show_agent(row: Row) -> Agent:
    return show_row(Agent, row, settings=row["settings"] or {})


# --- finds agents in the cache, and unknown ones in the database
#
# The cache is invalidated by changes in this process; an unknown agent is queried again, since another server may have created it. Storing
# a trace checks that its agent still exists.

_REMEMBERED_S = 2.0
"""Seconds that a read is valid; changes by other servers are noticed after that."""


async def find_agent(hub: Hub, organization_id: str, agent_id: str) -> KnownAgent | None:
    """Return an agent by its id from the cache, or from the database if it is unknown."""
    agent = (await load_agents(hub, organization_id)).get(agent_id)
    return agent or (await reload_agents(hub, organization_id)).get(agent_id)


async def load_agents(hub: Hub, organization_id: str) -> dict[str, KnownAgent]:
    """Return the agents of an organization, at most a moment old."""
    last = hub.agent_cache.get(organization_id)
    # Also if the clock has gone back.
    if last is not None and 0 <= hub.clock() - last.at < _REMEMBERED_S:
        return last.agents
    return (await _read_agents(hub, organization_id)).agents


async def reload_agents(hub: Hub, organization_id: str, *, since: int | None = None, pause_s: float = 0.0) -> dict[str, KnownAgent]:
    """Return the agents of an organization from a read that started after `since` (see `AgentCache.begun`), by default after now.

    Reads are at least `pause_s` apart and shared by all waiting requests, so that many unknown names cost few queries.
    """
    cache = hub.agent_cache
    since = cache.begun if since is None else since
    async with cache.turns.get(organization_id):
        last = cache.get(organization_id)
        if last is not None and last.number > since:
            return last.agents
        if last is not None and 0 <= (age_s := hub.clock() - last.at) < pause_s:
            await asyncio.sleep(pause_s - age_s)
        return (await _read_agents(hub, organization_id)).agents


async def _read_agents(hub: Hub, organization_id: str) -> Reading:
    cache = hub.agent_cache
    cache.begun += 1
    number, changes, at = cache.begun, cache.changes, hub.clock()
    query = (
        sa.select(agents, projects.c.paused.label("project_paused"))
        .join(projects, projects.c.id == agents.c.project_id)
        .where(agents.c.organization_id == organization_id)
    )
    async with hub.database.reading() as connection:
        rows = await fetch_all(connection, query)
    reading = Reading(number, at, {row["id"]: make_agent(row, project_paused=row["project_paused"]) for row in rows})
    cache.put(organization_id, reading, changes)
    return reading
