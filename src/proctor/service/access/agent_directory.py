"""Remembers the agents of an organization for a moment, so that a busy sender does not cost a query per trace.

They are forgotten when one is made or changed here; one that is not known is asked for again, since another server may just have made it.
That an agent still exists is made sure of where its trace is kept.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import msgspec
import sqlalchemy as sa

from proctor.service.agent import Agent
from proctor.service.hub import Hub
from proctor.store.database import Database
from proctor.store.pages import Row
from proctor.store.tables import agents, projects

_REMEMBERED_S = 2.0
"""How long agents are believed to be as they were read: what another server changes is seen after that."""
_MOST_ORGANIZATIONS = 200
"""How many organizations are remembered; a bound for memory, not for users."""


class _Known(msgspec.Struct):
    at: float
    agents: dict[str, Agent]


_DIRECTORY: WeakKeyDictionary[Database, dict[str, _Known]] = WeakKeyDictionary()


async def find_agent(hub: Hub, organization_id: str, agent_id: str) -> Agent | None:
    """Return an agent by its id from the cache; ask the database for an unknown one, which another server may just have made."""
    found = (await load_agents(hub, organization_id)).get(agent_id)
    return found or (await load_agents(hub, organization_id, at_most_s=0.0)).get(agent_id)


async def list_known_agents(hub: Hub, organization_id: str) -> list[Agent]:
    """Return all agents of an organization, as they were a moment ago."""
    return list((await load_agents(hub, organization_id)).values())


def forget_agents(hub: Hub, organization_id: str) -> None:
    """Forget the agents of an organization after one was made, changed or deleted, so that the next trace finds what is there."""
    _DIRECTORY.get(hub.database, {}).pop(organization_id, None)


async def load_agents(hub: Hub, organization_id: str, at_most_s: float = _REMEMBERED_S) -> dict[str, Agent]:
    """Return the agents of an organization as they were at most `at_most_s` seconds ago."""
    known = _DIRECTORY.setdefault(hub.database, {})
    now = hub.clock()
    found = known.get(organization_id)
    if found is not None and 0 <= now - found.at < at_most_s:
        return found.agents
    query = (
        sa.select(agents, projects.c.paused.label("project_paused"))
        .join(projects, projects.c.id == agents.c.project_id)
        .where(agents.c.organization_id == organization_id)
    )
    async with hub.database.reading() as connection:
        rows = (await connection.execute(query)).mappings().all()
    if len(known) >= _MOST_ORGANIZATIONS:
        # All at once: it happens rarely, and what is needed is read again within seconds anyhow.
        known.clear()
    known[organization_id] = _Known(now, {row["id"]: _make_agent(dict(row)) for row in rows})
    return known[organization_id].agents


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
