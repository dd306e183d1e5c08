"""Compares runs: changed cases, and whether the change is significant. The first of several runs is the base."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.history.answers import Answer, AttemptOutcome, ReadAttempt, choose_attempt, compare_answers
from proctor.actions.history.compare import RunComparison, add_incomplete, compare_tallies, how_much
from proctor.actions.history.compare_several import MOST_RUNS, SeveralRuns, join_comparisons
from proctor.actions.workspace.run_tally import RunTally
from proctor.model.evidence import Json
from proctor.scoring.paired import LEAST_ALPHA
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.runs.building import ending_of, header_of
from proctor.service.runs.figures import find_finished_key, read_tally, tally_run
from proctor.service.runs.requests import find_run
from proctor.service.runs.results import suite_of_run, write_plain
from proctor.store.runs.run_rows import read_entry
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import run_entries


async def compare_runs(hub: Hub, caller: Caller, id: str, base: str, *, alpha: float = 0.05) -> dict[str, Json]:
    """Return the comparison of a run with `base`, by case."""
    _check_alpha(alpha)
    async with hub.database.reading() as connection:
        candidate = await find_run(connection, caller, id)
        first = await find_run(connection, caller, base, near=candidate)
    (found,) = await _compare_all(hub, [first, candidate], alpha)
    return write_plain(found)


async def compare_several_runs(hub: Hub, caller: Caller, ids: Sequence[str], *, alpha: float = 0.05) -> dict[str, Json]:
    """Return several runs compared with the first, as JSON."""
    return write_plain(await read_several(hub, caller, ids, alpha=alpha))


async def read_several(hub: Hub, caller: Caller, ids: Sequence[str], *, alpha: float = 0.05) -> SeveralRuns:
    """Return several runs compared with the first."""
    _check_alpha(alpha)
    rows = await find_several(hub, caller, ids)
    return await asyncio.to_thread(join_comparisons, await _compare_all(hub, rows, alpha))


async def find_several(hub: Hub, caller: Caller, ids: Sequence[str]) -> list[Row]:
    """Return the runs to compare, in order. Raises `Refusal` if they are too few, too many, or of several projects."""
    if not 2 <= len(ids) <= MOST_RUNS:
        reasons = [f"expected 2 to {MOST_RUNS} runs, got {len(ids)}"]
        raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": reasons})
    async with hub.database.reading() as connection:
        rows = [await find_run(connection, caller, ids[0])]
        for id in ids[1:]:
            rows.append(await find_run(connection, caller, id, near=rows[0]))
    if len({row["id"] for row in rows}) < len(rows):
        raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": ["one of them is named twice"]})
    if len({row["project_id"] for row in rows}) > 1:
        raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": ["they are of different projects"]})
    return rows


def _check_alpha(alpha: float) -> None:
    if not LEAST_ALPHA <= alpha < 1:
        reasons = [f"expected a number from {LEAST_ALPHA:g} to less than 1"]
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"alpha": reasons})


async def _compare_all(hub: Hub, rows: Sequence[Row], alpha: float) -> list[RunComparison]:
    """Return each run compared with the first; comparisons of ended runs are cached."""
    first = rows[0]
    before: RunTally | None = None
    found: list[RunComparison] = []
    # One after the other: at most the figures of two runs are in memory.
    for row in rows[1:]:
        key = (find_finished_key(first, row), alpha)
        known: RunComparison | None = None if key[0] is None else hub.comparisons.get(key)
        if known is None:
            # Without a lock: a comparison of large runs must not delay others.
            if before is None:
                # Both at once: one is fetched while the other is added up.
                before, after = await asyncio.gather(_find_tally(hub, first), _find_tally(hub, row))
            else:
                after = await _find_tally(hub, row)
            known = await asyncio.to_thread(_compare_with, first, before, row, after, alpha)
            if key[0] is not None:
                hub.comparisons.put(key, known, len(known.comparison.changes) + 100)
        found.append(known)
    return found


async def _find_tally(hub: Hub, run: Row) -> RunTally:
    """Return the tally of a run: outcomes, times, tokens, and first reasons of failures."""
    async with hub.database.reading() as connection:
        stored = None if find_finished_key(run) is None else await read_tally(connection, run["id"])
        return stored if stored is not None else await tally_run(connection, run["id"])


def _compare_with(first: Row, before: RunTally, candidate: Row, after: RunTally, alpha: float) -> RunComparison:
    base_header, header, suite = header_of(first), header_of(candidate), suite_of_run(candidate)
    found = compare_tallies((base_header, before), (header, after), suite, alpha=alpha)
    missing_before = how_much(base_header, suite_of_run(first), before, ending_of(first))
    return add_incomplete(found, base=missing_before, candidate=how_much(header, suite, after, ending_of(candidate)))


# --- the answers to one case in several runs


MOST_ATTEMPTS = 100
"""Attempts of a case to choose from."""


async def read_answers(hub: Hub, caller: Caller, ids: Sequence[str], case: str, *, attempt: int | None = None) -> tuple[Answer, ...]:
    """Return the answer to a case in each of these runs, compared with the first run."""
    rows = await find_several(hub, caller, ids)
    async with hub.database.reading() as connection:
        listed = [await _list_attempts(connection, row["id"], case, attempt) for row in rows]
        chosen = [choose_attempt(found, is_base=number == 0, attempt=attempt) for number, found in enumerate(listed)]
        bodies = [await _read_body(connection, row["id"], one) for row, one in zip(rows, chosen, strict=True)]
    # In a thread, since an answer may be very long.
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
