"""Reads the overview of a project with bounded, indexed queries."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.history.overview import (
    MOST_TREND,
    FailedResult,
    NewReason,
    Overview,
    SuiteChange,
    TraceCounts,
    TrendPoint,
    find_new_reasons,
    make_suite_change,
    make_trend_point,
)
from proctor.errors import StoreError
from proctor.model.show import shorten
from proctor.model.typed import make_json_decoder
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_run_reader, select_visible
from proctor.service.access.transactions import reading
from proctor.service.field_checks import read_moment
from proctor.service.hub import Hub, stamp
from proctor.service.notify import alerts
from proctor.service.resource import about, operation
from proctor.service.runs.comparisons import read_several
from proctor.service.runs.requests import find_previous_runs
from proctor.service.runs.run import RUN_COLUMNS, Run, pair_newest, show_run
from proctor.store.sql.compressed_json import expand_bytes
from proctor.store.sql.pages import Row, fetch_all
from proctor.store.sql.tables import projects, results, runs
from proctor.store.sql.tables import traces as trace_rows

MOST_SUITES = 5
"""Runs that are compared with the one before them."""


async def find_suite_changes(hub: Hub, caller: Caller, project_id: str, new: Sequence[Run]) -> tuple[SuiteChange, ...]:
    """Return the changes of each kind of run with a completed one among `new`, which are newest first."""
    previous = await find_previous_runs(hub, caller, project_id, new)
    changes: list[SuiteChange] = []
    for run, before in pair_newest(new, previous)[:MOST_SUITES]:
        # The comparison of ended runs is cached.
        comparison = None if before is None else (await read_several(hub, caller, [before["id"], run["id"]])).comparisons[0].found
        changes.append(make_suite_change(cast(Row, run), cast(Row, before), comparison))
    return tuple(changes)


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
    return await asyncio.to_thread(lambda: find_new_reasons([_read_failed(row) for row in new], [_read_failed(row) for row in known]))


async def _list_failed(connection: AsyncConnection, caller: Caller, project_id: str, when: sa.ColumnElement[bool], limit: int) -> list[Row]:
    failed: list[Row] = []
    for outcome in ("error", "fail"):
        columns = ("id", "trace_id", "outcome", "code", "body", "created_at")
        query = select_visible(results, caller, columns=columns, along=(when,), project_id=project_id, outcome=outcome).whole
        newest = query.order_by(results.c.created_at.desc(), results.c.id.desc()).limit(limit)
        failed += await fetch_all(connection, newest)
    return failed


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
WEEK_S = 7 * DAY_S
MOST_TRACES = 10_000
"""Newest traces that are counted."""
MOST_NEW_RUNS = 100
"""Runs since a time that are examined."""
MOST_RULES = 100


@operation("projects", "GET /api/projects/{project_id}/overview", name="get_overview")
async def read_overview(
    hub: Hub,
    caller: Caller,
    project_id: str,
    *,
    since: Annotated[str | None, about("changes since this time; ISO 8601. Default: one day ago")] = None,
) -> Overview:
    """Read the state of a project: trend, firing alerts, and changes since a time."""
    require_run_reader(caller)
    moment = stamp(hub.clock() - DAY_S) if since is None else read_moment(since, "since")
    async with reading(hub, caller) as tx:
        connection = tx.connection
        project = await tx.find_visible(projects, "project", project_id)
        trend = await _read_trend(connection, caller, project["id"])
        query = select_visible(runs, caller, columns=RUN_COLUMNS, along=(runs.c.created_at >= moment,), project_id=project["id"]).whole
        new = await _fetch_newest(connection, query, MOST_NEW_RUNS + 1)
        reasons, total = await find_trace_reasons(connection, caller, project["id"], moment)
        week = stamp(hub.clock() - WEEK_S)
        traces = [await _count_traces(connection, caller, project["id"], since) for since in (moment, week)]
    suites = await find_suite_changes(hub, caller, project["id"], new[:MOST_NEW_RUNS])
    return Overview(
        project_id=project["id"],
        since=moment,
        trend=trend,
        alerts=await list_firing_rules(hub, caller, project["id"]),
        new_runs=dict(Counter(run["status"] for run in new[:MOST_NEW_RUNS])),
        more_runs=len(new) > MOST_NEW_RUNS,
        traces=tuple(traces) if any(trace_row.total for trace_row in traces) else (),
        suites=suites,
        reasons=reasons,
        more_reasons=total - len(reasons),
    )


async def count_week(hub: Hub, caller: Caller, project_id: str) -> TraceCounts:
    """Count the traces of a project in the last seven days by outcome."""
    async with hub.database.reading() as connection:
        return await _count_traces(connection, caller, project_id, stamp(hub.clock() - WEEK_S))


async def _count_traces(connection: AsyncConnection, caller: Caller, project_id: str, since: str) -> TraceCounts:
    columns = ("id", "outcome", "created_at")
    query = select_visible(trace_rows, caller, columns=columns, along=(trace_rows.c.created_at >= since,), project_id=project_id).whole
    newest = query.order_by(trace_rows.c.created_at.desc(), trace_rows.c.id.desc()).limit(MOST_TRACES + 1).subquery()
    grouped = sa.select(newest.c.outcome, sa.func.count()).group_by(newest.c.outcome)
    counts = {outcome: int(count) for outcome, count in await connection.execute(grouped)}
    total = sum(counts.values())
    decided = {outcome: count for outcome, count in counts.items() if outcome is not None}
    return TraceCounts(since=since, total=total, counts=decided, is_part=total > MOST_TRACES)


async def read_trend(hub: Hub, caller: Caller, project_id: str) -> tuple[TrendPoint, ...]:
    """Return the latest completed runs of a project, oldest first."""
    require_run_reader(caller)
    async with reading(hub, caller) as tx:
        project = await tx.find_visible(projects, "project", project_id)
        return await _read_trend(tx.connection, caller, project["id"])


async def list_firing_rules(hub: Hub, caller: Caller, project_id: str) -> list[alerts.Alert] | None:
    """Return the firing rules among the newest hundred; None without access to alerts."""
    if caller.kind != "organization":
        return None
    page = await alerts.list_alerts(hub, caller, project_id=project_id, limit=MOST_RULES)
    return [rule for rule in page["data"] if rule["active"] and rule["state"] == "firing"]


async def _read_trend(connection: AsyncConnection, caller: Caller, project_id: str) -> tuple[TrendPoint, ...]:
    # Only completed runs: the rest of an aborted run is unknown.
    query = select_visible(runs, caller, columns=RUN_COLUMNS, project_id=project_id, status="completed").whole
    newest = await _fetch_newest(connection, query, MOST_TREND)
    return tuple(make_trend_point(cast(Row, run), cast(Mapping[str, int], run["counts"])) for run in reversed(newest))


async def _fetch_newest(connection: AsyncConnection, query: sa.Select[Any], limit: int) -> list[Run]:
    newest = query.order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(limit)
    return [show_run(row) for row in await fetch_all(connection, newest)]
