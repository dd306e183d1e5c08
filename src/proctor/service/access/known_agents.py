"""Finds agents in the cache, and unknown ones in the database.

The cache is invalidated by changes in this process; an unknown agent is queried again, since another server may have created it. Storing a
trace checks that its agent still exists.
"""

from __future__ import annotations

import asyncio

import sqlalchemy as sa

from proctor.service.caches import Agent, Reading, make_agent
from proctor.service.hub import Hub
from proctor.store.sql.pages import fetch_all
from proctor.store.sql.tables import agents, projects

_REMEMBERED_S = 2.0
"""Seconds that a read is valid; changes by other servers are noticed after that."""


async def find_agent(hub: Hub, organization_id: str, agent_id: str) -> Agent | None:
    """Return an agent by its id from the cache, or from the database if it is unknown."""
    agent = (await load_agents(hub, organization_id)).get(agent_id)
    return agent or (await reload_agents(hub, organization_id)).get(agent_id)


async def load_agents(hub: Hub, organization_id: str) -> dict[str, Agent]:
    """Return the agents of an organization, at most a moment old."""
    last = hub.agent_cache.get(organization_id)
    # Also if the clock has gone back.
    if last is not None and 0 <= hub.clock() - last.at < _REMEMBERED_S:
        return last.agents
    return (await _read_agents(hub, organization_id)).agents


async def reload_agents(hub: Hub, organization_id: str, *, since: int | None = None, pause_s: float = 0.0) -> dict[str, Agent]:
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
