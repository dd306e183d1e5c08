"""Retention: deletes the oldest rows, by the bounds of each project and of the service, and everything of a deleted project or agent."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.accounts.annotations import delete_annotations_of
from proctor.store.runs.run_families import delete_families, list_oldest_families, query_family_sizes
from proctor.store.sql.tables import (
    agents,
    alert_deliveries,
    alert_rules,
    case_versions,
    cases,
    keys,
    projects,
    results,
    run_entries,
    run_events,
    run_figures,
    runs,
    secrets,
    trace_parts,
    traces,
)

UNFINISHED = ("queued", "running")
"""Runs that must not be deleted yet."""


Kind = Literal["trace", "run", "benchmark_run"]


class Deletable(msgspec.Struct, frozen=True, kw_only=True):
    """A trace or run that may be deleted."""

    kind: Kind
    id: str
    created_at: str
    size: int


async def list_oldest(connection: AsyncConnection, *, limit: int, now: float, idle: str, before: str | None = None) -> list[Deletable]:
    """Return the oldest traces and runs made before a time, at most `limit`. A benchmark run untouched since `idle` counts as given up."""
    free = sa.or_(traces.c.leased_until.is_(None), traces.c.leased_until < now)
    of_results = _sum_bytes(results.c.body).where(results.c.trace_id == traces.c.id).scalar_subquery()
    of_entries = _sum_bytes(run_entries.c.body).where(run_entries.c.run_id == runs.c.id).scalar_subquery()
    found = [
        *await _list_oldest_of(connection, "trace", traces, traces.c.size + of_results, free, limit, before),
        *await _list_oldest_of(connection, "run", runs, of_entries, runs.c.status.not_in(UNFINISHED), limit, before),
        *[
            Deletable(kind="benchmark_run", id=family.id, created_at=family.created_at, size=family.size)
            for family in await list_oldest_families(connection, limit=limit, before=before, idle=idle)
        ],
    ]
    return sorted(found, key=lambda item: (item.created_at, item.id))[:limit]


async def _list_oldest_of(
    connection: AsyncConnection,
    kind: Kind,
    table: sa.Table,
    size: sa.ColumnElement[int],
    free: sa.ColumnElement[bool],
    limit: int,
    before: str | None,
) -> list[Deletable]:
    query = sa.select(table.c.id, table.c.created_at, size).where(free)
    if before is not None:
        query = query.where(table.c.created_at < before)
    rows = await connection.execute(query.order_by(table.c.created_at, table.c.id).limit(limit))
    return [Deletable(kind=kind, id=id, created_at=at, size=int(bytes_)) for id, at, bytes_ in rows]


async def sum_stored_bytes(connection: AsyncConnection) -> int:
    """Return how many bytes traces with their results and runs of either sort take."""
    sums = (
        sa.select(sa.func.coalesce(sa.func.sum(traces.c.size), 0)),
        _sum_bytes(results.c.body),
        _sum_bytes(run_entries.c.body),
        query_family_sizes(),
    )
    return sum([int((await connection.execute(query)).scalar_one()) for query in sums])


def _sum_bytes(column: sa.Column[bytes]) -> sa.Select[int]:
    return sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(column)), 0))


async def delete_listed(connection: AsyncConnection, listed: list[Deletable]) -> None:
    """Delete traces and runs with everything that hangs on them."""
    trace_ids = [one.id for one in listed if one.kind == "trace"]
    run_ids = [one.id for one in listed if one.kind == "run"]
    # The row first: a worker writes under its lock, and finds it gone instead of leaving something.
    await connection.execute(sa.delete(traces).where(traces.c.id.in_(trace_ids)))
    for table in (trace_parts, results):
        await connection.execute(sa.delete(table).where(table.c.trace_id.in_(trace_ids)))
    await connection.execute(sa.delete(runs).where(runs.c.id.in_(run_ids)))
    for table in (run_entries, run_events, run_figures):
        await connection.execute(sa.delete(table).where(table.c.run_id.in_(run_ids)))
    await delete_annotations_of(connection, [*trace_ids, *run_ids])
    await delete_families(connection, [one.id for one in listed if one.kind == "benchmark_run"])


async def delete_remains(connection: AsyncConnection, before: str) -> int:
    """Delete expired rows: alerts that were delivered or abandoned, tokens of runs that have expired."""
    over = sa.delete(alert_deliveries).where(alert_deliveries.c.next_at.is_(None), alert_deliveries.c.updated_at < before)
    expired = sa.delete(keys).where(keys.c.kind == "run", keys.c.expires_at.is_not(None), keys.c.expires_at < before)
    return sum([(await connection.execute(statement)).rowcount for statement in (over, expired)])


class ProjectBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How long a project keeps traces and runs, in days; None for the setting of the service."""

    id: str
    trace_days: int | None
    run_days: int | None


async def list_project_bounds(connection: AsyncConnection) -> list[ProjectBounds]:
    """Return every project with a retention of its own, over all organizations."""
    query = sa.select(projects.c.id, projects.c.trace_days, projects.c.run_days)
    query = query.where(sa.or_(projects.c.trace_days.is_not(None), projects.c.run_days.is_not(None)))
    return [ProjectBounds(id=row[0], trace_days=row[1], run_days=row[2]) for row in await connection.execute(query.order_by(projects.c.id))]


async def list_older_traces(connection: AsyncConnection, project_id: str, before: str, *, now: float, limit: int) -> list[Deletable]:
    """Return traces of a project from before a time, oldest first; without leased ones."""
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
        # The service has deleted most of them before, in steps with a transaction each. This deletes the rest.
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
