"""Searches traces and results: filtered lists without bodies, and one of them whole.

What was received is shown as it is kept: redacted, compressed only on disk. A trace that came in pieces is shown as the list of its pieces;
of one that is too large to be looked at nothing of it is shown.
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
from proctor.store.sql.chunked_queries import clean_text
from proctor.store.sql.compressed_json import from_json, unpack
from proctor.store.sql.list_queries import ListQuery
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import agents, case_versions, cases, results, trace_parts, traces
from proctor.store.sql.text_search import contains_text

# --- the characters of a trace that a kept result is about, found when somebody reads the result


class _Needed(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace and its case are read from."""

    pieces: list[bytes]
    response_path: str | None
    declared: DeclaredEvidence | None
    text: str
    dialect: str


async def add_result_ranges(hub: Hub, row: Row, document: Json) -> Json:
    """Return a kept result with `ranges` in its assertions."""
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
        # More has come of the trace since: places in what is there now would not be those that decided.
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


def _add_ranges(needed: _Needed, key: str, told: list[dict[str, Json]]) -> None:
    try:
        evidence = read_evidence(needed.pieces, needed.response_path, needed.declared)
        suite = read_suite(needed.text, dialect=needed.dialect)
    except (EvidenceError, StoreError, InputError):
        # What came of it is kept and can be read; only the places cannot be found any more.
        return
    case = next((case for case in suite.cases if case.id == key), None)
    if case is None or len(case.assertions) != len(told):
        return
    for assertion, one in zip(case.assertions, told, strict=True):
        verdict = Verdict(one["outcome"], one["score"], one["reason"], one["code"], one.get("details") or {})
        ranges = find_ranges(assertion, verdict, evidence)
        if ranges:
            one["ranges"] = [{"pointer": found.path, "start": found.start, "end": found.end} for found in ranges]


_TRACE = (
    "id", "project_id", "agent_id", "external_id", "format", "status", "revision", "size", "metadata", "input_text", "outcome",
    "error", "no_run", "created_at", "updated_at",
)  # fmt: skip
_RESULT = (
    "id", "project_id", "agent_id", "trace_id", "case_id", "case_version", "case_key", "trace_revision", "outcome", "score", "verdict",
    "code", "created_at", "updated_at",
)  # fmt: skip
_LONGEST_QUERY = 200
NO_CASE = "no active case is about this trace, so nothing was decided on it"
"""Told where a trace was evaluated and nothing came of it."""
_MOST_RESULTS = 1_000
_METADATA = re.compile(r"([\w.-]{1,100})=(.{0,500})", re.DOTALL)


class TraceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of a list of traces or results; what is None does not count."""

    project_id: str | None = None
    agent_id: str | None = None
    outcome: str | None = None
    since: str | None = None
    """From this time on; ISO 8601."""
    until: str | None = None
    """Before this time; ISO 8601."""


class TraceSearch(TraceFilter, frozen=True, kw_only=True):
    """What traces are looked for."""

    status: str | None = None
    external_id: str | None = None
    query: str | None = None
    """Looked for in what was asked and in the external id."""
    metadata: Sequence[str] = ()
    """Texts `name=value`; all of them must hold."""
    case_id: str | None = None
    """Only traces that this case was decided on; with `outcome`, those on which it came out so."""


class ResultSearch(TraceFilter, frozen=True, kw_only=True):
    """What results are looked for."""

    case_id: str | None = None
    trace_id: str | None = None
    code: str | None = None
    """Why a case as a whole has its outcome."""


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
    """Return the list of the traces that are looked for. Raises `Refusal` for a filter that cannot be used."""
    beside: list[sa.ColumnElement[bool]] = []
    query = wanted.query
    if query:
        if len(query) > _LONGEST_QUERY:
            raise Refusal("VALIDATION_ERROR", "the query is too long", fields={"query": [f"expected at most {_LONGEST_QUERY} characters"]})
        beside.append(sa.or_(*(contains_text(place, query) for place in (traces.c.input_text, traces.c.external_id))))
    for pair in wanted.metadata:
        found = _METADATA.fullmatch(pair)
        if found is None:
            raise Refusal("VALIDATION_ERROR", "the filter cannot be used", fields={"metadata": ["expected name=value"]})
        beside.append(traces.c.metadata[found[1]].as_string() == clean_text(found[2]))
    if wanted.case_id is not None:
        # Of a trace the outcome is the worst of all its cases; who names a case asks for the outcome of that one.
        of_case = [results.c.trace_id == traces.c.id, results.c.case_id == wanted.case_id]
        of_case += [] if wanted.outcome is None else [results.c.outcome == wanted.outcome]
        beside.append(sa.exists().where(*of_case))
        wanted = msgspec.structs.replace(wanted, outcome=None)
    return _make_query(traces, caller, wanted, columns, beside, status=wanted.status, external_id=wanted.external_id)


async def find_trace(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one trace as in a list, without what was received."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        return _show_trace(await find_seen(connection, traces, caller, "trace", id, columns=_TRACE))


async def get_trace(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one trace with what was received, the evidence in it, and its results."""
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
    beside: Sequence[sa.ColumnElement[bool]],
    **equal: object,
) -> ListQuery:
    equal |= {"project_id": wanted.project_id, "agent_id": wanted.agent_id, "outcome": wanted.outcome}
    along: list[sa.ColumnElement[bool]] = []
    if wanted.since is not None:
        along.append(table.c.created_at >= read_moment(wanted.since, "since"))
    if wanted.until is not None:
        along.append(table.c.created_at < read_moment(wanted.until, "until"))
    return list_seen(table, caller, columns=columns, along=along, beside=beside, **equal)


def read_moment(text: str, field: str) -> str:
    """Return a time that somebody wrote, in the form in which times are stored; in UTC unless it says otherwise."""
    try:
        at = datetime.fromisoformat(text)
        return stamp((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        told = [f"expected a time such as 2031-01-31T12:00:00Z, got {text[:80]!r}"]
        raise Refusal("VALIDATION_ERROR", "the time cannot be read", fields={field: told}) from None


def _read_received(pieces: list[bytes], agent: Row | None) -> tuple[Json, Json]:
    """Return what was received, and the evidence that cases are decided on; None where it is too much or cannot be read."""
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
    """Explain why a trace that was evaluated has no verdict, or return None: `evaluated` alone does not say that anything was decided."""
    if row["status"] != "evaluated" or row["outcome"] is not None:
        return None
    return row["no_run"] or NO_CASE


def _show_result(row: Row) -> dict[str, Json]:
    return {name: row[name] for name in _RESULT}


# --- how many traces there are of each agent, outcome, status and case among those that are looked for, over a bounded stretch of them


STRETCH = 2_000
"""Traces that are counted."""
_MOST_VALUES = 50
"""Values of one facet that are listed, the most frequent first."""


class FacetValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a facet."""

    value: str
    count: int
    name: str | None = None
    """Of an agent or a case."""


class Facets(msgspec.Struct, frozen=True, kw_only=True):
    """What the traces that are looked for have in common."""

    looked_at: int
    """Along the list, also those that other filters leave out."""
    more: bool
    """Whether there are older ones that were not looked at."""
    since: str | None
    """The oldest that was looked at."""
    agents: list[FacetValue]
    outcomes: list[FacetValue]
    statuses: list[FacetValue]
    cases: list[FacetValue]


async def count_facets(hub: Hub, caller: Caller, wanted: TraceSearch) -> Facets:
    """Return the facets of a search."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        looked_at, since = await _measure_stretch(connection, caller, wanted)
        # Each facet without its own filter: it shows what could be chosen instead.
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
    """Return the stretch of a search as a table of its own, by id and time, and the conditions beside its path."""
    query = make_trace_query(caller, wanted, ("id", "created_at"))
    path = query.path.order_by(None).order_by(traces.c.created_at.desc(), traces.c.id.desc()).limit(STRETCH)
    return path.subquery("stretch"), query.beside


async def _measure_stretch(connection: AsyncConnection, caller: Caller, wanted: TraceSearch) -> tuple[int, str | None]:
    stretch, _ = _cut_stretch(caller, wanted)
    count, since = (await connection.execute(sa.select(sa.func.count(), sa.func.min(stretch.c.created_at)).select_from(stretch))).one()
    return count, since


def _join_stretch(caller: Caller, wanted: TraceSearch, *columns: sa.ColumnElement[Any]) -> sa.Select[Any, Any]:
    stretch, beside = _cut_stretch(caller, wanted)
    # Joined by the id once the stretch is cut: conditions beside the path are only asked of what lies in it.
    return sa.select(*columns).select_from(stretch).join(traces, traces.c.id == stretch.c.id).where(*beside)


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
    """Return facets as they go over the wire."""
    return msgspec.to_builtins(found)
