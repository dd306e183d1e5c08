"""The history of a case: how it came out in run after run, and day after day on the traces of its agents.

A case is a document that may hold several cases; `key` narrows it to one of them by its id inside the document. A run that was started from
cases of the project knows which they were. Of one that was started from a suite, cases with the same ids are meant: that is how whoever
sends suites names them. A run in which one case both passed and did not is flaky. On traces the results
of the case itself are counted by day (UTC); a trace that was evaluated against two versions counts for both.

Everything goes along an index: runs of the project newest first, each with a look whether it has the case; results of the case newest
first, a bounded number for each day.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.scoring.intervals import wilson
from proctor.scoring.reduce import reduce_attempts
from proctor.scoring.statistics import count_outcomes
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import find_seen, list_seen, query_seen, require_reader, require_run_reader
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse
from proctor.service.refusals import Refusal
from proctor.service.suites.documents import read_sent_suite
from proctor.store.sql.pages import Row, clamp_limit
from proctor.store.sql.tables import cases, results, run_entries, runs

MOST_KEYS = 500
"""Ids of one document that are looked for in runs; a database compares no more at once."""
_MOST_KEPT = 500
_LARGEST_KEPT = 20_000
"""Characters of a document that is remembered: what is remembered must not take much room."""
_known: OrderedDict[tuple[str, str, str], list[str]] = OrderedDict()
"""By name, dialect and document: what was read depends on nothing else."""


async def list_case_keys(case: Row) -> list[str]:
    """Return the ids of the cases in the document of a case; none where it cannot be read any more."""
    place = (case["name"], case["dialect"], case["document"])
    found = _known.get(place)
    if found is None:
        try:
            suite, _ = await read_sent_suite(case["document"], dialect=case["dialect"], name=case["name"])
            found = [each.id for each in suite.cases[:MOST_KEYS]]
        except Refusal:
            # It was read when it was written; the rules have changed since, and the case itself says so where it is decided.
            found = []
        if len(case["document"]) <= _LARGEST_KEPT:
            _known[place] = found
        while len(_known) > _MOST_KEPT:
            _known.popitem(last=False)
    elif place in _known:
        _known.move_to_end(place)
    return found


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


# --- how cases stand, for a list of them: the last outcome, and how the latest runs or traces went


LATEST = 20
"""Runs of the project, and results of each case, that are looked at."""
_MOST_KEYS = 5_000
"""Ids of cases inside documents that are looked for at once."""
_LARGEST = 20_000
"""Characters of a document whose cases are looked for in runs; of a larger one the page of the case tells it."""


async def summarize_cases(hub: Hub, caller: Caller, project_id: str, ids: Sequence[str]) -> dict[str, dict[str, Json]]:
    """Return the last outcome and the latest pass rates, oldest first, of some cases of a project, by their ids."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        found = await connection.execute(query_seen(cases, caller, project_id=project_id).where(cases.c.id.in_(ids)))
        rows: dict[str, Row] = {row["id"]: dict(row) for row in found.mappings()}
    keys = {id: await list_case_keys(row) for id, row in rows.items() if len(row["document"]) <= _LARGEST}
    async with hub.database.reading() as connection:
        latest = await _list_latest_runs(connection, caller, project_id)
        names = {name for run in latest for id, some in keys.items() for name in find_keys_in_run(run["settings"], id, some)}
        wanted = sorted(names)[:_MOST_KEYS]
        counted = await count_attempts(connection, [run["id"] for run in latest], wanted)
        told = {id: await _list_latest_results(connection, caller, id) for id in rows}
    return {id: _summarize(id, keys.get(id, ()), latest, counted, told[id]) for id in rows}


async def _list_latest_runs(connection: AsyncConnection, caller: Caller, project_id: str) -> list[Row]:
    # A key that is restricted to some agents does not read runs.
    if caller.agent_ids is not None:
        return []
    query = list_seen(runs, caller, project_id=project_id, columns=("id", "created_at", "settings"))
    rows = (await fetch_page_or_refuse(connection, query, runs, limit=LATEST)).rows
    # A backtest says how a case would have stood; it is not how it stands.
    return [row for row in rows if (row["settings"] or {}).get("backtest") is None]


async def _list_latest_results(connection: AsyncConnection, caller: Caller, id: str) -> list[tuple[str, str]]:
    query = list_seen(results, caller, case_id=id, columns=("created_at", "outcome")).whole
    found = await connection.execute(query.order_by(results.c.created_at.desc(), results.c.id.desc()).limit(LATEST))
    return [(str(row["created_at"]), str(row["outcome"])) for row in found.mappings()]


def _summarize(
    id: str,
    keys: Sequence[str],
    latest: Sequence[Row],
    counted: Mapping[str, Mapping[str, Mapping[str, int]]],
    told: Sequence[tuple[str, str]],
) -> dict[str, Json]:
    in_runs: list[tuple[str, list[Mapping[str, int]]]] = []
    for run in latest:
        mine = find_keys_in_run(run["settings"], id, keys)
        found = [counts for case, counts in counted.get(run["id"], {}).items() if case in mine]
        if found:
            in_runs.append((run["created_at"], found))
    described = [(at, describe_counts(by_case)) for at, by_case in in_runs]
    last: tuple[str, str] | None = told[0] if told else None
    if described and (last is None or described[0][0] > last[0]):
        last = (described[0][0], reduce_attempts({word: count for word, count in described[0][1]["counts"].items() if count}))
    rates: list[Json] = [one["pass_rate"] for _, one in described]
    if not rates:
        rates = [None if outcome == "skip" else float(outcome == "pass") for _, outcome in told]
    return {
        "last_outcome": None if last is None else last[1],
        "last_at": None if last is None else last[0],
        "over": "runs" if described else "traces",
        "rates": rates[::-1],
        "flaky_runs": sum(one["flaky"] for _, one in described),
    }
