"""What a project keeps for a time of its own: found and counted along the indices of its traces and runs."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.tables import projects, runs, traces
from proctor.store.upkeep.retention import UNFINISHED, Deletable


class ProjectBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How long a project keeps traces and runs, in days; None as long as the service does."""

    id: str
    trace_days: int | None
    run_days: int | None


async def list_project_bounds(connection: AsyncConnection) -> list[ProjectBounds]:
    """Return every project that says how long something of it stays, over all organizations."""
    query = sa.select(projects.c.id, projects.c.trace_days, projects.c.run_days)
    query = query.where(sa.or_(projects.c.trace_days.is_not(None), projects.c.run_days.is_not(None)))
    return [ProjectBounds(id=row[0], trace_days=row[1], run_days=row[2]) for row in await connection.execute(query.order_by(projects.c.id))]


async def list_older_traces(connection: AsyncConnection, project_id: str, before: str, *, now: float, limit: int) -> list[Deletable]:
    """Return traces of a project from before a time, oldest first; without those that somebody works on."""
    free = sa.or_(traces.c.leased_until.is_(None), traces.c.leased_until < now)
    query = sa.select(traces.c.id, traces.c.created_at, traces.c.size).where(*_match_older(traces, project_id, before), free)
    found = await connection.execute(query.order_by(traces.c.created_at, traces.c.id).limit(limit))
    return [Deletable(kind="trace", id=id, created_at=at, size=int(size)) for id, at, size in found]


async def list_older_runs(connection: AsyncConnection, project_id: str, before: str, *, limit: int) -> list[Deletable]:
    """Return runs of a project from before a time that have ended, oldest first."""
    query = sa.select(runs.c.id, runs.c.created_at).where(*_match_older(runs, project_id, before), runs.c.status.not_in(UNFINISHED))
    found = await connection.execute(query.order_by(runs.c.created_at, runs.c.id).limit(limit))
    return [Deletable(kind="run", id=id, created_at=at, size=0) for id, at in found]


async def count_older_traces(connection: AsyncConnection, project_id: str, before: str, *, most: int) -> int:
    """Return how many traces of a project are from before a time, counted up to `most`."""
    return await _count(connection, sa.select(traces.c.id).where(*_match_older(traces, project_id, before)), most)


async def count_older_runs(connection: AsyncConnection, project_id: str, before: str, *, most: int) -> int:
    """Return how many runs of a project are from before a time and have ended, counted up to `most`."""
    query = sa.select(runs.c.id).where(*_match_older(runs, project_id, before), runs.c.status.not_in(UNFINISHED))
    return await _count(connection, query, most)


async def _count(connection: AsyncConnection, query: sa.Select[tuple[str]], most: int) -> int:
    return int((await connection.execute(sa.select(sa.func.count()).select_from(query.limit(most).subquery()))).scalar_one())


def _match_older(table: sa.Table, project_id: str, before: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (table.c.project_id == project_id, table.c.created_at < before)
