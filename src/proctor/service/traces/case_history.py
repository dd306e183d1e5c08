"""The history of a case: how it came out in run after run, and day after day on the traces of its agents.

A case is a document that may hold several cases; `key` narrows it to one of them by its id inside the document. A run that was started from
cases of the project knows which they were. Of one that was started from a suite, cases with the same ids are meant: that is how whoever
sends suites names them. A run in which one case both passed and did not is flaky. On traces the results
of the case itself are counted by day (UTC); a trace that was evaluated against two versions counts for both.

Everything goes along an index: runs of the project newest first, each with a look whether it has the case; results of the case newest
first, a bounded number for each day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.scoring.intervals import wilson
from proctor.scoring.statistics import count_outcomes
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import find_seen, list_seen, require_reader, require_run_reader
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse
from proctor.service.refusals import Refusal
from proctor.service.traces.case_keys import list_case_keys
from proctor.store.sql.pages import Row, clamp_limit
from proctor.store.sql.tables import cases, results, run_entries, runs

MOST_OF_A_DAY = 10_000
"""Results of one day that are counted, the newest."""
MOST_OF_A_PAGE = 20_000
"""Results that are counted for one page: it may be short, and yet there is a way on."""
_RUN = ("id", "suite_name", "name", "target", "status", "created_at", "completed_at")
_OUTCOMES = ("pass", "fail", "error", "skip")
_DAY = len("2031-01-31")


async def list_run_history(
    hub: Hub, caller: Caller, id: str, *, key: str | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """Return a page of the runs that had the case, newest first, each with its pass rate and the interval of it."""
    require_run_reader(caller)
    async with hub.database.reading() as connection:
        case = await find_seen(connection, cases, caller, "case", id)
    keys = await _choose_keys(case, key)
    # As a run of several documents calls a case whose id another of them has, too.
    looked_for = [*keys, *(f"{case['name']}/{one}" for one in keys)]
    had = sa.exists().where(run_entries.c.run_id == runs.c.id, run_entries.c.case_id.in_(looked_for))
    of_case = runs.c.settings["from_cases"].as_string()
    mine = sa.or_(of_case.is_(None), of_case.contains(f'"{id}"', autoescape=True))
    async with hub.database.reading() as connection:
        query = list_seen(runs, caller, project_id=case["project_id"], columns=(*_RUN, "settings"), beside=(mine, had))
        page = await fetch_page_or_refuse(connection, query, runs, limit=limit, cursor=cursor)
        in_runs = {row["id"]: find_keys_in_run(row["settings"], id, keys) for row in page.rows}
        counted = await count_attempts(connection, list(in_runs), sorted({name for names in in_runs.values() for name in names}))
    rows = [
        _show_run(row, {name: found for name, found in counted.get(row["id"], {}).items() if name in in_runs[row["id"]]})
        for row in page.rows
    ]
    return {"data": rows, "_meta": {"next": page.next, "prev": page.prev, "limit": page.limit}}


async def list_trace_history(
    hub: Hub, caller: Caller, id: str, *, key: str | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """Return the days on which traces were decided against the case, newest first, each with its pass rate and the interval of it."""
    require_reader(caller)
    size, counted = clamp_limit(limit), 0
    before = None if cursor is None else _read_day(cursor)
    rows: list[dict[str, Json]] = []
    async with hub.database.reading() as connection:
        case = await find_seen(connection, cases, caller, "case", id)
        keys = None if key is None else await _choose_keys(case, key)
        while True:
            day = await _find_day(connection, caller, id, before, keys)
            if day is None or len(rows) == size or counted >= MOST_OF_A_PAGE:
                break
            row = await _count_day(connection, caller, id, day, keys)
            counted += sum(row["counts"].values())
            rows.append(row)
            before = day
    return {"data": rows, "_meta": {"next": before if day is not None else None, "prev": None, "limit": size}}


async def count_attempts(connection: AsyncConnection, run_ids: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, dict[str, int]]]:
    """Return how many attempts of these cases came out how, by run and case."""
    if not run_ids or not keys:
        return {}
    entry = run_entries.c
    query = sa.select(entry.run_id, entry.case_id, entry.outcome, sa.func.count()).where(entry.run_id.in_(run_ids), entry.case_id.in_(keys))
    found: dict[str, dict[str, dict[str, int]]] = {}
    for run_id, case, outcome, count in await connection.execute(query.group_by(entry.run_id, entry.case_id, entry.outcome)):
        found.setdefault(run_id, {}).setdefault(case, {})[outcome] = int(count)
    return found


def find_keys_in_run(settings: Mapping[str, Any] | None, id: str, keys: Sequence[str]) -> set[str]:
    """Return what a run with these settings calls the cases of a document; nothing where it was started from other cases."""
    started_from = (settings or {}).get("from_cases")
    if started_from is None:
        return set(keys)
    renamed = started_from.get(id)
    return set() if renamed is None else {renamed.get(key, key) for key in keys}


def describe_counts(by_case: Iterable[Mapping[str, int]]) -> dict[str, Json]:
    """Return what the attempts of some cases came to: counts, pass rate with its interval, and whether one of the cases is flaky."""
    each = list(by_case)
    counts = {outcome: sum(found.get(outcome, 0) for found in each) for outcome in _OUTCOMES}
    decided = count_outcomes(counts)
    bounds = wilson(decided)
    return {
        "counts": counts,
        "decided": decided.runs,
        "passed": decided.passes,
        "pass_rate": decided.rate if decided.runs else None,
        "low": bounds.low if decided.runs else None,
        "high": bounds.high if decided.runs else None,
        "flaky": any(count_outcomes(found).flaky for found in each),
    }


def _show_run(row: Row, by_case: Mapping[str, Mapping[str, int]]) -> dict[str, Json]:
    told = describe_counts(by_case.values())
    if (row["settings"] or {}).get("backtest") is not None:
        # Its attempts are different traces: that they differ says nothing about one of them.
        told["flaky"] = False
    return {
        "run_id": row["id"],
        **{name: row[name] for name in _RUN if name != "id"},
        "name": row["name"] or "",
        "cases": sorted(by_case),
        **told,
    }


async def _choose_keys(case: Row, key: str | None) -> list[str]:
    """Return the ids of the cases in a document; refuse one that is not there."""
    keys = await list_case_keys(case)
    if key is None:
        return keys
    if key not in keys:
        known = ", ".join(keys[:20])
        raise Refusal("VALIDATION_ERROR", "the document has no such case", fields={"key": [f"expected one of {known}, found {key[:80]!r}"]})
    return [key]


def _results_of(
    caller: Caller, id: str, keys: Sequence[str] | None, along: Sequence[sa.ColumnElement[bool]], *columns: str
) -> sa.Select[Any]:
    beside = () if keys is None else (results.c.case_key.in_(keys),)
    return list_seen(results, caller, case_id=id, columns=columns, along=along, beside=beside).whole


async def _find_day(connection: AsyncConnection, caller: Caller, id: str, before: str | None, keys: Sequence[str] | None) -> str | None:
    """Return the last day before another on which there are results."""
    along = () if before is None else (results.c.created_at < before,)
    query = _results_of(caller, id, keys, along, "created_at").order_by(results.c.created_at.desc(), results.c.id.desc()).limit(1)
    found = (await connection.execute(query)).scalar_one_or_none()
    return None if found is None else str(found)[:_DAY]


async def _count_day(connection: AsyncConnection, caller: Caller, id: str, day: str, keys: Sequence[str] | None) -> dict[str, Json]:
    following = (date.fromisoformat(day) + timedelta(days=1)).isoformat()
    along = (results.c.created_at >= day, results.c.created_at < following)
    newest = _results_of(caller, id, keys, along, "outcome", "case_version").order_by(results.c.created_at.desc(), results.c.id.desc())
    some = newest.limit(MOST_OF_A_DAY).subquery()
    query = sa.select(some.c.outcome, some.c.case_version, sa.func.count()).group_by(some.c.outcome, some.c.case_version)
    counts: dict[str, int] = {}
    versions: set[int] = set()
    for outcome, version, count in await connection.execute(query):
        counts[outcome] = counts.get(outcome, 0) + int(count)
        versions.add(int(version))
    told = describe_counts([counts])
    # Every trace asks something else: that some pass and some do not says nothing about whether the same question is answered the same.
    del told["flaky"]
    return {"day": day, "versions": sorted(versions), "newest_only": sum(counts.values()) >= MOST_OF_A_DAY, **told}


def _read_day(cursor: str) -> str:
    try:
        if len(cursor) != _DAY:
            raise ValueError
        return date.fromisoformat(cursor).isoformat()
    except ValueError:
        raise Refusal("BAD_REQUEST", "the cursor is not one that a page gave out", hint="start again without a cursor") from None
