"""How long the attempts of a run of the service took.

Durations lie in the bodies of attempts. Of a long run some stretches are read, spread evenly over it, so that the answer takes no longer
than for a short one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.latency import Latency, TimedEntry, describe_latency
from proctor.errors import StoreError
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.runs.requests import find_run
from proctor.store.bodies import expand_bytes
from proctor.store.tables import run_entries

MOST_READ = 400
"""Attempts that are read."""
_STRETCHES = 16
"""Places of a long run at which some of them are read."""
_TIMED = msgspec.json.Decoder(TimedEntry)


async def measure_latency(hub: Hub, caller: Caller, id: str) -> Latency:
    """Return how long the attempts of a run took; of a long one those of some stretches of it."""
    async with hub.database.reading() as connection:
        run = await find_run(connection, caller, id)
        total = sum((run["counts"] or {}).values())
        bodies = await _read_bodies(connection, run["id"], total)
    durations = await asyncio.to_thread(_read_durations, bodies)
    return describe_latency(durations, total, is_sample=total > MOST_READ)


async def _read_bodies(connection: AsyncConnection, run_id: str, total: int) -> list[bytes]:
    order = (run_entries.c.created_at, run_entries.c.id)
    query = sa.select(run_entries.c.body).where(run_entries.c.run_id == run_id).order_by(*order)
    if total <= MOST_READ:
        return list((await connection.execute(query.limit(MOST_READ))).scalars())
    bodies: list[bytes] = []
    places = sa.select(*order).where(run_entries.c.run_id == run_id).order_by(*order)
    each = MOST_READ // _STRETCHES
    begin: tuple[str, str] | None = None
    for _ in range(_STRETCHES):
        # From stretch to stretch along the index alone; only the attempts of the stretches are read.
        here = sa.tuple_(*order)
        after = query if begin is None else query.where(here >= sa.tuple_(*map(sa.literal, begin)))
        bodies += (await connection.execute(after.limit(each))).scalars()
        rest = places if begin is None else places.where(here >= sa.tuple_(*map(sa.literal, begin)))
        following = (await connection.execute(rest.offset(max(each, total // _STRETCHES)).limit(1))).first()
        if following is None:
            break
        begin = (following[0], following[1])
    return bodies


def _read_durations(bodies: Sequence[bytes]) -> list[float | None]:
    try:
        return [_TIMED.decode(expand_bytes(body)).find_ms() for body in bodies]
    except msgspec.MsgspecError as error:
        raise StoreError(f"a stored result cannot be read: {error}") from error
