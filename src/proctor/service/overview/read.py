"""Reads the overview of a project with bounded, indexed queries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.history.compare import find_reason
from proctor.actions.history.overview import (
    MOST_TREND,
    FailedResult,
    NewReason,
    Overview,
    SuiteChange,
    TrendPoint,
    TurnedCase,
    TurnedCases,
    find_new_reasons,
    find_turned,
    make_trend_point,
)
from proctor.actions.workspace.run_tally import RunTally
from proctor.errors import StoreError
from proctor.model.evidence import Json
from proctor.model.show import shorten
from proctor.model.typed import make_json_decoder
from proctor.scoring.intervals import Counts
from proctor.scoring.statistics import count_outcomes
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import find_seen, list_seen
from proctor.service.hub import Hub, stamp
from proctor.service.notify import alerts
from proctor.service.runs.figures import read_tally
from proctor.service.runs.requests import require_run_reader
from proctor.service.runs.results import suite_of_run
from proctor.service.traces.search import read_moment
from proctor.store.runs.entry_digests import DIGEST, read_digest
from proctor.store.sql.compressed_json import expand_bytes
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import projects, results, run_entries, runs

# --- changed cases between the newest run of a suite and the last one before a time

MOST_SUITES = 5
"""Suites that are compared."""
MOST_EARLIER = 500
"""Runs before the time that are searched for the last of each suite."""
MOST_FAILED = 1_000
"""Newest failed attempts of a run that are examined."""
MOST_CASES = 200
"""Cases that are counted."""
_NAMED = 10
"""Newly failing cases whose reason is read."""


async def find_suite_changes(
    hub: Hub, connection: AsyncConnection, caller: Caller, project_id: str, new: Sequence[Row], since: str
) -> tuple[SuiteChange, ...]:
    """Return the changes of each suite with a completed run since the time; `new` are the runs since then, newest first."""
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
        # A new suite is compared with its own first run.
        first = oldest[suite]["id"] if oldest[suite]["id"] != run["id"] else None
        before = earlier.get(suite, first)
        # Both have ended and do not change.
        key = ("suite change", run["id"], before)
        known: SuiteChange | None = hub.run_facts.get(key)
        if known is None:
            known = await _compare_suite(connection, suite, run["id"], before)
            hub.run_facts.put(key, known, 1)
        changes.append(known)
    return tuple(changes)


async def _find_earlier(connection: AsyncConnection, caller: Caller, project_id: str, since: str) -> dict[str, str]:
    """Return the last completed run of each suite before the time."""
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
    tally, tally_before = await read_tally(connection, run_id), await read_tally(connection, before_id)
    if tally is not None and tally_before is not None:
        after, before, is_part = tally.count_by_case(), tally_before.count_by_case(), False
    else:
        after, before, is_part = await _count_failing(connection, run_id, before_id)
    thresholds = await _read_thresholds(connection, run_id)
    newly_failing, newly_passing, newly_flaky = find_turned(before, after, thresholds)
    return SuiteChange(
        suite_name=suite,
        run_id=run_id,
        before_id=before_id,
        newly_failing=_name_reasons(tally, newly_failing) if tally is not None else await _add_reasons(connection, run_id, newly_failing),
        newly_passing=newly_passing,
        newly_flaky=newly_flaky,
        is_part=is_part,
    )


async def _count_failing(
    connection: AsyncConnection, run_id: str, before_id: str
) -> tuple[Mapping[str, Counts], Mapping[str, Counts], bool]:
    """Return the counts of cases that did not always pass in both runs, and whether there may be more of them."""
    failing, more = await _list_failing(connection, run_id)
    failed, more_before = await _list_failing(connection, before_id)
    cases = list(dict.fromkeys([*failing, *failed]))
    after, before = await _count_cases(connection, run_id, cases), await _count_cases(connection, before_id, cases)
    return after, before, more or more_before


async def _list_failing(connection: AsyncConnection, run_id: str) -> tuple[list[str], bool]:
    """Return the cases that did not always pass, and whether there may be more."""
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
    # In the order in which they were found: newest first.
    return {case: count_outcomes(outcomes[case]) for case in cases if case in outcomes}


async def _read_thresholds(connection: AsyncConnection, run_id: str) -> Mapping[str, float]:
    """Return the pass thresholds of cases."""
    # Reading a large suite is slow, and few have thresholds: its text is searched first.
    text = runs.c.document
    query = sa.select(runs).where(runs.c.id == run_id, sa.or_(text.contains("pass_rate"), text.contains("passThreshold")))
    found = (await connection.execute(query)).mappings().first()
    if found is None:
        return {}
    suite = await asyncio.to_thread(suite_of_run, dict(found))
    return {case.id: case.pass_threshold for case in suite.cases if case.pass_threshold is not None}


def _name_reasons(tally: RunTally, turned: TurnedCases) -> TurnedCases:
    """Return newly failing cases with stored reasons of the first of them."""
    firsts = {case.case: tally.cases[case.case].failed[:1] for case in turned.cases[:_NAMED]}
    reasons = {case: find_reason(failed[0], None) for case, failed in firsts.items() if failed}
    named = (msgspec.structs.replace(case, reason=reasons.get(case.case, "")) for case in turned.cases)
    return msgspec.structs.replace(turned, cases=tuple(named))


async def _add_reasons(connection: AsyncConnection, run_id: str, turned: TurnedCases) -> TurnedCases:
    """Return newly failing cases with the reasons of the first of them."""
    named: list[TurnedCase] = []
    for number, case in enumerate(turned.cases):
        if number < _NAMED:
            query = sa.select(*DIGEST).where(run_entries.c.run_id == run_id, run_entries.c.case_id == case.case)
            failed = query.where(run_entries.c.outcome.in_(("fail", "error"))).order_by(run_entries.c.attempt).limit(1)
            row = (await connection.execute(failed)).mappings().first()
            reason = "" if row is None else find_reason(await asyncio.to_thread(read_digest, dict(row)), None)
            named.append(msgspec.structs.replace(case, reason=reason))
        else:
            named.append(case)
    return msgspec.structs.replace(turned, cases=tuple(named))


# --- new reasons of failing results of traces

MOST_SINCE = 150
"""Newest failed results since the time that are examined, of each outcome."""
MOST_BEFORE = 250
"""Failed results before it whose reasons are known."""
MOST_REASON = 300
"""Characters of a reason."""


class _Assertion(msgspec.Struct):
    outcome: str = ""
    check: str | None = None
    label: str | None = None
    reason: str | None = None
    code: str | None = None


class _Result(msgspec.Struct):
    reason: str | None = None
    code: str | None = None
    assertions: list[_Assertion] = []


_RESULT = make_json_decoder(_Result)


async def find_trace_reasons(connection: AsyncConnection, caller: Caller, project_id: str, since: str) -> tuple[tuple[NewReason, ...], int]:
    """Return new reasons, the most frequent first, and their number."""
    new = await _list_failed(connection, caller, project_id, results.c.created_at >= since, MOST_SINCE)
    if not new:
        return (), 0
    known = await _list_failed(connection, caller, project_id, results.c.created_at < since, MOST_BEFORE)
    return await asyncio.to_thread(lambda: find_new_reasons(_read_all(new), _read_all(known)))


async def _list_failed(connection: AsyncConnection, caller: Caller, project_id: str, when: sa.ColumnElement[bool], limit: int) -> list[Row]:
    found: list[Row] = []
    for outcome in ("error", "fail"):
        columns = ("id", "trace_id", "outcome", "code", "body", "created_at")
        query = list_seen(results, caller, columns=columns, along=(when,), project_id=project_id, outcome=outcome).whole
        newest = query.order_by(results.c.created_at.desc(), results.c.id.desc()).limit(limit)
        found += [dict(row) for row in (await connection.execute(newest)).mappings()]
    return found


def _read_all(rows: Sequence[Row]) -> list[FailedResult]:
    return [_read_failed(row) for row in rows]


def _read_failed(row: Row) -> FailedResult:
    """Return why a result failed: the reason of the first failed assertion, or of the case."""
    try:
        read = _RESULT.decode(expand_bytes(row["body"]))
    # One damaged body must not hide the others.
    except (msgspec.MsgspecError, StoreError) as error:
        read = _Result(reason=f"the stored result cannot be read: {error}")
    reason, code = read.reason or "", row["code"] or read.code
    for assertion in read.assertions:
        if assertion.outcome in ("fail", "error"):
            name = assertion.label or assertion.check
            reason = f"{name}: {assertion.reason or ''}" if name else assertion.reason or ""
            code = code or assertion.code
            break
    return FailedResult(id=row["id"], trace_id=row["trace_id"], outcome=row["outcome"], code=code, reason=shorten(reason, MOST_REASON))


DAY_S = 86_400
MOST_NEW_RUNS = 100
"""Runs since a time that are examined."""
MOST_RULES = 100
_COLUMNS = ("id", "suite_name", "name", "status", "outcome", "counts", "created_at")


async def read_overview(hub: Hub, caller: Caller, project_id: str, *, since: str | None = None) -> Overview:
    """Return the state of a project, and its changes since a time, by default a day ago."""
    require_run_reader(caller)
    moment = stamp(hub.clock() - DAY_S) if since is None else read_moment(since, "since")
    async with hub.database.reading() as connection:
        project = await find_seen(connection, projects, caller, "project", project_id)
        trend = await _read_trend(connection, caller, project["id"])
        new = await _list_new_runs(connection, caller, project["id"], moment)
        suites = await find_suite_changes(hub, connection, caller, project["id"], new[:MOST_NEW_RUNS], moment)
        reasons, total = await find_trace_reasons(connection, caller, project["id"], moment)
    counted: dict[str, int] = {}
    for run in new[:MOST_NEW_RUNS]:
        counted[run["status"]] = counted.get(run["status"], 0) + 1
    return Overview(
        project_id=project["id"],
        since=moment,
        trend=trend,
        alerts=await list_firing_rules(hub, caller, project["id"]),
        new_runs=counted,
        more_runs=len(new) > MOST_NEW_RUNS,
        suites=suites,
        reasons=reasons,
        more_reasons=total - len(reasons),
    )


async def read_trend(hub: Hub, caller: Caller, project_id: str) -> tuple[TrendPoint, ...]:
    """Return the latest completed runs of a project, oldest first."""
    require_run_reader(caller)
    async with hub.database.reading() as connection:
        project = await find_seen(connection, projects, caller, "project", project_id)
        return await _read_trend(connection, caller, project["id"])


async def list_firing_rules(hub: Hub, caller: Caller, project_id: str) -> list[dict[str, Json]] | None:
    """Return the firing rules among the newest hundred; None without access to alerts."""
    if caller.kind != "organization":
        return None
    found: dict[str, Any] = await alerts.list_rules(hub, caller, project_id=project_id, limit=MOST_RULES)
    return [rule for rule in found["data"] if rule["active"] and rule["state"] == "firing"]


async def _read_trend(connection: AsyncConnection, caller: Caller, project_id: str) -> tuple[TrendPoint, ...]:
    # Only completed runs: the rest of an aborted run is unknown.
    query = list_seen(runs, caller, columns=_COLUMNS, project_id=project_id, status="completed").whole
    found = await _fetch_newest(connection, query, MOST_TREND)
    return tuple(make_trend_point(run, run["counts"] or {}) for run in reversed(found))


async def _list_new_runs(connection: AsyncConnection, caller: Caller, project_id: str, since: str) -> list[Row]:
    query = list_seen(runs, caller, columns=_COLUMNS, along=(runs.c.created_at >= since,), project_id=project_id).whole
    return await _fetch_newest(connection, query, MOST_NEW_RUNS + 1)


async def _fetch_newest(connection: AsyncConnection, query: sa.Select[Any], limit: int) -> list[Row]:
    newest = query.order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(limit)
    return [dict(row) for row in (await connection.execute(newest)).mappings()]
