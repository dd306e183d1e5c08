"""Chooses and deletes the oldest rows to keep a database small, in short transactions.

Over all organizations: the space is one. A trace goes with its parts and results, a run with its entries and events, a benchmark run with
what `run_families` finds below it; what somebody works on just now (a lease, a run that has not ended) stays for the next time.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.accounts.annotations import delete_annotations_of
from proctor.store.runs.run_families import delete_families, list_oldest_families, query_family_sizes
from proctor.store.sql.run_figures import run_figures
from proctor.store.sql.tables import alert_deliveries, keys, results, run_entries, run_events, runs, trace_parts, traces

UNFINISHED = ("queued", "running")
"""Runs that nobody may delete yet."""


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
    return sorted(found, key=lambda kept: (kept.created_at, kept.id))[:limit]


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


async def sum_kept_bytes(connection: AsyncConnection) -> int:
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


async def delete_listed(connection: AsyncConnection, kept: list[Deletable]) -> None:
    """Delete traces and runs with everything that hangs on them."""
    trace_ids = [one.id for one in kept if one.kind == "trace"]
    run_ids = [one.id for one in kept if one.kind == "run"]
    # The row first: whoever evaluates or drives it writes under its lock, and finds it gone instead of leaving something behind.
    await connection.execute(sa.delete(traces).where(traces.c.id.in_(trace_ids)))
    for table in (trace_parts, results):
        await connection.execute(sa.delete(table).where(table.c.trace_id.in_(trace_ids)))
    await connection.execute(sa.delete(runs).where(runs.c.id.in_(run_ids)))
    for table in (run_entries, run_events, run_figures):
        await connection.execute(sa.delete(table).where(table.c.run_id.in_(run_ids)))
    await delete_annotations_of(connection, [*trace_ids, *run_ids])
    await delete_families(connection, [one.id for one in kept if one.kind == "benchmark_run"])


async def delete_remains(connection: AsyncConnection, before: str) -> int:
    """Delete what nobody needs after its time: alerts that were delivered or abandoned, tokens of runs that have expired."""
    over = sa.delete(alert_deliveries).where(alert_deliveries.c.next_at.is_(None), alert_deliveries.c.updated_at < before)
    expired = sa.delete(keys).where(keys.c.kind == "run", keys.c.expires_at.is_not(None), keys.c.expires_at < before)
    return sum([(await connection.execute(statement)).rowcount for statement in (over, expired)])
