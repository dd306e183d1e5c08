"""Finds agents in memory, and in the database those that are not there yet.

They are forgotten when one is made or changed here; one that is unknown is asked for again, since another server may just have made it.
That an agent still exists is made sure of where its trace is kept.
"""

from __future__ import annotations

import asyncio

import sqlalchemy as sa

from proctor.service.access.agent_cache import Reading
from proctor.service.agent import Agent
from proctor.service.hub import Hub
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import agents, projects

_REMEMBERED_S = 2.0
"""How long agents are believed to be as they were read: what another server changes is seen after that."""


async def find_agent(hub: Hub, organization_id: str, agent_id: str) -> Agent | None:
    """Return an agent by its id from the cache; ask the database for an unknown one, which another server may just have made."""
    found = (await load_agents(hub, organization_id)).get(agent_id)
    return found or (await reload_agents(hub, organization_id)).get(agent_id)


async def list_known_agents(hub: Hub, organization_id: str) -> list[Agent]:
    """Return all agents of an organization, as they were a moment ago."""
    return list((await load_agents(hub, organization_id)).values())


def forget_agents(hub: Hub, organization_id: str) -> None:
    """Forget the agents of an organization after one was made, changed or deleted, so that the next trace finds what is there."""
    hub.agent_cache.forget(organization_id)


async def load_agents(hub: Hub, organization_id: str) -> dict[str, Agent]:
    """Return the agents of an organization as they were a moment ago."""
    last = hub.agent_cache.get(organization_id)
    # Bounded on both sides: a reading from a time that is still to come would be believed until then.
    if last is not None and 0 <= hub.clock() - last.at < _REMEMBERED_S:
        return last.agents
    return (await _read_agents(hub, organization_id)).agents


async def reload_agents(hub: Hub, organization_id: str, *, since: int | None = None, pause_s: float = 0.0) -> dict[str, Agent]:
    """Return the agents of an organization from a reading that began after `since`, a count of `AgentCache.begun`; without it, after now.

    Between two readings `pause_s` seconds pass, and all who wait meanwhile share the second: many unknown names cost few queries, and
    nobody is told what was true before they asked.
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
        rows = (await connection.execute(query)).mappings().all()
    reading = Reading(number, at, {row["id"]: _make_agent(dict(row)) for row in rows})
    cache.put(organization_id, reading, changes)
    return reading


def _make_agent(row: Row) -> Agent:
    settings = row["settings"]
    return Agent(
        id=row["id"],
        organization_id=row["organization_id"],
        project_id=row["project_id"],
        kind=row["kind"],
        service_name=row["service_name"],
        external_ref=row["external_ref"],
        paused=row["paused"] or row["project_paused"],
        settings=settings if isinstance(settings, dict) else {},
    )
