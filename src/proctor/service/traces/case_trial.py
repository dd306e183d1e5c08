"""Tries a document on stored traces before it is kept: the newest traces of an agent or a project, each with its verdicts.

Nothing is written. Reading and deciding are bounded as for traces that arrive: cases are decided by the pool, and a trace that is too large
to be looked at while somebody waits says so. There is no judge: what only a judge decides is an error that says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from functools import partial

import msgspec
import sqlalchemy as sa

from proctor.decide.prepare import PreparedSuite
from proctor.errors import EvidenceError, StoreError
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.result import CaseResult
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import check_place, list_seen, require_writer
from proctor.service.agent import Agent
from proctor.service.decisions.case_selection import ActiveCase, is_selected
from proctor.service.decisions.messages import SuiteSource
from proctor.service.decisions.suite_verdicts import RecordToDecide, SuiteDecisions
from proctor.service.decisions.trace_evidence import read_agent_evidence
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse
from proctor.service.refusals import Refusal
from proctor.service.suites.documents import read_sent_suite
from proctor.store.pages import Row
from proctor.store.tables import agents, trace_parts, traces
from proctor.store.tenants import query_owned

MOST_TRACES = 20
LARGEST_TRACE = 1_000_000
"""Bytes as kept, compressed, of a trace that is looked at while somebody waits."""
_MOST_RESULTS = 50
"""Cases of a document that are shown for one trace."""
_COLUMNS = ("id", "agent_id", "external_id", "size", "body", "metadata", "input_text", "created_at")


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What is tried, and on which traces."""

    project_id: str
    document: str | dict[str, Json] | list[Json]
    dialect: str | None = None
    agent_id: str | None = None
    """None: all agents of the project."""
    when: dict[str, Json] | None = None
    limit: int = 10


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    row: Row
    evidence: Evidence | None = None
    error: str | None = None
    is_for: bool = True


async def try_document(hub: Hub, caller: Caller, trial: Trial) -> dict[str, Json]:
    """Decide a document on the newest traces of an agent. Raises `Refusal` with every problem in the document."""
    require_writer(caller, "documents are tried")
    if not 1 <= trial.limit <= MOST_TRACES:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={"limit": [f"expected 1 to {MOST_TRACES}"]})
    suite, text = await read_sent_suite(trial.document, dialect=trial.dialect)
    found = await _read_traces(hub, caller, trial)
    prepared = await asyncio.to_thread(copy_context().run, partial(PreparedSuite, suite))
    wanted = [(number, read) for number, read in enumerate(found) if read.evidence is not None and read.evidence.no_run is None]
    records = [_make_record(read, prepared) for _, read in wanted if read.is_for]
    decisions = SuiteDecisions(
        hub.decisions, (caller.organization_id, caller.actor), SuiteSource(text=text, dialect=suite.dialect), suite.cases
    )
    decided = iter(await decisions.decide(records))
    by_number = {number: next(decided) for number, read in wanted if read.is_for}
    shown = [_show_trace(read, suite, by_number.get(number)) for number, read in enumerate(found)]
    counts: dict[str, int] = {}
    for results in by_number.values():
        for result in results:
            counts[result.outcome] = counts.get(result.outcome, 0) + 1
    return {"dialect": suite.dialect, "traces": shown, "counts": counts}


async def _read_traces(hub: Hub, caller: Caller, trial: Trial) -> list[_Read]:
    async with hub.database.reading() as connection:
        await check_place(connection, caller, trial.project_id, trial.agent_id)
        query = list_seen(traces, caller, project_id=trial.project_id, agent_id=trial.agent_id, columns=_COLUMNS)
        rows = (await fetch_page_or_refuse(connection, query, traces, limit=trial.limit)).rows
        small = [row["id"] for row in rows if row["size"] <= LARGEST_TRACE]
        parts = sa.select(trace_parts.c.trace_id, trace_parts.c.body).where(trace_parts.c.trace_id.in_(small))
        pieces: dict[str, list[bytes]] = {row["id"]: [row["body"]] for row in rows if row["body"] is not None}
        for trace_id, body in await connection.execute(parts.order_by(trace_parts.c.trace_id, trace_parts.c.number)):
            pieces.setdefault(trace_id, []).append(body)
        owners = query_owned(agents, caller.organization_id).where(agents.c.id.in_({row["agent_id"] for row in rows}))
        by_id: dict[str, Row] = {row["id"]: dict(row) for row in (await connection.execute(owners)).mappings()}
    found: list[_Read] = []
    # One after the other: a trace may need much memory while it is read.
    for row in rows:
        read = partial(_read_trace, row, pieces.get(row["id"], ()), by_id.get(row["agent_id"]), trial)
        found.append(await asyncio.to_thread(copy_context().run, read))
    return found


def _read_trace(row: Row, pieces: Sequence[bytes], agent: Row | None, trial: Trial) -> _Read:
    if row["size"] > LARGEST_TRACE:
        return _Read(row=row, error=f"too_large: {row['size']} bytes are more than is tried while somebody waits")
    try:
        evidence = read_agent_evidence(pieces, None if agent is None else _make_agent(agent))
    except EvidenceError as error:
        return _Read(row=row, error=f"{error.code}: {error.message}")
    except StoreError as error:
        return _Read(row=row, error=f"unreadable_evidence: {error}")
    metadata: Mapping[str, Json] = {**evidence.metadata, **(row["metadata"] or {})}
    case = ActiveCase(id="trial", version=1, project_id=trial.project_id, agent_id=None, name="", when=trial.when, sample=1.0)
    return _Read(row=row, evidence=evidence, is_for=is_selected(case, row["id"], evidence, metadata))


def _make_agent(row: Row) -> Agent:
    return Agent(**{name: row[name] for name in Agent.__struct_fields__ if name != "settings"}, settings=row["settings"] or {})


def _make_record(read: _Read, prepared: PreparedSuite) -> RecordToDecide:
    assert read.evidence is not None
    places = {id(case): position for position, case in enumerate(prepared.cases)}
    chosen = [places[id(case)] for _, case in prepared.cases_for_trace(read.evidence.case)]
    return RecordToDecide(evidence=read.evidence, positions=chosen, clock=read.row["created_at"])


def _show_trace(read: _Read, suite: Suite, results: Sequence[CaseResult] | None) -> dict[str, Json]:
    row = read.row
    error = read.error
    if error is None and read.evidence is not None and read.evidence.no_run is not None:
        error = f"no_run: {read.evidence.no_run}"
    elif results is not None and not results:
        error = f"other_case: the trace names the case {read.evidence.case if read.evidence else None!r}, which the document does not have"
    return {
        **{name: row[name] for name in ("id", "agent_id", "external_id", "input_text", "created_at")},
        "is_for": read.is_for,
        "error": error,
        "results": [_show_result(result) for result in (results or ())[:_MOST_RESULTS]],
        "more_results": max(0, len(results or ()) - _MOST_RESULTS),
    }


def _show_result(result: CaseResult) -> dict[str, Json]:
    verdicts = [verdict.with_words() for verdict in result.verdicts]
    return {
        "case": result.case.id,
        "outcome": result.outcome,
        "score": result.score,
        "code": result.code,
        "reason": result.reason,
        "assertions": [
            {"label": assertion.label or assertion.check, "outcome": verdict.outcome, "code": verdict.code, "reason": verdict.reason}
            for assertion, verdict in zip(result.case.assertions, verdicts, strict=False)
        ],
    }
