"""Searches traces and results: filtered lists without bodies, and single objects.

Received bodies are shown as stored: redacted. A trace that arrived in pieces is shown as a list; one that is too large is not shown.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict, Unpack

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import EvidenceError, InputError, StoreError
from proctor.formats.suites import read_suite
from proctor.model.evidence import Json
from proctor.model.verdict import Outcome, Verdict
from proctor.report.words.ranges import find_ranges
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_visible, select_visible
from proctor.service.access.transactions import read_visible, reading
from proctor.service.caches import Agent, make_agent
from proctor.service.decisions.trace_evidence import expand_pieces, read_agent_evidence
from proctor.service.decisions.trace_verdicts import TraceDigest, read_digest
from proctor.service.field_checks import read_moment
from proctor.service.hub import Hub
from proctor.service.paging import read_page
from proctor.service.refusals import Refusal
from proctor.service.resource import Page, Paging, about, list_fields, operation, show_row
from proctor.store.accounts.tenants import find_row
from proctor.store.sql.compressed_json import from_json, to_json, unpack
from proctor.store.sql.pages import Row, fetch_all, fetch_first
from proctor.store.sql.queries import ListQuery, clean_text
from proctor.store.sql.tables import agents, case_versions, cases, results, traces
from proctor.store.sql.text_search import contains_text
from proctor.store.traces.traces import list_pieces

# --- the text ranges of a stored result, computed when the result is read


async def add_result_ranges(hub: Hub, row: Row, document: Json) -> Json:
    """Return a stored result with `ranges` in its assertions."""
    assertions: Json = document.get("assertions") if isinstance(document, dict) else None
    if not isinstance(assertions, list) or not assertions:
        return document
    async with hub.database.reading() as connection:
        trace = await fetch_first(connection, traces.select().where(traces.c.id == row["trace_id"]))
        version = case_versions.select().where(case_versions.c.case_id == row["case_id"], case_versions.c.version == row["case_version"])
        text = await fetch_first(connection, version)
        # If the trace has changed since, places in it would not be those that decided.
        if trace is None or text is None or trace["revision"] != row["trace_revision"]:
            return document
        pieces, agent = await read_pieces(connection, trace)
    await asyncio.to_thread(_add_ranges, row["case_key"], text, pieces, agent, assertions)
    return document


def _add_ranges(key: str, text: Row, pieces: list[bytes], agent: Agent | None, assertions: list[dict[str, Json]]) -> None:
    try:
        evidence = read_agent_evidence(pieces, agent)
        suite = read_suite(text["document"], dialect=text["dialect"])
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
            stored["ranges"] = [{"pointer": text_range.path, "start": text_range.start, "end": text_range.end} for text_range in ranges]


class ResultSummary(TypedDict):
    """A case decided on a trace."""

    id: str
    project_id: str
    agent_id: str
    trace_id: str
    case_id: str
    case_version: int
    case_key: Annotated[str, about("the id of the case inside its document")]
    trace_revision: int
    outcome: str
    score: float | None
    verdict: str | None
    code: str | None
    created_at: str
    updated_at: str


class Result(ResultSummary):
    """A result with every assertion."""

    result: Annotated[Json, about("assertions with their verdicts, reasons and pointers into the evidence")]


class TraceSummary(TypedDict):
    """A trace without its body."""

    id: str
    project_id: str
    agent_id: str
    external_id: Annotated[str, about("`x-request-id`, the id of the OTLP trace, or a generated id")]
    format: str
    status: Annotated[str, about("open (more may arrive), complete, evaluated (see `not_judged`), failed")]
    revision: Annotated[int, about("incremented with all data that arrives for it")]
    size: Annotated[int, about("stored bytes")]
    metadata: dict[str, Json] | None
    input_text: Annotated[str | None, about("the beginning of the input")]
    outcome: Annotated[str | None, about("the worst outcome of its results")]
    digest: Annotated[TraceDigest, about("the beginning of the answer, the duration, tokens and model, as far as recorded")]
    error: NotRequired[Annotated[str | None, about("why it could not be evaluated: a code and a message")]]
    no_run: NotRequired[Annotated[str | None, about("why it is not a run of an agent; such a trace is stored and not judged")]]
    not_judged: NotRequired[
        Annotated[str | None, about("why an evaluated trace has no verdict: no case is for it, or it is not a run of an agent")]
    ]
    created_at: str
    updated_at: str


class Trace(TraceSummary):
    """A trace with its body, its evidence and its results."""

    received: Annotated[Json, about("the received body, redacted; a list if the trace arrived in pieces")]
    evidence: Annotated[dict[str, Json] | None, about("the evidence that cases are decided on; none if it has none")]
    results: list[ResultSummary]


_TRACE = tuple(name for name in list_fields(TraceSummary) if name != "not_judged")
_RESULT = list_fields(ResultSummary)
NO_CASE = "no active case is for this trace"
"""The reason of an evaluated trace without results."""
_MOST_RESULTS = 1_000
_METADATA = re.compile(r"([\w.-]{1,100})=(.{0,500})", re.DOTALL)


class TraceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of a list of traces or results; None means no condition."""

    project_id: str | None = None
    agent_id: str | None = None
    outcome: Annotated[str | None, Outcome] = None
    since: Annotated[str | None, about("from this time on; ISO 8601")] = None
    until: Annotated[str | None, about("before this time; ISO 8601")] = None


class TraceSearch(TraceFilter, frozen=True, kw_only=True):
    """A search for traces."""

    status: Annotated[str | None, Literal["open", "complete", "evaluated", "failed"]] = None
    external_id: str | None = None
    query: Annotated[str | None, about("text in the input or the external id", max_length=200)] = None
    metadata: Annotated[list[str] | None, about("`name=value`, may be repeated", max_length=10)] = None
    tool: Annotated[str | None, about("a tool that was called, by its exact name", max_length=100)] = None
    case_id: Annotated[str | None, about("decided on this case; `outcome` is then that of the case")] = None


class ResultSearch(TraceFilter, frozen=True, kw_only=True):
    """A search for results."""

    case_id: str | None = None
    trace_id: str | None = None
    code: Annotated[str | None, about("code of the case's outcome")] = None


_EVERY_TRACE = TraceSearch()
_EVERY_RESULT = ResultSearch()


@operation("traces", "GET /api/traces")
async def list_traces(hub: Hub, caller: Caller, search: TraceSearch = _EVERY_TRACE, **paging: Unpack[Paging]) -> Page[TraceSummary]:
    """List and search traces, newest first."""
    return await read_page(hub, make_trace_query(caller, search, _TRACE), traces, _show_trace, **paging)


def make_trace_query(caller: Caller, search: TraceSearch, columns: tuple[str, ...]) -> ListQuery:
    """Return the list query of a search. Raises `Refusal` for an invalid filter."""
    filters: list[sa.ColumnElement[bool]] = []
    query = search.query
    if query:
        filters.append(sa.or_(*(contains_text(place, query) for place in (traces.c.input_text, traces.c.external_id))))
    for pair in search.metadata or ():
        match = _METADATA.fullmatch(pair)
        if match is None:
            raise Refusal("VALIDATION_ERROR", "the filter is invalid", fields={"metadata": ["expected name=value"]})
        filters.append(traces.c.metadata[match[1]].as_string() == clean_text(match[2]))
    if search.tool:
        # As it is in the JSON of the digest: quotes in texts are escaped there.
        filters.append(contains_text(traces.c.digest, to_json(clean_text(search.tool)).decode()))
    if search.case_id is not None:
        # The outcome of a trace is the worst of its cases; with a case it is the outcome of that case.
        of_case = [results.c.trace_id == traces.c.id, results.c.case_id == search.case_id]
        of_case += [] if search.outcome is None else [results.c.outcome == search.outcome]
        filters.append(sa.exists().where(*of_case))
        search = msgspec.structs.replace(search, outcome=None)
    return _make_query(traces, caller, search, columns, filters, status=search.status, external_id=search.external_id)


async def find_trace(hub: Hub, caller: Caller, id: str) -> TraceSummary:
    """Return one trace as in a list, without its body."""
    async with reading(hub, caller) as tx:
        return _show_trace(await tx.find_visible(traces, "trace", id, columns=_TRACE))


class FacetValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value and its number of traces."""

    value: str
    count: int
    failed: Annotated[int | None, about("how many of them failed, by agent and case")] = None
    name: Annotated[str | None, about("of an agent or a case")] = None


class Facets(msgspec.Struct, frozen=True, kw_only=True):
    """Number of traces by agent, outcome, status and case. Each facet ignores its own filter."""

    looked_at: Annotated[int, about("number of newest traces that were counted; at most 2,000")]
    more: Annotated[bool, about("whether there are older traces that were not counted")]
    since: Annotated[str | None, about("time of the oldest counted trace")]
    agents: list[FacetValue]
    outcomes: list[FacetValue]
    statuses: list[FacetValue]
    cases: Annotated[list[FacetValue], about("cases that were decided on them")]


@operation("traces", "GET /api/traces/facets")
async def count_facets(hub: Hub, caller: Caller, search: TraceSearch) -> Facets:
    """Count the newest traces of a search by agent, outcome, status and case."""
    async with hub.database.reading() as connection:
        stretch, _ = _cut_stretch(caller, search)
        measured = sa.select(sa.func.count(), sa.func.min(stretch.c.created_at)).select_from(stretch)
        looked_at, since = (await connection.execute(measured)).one()
        # Each facet ignores its own filter, to show the alternatives.
        by_agent = await _count_agents(connection, caller, msgspec.structs.replace(search, agent_id=None))
        by_outcome = await _count_column(connection, caller, msgspec.structs.replace(search, outcome=None), traces.c.outcome)
        by_status = await _count_column(connection, caller, msgspec.structs.replace(search, status=None), traces.c.status)
        by_case = await _count_cases(connection, caller, msgspec.structs.replace(search, case_id=None))
        names = await _list_names(connection, caller, agents, by_agent) | await _list_names(connection, caller, cases, by_case)
    return Facets(
        looked_at=looked_at,
        more=looked_at >= STRETCH,
        since=since,
        agents=_list_values(by_agent, names),
        outcomes=[FacetValue(value=value, count=by_outcome[value]) for value in _list_frequent(by_outcome)],
        statuses=[FacetValue(value=value, count=by_status[value]) for value in _list_frequent(by_status)],
        cases=_list_values(by_case, names),
    )


@operation("traces", "GET /api/traces/{trace_id}", stored=True)
async def get_trace(hub: Hub, caller: Caller, id: str) -> Trace:
    """Read a trace with its body, its evidence and its results."""
    async with reading(hub, caller) as tx:
        row = await tx.find_visible(traces, "trace", id)
        decided = query_visible(results, caller, trace_id=id).with_only_columns(*(results.c[name] for name in _RESULT))
        decided = decided.order_by(results.c.created_at.desc(), results.c.id.desc()).limit(_MOST_RESULTS)
        of_trace = [_show_result(result) for result in await fetch_all(tx.connection, decided)]
        pieces, agent = await read_pieces(tx.connection, row)
    received, evidence = await asyncio.to_thread(_read_received, pieces, agent)
    return {**_show_trace(row), "received": received, "evidence": evidence, "results": of_trace}


async def read_pieces(connection: AsyncConnection, trace: Row) -> tuple[list[bytes], Agent | None]:
    """Return the stored pieces of a trace, and its agent."""
    pieces = (await list_pieces(connection, [trace]))[trace["id"]]
    agent = await find_row(connection, agents, trace["organization_id"], trace["agent_id"])
    return pieces, None if agent is None else make_agent(agent)


@operation("results", "GET /api/results")
async def list_results(hub: Hub, caller: Caller, spec: ResultSearch = _EVERY_RESULT, **paging: Unpack[Paging]) -> Page[ResultSummary]:
    """List results, newest first."""
    search = _make_query(results, caller, spec, _RESULT, (), case_id=spec.case_id, trace_id=spec.trace_id, code=spec.code)
    return await read_page(hub, search, results, _show_result, **paging)


@operation("results", "GET /api/results/{result_id}", stored=True)
async def get_result(hub: Hub, caller: Caller, id: str) -> Result:
    """Read a result with every assertion, its verdict and the evidence for it."""
    row = await read_visible(hub, caller, results, "result", id)
    return {**_show_result(row), "result": await add_result_ranges(hub, row, await asyncio.to_thread(unpack, row["body"]))}


def _make_query(
    table: sa.Table,
    caller: Caller,
    trace_filter: TraceFilter,
    columns: tuple[str, ...],
    filters: Sequence[sa.ColumnElement[bool]],
    **equal: object,
) -> ListQuery:
    equal |= {"project_id": trace_filter.project_id, "agent_id": trace_filter.agent_id, "outcome": trace_filter.outcome}
    along: list[sa.ColumnElement[bool]] = []
    if trace_filter.since is not None:
        along.append(table.c.created_at >= read_moment(trace_filter.since, "since"))
    if trace_filter.until is not None:
        along.append(table.c.created_at < read_moment(trace_filter.until, "until"))
    return select_visible(table, caller, columns=columns, along=along, filters=filters, **equal)


def _read_received(pieces: list[bytes], agent: Agent | None) -> tuple[Json, Json]:
    """Return the received documents and the evidence; None if too large or unreadable."""
    try:
        documents: list[Json] = [from_json(data) for data in expand_pieces(pieces)]
    except EvidenceError:
        return None, None
    received = documents[0] if len(documents) == 1 else (documents or None)
    try:
        evidence = read_agent_evidence(pieces, agent)
    except (EvidenceError, StoreError):
        return received, None
    return received, msgspec.to_builtins(evidence)


def _show_trace(row: Row) -> TraceSummary:
    has_no_verdict = row["status"] == "evaluated" and row["outcome"] is None
    not_judged = (row["no_run"] or NO_CASE) if has_no_verdict else None
    return show_row(TraceSummary, row, digest=read_digest(row["digest"]), not_judged=not_judged)


def _show_result(row: Row) -> ResultSummary:
    return show_row(ResultSummary, row)


# --- facets: numbers of traces by agent, outcome, status and case, over a bounded number of newest traces


STRETCH = 2_000
"""Newest traces that are counted."""
_MOST_VALUES = 50
"""Values of one facet that are listed, the most frequent first."""


def _cut_stretch(caller: Caller, search: TraceSearch) -> tuple[sa.Subquery, tuple[sa.ColumnElement[bool], ...]]:
    """Return the newest traces of a search as a subquery, and the other conditions."""
    query = make_trace_query(caller, search, ("id", "created_at"))
    path = query.path.order_by(None).order_by(traces.c.created_at.desc(), traces.c.id.desc()).limit(STRETCH)
    return path.subquery("stretch"), query.filters


def _join_stretch(caller: Caller, search: TraceSearch, *columns: sa.ColumnElement[Any]) -> sa.Select[*tuple[Any, ...]]:
    stretch, filters = _cut_stretch(caller, search)
    # Joined after the limit: the other conditions apply only to these traces.
    return sa.select(*columns).select_from(stretch).join(traces, traces.c.id == stretch.c.id).where(*filters)


async def _count_column(connection: AsyncConnection, caller: Caller, search: TraceSearch, column: sa.Column[Any]) -> dict[str, int]:
    query = _join_stretch(caller, search, column, sa.func.count()).where(column.is_not(None)).group_by(column)
    return {str(row[0]): row[1] for row in (await connection.execute(query)).all()}


Counts = dict[str, tuple[int, int]]
"""For each value the number of decided traces, and how many of them failed."""
_BAD = ("fail", "error")


async def _count_agents(connection: AsyncConnection, caller: Caller, search: TraceSearch) -> Counts:
    failed = sa.func.sum(sa.case((traces.c.outcome.in_(_BAD), 1), else_=0))
    query = _join_stretch(caller, search, traces.c.agent_id, sa.func.count(), failed).group_by(traces.c.agent_id)
    return {value: (count, bad) for value, count, bad in (await connection.execute(query)).all()}


async def _count_cases(connection: AsyncConnection, caller: Caller, search: TraceSearch) -> Counts:
    failed = sa.distinct(sa.case((results.c.outcome.in_(_BAD), traces.c.id)))
    query = _join_stretch(caller, search, results.c.case_id, sa.func.count(sa.distinct(traces.c.id)), sa.func.count(failed))
    query = query.join(results, results.c.trace_id == traces.c.id).group_by(results.c.case_id)
    return {value: (count, bad) for value, count, bad in (await connection.execute(query)).all()}


async def list_failing_cases(hub: Hub, caller: Caller, trace_ids: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the id and key of the cases that failed on some traces, by trace."""
    query = query_visible(results, caller).with_only_columns(results.c.trace_id, results.c.case_id, results.c.case_key)
    query = query.where(results.c.trace_id.in_(trace_ids), results.c.outcome.in_(_BAD)).order_by(results.c.case_key).limit(1_000)
    cases_by_trace: dict[str, list[tuple[str, str]]] = {}
    async with hub.database.reading() as connection:
        for trace_id, case_id, key in (await connection.execute(query)).all():
            cases_by_trace.setdefault(trace_id, []).append((case_id, key))
    return cases_by_trace


async def _list_names(connection: AsyncConnection, caller: Caller, table: sa.Table, counts: Counts) -> dict[str, str]:
    ours = (table.c.organization_id == caller.organization_id, table.c.id.in_(_list_frequent(counts)))
    return {row[0]: row[1] for row in (await connection.execute(sa.select(table.c.id, table.c.name).where(*ours))).all()}


def _list_frequent(counts: Counts | dict[str, int]) -> list[str]:
    known = {value: count if isinstance(count, int) else count[0] for value, count in counts.items()}
    return sorted(known, key=lambda value: (-known[value], value))[:_MOST_VALUES]


def _list_values(counts: Counts, names: dict[str, str]) -> list[FacetValue]:
    frequent = _list_frequent(counts)
    return [FacetValue(value=value, count=counts[value][0], failed=counts[value][1], name=names.get(value)) for value in frequent]
