"""What was answered to one case in several runs of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.history.answers import Answer, AttemptOutcome, ReadAttempt, choose_attempt, compare_answers
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.runs.comparisons import find_several
from proctor.service.runs.results import suite_of_run
from proctor.store.runs.run_rows import read_entry
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import run_entries

MOST_ATTEMPTS = 100
"""Attempts of a case among which one is chosen."""


async def read_answers(hub: Hub, caller: Caller, ids: Sequence[str], case: str, *, attempt: int | None = None) -> tuple[Answer, ...]:
    """Return what was answered to a case in each of these runs, beside the answer in the first of them."""
    rows = await find_several(hub, caller, ids)
    async with hub.database.reading() as connection:
        listed = [await _list_attempts(connection, row["id"], case, attempt) for row in rows]
        chosen = [choose_attempt(found, is_base=number == 0, attempt=attempt) for number, found in enumerate(listed)]
        bodies = [await _read_body(connection, row["id"], one) for row, one in zip(rows, chosen, strict=True)]
    # An answer may be very long: it is unpacked and compared beside the event loop.
    return await asyncio.to_thread(_compare, rows, listed, chosen, bodies, case)


async def _list_attempts(connection: AsyncConnection, run_id: str, case: str, attempt: int | None) -> tuple[AttemptOutcome, ...]:
    columns = (run_entries.c.id, run_entries.c.attempt, run_entries.c.outcome)
    query = sa.select(*columns).where(run_entries.c.run_id == run_id, run_entries.c.case_id == case)
    if attempt is not None:
        query = query.where(run_entries.c.attempt >= attempt)
    found = (await connection.execute(query.order_by(run_entries.c.attempt).limit(MOST_ATTEMPTS))).all()
    return tuple(AttemptOutcome(id=id, attempt=int(number), outcome=outcome) for id, number, outcome in found)


async def _read_body(connection: AsyncConnection, run_id: str, chosen: AttemptOutcome | None) -> bytes | None:
    if chosen is None:
        return None
    query = sa.select(run_entries.c.body).where(run_entries.c.run_id == run_id, run_entries.c.id == chosen.id)
    return (await connection.execute(query)).scalar_one_or_none()


def _compare(
    rows: Sequence[Row],
    listed: Sequence[tuple[AttemptOutcome, ...]],
    chosen: Sequence[AttemptOutcome | None],
    bodies: Sequence[bytes | None],
    case: str,
) -> tuple[Answer, ...]:
    read: list[ReadAttempt] = []
    for row, attempts, one, body in zip(rows, listed, chosen, bodies, strict=True):
        known = next((each for each in suite_of_run(row).cases if each.id == case), None)
        entry = None if body is None else read_entry(body)
        read.append(ReadAttempt(run_id=row["id"], attempts=attempts, chosen=one, entry=entry, case=known))
    return compare_answers(read)
