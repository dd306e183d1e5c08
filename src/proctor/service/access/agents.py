"""Agents: senders of traces, how traces are assigned to them, and how their bodies are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import InputError
from proctor.formats.native.declared_evidence import build_declared
from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.access.known_agents import forget_agents
from proctor.service.access.permissions import check_place, find_seen, list_seen, require_reader, require_writer
from proctor.service.access.projects import change_place, empty_place, show_place
from proctor.service.field_checks import check_fields, refuse_emptying
from proctor.service.hub import Hub, new_id
from proctor.service.paging import fetch_page_or_refuse, require_row, show_page
from proctor.service.refusals import Refusal, not_found
from proctor.store.accounts.tenants import insert_row, query_owned
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import agents, projects
from proctor.store.upkeep.retention import delete_agents_of, delete_traces_of

AgentKind = Literal["http", "n8n", "flowise", "otlp", "custom"]
_CHANGEABLE = ("name", "kind", "service_name", "external_ref", "paused", "settings")
_NAMES = ("name", "service_name", "external_ref")
_SHOWN = ("id", "project_id", "name", "kind", "service_name", "external_ref", "paused", "settings", "created_at", "updated_at")


async def create_agent(
    hub: Hub,
    caller: Caller,
    *,
    project_id: str,
    name: str,
    kind: AgentKind = "http",
    service_name: str | None = None,
    external_ref: str | None = None,
    settings: dict[str, Json] | None = None,
) -> dict[str, Json]:
    """Create an agent of a project."""
    require_writer(caller, "creating agents")
    values: dict[str, Json] = {
        "name": name,
        "kind": kind,
        "service_name": service_name,
        "external_ref": external_ref,
        "settings": settings or {},
    }
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
    own = {"id": new_id("agent"), "organization_id": caller.organization_id, "project_id": project_id}
    row = await insert_row(connection, agents, {**own, **values, "created_at": hub.now(), "updated_at": hub.now()})
    await note(connection, hub, caller, "create", "agent", row["id"], {"name": values["name"]})
    return row


async def list_agents(
    hub: Hub, caller: Caller, *, project_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """Return a page of the visible agents."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        query = list_seen(agents, caller, project_id=project_id)
        return show_page(await fetch_page_or_refuse(connection, query, agents, limit=limit, cursor=cursor), _show_agent)


async def get_agent(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one agent."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        return _show_agent(await find_seen(connection, agents, caller, "agent", id))


async def update_agent(hub: Hub, caller: Caller, id: str, changes: Mapping[str, Json], *, action: str = "update") -> dict[str, Json]:
    """Change the fields in `changes`. Traces of a paused agent are rejected."""
    require_writer(caller, "changing agents")
    values = {name: value for name, value in changes.items() if name in _CHANGEABLE}
    refuse_emptying(values, "name", "kind", "paused")
    check_fields(values, names=_NAMES)
    _check_evidence(values)
    async with hub.database.writing() as connection:
        # Before the project: deleting a project locks its agents first, and the order prevents a deadlock.
        before = await require_row(connection, agents, caller.organization_id, "agent", id, locked=True)
        await _check_unique(connection, caller, before["project_id"], id, values)
        row = await change_place(connection, hub, caller, agents, "agent", id, values, action)
    # After the commit: a read before it would cache the old agents.
    forget_agents(hub, caller.organization_id)
    return _show_agent(row)


async def delete_agent(hub: Hub, caller: Caller, id: str) -> None:
    """Delete an agent with its cases, traces, results and alerts."""
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
    given = (values.get("settings") or {}).get("evidence")
    try:
        if given is not None:
            build_declared(given if isinstance(given, dict) else {"map": given}, source="")
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


def _show_agent(row: Row) -> dict[str, Json]:
    return show_place(row, _SHOWN)
