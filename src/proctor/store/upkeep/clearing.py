"""Deletes what belongs to a project or an agent: traces and runs in steps, then the rows themselves."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.tables import agents, alert_deliveries, alert_rules, case_versions, cases, keys, projects, runs, secrets, traces
from proctor.store.upkeep.retention import Deletable, delete_listed

_STEP = 200
"""Rows deleted in one transaction, so that others get their turn between two steps."""


async def delete_traces_of(
    connection: AsyncConnection, organization_id: str, *, project_id: str | None = None, agent_id: str | None = None
) -> int:
    """Delete some traces with their results and return how many; 0 when none is left."""
    query = sa.select(traces.c.id, traces.c.created_at).where(traces.c.organization_id == organization_id)
    query = query.where(*_match_place(traces, project_id, agent_id)).limit(_STEP)
    found = [Deletable(kind="trace", id=row[0], created_at=row[1], size=0) for row in await connection.execute(query)]
    await delete_listed(connection, found)
    return len(found)


async def delete_runs_of(connection: AsyncConnection, organization_id: str, project_id: str) -> int:
    """Delete some runs with their results and return how many; 0 when none is left."""
    query = sa.select(runs.c.id, runs.c.created_at).where(runs.c.organization_id == organization_id, runs.c.project_id == project_id)
    found = [Deletable(kind="run", id=row[0], created_at=row[1], size=0) for row in await connection.execute(query.limit(_STEP))]
    await delete_listed(connection, found)
    return len(found)


async def delete_agents_of(
    connection: AsyncConnection, organization_id: str, *, project_id: str | None = None, agent_id: str | None = None
) -> int:
    """Delete agents with their cases and alerts, and the last of their traces; return how many agents there were."""
    while await delete_traces_of(connection, organization_id, project_id=project_id, agent_id=agent_id):
        # The verb has deleted most of them in steps before, a transaction each. Here it is what came since, so that nothing is left behind.
        pass
    await delete_cases(connection, organization_id, *_match_place(cases, project_id, agent_id))
    rules = sa.select(alert_rules.c.id).where(
        alert_rules.c.organization_id == organization_id, *_match_place(alert_rules, project_id, agent_id)
    )
    await connection.execute(sa.delete(alert_deliveries).where(alert_deliveries.c.rule_id.in_(rules)))
    await connection.execute(sa.delete(alert_rules).where(alert_rules.c.id.in_(rules)))
    mine = agents.c.project_id == project_id if agent_id is None else agents.c.id == agent_id
    done = await connection.execute(sa.delete(agents).where(agents.c.organization_id == organization_id, mine))
    return done.rowcount


async def delete_cases(connection: AsyncConnection, organization_id: str, *which: sa.ColumnElement[bool]) -> int:
    """Delete cases with their versions and return how many. Results stay: they are about traces."""
    mine = sa.select(cases.c.id).where(cases.c.organization_id == organization_id, *which)
    await connection.execute(sa.delete(case_versions).where(case_versions.c.case_id.in_(mine)))
    done = await connection.execute(sa.delete(cases).where(cases.c.organization_id == organization_id, *which))
    return done.rowcount


async def delete_project_rows(connection: AsyncConnection, organization_id: str, id: str, now: str) -> list[str] | None:
    """Delete a project and its secrets and revoke its keys; return the hashes of those keys, or None when there is no such project."""
    while await delete_runs_of(connection, organization_id, id):
        pass
    ours = (secrets.c.organization_id == organization_id, secrets.c.project_id == id)
    await connection.execute(sa.delete(secrets).where(*ours))
    revoked = sa.update(keys).where(keys.c.organization_id == organization_id, keys.c.project_id == id, keys.c.revoked_at.is_(None))
    hashes = [row[0] for row in await connection.execute(revoked.values(revoked_at=now).returning(keys.c.hash))]
    done = await connection.execute(sa.delete(projects).where(projects.c.organization_id == organization_id, projects.c.id == id))
    return hashes if done.rowcount else None


def _match_place(table: sa.Table, project_id: str | None, agent_id: str | None) -> list[Any]:
    return [table.c.project_id == project_id] if agent_id is None else [table.c.agent_id == agent_id]
