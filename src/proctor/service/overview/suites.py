"""Which cases turned between the newest run of a suite and the last one before a moment.

What was kept of both when they ended says so (`service/runs/figures.py`). Of runs without it: only cases that failed at least once in
either can have turned, and failed attempts are found along an index. So the cost goes by how many fail, not by how many there are; of very
many failing cases some are looked at, and the answer says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.compare import find_reason
from proctor.actions.overview import SuiteChange, TurnedCase, TurnedCases, find_turned
from proctor.actions.run_tally import RunTally
from proctor.scoring.intervals import Counts
from proctor.scoring.statistics import count_outcomes
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import list_seen
from proctor.service.hub import Hub
from proctor.service.runs.figures import read_tally
from proctor.service.runs.results import suite_of_run
from proctor.store.entry_digests import DIGEST, read_digest
from proctor.store.pages import Row
from proctor.store.tables import run_entries, runs

MOST_SUITES = 5
"""Suites that are compared."""
MOST_EARLIER = 500
"""Runs before the moment among which the last of each suite is looked for."""
MOST_FAILED = 1_000
"""Failed attempts of a run that are looked at, the newest first."""
MOST_CASES = 200
"""Cases of them that are counted."""
_NAMED = 10
"""Newly failing cases whose reason is read."""


async def find_suite_changes(
    hub: Hub, connection: AsyncConnection, caller: Caller, project_id: str, new: Sequence[Row], since: str
) -> tuple[SuiteChange, ...]:
    """Return what changed in each suite with a completed run since the moment; `new` are the runs since then, newest first."""
    completed = [run for run in new if run["status"] == "completed"]
    newest: dict[str, Row] = {}
    oldest: dict[str, Row] = {}
    for run in completed:
        newest.setdefault(run["suite_name"], run)
        oldest[run["suite_name"]] = run
    if not newest:
        return ()
    earlier = await _find_earlier(connection, caller, project_id, since)
    changes: list[SuiteChange] = []
    for suite, run in list(newest.items())[:MOST_SUITES]:
        # A suite that is new since then is compared with its own first run.
        first = oldest[suite]["id"] if oldest[suite]["id"] != run["id"] else None
        before = earlier.get(suite, first)
        # Both have ended, and nothing is added to them any more.
        key = ("suite change", run["id"], before)
        known: SuiteChange | None = hub.run_facts.get(key)
        if known is None:
            known = await _compare_suite(connection, suite, run["id"], before)
            hub.run_facts.put(key, known, 1)
        changes.append(known)
    return tuple(changes)


async def _find_earlier(connection: AsyncConnection, caller: Caller, project_id: str, since: str) -> dict[str, str]:
    """Return the last completed run of each suite before the moment."""
    columns = ("id", "suite_name", "created_at")
    query = list_seen(runs, caller, columns=columns, along=(runs.c.created_at < since,), project_id=project_id, status="completed").whole
    newest = query.order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(MOST_EARLIER)
    found: dict[str, str] = {}
    for row in (await connection.execute(newest)).mappings():
        found.setdefault(row["suite_name"], row["id"])
    return found


async def _compare_suite(connection: AsyncConnection, suite: str, run_id: str, before_id: str | None) -> SuiteChange:
    nothing = TurnedCases(total=0, cases=())
    if before_id is None:
        return SuiteChange(
            suite_name=suite, run_id=run_id, before_id=None, newly_failing=nothing, newly_passing=nothing, newly_flaky=nothing
        )
    kept, kept_before = await read_tally(connection, run_id), await read_tally(connection, before_id)
    if kept is not None and kept_before is not None:
        after, before, is_part = kept.count_by_case(), kept_before.count_by_case(), False
    else:
        after, before, is_part = await _count_failing(connection, run_id, before_id)
    thresholds = await _read_thresholds(connection, run_id)
    newly_failing, newly_passing, newly_flaky = find_turned(before, after, thresholds)
    return SuiteChange(
        suite_name=suite,
        run_id=run_id,
        before_id=before_id,
        newly_failing=_name_reasons(kept, newly_failing) if kept is not None else await _add_reasons(connection, run_id, newly_failing),
        newly_passing=newly_passing,
        newly_flaky=newly_flaky,
        is_part=is_part,
    )


async def _count_failing(
    connection: AsyncConnection, run_id: str, before_id: str
) -> tuple[Mapping[str, Counts], Mapping[str, Counts], bool]:
    """Return how the cases that did not pass at least once came out in both runs, and whether there may be more of them."""
    failing, more = await _list_failing(connection, run_id)
    failed, more_before = await _list_failing(connection, before_id)
    cases = list(dict.fromkeys([*failing, *failed]))
    after, before = await _count_cases(connection, run_id, cases), await _count_cases(connection, before_id, cases)
    return after, before, more or more_before


async def _list_failing(connection: AsyncConnection, run_id: str) -> tuple[list[str], bool]:
    """Return the cases that did not pass at least once, and whether there may be more."""
    found: dict[str, None] = {}
    more = False
    for outcome in ("fail", "error"):
        query = sa.select(run_entries.c.case_id).where(run_entries.c.run_id == run_id, run_entries.c.outcome == outcome)
        newest = query.order_by(run_entries.c.created_at.desc(), run_entries.c.id.desc()).limit(MOST_FAILED + 1)
        cases = list((await connection.execute(newest)).scalars())
        more = more or len(cases) > MOST_FAILED
        found |= dict.fromkeys(cases[:MOST_FAILED])
    return list(found)[:MOST_CASES], more or len(found) > MOST_CASES


async def _count_cases(connection: AsyncConnection, run_id: str, cases: Sequence[str]) -> dict[str, Counts]:
    outcomes: dict[str, dict[str, int]] = {}
    columns = (run_entries.c.case_id, run_entries.c.outcome, sa.func.count())
    query = sa.select(*columns).where(run_entries.c.run_id == run_id, run_entries.c.case_id.in_(cases))
    for case, outcome, count in await connection.execute(query.group_by(run_entries.c.case_id, run_entries.c.outcome)):
        outcomes.setdefault(case, {})[outcome] = int(count)
    # In the order in which they were found: the newest first.
    return {case: count_outcomes(outcomes[case]) for case in cases if case in outcomes}


async def _read_thresholds(connection: AsyncConnection, run_id: str) -> Mapping[str, float]:
    """Return which cases pass at a share of their attempts."""
    # Reading a large suite takes long, and few have such a case: whether it may have one is looked for in its text first.
    text = runs.c.document
    query = sa.select(runs).where(runs.c.id == run_id, sa.or_(text.contains("pass_rate"), text.contains("passThreshold")))
    found = (await connection.execute(query)).mappings().first()
    if found is None:
        return {}
    suite = await asyncio.to_thread(suite_of_run, dict(found))
    return {case.id: case.pass_threshold for case in suite.cases if case.pass_threshold is not None}


def _name_reasons(kept: RunTally, turned: TurnedCases) -> TurnedCases:
    """Return newly failing cases with why the first of them fail, as it was kept."""
    firsts = {case.case: kept.cases[case.case].failed[:1] for case in turned.cases[:_NAMED]}
    reasons = {case: find_reason(failed[0], None) for case, failed in firsts.items() if failed}
    told = (msgspec.structs.replace(case, reason=reasons.get(case.case, "")) for case in turned.cases)
    return msgspec.structs.replace(turned, cases=tuple(told))


async def _add_reasons(connection: AsyncConnection, run_id: str, turned: TurnedCases) -> TurnedCases:
    """Return newly failing cases with why the first of them fail."""
    told: list[TurnedCase] = []
    for number, case in enumerate(turned.cases):
        if number < _NAMED:
            query = sa.select(*DIGEST).where(run_entries.c.run_id == run_id, run_entries.c.case_id == case.case)
            failed = query.where(run_entries.c.outcome.in_(("fail", "error"))).order_by(run_entries.c.attempt).limit(1)
            row = (await connection.execute(failed)).mappings().first()
            reason = "" if row is None else find_reason(await asyncio.to_thread(read_digest, dict(row)), None)
            told.append(msgspec.structs.replace(case, reason=reason))
        else:
            told.append(case)
    return msgspec.structs.replace(turned, cases=tuple(told))
