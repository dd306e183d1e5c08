"""Compares runs: changed cases, and whether the change is significant. The first of several runs is the base."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, NotRequired, TypedDict

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.doctor.snapshots import SERVERS, describe_changes
from proctor.actions.history import compare_several
from proctor.actions.history.answers import Answer, AttemptOutcome, ReadAttempt, choose_attempt, compare_answers
from proctor.actions.history.compare import RunComparison, compare_tallies, how_much
from proctor.actions.history.compare_several import MOST_RUNS, CaseAcross, join_comparisons
from proctor.actions.workspace.run_tally import RunTally
from proctor.model.evidence import Json
from proctor.scoring.paired import LEAST_ALPHA
from proctor.service.access.callers import Caller
from proctor.service.access.transactions import reading
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.resource import about, operation
from proctor.service.runs.building import ending_of, header_of
from proctor.service.runs.figures import find_finished_key, read_tally, tally_run
from proctor.service.runs.names import find_run
from proctor.service.runs.results import suite_of_run, write_plain
from proctor.store.runs.run_rows import read_entry, read_snapshots
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import run_entries


class Comparison(TypedDict):
    """Two runs compared by case."""

    base: dict[str, Json]
    candidate: dict[str, Json]
    comparison: Annotated[dict[str, Json], about("verdict (regressed, improved, unchanged, too_little_data), reason, rates, cases")]
    latency: dict[str, Json]
    tokens: dict[str, Json]
    cost: NotRequired[Annotated[dict[str, Json] | None, about("if either run has costs")]]
    base_incomplete: NotRequired[Annotated[dict[str, Json] | None, about("how complete the base is, if it is incomplete")]]
    candidate_incomplete: NotRequired[Annotated[dict[str, Json] | None, about("the same for the candidate")]]
    reasons: NotRequired[Annotated[dict[str, str], about("the first reason of every case that got worse")]]
    causes: NotRequired[Annotated[list[dict[str, Json]], about("the cases that got worse by reason, beyond chance first")]]
    within_chance: NotRequired[Annotated[list[str], about("changed cases whose change may be chance")]]
    failing: NotRequired[Annotated[list[str], about("every case of the candidate that does not pass")]]
    lacking: NotRequired[Annotated[list[str], about("every case of the candidate with missing evidence")]]
    unmet: NotRequired[Annotated[dict[str, int], about("number of cases without evidence, and of records without a case")]]
    warnings: NotRequired[Annotated[list[str], about("limits of the figures")]]
    server_changes: NotRequired[Annotated[list[str], about("what the MCP servers of the two runs offered differently")]]


class AgainstBase(TypedDict):
    """One run compared with the base."""

    found: Annotated[Comparison, about("comparison of these two runs alone")]
    adjusted_p: Annotated[float, about("the p-value of the difference, adjusted after Holm for the number of comparisons")]
    more_than_chance: Annotated[bool, about("whether the change is significant after adjustment")]


class SeveralRuns(TypedDict):
    """Several runs, each compared with the first."""

    comparisons: list[AgainstBase]
    cases: Annotated[list[CaseAcross], about("every case that changed, newly failing first")]


class Answers(TypedDict):
    """The answers to one case in several runs."""

    case: str
    answers: Annotated[list[Answer], about("one for each run, the base first")]


_LISTED = about(
    f"2 to {MOST_RUNS} runs of one project, separated by commas, the base first: ids, names, `@tag`, `latest` or `previous`",
    max_length=2_000,
)


@operation("runs", "GET /api/runs/{run_id}/compare")
async def compare_runs(
    hub: Hub,
    caller: Caller,
    id: str,
    base: Annotated[str, about("the base run, in the same project: its id, its name, `@tag`, or `previous`")] = "previous",
    *,
    alpha: Annotated[float, about("significance level", ge=LEAST_ALPHA, lt=1)] = 0.05,
) -> Comparison:
    """Compare a run with another: changed cases, and whether the change is significant."""
    _check_alpha(alpha)
    async with reading(hub, caller) as tx:
        candidate = await find_run(tx, id)
        first = await find_run(tx, base, near=candidate)
    (comparison,) = await _compare_all(hub, [first, candidate], alpha)
    return write_plain(comparison)


@operation("runs", "GET /api/comparisons")
async def compare_several_runs(
    hub: Hub,
    caller: Caller,
    *,
    runs: Annotated[str, _LISTED],
    alpha: Annotated[float, about("significance level of each comparison", ge=LEAST_ALPHA, lt=1)] = 0.05,
) -> SeveralRuns:
    """Compare several runs with the first of them: changed cases, and whether the change is significant."""
    return write_plain(await read_several(hub, caller, split_words(runs), alpha=alpha))


@operation("runs", "GET /api/comparisons/answers", name="compare_answers")
async def show_answers(
    hub: Hub,
    caller: Caller,
    *,
    runs: Annotated[str, _LISTED],
    case: Annotated[str, about("id of the case")],
    attempt: Annotated[
        int | None, about("attempt; default: the first that passed in the base, the first that did not in the others", ge=0, le=2**31)
    ] = None,
) -> Answers:
    """Show the answers to a case in several runs, as word diffs from the first run."""
    answers = await read_answers(hub, caller, split_words(runs), case, attempt=attempt)
    return {"case": case, "answers": msgspec.to_builtins(answers)}


def split_words(text: str) -> list[str]:
    """Split a list at commas."""
    return [word for word in (part.strip() for part in text.split(",")) if word]


async def read_several(hub: Hub, caller: Caller, ids: Sequence[str], *, alpha: float = 0.05) -> compare_several.SeveralRuns:
    """Return several runs compared with the first."""
    _check_alpha(alpha)
    rows = await find_several(hub, caller, ids)
    return await asyncio.to_thread(join_comparisons, await _compare_all(hub, rows, alpha))


async def find_several(hub: Hub, caller: Caller, ids: Sequence[str]) -> list[Row]:
    """Return the runs to compare, in order. Raises `Refusal` if they are too few, too many, or of several projects."""
    if not 2 <= len(ids) <= MOST_RUNS:
        reasons = [f"expected 2 to {MOST_RUNS} runs, got {len(ids)}"]
        raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": reasons})
    async with reading(hub, caller) as tx:
        rows = [await find_run(tx, ids[0])]
        for id in ids[1:]:
            rows.append(await find_run(tx, id, near=rows[0]))
    reason = "one of them is named twice" if len({row["id"] for row in rows}) < len(rows) else ""
    reason = reason or ("they are of different projects" if len({row["project_id"] for row in rows}) > 1 else "")
    if reason:
        raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": [reason]})
    return rows


def _check_alpha(alpha: float) -> None:
    if not LEAST_ALPHA <= alpha < 1:
        reasons = [f"expected a number from {LEAST_ALPHA:g} to less than 1"]
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"alpha": reasons})


async def _compare_all(hub: Hub, rows: Sequence[Row], alpha: float) -> list[RunComparison]:
    """Return each run compared with the first; comparisons of ended runs are cached."""
    first = rows[0]
    before: RunTally | None = None
    comparisons: list[RunComparison] = []
    # One after the other: at most the figures of two runs are in memory.
    for row in rows[1:]:
        key = (find_finished_key(first, row), alpha)
        known: RunComparison | None = None if key[0] is None else hub.comparisons.get(key)
        if known is None:
            # Without a lock: a comparison of large runs must not delay others.
            before = before or await _find_tally(hub, first)
            after = await _find_tally(hub, row)
            known = await asyncio.to_thread(_compare_with, first, before, row, after, alpha)
            async with hub.database.reading() as connection:
                snapshots = await read_snapshots(connection, [first["id"], row["id"]], SERVERS)
            changes = await asyncio.to_thread(describe_changes, snapshots.get(first["id"]), snapshots.get(row["id"]))
            known = msgspec.structs.replace(known, server_changes=changes)
            if key[0] is not None:
                hub.comparisons.put(key, known, len(known.comparison.changes) + 100)
        comparisons.append(known)
    return comparisons


async def _find_tally(hub: Hub, run: Row) -> RunTally:
    async with hub.database.reading() as connection:
        stored = None if find_finished_key(run) is None else await read_tally(connection, run["id"])
        return stored if stored is not None else await tally_run(connection, run["id"])


def _compare_with(first: Row, before: RunTally, candidate: Row, after: RunTally, alpha: float) -> RunComparison:
    base_header, header, suite = header_of(first), header_of(candidate), suite_of_run(candidate)
    comparison = compare_tallies((base_header, before), (header, after), suite, alpha=alpha)
    missing_before = how_much(base_header, suite_of_run(first), before, ending_of(first))
    missing_after = how_much(header, suite, after, ending_of(candidate))
    return msgspec.structs.replace(comparison, base_incomplete=missing_before, candidate_incomplete=missing_after)


# --- the answers to one case in several runs


MOST_ATTEMPTS = 100
"""Attempts of a case to choose from."""


async def read_answers(hub: Hub, caller: Caller, ids: Sequence[str], case: str, *, attempt: int | None = None) -> tuple[Answer, ...]:
    """Return the answer to a case in each of these runs, compared with the first run."""
    rows = await find_several(hub, caller, ids)
    async with hub.database.reading() as connection:
        listed = [await _list_attempts(connection, row["id"], case, attempt) for row in rows]
        chosen = [choose_attempt(attempts, is_base=number == 0, attempt=attempt) for number, attempts in enumerate(listed)]
        bodies: list[bytes | None] = []
        for attempt_row in chosen:
            query = sa.select(run_entries.c.body).where(run_entries.c.id == ("" if attempt_row is None else attempt_row.id))
            bodies.append((await connection.execute(query)).scalar_one_or_none())
    # In a thread, since an answer may be very long.
    return await asyncio.to_thread(_compare, rows, listed, chosen, bodies, case)


async def _list_attempts(connection: AsyncConnection, run_id: str, case: str, attempt: int | None) -> tuple[AttemptOutcome, ...]:
    columns = (run_entries.c.id, run_entries.c.attempt, run_entries.c.outcome)
    query = sa.select(*columns).where(run_entries.c.run_id == run_id, run_entries.c.case_id == case)
    if attempt is not None:
        query = query.where(run_entries.c.attempt >= attempt)
    attempt_rows = (await connection.execute(query.order_by(run_entries.c.attempt).limit(MOST_ATTEMPTS))).all()
    return tuple(AttemptOutcome(id=id, attempt=int(number), outcome=outcome) for id, number, outcome in attempt_rows)


def _compare(
    rows: Sequence[Row],
    listed: Sequence[tuple[AttemptOutcome, ...]],
    chosen: Sequence[AttemptOutcome | None],
    bodies: Sequence[bytes | None],
    case: str,
) -> tuple[Answer, ...]:
    read: list[ReadAttempt] = []
    for row, attempts, attempt_row, body in zip(rows, listed, chosen, bodies, strict=True):
        known = next((each for each in suite_of_run(row).cases if each.id == case), None)
        entry = None if body is None else read_entry(body)
        read.append(ReadAttempt(run_id=row["id"], attempts=attempts, chosen=attempt_row, entry=entry, case=known))
    return compare_answers(read)
