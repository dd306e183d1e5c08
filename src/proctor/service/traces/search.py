"""Searches traces and results: filtered lists without bodies, and single objects.

Received bodies are shown as stored: redacted. A trace that arrived in pieces is shown as a list; one that is too large is not shown.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import EvidenceError, InputError, StoreError
from proctor.formats.suites import read_suite
from proctor.model.evidence import Json
from proctor.model.mapping import DeclaredEvidence
from proctor.model.verdict import Verdict
from proctor.report.words.ranges import find_ranges
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import find_seen, list_seen, query_seen, require_reader
from proctor.service.agent import Agent
from proctor.service.decisions.trace_evidence import expand_pieces, get_declared, read_agent_evidence, read_evidence
from proctor.service.hub import Hub, stamp
from proctor.service.paging import fetch_page_or_refuse, show_page
from proctor.service.refusals import Refusal
from proctor.store.accounts.tenants import find_row
from proctor.store.sql.compressed_json import from_json, unpack
from proctor.store.sql.pages import Row
from proctor.store.sql.queries import ListQuery, clean_text
from proctor.store.sql.tables import agents, case_versions, cases, results, trace_parts, traces
from proctor.store.sql.text_search import contains_text

# --- the text ranges of a stored result, computed when the result is read


class _Needed(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a trace and its case are read from."""

    pieces: list[bytes]
    response_path: str | None
    declared: DeclaredEvidence | None
    text: str
    dialect: str


async def add_result_ranges(hub: Hub, row: Row, document: Json) -> Json:
    """Return a stored result with `ranges` in its assertions."""
    assertions: Json = document.get("assertions") if isinstance(document, dict) else None
    if isinstance(assertions, list) and assertions:
        needed = await _find_needed(hub, row)
        if needed is not None:
            await asyncio.to_thread(_add_ranges, needed, row["case_key"], assertions)
    return document


async def _find_needed(hub: Hub, row: Row) -> _Needed | None:
    async with hub.database.reading() as connection:
        trace = (await connection.execute(traces.select().where(traces.c.id == row["trace_id"]))).mappings().first()
        version = case_versions.select().where(case_versions.c.case_id == row["case_id"], case_versions.c.version == row["case_version"])
        case = (await connection.execute(version)).mappings().first()
        # The trace has changed since: places in it would not be those that decided.
        if trace is None or case is None or trace["revision"] != row["trace_revision"]:
            return None
        query = sa.select(trace_parts.c.body).where(trace_parts.c.trace_id == row["trace_id"]).order_by(trace_parts.c.number)
        parts: list[bytes] = list((await connection.execute(query)).scalars())
        agent = (await connection.execute(agents.select().where(agents.c.id == trace["agent_id"]))).mappings().first()
    settings: dict[str, Json] = {} if agent is None else agent["settings"] or {}
    path = settings.get("response_path")
    pieces = ([] if trace["body"] is None else [trace["body"]]) + parts
    return _Needed(
        pieces=pieces,
        response_path=path if isinstance(path, str) and path else None,
        declared=get_declared(settings),
        text=case["document"],
        dialect=case["dialect"],
    )


def _add_ranges(needed: _Needed, key: str, assertions: list[dict[str, Json]]) -> None:
    try:
        evidence = read_evidence(needed.pieces, needed.response_path, needed.declared)
        suite = read_suite(needed.text, dialect=needed.dialect)
    except (EvidenceError, StoreError, InputError):
        # The result is stored; only the places cannot be found any more.
        return
    case = next((case for case in suite.cases if case.id == key), None)
    if case is None or len(case.assertions) != len(assertions):
        return
    for assertion, stored in zip(case.assertions, assertions, strict=True):
        verdict = Verdict(stored["outcome"], stored["score"], stored["reason"], stored["code"], stored.get("details") or {})
        ranges = find_ranges(assertion, verdict, evidence)
        if ranges:
            stored["ranges"] = [{"pointer": found.path, "start": found.start, "end": found.end} for found in ranges]


_TRACE = (
    "id", "project_id", "agent_id", "external_id", "format", "status", "revision", "size", "metadata", "input_text", "outcome",
    "error", "no_run", "created_at", "updated_at",
)  # fmt: skip
_RESULT = (
    "id", "project_id", "agent_id", "trace_id", "case_id", "case_version", "case_key", "trace_revision", "outcome", "score", "verdict",
    "code", "created_at", "updated_at",
)  # fmt: skip
_LONGEST_QUERY = 200
NO_CASE = "no active case is for this trace"
"""The reason of an evaluated trace without results."""
_MOST_RESULTS = 1_000
_METADATA = re.compile(r"([\w.-]{1,100})=(.{0,500})", re.DOTALL)


class TraceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of a list of traces or results; None means no condition."""

    project_id: str | None = None
    agent_id: str | None = None
    outcome: str | None = None
    since: str | None = None
    """From this time on; ISO 8601."""
    until: str | None = None
    """Before this time; ISO 8601."""


class TraceSearch(TraceFilter, frozen=True, kw_only=True):
    """A search for traces."""

    status: str | None = None
    external_id: str | None = None
    query: str | None = None
    """Text in the input or the external id."""
    metadata: Sequence[str] = ()
    """Texts `name=value`; all of them must hold."""
    case_id: str | None = None
    """Only traces that this case was decided on; `outcome` is then that of the case."""


class ResultSearch(TraceFilter, frozen=True, kw_only=True):
    """A search for results."""

    case_id: str | None = None
    trace_id: str | None = None
    code: str | None = None
    """Code of the case's outcome."""


_EVERY_TRACE = TraceSearch()
_EVERY_RESULT = ResultSearch()


async def list_traces(
    hub: Hub, caller: Caller, wanted: TraceSearch = _EVERY_TRACE, *, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """Return a page of traces."""
    require_reader(caller)
    search = make_trace_query(caller, wanted, _TRACE)
    async with hub.database.reading() as connection:
        return show_page(await fetch_page_or_refuse(connection, search, traces, limit=limit, cursor=cursor), _show_trace)


def make_trace_query(caller: Caller, wanted: TraceSearch, columns: tuple[str, ...]) -> ListQuery:
    """Return the list query of a search. Raises `Refusal` for an invalid filter."""
    filters: list[sa.ColumnElement[bool]] = []
    query = wanted.query
    if query:
        if len(query) > _LONGEST_QUERY:
            raise Refusal("VALIDATION_ERROR", "the query is too long", fields={"query": [f"expected at most {_LONGEST_QUERY} characters"]})
        filters.append(sa.or_(*(contains_text(place, query) for place in (traces.c.input_text, traces.c.external_id))))
    for pair in wanted.metadata:
        found = _METADATA.fullmatch(pair)
        if found is None:
            raise Refusal("VALIDATION_ERROR", "the filter is invalid", fields={"metadata": ["expected name=value"]})
        filters.append(traces.c.metadata[found[1]].as_string() == clean_text(found[2]))
    if wanted.case_id is not None:
        # The outcome of a trace is the worst of its cases; with a case it is the outcome of that case.
        of_case = [results.c.trace_id == traces.c.id, results.c.case_id == wanted.case_id]
        of_case += [] if wanted.outcome is None else [results.c.outcome == wanted.outcome]
        filters.append(sa.exists().where(*of_case))
        wanted = msgspec.structs.replace(wanted, outcome=None)
    return _make_query(traces, caller, wanted, columns, filters, status=wanted.status, external_id=wanted.external_id)


async def find_trace(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one trace as in a list, without its body."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        return _show_trace(await find_seen(connection, traces, caller, "trace", id, columns=_TRACE))


async def get_trace(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one trace with its body, its evidence and its results."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        row = await find_seen(connection, traces, caller, "trace", id)
        found = await connection.execute(sa.select(trace_parts.c.body).where(trace_parts.c.trace_id == id).order_by(trace_parts.c.number))
        parts: list[bytes] = list(found.scalars())
        decided = query_seen(results, caller, trace_id=id).with_only_columns(*(results.c[name] for name in _RESULT))
        decided = decided.order_by(results.c.created_at.desc(), results.c.id.desc()).limit(_MOST_RESULTS)
        of_trace: list[dict[str, Json]] = [_show_result(dict(one)) for one in (await connection.execute(decided)).mappings()]
        agent = await find_row(connection, agents, caller.organization_id, row["agent_id"])
    pieces = ([] if row["body"] is None else [row["body"]]) + parts
    received, evidence = await asyncio.to_thread(_read_received, pieces, agent)
    return {**_show_trace(row), "received": received, "evidence": evidence, "results": of_trace}


async def list_results(
    hub: Hub, caller: Caller, wanted: ResultSearch = _EVERY_RESULT, *, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """Return a page of results of traces."""
    require_reader(caller)
    search = _make_query(results, caller, wanted, _RESULT, (), case_id=wanted.case_id, trace_id=wanted.trace_id, code=wanted.code)
    async with hub.database.reading() as connection:
        return show_page(await fetch_page_or_refuse(connection, search, results, limit=limit, cursor=cursor), _show_result)


async def get_result(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one result with every assertion, its verdict and the evidence for it."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        row = await find_seen(connection, results, caller, "result", id)
    return {**_show_result(row), "result": await add_result_ranges(hub, row, await asyncio.to_thread(unpack, row["body"]))}


def _make_query(
    table: sa.Table,
    caller: Caller,
    wanted: TraceFilter,
    columns: tuple[str, ...],
    filters: Sequence[sa.ColumnElement[bool]],
    **equal: object,
) -> ListQuery:
    equal |= {"project_id": wanted.project_id, "agent_id": wanted.agent_id, "outcome": wanted.outcome}
    along: list[sa.ColumnElement[bool]] = []
    if wanted.since is not None:
        along.append(table.c.created_at >= read_moment(wanted.since, "since"))
    if wanted.until is not None:
        along.append(table.c.created_at < read_moment(wanted.until, "until"))
    return list_seen(table, caller, columns=columns, along=along, filters=filters, **equal)


def read_moment(text: str, field: str) -> str:
    """Return a time in the stored format; UTC unless it has a zone."""
    try:
        at = datetime.fromisoformat(text)
        return stamp((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        reasons = [f"expected a time such as 2031-01-31T12:00:00Z, got {text[:80]!r}"]
        raise Refusal("VALIDATION_ERROR", "the time cannot be read", fields={field: reasons}) from None


def _read_received(pieces: list[bytes], agent: Row | None) -> tuple[Json, Json]:
    """Return the received documents and the evidence; None if too large or unreadable."""
    try:
        documents: list[Json] = [from_json(data) for data in expand_pieces(pieces)]
    except EvidenceError:
        return None, None
    received = documents[0] if len(documents) == 1 else (documents or None)
    try:
        evidence = read_agent_evidence(pieces, None if agent is None else make_agent(agent))
    except (EvidenceError, StoreError):
        return received, None
    return received, msgspec.to_builtins(evidence)


def make_agent(row: Row) -> Agent:
    """Return an agent from its row."""
    return Agent(**{name: row[name] for name in Agent.__struct_fields__ if name != "settings"}, settings=row["settings"] or {})


def _show_trace(row: Row) -> dict[str, Json]:
    return {**{name: row[name] for name in _TRACE}, "not_judged": _explain_not_judged(row)}


def _explain_not_judged(row: Row) -> str | None:
    """Return why an evaluated trace has no verdict, or None."""
    if row["status"] != "evaluated" or row["outcome"] is not None:
        return None
    return row["no_run"] or NO_CASE


def _show_result(row: Row) -> dict[str, Json]:
    return {name: row[name] for name in _RESULT}


# --- facets: numbers of traces by agent, outcome, status and case, over a bounded number of newest traces


STRETCH = 2_000
"""Newest traces that are counted."""
_MOST_VALUES = 50
"""Values of one facet that are listed, the most frequent first."""


class FacetValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a facet."""

    value: str
    count: int
    name: str | None = None
    """Of an agent or a case."""


class Facets(msgspec.Struct, frozen=True, kw_only=True):
    """The facets of a search."""

    looked_at: int
    """Traces that were examined, also those that other filters exclude."""
    more: bool
    """Whether there are older traces."""
    since: str | None
    """The time of the oldest examined trace."""
    agents: list[FacetValue]
    outcomes: list[FacetValue]
    statuses: list[FacetValue]
    cases: list[FacetValue]


async def count_facets(hub: Hub, caller: Caller, wanted: TraceSearch) -> Facets:
    """Return the facets of a search."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        looked_at, since = await _measure_stretch(connection, caller, wanted)
        # Each facet ignores its own filter, to show the alternatives.
        by_agent = await _count_column(connection, caller, msgspec.structs.replace(wanted, agent_id=None), traces.c.agent_id)
        by_outcome = await _count_column(connection, caller, msgspec.structs.replace(wanted, outcome=None), traces.c.outcome)
        by_status = await _count_column(connection, caller, msgspec.structs.replace(wanted, status=None), traces.c.status)
        by_case = await _count_cases(connection, caller, msgspec.structs.replace(wanted, case_id=None))
        names = await _list_names(connection, caller, agents, by_agent) | await _list_names(connection, caller, cases, by_case)
    return Facets(
        looked_at=looked_at,
        more=looked_at >= STRETCH,
        since=since,
        agents=_list_values(by_agent, names),
        outcomes=_list_values(by_outcome, {}),
        statuses=_list_values(by_status, {}),
        cases=_list_values(by_case, names),
    )


def _cut_stretch(caller: Caller, wanted: TraceSearch) -> tuple[sa.Subquery, tuple[sa.ColumnElement[bool], ...]]:
    """Return the newest traces of a search as a subquery, and the other conditions."""
    query = make_trace_query(caller, wanted, ("id", "created_at"))
    path = query.path.order_by(None).order_by(traces.c.created_at.desc(), traces.c.id.desc()).limit(STRETCH)
    return path.subquery("stretch"), query.filters


async def _measure_stretch(connection: AsyncConnection, caller: Caller, wanted: TraceSearch) -> tuple[int, str | None]:
    stretch, _ = _cut_stretch(caller, wanted)
    count, since = (await connection.execute(sa.select(sa.func.count(), sa.func.min(stretch.c.created_at)).select_from(stretch))).one()
    return count, since


def _join_stretch(caller: Caller, wanted: TraceSearch, *columns: sa.ColumnElement[Any]) -> sa.Select[Any, Any]:
    stretch, filters = _cut_stretch(caller, wanted)
    # Joined after the limit: the other conditions apply only to these traces.
    return sa.select(*columns).select_from(stretch).join(traces, traces.c.id == stretch.c.id).where(*filters)


async def _count_column(connection: AsyncConnection, caller: Caller, wanted: TraceSearch, column: sa.Column[Any]) -> dict[str, int]:
    query = _join_stretch(caller, wanted, column, sa.func.count()).where(column.is_not(None)).group_by(column)
    return {str(row[0]): row[1] for row in (await connection.execute(query)).all()}


async def _count_cases(connection: AsyncConnection, caller: Caller, wanted: TraceSearch) -> dict[str, int]:
    query = _join_stretch(caller, wanted, results.c.case_id, sa.func.count(sa.distinct(traces.c.id)))
    query = query.join(results, results.c.trace_id == traces.c.id).group_by(results.c.case_id)
    return {row[0]: row[1] for row in (await connection.execute(query)).all()}


async def _list_names(connection: AsyncConnection, caller: Caller, table: sa.Table, counts: dict[str, int]) -> dict[str, str]:
    ours = (table.c.organization_id == caller.organization_id, table.c.id.in_(_list_frequent(counts)))
    return {row[0]: row[1] for row in (await connection.execute(sa.select(table.c.id, table.c.name).where(*ours))).all()}


def _list_frequent(counts: dict[str, int]) -> list[str]:
    return sorted(counts, key=lambda value: (-counts[value], value))[:_MOST_VALUES]


def _list_values(counts: dict[str, int], names: dict[str, str]) -> list[FacetValue]:
    return [FacetValue(value=value, count=counts[value], name=names.get(value)) for value in _list_frequent(counts)]


def show_facets(found: Facets) -> Json:
    """Return facets as JSON."""
    return msgspec.to_builtins(found)
