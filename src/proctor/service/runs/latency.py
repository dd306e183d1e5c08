"""How long the attempts of a run of the service took.

Durations lie in the digests of attempts. Of a long run some stretches are read, spread evenly over it, so that the answer takes no longer
than for a short one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.history.latency import Latency, describe_latency, find_ms
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.runs.finished import find_fact
from proctor.store.runs.entry_digests import DIGEST, read_digest
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import run_entries

MOST_READ = 400
"""Attempts that are read."""
_STRETCHES = 16
"""Places of a long run at which some of them are read."""


async def measure_latency(hub: Hub, caller: Caller, id: str) -> Latency:
    """Return how long the attempts of a run took; of a long one those of some stretches of it."""

    async def work_out(connection: AsyncConnection, run: Row) -> Latency:
        return await find_latency(connection, run["id"], sum((run["counts"] or {}).values()))

    return await find_fact(hub, caller, id, "latency", work_out)


async def find_latency(connection: AsyncConnection, run_id: str, total: int) -> Latency:
    """Return the same, worked out from the attempts of a run, of which there are `total`."""
    durations = await asyncio.to_thread(_read_durations, await _read_rows(connection, run_id, total))
    return describe_latency(durations, total, is_sample=total > MOST_READ)


async def _read_rows(connection: AsyncConnection, run_id: str, total: int) -> list[Row]:
    order = (run_entries.c.created_at, run_entries.c.id)
    query = sa.select(*DIGEST).where(run_entries.c.run_id == run_id).order_by(*order)
    if total <= MOST_READ:
        return [dict(row) for row in (await connection.execute(query.limit(MOST_READ))).mappings()]
    rows: list[Row] = []
    places = sa.select(*order).where(run_entries.c.run_id == run_id).order_by(*order)
    each = MOST_READ // _STRETCHES
    begin: tuple[str, str] | None = None
    for _ in range(_STRETCHES):
        # From stretch to stretch along the index alone; only the attempts of the stretches are read.
        here = sa.tuple_(*order)
        after = query if begin is None else query.where(here >= sa.tuple_(*map(sa.literal, begin)))
        rows += [dict(row) for row in (await connection.execute(after.limit(each))).mappings()]
        rest = places if begin is None else places.where(here >= sa.tuple_(*map(sa.literal, begin)))
        following = (await connection.execute(rest.offset(max(each, total // _STRETCHES)).limit(1))).first()
        if following is None:
            break
        begin = (following[0], following[1])
    return rows


def _read_durations(rows: Sequence[Row]) -> list[float | None]:
    return [find_ms(read_digest(row)) for row in rows]
