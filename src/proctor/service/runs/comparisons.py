"""Runs compared: what changed, and whether it is more than chance. The first of several is the base of all the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from proctor.actions.compare import RunComparison, compare_entries, how_much, tell_incomplete
from proctor.actions.compare_several import MOST_RUNS, SeveralRuns, join_comparisons
from proctor.model.evidence import Json
from proctor.model.run import RunEntry
from proctor.scoring.paired import LEAST_ALPHA
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.runs.building import ending_of, header_of
from proctor.service.runs.requests import find_run
from proctor.service.runs.results import read_entries, suite_of_run, write_plain
from proctor.store.pages import Row


async def compare_runs(hub: Hub, caller: Caller, id: str, base: str, *, alpha: float = 0.05) -> dict[str, Json]:
    """Return a run compared with `base`, joined by case: what changed, and whether it is more than chance."""
    _check_alpha(alpha)
    async with hub.database.reading() as connection:
        candidate = await find_run(connection, caller, id)
        first = await find_run(connection, caller, base, beside=candidate)
    before = await read_entries(hub, first["id"], trim=_keep_measures)
    return write_plain(await _compare_with(hub, first, before, candidate, alpha))


async def compare_several_runs(hub: Hub, caller: Caller, ids: Sequence[str], *, alpha: float = 0.05) -> dict[str, Json]:
    """Return several runs compared with the first of them, as JSON has it."""
    return write_plain(await read_several(hub, caller, ids, alpha=alpha))


async def read_several(hub: Hub, caller: Caller, ids: Sequence[str], *, alpha: float = 0.05) -> SeveralRuns:
    """Return the same as a value, for doors that show it in their own way."""
    _check_alpha(alpha)
    rows = await find_several(hub, caller, ids)
    before = await read_entries(hub, rows[0]["id"], trim=_keep_measures)
    # One after the other: never more than two runs are held in memory.
    found = [await _compare_with(hub, rows[0], before, row, alpha) for row in rows[1:]]
    return await asyncio.to_thread(join_comparisons, found)


async def find_several(hub: Hub, caller: Caller, ids: Sequence[str]) -> list[Row]:
    """Return the runs that are to be compared, in the given order; refused where they are too few, too many, or of several projects."""
    if not 2 <= len(ids) <= MOST_RUNS:
        told = [f"expected 2 to {MOST_RUNS} runs, got {len(ids)}"]
        raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": told})
    async with hub.database.reading() as connection:
        rows = [await find_run(connection, caller, ids[0])]
        for id in ids[1:]:
            rows.append(await find_run(connection, caller, id, beside=rows[0]))
    if len({row["id"] for row in rows}) < len(rows):
        raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": ["one of them is named twice"]})
    if len({row["project_id"] for row in rows}) > 1:
        raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": ["they are of different projects"]})
    return rows


def _check_alpha(alpha: float) -> None:
    if not LEAST_ALPHA <= alpha < 1:
        told = [f"expected a number from {LEAST_ALPHA:g} to less than 1"]
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={"alpha": told})


async def _compare_with(hub: Hub, first: Row, before: Sequence[RunEntry], candidate: Row, alpha: float) -> RunComparison:
    after = await read_entries(hub, candidate["id"], trim=_keep_measures)

    def work() -> RunComparison:
        base_header, header, suite = header_of(first), header_of(candidate), suite_of_run(candidate)
        found = compare_entries((base_header, before), (header, after), suite, alpha=alpha)
        missing_before = how_much(base_header, suite_of_run(first), before, ending_of(first))
        return tell_incomplete(found, base=missing_before, candidate=how_much(header, suite, after, ending_of(candidate)))

    return await asyncio.to_thread(work)


def _keep_measures(entry: RunEntry) -> RunEntry:
    """Return what two runs are compared by: outcomes, times, tokens, and of what failed the first reason."""
    failed = next((number for number, verdict in enumerate(entry.verdicts) if verdict.outcome in ("fail", "error")), None)
    told = () if failed is None else tuple(msgspec.structs.replace(verdict, details={}) for verdict in entry.verdicts[: failed + 1])
    seen = entry.evidence
    evidence = None if seen is None else type(seen)(duration_ms=seen.duration_ms, usage=seen.usage)
    return msgspec.structs.replace(entry, evidence=evidence, verdicts=told)
