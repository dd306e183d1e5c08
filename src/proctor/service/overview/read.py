"""Reads the overview of a project, at a cost that does not grow with it: every query goes along an index and is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.overview import MOST_TREND, FailedResult, NewReason, Overview, TrendPoint, find_new_reasons, make_trend_point
from proctor.errors import StoreError
from proctor.model.evidence import Json
from proctor.model.show import shorten
from proctor.model.typed import make_json_decoder
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import find_seen, list_seen
from proctor.service.hub import Hub, stamp
from proctor.service.notify import alerts
from proctor.service.overview.suites import find_suite_changes
from proctor.service.runs.requests import require_run_reader
from proctor.service.traces.search import read_moment
from proctor.store.bodies import expand_bytes
from proctor.store.pages import Row
from proctor.store.tables import projects, results, runs

MOST_SINCE = 150
"""Failed results since the moment that are looked at, the newest first; of each outcome."""
MOST_BEFORE = 250
"""Failed results before it whose reasons count as known."""
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
    """Return new reasons, the commonest first, and how many there are."""
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
    """Return why a result failed: the first assertion that did not hold, else what is said of the case."""
    try:
        read = _RESULT.decode(expand_bytes(row["body"]))
    # One broken body must not keep everything else from being seen.
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
"""Runs since a moment that are looked at; of more only that there are more is said."""
MOST_RULES = 100
_COLUMNS = ("id", "suite_name", "name", "status", "outcome", "counts", "created_at")


async def read_overview(hub: Hub, caller: Caller, project_id: str, *, since: str | None = None) -> Overview:
    """Return what is going on in a project, and what has changed since a moment: a day ago, where none is named."""
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
    """Return the rules that fire, of the newest hundred; None for who does not read alerts."""
    if caller.kind != "organization":
        return None
    found: dict[str, Any] = await alerts.list_rules(hub, caller, project_id=project_id, limit=MOST_RULES)
    return [rule for rule in found["data"] if rule["active"] and rule["state"] == "firing"]


async def _read_trend(connection: AsyncConnection, caller: Caller, project_id: str) -> tuple[TrendPoint, ...]:
    # Of a run that broke off nobody knows how the rest would have gone: it is no point of the trend.
    query = list_seen(runs, caller, columns=_COLUMNS, project_id=project_id, status="completed").whole
    found = await _fetch_newest(connection, query, MOST_TREND)
    return tuple(make_trend_point(run, run["counts"] or {}) for run in reversed(found))


async def _list_new_runs(connection: AsyncConnection, caller: Caller, project_id: str, since: str) -> list[Row]:
    query = list_seen(runs, caller, columns=_COLUMNS, along=(runs.c.created_at >= since,), project_id=project_id).whole
    return await _fetch_newest(connection, query, MOST_NEW_RUNS + 1)


async def _fetch_newest(connection: AsyncConnection, query: sa.Select[Any], limit: int) -> list[Row]:
    newest = query.order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(limit)
    return [dict(row) for row in (await connection.execute(newest)).mappings()]
