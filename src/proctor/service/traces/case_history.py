"""The history of a case: its results by run, and by day on the traces of its agents.

A case is a document that may contain several cases; `key` selects one by its id inside the document. A run that was started from cases of
the project names them; in a run of a suite, cases with the same ids count. A case that passed in some attempts only makes its run flaky.
Results on traces are counted by day (UTC).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from datetime import date, timedelta
from functools import partial
from typing import Annotated, Any, TypedDict, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.decide.prepare import PreparedSuite
from proctor.errors import EvidenceError, StoreError
from proctor.model.evidence import Evidence, Json
from proctor.scoring.intervals import wilson
from proctor.scoring.score import reduce_attempts
from proctor.scoring.statistics import count_outcomes
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_visible, require_run_reader, select_visible
from proctor.service.access.transactions import read_visible, reading
from proctor.service.caches import Agent, SizedLruCache, make_agent
from proctor.service.decisions.trace_evidence import read_agent_evidence
from proctor.service.decisions.trace_verdicts import ActiveCase, describe_failure, is_selected
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse, show_page
from proctor.service.refusals import Refusal
from proctor.service.resource import Counts, Page, about, operation, show_row
from proctor.service.suites.documents import read_sent_suite
from proctor.store.accounts.tenants import query_owned
from proctor.store.sql.pages import Row, clamp_limit, fetch_all
from proctor.store.sql.queries import clean_text
from proctor.store.sql.tables import agents, cases, projects, results, run_entries, runs
from proctor.store.traces.traces import list_pieces

MOST_KEYS = 500
"""Ids of one document that are searched in runs, limited by the database."""
_MOST_CACHED = 500
_LARGEST_CACHED = 20_000
"""Characters of a document that is cached."""
_known = SizedLruCache(_MOST_CACHED)
"""Case ids by name, dialect and document."""


async def list_case_keys(case: Row) -> list[str]:
    """Return the ids of the cases in the document of a case; none if it can no longer be read."""
    place = (case["name"], case["dialect"], case["document"])
    keys: list[str] | None = _known.get(place)
    if keys is None:
        try:
            suite, _ = await read_sent_suite(case["document"], dialect=case["dialect"], name=case["name"])
            keys = [each.id for each in suite.cases[:MOST_KEYS]]
        except Refusal:
            # It was valid when it was written; the rules have changed since, and evaluating the case reports that.
            keys = []
        if len(case["document"]) <= _LARGEST_CACHED:
            _known.put(place, keys, 1)
    return keys


MOST_OF_A_DAY = 10_000
"""Results of one day that are counted, the newest."""
MOST_OF_A_PAGE = 20_000
"""Results that are counted for one page, which may therefore be short."""


class PassRate(TypedDict):
    """The pass rate of a case."""

    counts: Counts
    decided: Annotated[int, about("attempts that passed, failed or errored; skipped ones do not count")]
    passed: int
    pass_rate: Annotated[float | None, about("none if nothing was decided")]
    low: Annotated[float | None, about("of the pass rate, with 95 % confidence (Wilson)")]
    high: float | None


class CaseInRun(PassRate):
    """The results of a case in one run."""

    run_id: str
    suite_name: str
    name: str
    note: str
    target: str | None
    status: str
    created_at: str
    completed_at: str | None
    cases: Annotated[list[str], about("ids of the document's cases in the run")]
    flaky: Annotated[bool, about("whether a case passed in some attempts only")]


class CaseOnDay(PassRate):
    """The results of a case on the traces of one day."""

    day: Annotated[str, about("UTC")]
    versions: Annotated[list[int], about("versions of the case that decided them")]
    newest_only: Annotated[bool, about("whether only the newest 10,000 results of the day are counted")]


Key = Annotated[str | None, about("the id of one case inside the document; default: all", max_length=1000)]
_RUN = ("id", "suite_name", "name", "note", "target", "status", "created_at", "completed_at")
_OUTCOMES = ("pass", "fail", "error", "skip")
_DAY = len("2031-01-31")


@operation("cases", "GET /api/cases/{case_id}/history", name="list_case_history")
async def list_run_history(
    hub: Hub, caller: Caller, id: str, *, key: Key = None, limit: int | None = None, cursor: str | None = None
) -> Page[CaseInRun]:
    """List the runs of the project that had the case, newest first, each with its pass rate; found by the ids inside the document."""
    require_run_reader(caller)
    case = await read_visible(hub, caller, cases, "case", id)
    keys = await _choose_keys(case, key)
    # A run of several documents prefixes the ids that two of them share.
    looked_for = [*keys, *(f"{case['name']}/{each}" for each in keys)]
    of_case = runs.c.settings["from_cases"].as_string()
    mine = sa.or_(of_case.is_(None), of_case.contains(f'"{id}"', autoescape=True))
    return await _list_runs(
        hub, caller, case["project_id"], looked_for, lambda settings: find_keys_in_run(settings, id, keys), [mine], limit, cursor
    )


@operation("projects", "GET /api/projects/{project_id}/case-history", name="list_suite_case_history")
async def list_suite_case_history(
    hub: Hub,
    caller: Caller,
    project_id: str,
    *,
    suite: Annotated[str, about("name of the suite", max_length=1000)],
    case: Annotated[str, about("id of the case in the suite", max_length=1000)],
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[CaseInRun]:
    """List the runs of a suite that had a case, newest first, each with its pass rate; also of suites that were sent with their runs."""
    require_run_reader(caller)
    project = await read_visible(hub, caller, projects, "project", project_id)
    return await _list_runs(hub, caller, project["id"], [case], lambda _: {case}, [runs.c.suite_name == clean_text(suite)], limit, cursor)


async def _list_runs(
    hub: Hub,
    caller: Caller,
    project_id: str,
    looked_for: Sequence[str],
    find_keys: Callable[[Mapping[str, Any] | None], set[str]],
    conditions: Sequence[sa.ColumnElement[bool]],
    limit: int | None,
    cursor: str | None,
) -> Page[CaseInRun]:
    had = sa.exists().where(run_entries.c.run_id == runs.c.id, run_entries.c.case_id.in_(looked_for))
    async with hub.database.reading() as connection:
        query = select_visible(runs, caller, project_id=project_id, columns=(*_RUN, "settings"), filters=(*conditions, had))
        page = await fetch_page_or_refuse(connection, query, runs, limit=limit, cursor=cursor)
        in_runs = {row["id"]: find_keys(row["settings"]) for row in page.rows}
        counted = await count_attempts(connection, list(in_runs), sorted({name for names in in_runs.values() for name in names}))

    def show(row: Row) -> CaseInRun:
        by_case = {name: found for name, found in counted.get(row["id"], {}).items() if name in in_runs[row["id"]]}
        figures = describe_counts(by_case.values())
        if (row["settings"] or {}).get("backtest") is not None:
            # Its attempts are different traces, so that different outcomes do not mean flaky.
            figures["flaky"] = False
        return show_row(CaseInRun, row, run_id=row["id"], name=row["name"] or "", cases=sorted(by_case), **figures)

    return show_page(page, show)


@operation("cases", "GET /api/cases/{case_id}/history/traces", name="list_case_trace_history")
async def list_trace_history(
    hub: Hub, caller: Caller, id: str, *, key: Key = None, limit: int | None = None, cursor: str | None = None
) -> Page[CaseOnDay]:
    """List the days on which traces were decided against the case, newest first, each with its pass rate."""
    size, counted = clamp_limit(limit), 0
    before = None if cursor is None else _read_day(cursor)
    rows: list[CaseOnDay] = []
    async with reading(hub, caller) as tx:
        connection = tx.connection
        case = await tx.find_visible(cases, "case", id)
        keys = None if key is None else await _choose_keys(case, key)
        while True:
            day = await _find_day(connection, caller, id, before, keys)
            if day is None or len(rows) == size or counted >= MOST_OF_A_PAGE:
                break
            row = await _count_day(connection, caller, id, day, keys)
            counted += sum(cast(Mapping[str, int], row["counts"]).values())
            rows.append(row)
            before = day
    return {"data": rows, "_meta": {"next": before if day is not None else None, "prev": None, "limit": size}}


async def count_attempts(connection: AsyncConnection, run_ids: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, dict[str, int]]]:
    """Return the number of attempts of these cases by run, case and outcome."""
    if not run_ids or not keys:
        return {}
    entry = run_entries.c
    query = sa.select(entry.run_id, entry.case_id, entry.outcome, sa.func.count()).where(entry.run_id.in_(run_ids), entry.case_id.in_(keys))
    counts_by_run: dict[str, dict[str, dict[str, int]]] = {}
    for run_id, case, outcome, count in await connection.execute(query.group_by(entry.run_id, entry.case_id, entry.outcome)):
        counts_by_run.setdefault(run_id, {}).setdefault(case, {})[outcome] = int(count)
    return counts_by_run


def find_keys_in_run(settings: Mapping[str, Any] | None, id: str, keys: Sequence[str]) -> set[str]:
    """Return the names of a document's cases in a run with these settings; empty if it was started from other cases."""
    started_from = (settings or {}).get("from_cases")
    if started_from is None:
        return set(keys)
    renamed = started_from.get(id)
    return set() if renamed is None else {renamed.get(key, key) for key in keys}


def describe_counts(by_case: Iterable[Mapping[str, int]]) -> dict[str, Json]:
    """Return counts, pass rate with its interval, and whether one of the cases is flaky."""
    each = list(by_case)
    counts = {outcome: sum(outcome_counts.get(outcome, 0) for outcome_counts in each) for outcome in _OUTCOMES}
    decided = count_outcomes(counts)
    bounds = wilson(decided)
    return {
        "counts": counts,
        "decided": decided.runs,
        "passed": decided.passes,
        "pass_rate": decided.rate if decided.runs else None,
        "low": bounds.low if decided.runs else None,
        "high": bounds.high if decided.runs else None,
        "flaky": any(count_outcomes(outcome_counts).flaky for outcome_counts in each),
    }


async def _choose_keys(case: Row, key: str | None) -> list[str]:
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
    filters = () if keys is None else (results.c.case_key.in_(keys),)
    return select_visible(results, caller, case_id=id, columns=columns, along=along, filters=filters).whole


async def _find_day(connection: AsyncConnection, caller: Caller, id: str, before: str | None, keys: Sequence[str] | None) -> str | None:
    along = () if before is None else (results.c.created_at < before,)
    query = _results_of(caller, id, keys, along, "created_at").order_by(results.c.created_at.desc(), results.c.id.desc()).limit(1)
    day = (await connection.execute(query)).scalar_one_or_none()
    return None if day is None else str(day)[:_DAY]


async def _count_day(connection: AsyncConnection, caller: Caller, id: str, day: str, keys: Sequence[str] | None) -> CaseOnDay:
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
    figures = describe_counts([counts])
    # Traces have different inputs, so that different outcomes do not mean flaky.
    del figures["flaky"]
    return show_row(CaseOnDay, figures, day=day, versions=sorted(versions), newest_only=sum(counts.values()) >= MOST_OF_A_DAY)


def _read_day(cursor: str) -> str:
    try:
        if len(cursor) != _DAY:
            raise ValueError
        return date.fromisoformat(cursor).isoformat()
    except ValueError:
        raise Refusal("BAD_REQUEST", "invalid cursor", hint="start again without a cursor") from None


# --- summaries for a list of cases: the last outcome and the latest pass rates


LATEST = 20
"""Runs of the project, and results of each case, that are examined."""
_MOST_KEYS = 5_000
"""Ids of cases inside documents that are searched at once."""
_LARGEST = 20_000
"""Characters of a document whose cases are searched in runs; a larger one is only shown on the page of the case."""


async def summarize_cases(hub: Hub, caller: Caller, project_id: str, ids: Sequence[str]) -> dict[str, dict[str, Json]]:
    """Return the last outcome and the latest pass rates, oldest first, of some cases of a project, by id."""
    async with hub.database.reading() as connection:
        rows_of_cases = await connection.execute(query_visible(cases, caller, project_id=project_id).where(cases.c.id.in_(ids)))
        rows: dict[str, Row] = {row["id"]: dict(row) for row in rows_of_cases.mappings()}
    keys = {id: await list_case_keys(row) for id, row in rows.items() if len(row["document"]) <= _LARGEST}
    async with hub.database.reading() as connection:
        latest = await _list_latest_runs(connection, caller, project_id)
        names = {name for run in latest for id, some in keys.items() for name in find_keys_in_run(run["settings"], id, some)}
        searched_names = sorted(names)[:_MOST_KEYS]
        counted = await count_attempts(connection, [run["id"] for run in latest], searched_names)
        latest_results: dict[str, list[tuple[str, str]]] = {}
        for id in rows:
            query = _results_of(caller, id, None, (), "created_at", "outcome").order_by(results.c.created_at.desc(), results.c.id.desc())
            latest_results[id] = [(row["created_at"], row["outcome"]) for row in await fetch_all(connection, query.limit(LATEST))]
    return {id: _summarize(id, keys.get(id, ()), latest, counted, latest_results[id]) for id in rows}


async def _list_latest_runs(connection: AsyncConnection, caller: Caller, project_id: str) -> list[Row]:
    # A key that is restricted to some agents has no access to runs.
    if caller.agent_ids is not None:
        return []
    query = select_visible(runs, caller, project_id=project_id, columns=("id", "created_at", "settings"))
    rows = (await fetch_page_or_refuse(connection, query, runs, limit=LATEST)).rows
    # A backtest does not show the present state of a case.
    return [row for row in rows if (row["settings"] or {}).get("backtest") is None]


def _summarize(
    id: str,
    keys: Sequence[str],
    latest: Sequence[Row],
    counted: Mapping[str, Mapping[str, Mapping[str, int]]],
    latest_results: Sequence[tuple[str, str]],
) -> dict[str, Json]:
    in_runs: list[tuple[str, list[Mapping[str, int]]]] = []
    for run in latest:
        mine = find_keys_in_run(run["settings"], id, keys)
        counts_of_case = [counts for case, counts in counted.get(run["id"], {}).items() if case in mine]
        if counts_of_case:
            in_runs.append((run["created_at"], counts_of_case))
    described = [(at, describe_counts(by_case)) for at, by_case in in_runs]
    last: tuple[str, str] | None = latest_results[0] if latest_results else None
    if described and (last is None or described[0][0] > last[0]):
        last = (described[0][0], reduce_attempts({outcome: count for outcome, count in described[0][1]["counts"].items() if count}))
    rates: list[Json] = [described_counts["pass_rate"] for _, described_counts in described]
    if not rates:
        rates = [None if outcome == "skip" else float(outcome == "pass") for _, outcome in latest_results]
    return {
        "last_outcome": None if last is None else last[1],
        "last_at": None if last is None else last[0],
        "over": "runs" if described else "traces",
        "rates": rates[::-1],
        "flaky_runs": sum(described_counts["flaky"] for _, described_counts in described),
    }


# Reads stored traces as evidence, for trials of documents and for backtests.
# Traces are decoded one at a time in a thread, since one may need much memory. A trace that cannot be read has an error.

LARGEST_TRACE = 1_000_000
"""Compressed bytes of the largest trace that is read this way."""
COLUMNS = ("id", "agent_id", "external_id", "revision", "status", "size", "body", "metadata", "input_text", "created_at")
"""The columns of a trace that are read."""


class StoredTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A stored trace: its row, its pieces, and its agent."""

    row: Row
    pieces: Sequence[bytes]
    agent: Agent | None


class ReadTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of a trace, or why it cannot be read."""

    row: Row
    evidence: Evidence | None = None
    error: tuple[str, str] | None = None
    """Why it could not be read: a code and a message."""
    is_for: bool = True
    """Whether `when` matches."""

    @property
    def is_decided(self) -> bool:
        """Whether cases are decided on it."""
        return self.is_for and self.evidence is not None and self.evidence.no_run is None

    def list_positions(self, prepared: PreparedSuite) -> list[int]:
        """Return the positions of the cases for this trace; none if it names an unknown case."""
        assert self.evidence is not None
        places = {id(case): position for position, case in enumerate(prepared.cases)}
        return [places[id(case)] for _, case in prepared.cases_for_trace(self.evidence.case)]


async def fetch_pieces(connection: AsyncConnection, organization_id: str, rows: Sequence[Row]) -> list[StoredTrace]:
    """Return rows of traces with their pieces and agents; without pieces if too large."""
    pieces = await list_pieces(connection, [row for row in rows if row["size"] <= LARGEST_TRACE])
    owners = query_owned(agents, organization_id).where(agents.c.id.in_({row["agent_id"] for row in rows}))
    by_id = {row["id"]: make_agent(row) for row in await fetch_all(connection, owners)}
    return [StoredTrace(row=row, pieces=pieces.get(row["id"], ()), agent=by_id.get(row["agent_id"])) for row in rows]


async def read_stored_trace(stored: StoredTrace, when: dict[str, Json] | None) -> ReadTrace:
    """Read the evidence of a trace in a thread, and whether `when` matches."""
    return await asyncio.to_thread(copy_context().run, partial(_read_trace, stored, when))


def _read_trace(stored: StoredTrace, when: dict[str, Json] | None) -> ReadTrace:
    row = stored.row
    if row["size"] > LARGEST_TRACE:
        return ReadTrace(row=row, error=("too_large", f"{row['size']} bytes are more than the limit of {LARGEST_TRACE}"))
    try:
        evidence = read_agent_evidence(stored.pieces, stored.agent)
    except (EvidenceError, StoreError) as error:
        return ReadTrace(row=row, error=describe_failure(error, "the trace"))
    metadata: Mapping[str, Json] = {**evidence.metadata, **(row["metadata"] or {})}
    case = ActiveCase(id="", version=1, project_id="", agent_id=None, name="", when=when, sample=1.0)
    return ReadTrace(row=row, evidence=evidence, is_for=is_selected(case, row["id"], evidence, metadata))
