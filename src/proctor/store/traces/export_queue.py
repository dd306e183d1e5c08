"""The export queue: traces whose results are still to be sent to another system.

A row is written in the transaction that writes the results, and deleted when they were accepted: a crash loses nothing. The sender moves
`next_at` on first, so that one of several servers sends; a trace that was queued again has another `next_at` and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.pages import Row
from proctor.store.sql.queries import insert_or_update
from proctor.store.sql.tables import exports, results, traces


async def queue_exports(connection: AsyncConnection, found: Iterable[Row], now: float) -> None:
    """Note that these results were written."""
    since: dict[str, dict[str, Any]] = {}
    for row in found:
        known = since.setdefault(
            row["trace_id"],
            {
                "trace_id": row["trace_id"],
                "organization_id": row["organization_id"],
                "since": row["updated_at"],
                "queued_at": now,
                "next_at": now,
            },
        )
        known["since"] = min(known["since"], row["updated_at"])
    if since:
        # In one order everywhere, to avoid deadlocks. A waiting trace keeps its earlier time.
        ordered = [since[id] for id in sorted(since)]
        await connection.execute(insert_or_update(connection, exports, ordered, key=("trace_id",), change=("next_at",)))


async def take_exports(connection: AsyncConnection, *, now: float, until: float, limit: int) -> list[Row]:
    """Lease what is due until that time and return it, the longest due first."""
    due = sa.select(exports.c.trace_id).where(exports.c.next_at <= now).order_by(exports.c.next_at).limit(limit)
    # PostgreSQL: several servers each get their own rows instead of waiting for the first. SQLite has one writer, and leaves it out.
    chosen = list((await connection.execute(due.with_for_update(skip_locked=True))).scalars())
    if not chosen:
        return []
    taken = sa.update(exports).where(exports.c.trace_id.in_(chosen)).values(next_at=until).returning(*exports.c)
    return [dict(row) for row in (await connection.execute(taken)).mappings()]


async def delete_exports(connection: AsyncConnection, taken: Sequence[Row]) -> None:
    """Delete exports that were sent or abandoned. Keep those queued again since."""
    for until, ids in _group_by_lease(taken):
        # A result written while these were sent has set `next_at` back to its own time, and its export must not go with the old one.
        await connection.execute(sa.delete(exports).where(exports.c.trace_id.in_(ids), exports.c.next_at == until))


async def postpone_exports(connection: AsyncConnection, taken: Sequence[Row], at: float) -> None:
    """Try these exports again at that time."""
    for until, ids in _group_by_lease(taken):
        await connection.execute(sa.update(exports).where(exports.c.trace_id.in_(ids), exports.c.next_at == until).values(next_at=at))


async def list_results_to_export(connection: AsyncConnection, row: Row) -> list[Row]:
    """Return the results of one trace that are to be sent."""
    ours = (results.c.organization_id == row["organization_id"], results.c.trace_id == row["trace_id"])
    query = sa.select(results).where(*ours, results.c.updated_at >= row["since"]).order_by(results.c.id)
    return [dict(found) for found in (await connection.execute(query)).mappings()]


async def find_trace_to_export(connection: AsyncConnection, row: Row) -> Row | None:
    """Return the trace that the results are about, without what is not needed; None when it has been deleted."""
    ours = (traces.c.organization_id == row["organization_id"], traces.c.id == row["trace_id"])
    columns = (traces.c.id, traces.c.format, traces.c.external_id, traces.c.revision, traces.c.body)
    found = (await connection.execute(sa.select(*columns).where(*ours))).mappings().first()
    return None if found is None else dict(found)


def _group_by_lease(taken: Sequence[Row]) -> Iterable[tuple[float, list[str]]]:
    groups: dict[float, list[str]] = {}
    for row in taken:
        groups.setdefault(row["next_at"], []).append(row["trace_id"])
    return groups.items()
