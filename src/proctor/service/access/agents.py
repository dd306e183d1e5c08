"""Agents: senders of traces, how traces are assigned to them, and how their bodies are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypedDict

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import InputError
from proctor.formats.native.declared_evidence import build_declared
from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.access.known_agents import forget_agents
from proctor.service.access.permissions import check_place, find_visible, require_reader, require_writer, select_visible
from proctor.service.access.projects import change_place, empty_place
from proctor.service.field_checks import check_fields, refuse_emptying
from proctor.service.hub import Hub, new_id
from proctor.service.paging import read_page, require_row
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import Page, about, operation, show_row
from proctor.store.accounts.tenants import insert_row, query_owned
from proctor.store.runs.retention import delete_agents_of, delete_traces_of
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import agents, projects

AgentKind = Literal["http", "n8n", "flowise", "otlp", "custom"]
_NAMES = ("name", "service_name", "external_ref")
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


@operation("agents", "POST /api/agents", status=201)
async def create_agent(hub: Hub, caller: Caller, spec: NewAgent) -> Agent:
    """Create an agent; requires an organization key."""
    require_writer(caller, "creating agents")
    values: dict[str, Json] = msgspec.structs.asdict(spec)
    project_id = values.pop("project_id")
    check_fields(values, names=_NAMES)
    _check_evidence(values)
    async with hub.database.writing() as connection:
        await check_place(connection, caller, project_id)
        await _check_unique(connection, caller, project_id, None, values)
        row = await add_agent(connection, hub, caller, project_id, values)
    forget_agents(hub, caller.organization_id)
    return _show_agent(row)


async def add_agent(connection: AsyncConnection, hub: Hub, caller: Caller, project_id: str, values: Mapping[str, Json]) -> Row:
    """Insert an agent and audit it. The caller has checked its values."""
    ids = {"id": new_id("agent"), "organization_id": caller.organization_id, "project_id": project_id}
    row = await insert_row(connection, agents, {**ids, **values, "created_at": hub.now(), "updated_at": hub.now()})
    await note(connection, hub, caller, "create", "agent", row["id"], {"name": values["name"]})
    return row


@operation("agents", "GET /api/agents")
async def list_agents(
    hub: Hub, caller: Caller, *, project_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Page[Agent]:
    """List agents, newest first."""
    require_reader(caller)
    return await read_page(hub, select_visible(agents, caller, project_id=project_id), agents, _show_agent, limit=limit, cursor=cursor)


@operation("agents", "GET /api/agents/{agent_id}")
async def get_agent(hub: Hub, caller: Caller, id: str) -> Agent:
    """Read an agent."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        return _show_agent(await find_visible(connection, agents, caller, "agent", id))


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
    refuse_emptying(values, "name", "kind", "paused")
    check_fields(values, names=_NAMES)
    _check_evidence(values)
    async with hub.database.writing() as connection:
        # Before the project: deleting a project locks its agents first, and the order prevents a deadlock.
        old = await require_row(connection, agents, caller.organization_id, "agent", id, locked=True)
        await _check_unique(connection, caller, old["project_id"], id, values)
        row = await change_place(connection, hub, caller, agents, "agent", id, values, action)
    # After the commit: a read before it would cache the old agents.
    forget_agents(hub, caller.organization_id)
    return _show_agent(row)


@operation("agents", "DELETE /api/agents/{agent_id}")
async def delete_agent(hub: Hub, caller: Caller, id: str) -> None:
    """Delete an agent with its cases, traces, results and alerts; requires an organization key."""
    require_writer(caller, "deleting agents")
    await empty_place(
        hub, caller, agents, "agent", id, lambda connection: delete_traces_of(connection, caller.organization_id, agent_id=id)
    )
    async with hub.database.writing() as connection:
        if not await delete_agents_of(connection, caller.organization_id, agent_id=id):
            raise not_found("agent", id)
        await note(connection, hub, caller, "delete", "agent", id)
    forget_agents(hub, caller.organization_id)


def _check_evidence(values: Mapping[str, Json]) -> None:
    """Reject settings with an invalid `evidence`."""
    declaration = (values.get("settings") or {}).get("evidence")
    try:
        if declaration is not None:
            build_declared(declaration if isinstance(declaration, dict) else {"map": declaration}, source="")
    except InputError as error:
        reasons = [f"{problem.origin.path.replace('$', 'evidence', 1)}: {problem.message}" for problem in error.problems] or [str(error)]
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"settings": reasons}) from None


async def _check_unique(connection: AsyncConnection, caller: Caller, project_id: str, id: str | None, values: Mapping[str, Json]) -> None:
    """Reject a value of another agent of the project: traces are assigned by it."""
    unique = {field: values[field] for field in ("service_name", "external_ref") if values.get(field) is not None}
    # Locked: of two concurrent requests with the same name the second finds the agent of the first.
    if unique:
        await require_row(connection, projects, caller.organization_id, "project", project_id, locked=True)
    for field, value in unique.items():
        query = query_owned(agents, caller.organization_id, project_id=project_id, **{field: value}).with_only_columns(agents.c.id)
        if id is not None:
            query = query.where(agents.c.id != id)
        other = (await connection.execute(query.limit(1))).scalar_one_or_none()
        if other is not None:
            raise Refusal("CONFLICT", f"agent {other!r} of this project already has this {field}", fields={field: ["taken"]})


def _show_agent(row: Row) -> Agent:
    return show_row(Agent, row, settings=row["settings"] or {})
