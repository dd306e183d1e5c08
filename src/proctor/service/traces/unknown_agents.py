"""Makes agents for traces: a service name that no agent has becomes one, where that is allowed.

For the local user of a service without keys it is, unless the administrator says otherwise; on a shared service only if the administrator
says so (`unknown_agents`), and never with a key that is restricted to some agents. The agent is made in the project of the key; for
whoever may see them all, in the only project there is, else in the one named `default`, which is made where there is none. How many agents
come into being this way is bounded, so that a sender who makes up names does not fill the service with them.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.agents import add_agent
from proctor.service.access.callers import DEFAULT_ORGANIZATION, Caller
from proctor.service.access.known_agents import forget_agents, list_known_agents
from proctor.service.access.projects import add_project
from proctor.service.agent import Agent
from proctor.service.field_checks import LONGEST_NAME
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.rows import require_row
from proctor.service.traces.routing import Address, NoAgentFound, require_agent
from proctor.store.many import clean_text
from proctor.store.pages import Row
from proctor.store.tables import agents, organizations, projects
from proctor.store.tenants import ensure_organization, query_owned

MOST_MADE = 100
"""How many agents of an organization may come into being this way."""
DEFAULT_PROJECT = "default"
MADE_BY: dict[str, Json] = {"made_by": "trace"}
"""Stands in the settings of such an agent. Who takes it out has adopted the agent, and it is not counted any more."""


async def resolve_or_make(hub: Hub, caller: Caller, address: Address, *, since: int) -> Agent:
    """Return the agent of a trace, made if need be; `since` as for `require_agent`. Raises `Refusal`."""
    try:
        return await require_agent(hub, caller, address, since=since)
    except NoAgentFound:
        if address.service_name is None or not _may_make(hub, caller):
            raise
    await _make_agent(hub, caller, address.service_name)
    # Found by the rules for all traces, not taken as it was made: another server may have made it, or it may be paused.
    return await require_agent(hub, caller, address)


def _may_make(hub: Hub, caller: Caller) -> bool:
    wanted = hub.settings.unknown_agents or ("create" if caller.key_id is None else "refuse")
    return wanted == "create" and caller.agent_ids is None


async def _make_agent(hub: Hub, caller: Caller, name: str) -> None:
    """Make the agent of a service name; it is there afterwards, whoever made it."""
    if not name.strip() or len(name) > LONGEST_NAME or clean_text(name) != name:
        raise Refusal("VALIDATION_ERROR", f"no agent can be named after service.name: expected 1 to {LONGEST_NAME} characters")
    # One request may name thousands of services: what a look into memory can refuse does not wait for the database.
    if sum(MADE_BY.items() <= agent.settings.items() for agent in await list_known_agents(hub, caller.organization_id)) >= MOST_MADE:
        raise _refuse_too_many(name)
    async with hub.database.writing() as connection:
        await _lock_organization(connection, hub, caller)
        there = {"service_name": name} if caller.project_id is None else {"service_name": name, "project_id": caller.project_id}
        if (await connection.execute(query_owned(agents, caller.organization_id, **there).limit(1))).first() is None:
            # Counted once more with the lock in hand: what the look into memory saw may be old.
            made = query_owned(agents, caller.organization_id).where(
                *(agents.c.settings[key].as_string() == value for key, value in MADE_BY.items())
            )
            if (await connection.execute(sa.select(sa.func.count()).select_from(made.subquery()))).scalar_one() >= MOST_MADE:
                raise _refuse_too_many(name)
            project = await _find_project(connection, hub, caller)
            values: dict[str, Json] = {"name": name, "kind": "otlp", "service_name": name, "external_ref": None, "settings": MADE_BY}
            await add_agent(connection, hub, caller, project["id"], values)
    forget_agents(hub, caller.organization_id)


async def _lock_organization(connection: AsyncConnection, hub: Hub, caller: Caller) -> None:
    """Hold up whoever else makes agents of the organization: of two servers with the same new name, one makes it and the other finds it."""
    if caller.organization_id == DEFAULT_ORGANIZATION:
        await ensure_organization(connection, DEFAULT_ORGANIZATION, "default", hub.now())
    # PostgreSQL: the row is locked. SQLite has one writer, and leaves this out.
    await connection.execute(sa.select(organizations.c.id).where(organizations.c.id == caller.organization_id).with_for_update())


async def _find_project(connection: AsyncConnection, hub: Hub, caller: Caller) -> Row:
    """Return the project that an agent is made in."""
    if caller.project_id is not None:
        own = await require_row(connection, projects, caller.organization_id, "project", caller.project_id)
        return _refuse_paused(own)
    query = query_owned(projects, caller.organization_id).order_by(projects.c.created_at, projects.c.id)
    several = (await connection.execute(query.limit(2))).mappings().all()
    if len(several) == 1:
        return _refuse_paused(dict(several[0]))
    named = (await connection.execute(query.where(projects.c.name == DEFAULT_PROJECT).limit(1))).mappings().first()
    if named is not None:
        return _refuse_paused(dict(named))
    return await add_project(connection, hub, caller, {"name": DEFAULT_PROJECT, "description": None, "settings": {}})


def _refuse_paused(project: Row) -> Row:
    if project["paused"]:
        raise Refusal("FORBIDDEN", "the project is paused: no agents are made in it, and its traces are not taken")
    return project


def _refuse_too_many(name: str) -> Refusal:
    told = f"{MOST_MADE} agents were made by the service names of traces, and no more are (service.name is {name[:100]!r})"
    return Refusal("VALIDATION_ERROR", told, hint="make the agent with POST /api/agents, or delete some that nobody needs")
