"""Tries a document on the newest stored traces of an agent or a project, before it is stored.

Nothing is written. The pool decides the cases; traces that are too large are reported. No judge is called: assertions that need one are
errors.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextvars import copy_context
from functools import partial
from typing import Annotated, TypedDict

import msgspec

from proctor.decide.prepare import PreparedSuite
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.result import CaseResult
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_writer, select_visible
from proctor.service.access.transactions import reading
from proctor.service.decisions.messages import SuiteSource
from proctor.service.decisions.suite_verdicts import RecordToDecide, SuiteDecisions
from proctor.service.field_checks import refuse_secrets_in_suite
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse
from proctor.service.refusals import Refusal
from proctor.service.resource import about, list_fields, operation, show_row
from proctor.service.suites.documents import Problem, read_sent_suite, shown_problems
from proctor.service.traces.case_history import COLUMNS, ReadTrace, fetch_pieces, read_stored_trace
from proctor.service.traces.cases import Document, When, read_when
from proctor.store.sql.tables import traces

MOST_CASES_SHOWN = 1_000
"""Cases of a document that are listed; all of them are counted."""
MOST_TRACES = 20
_MOST_RESULTS = 50
"""Cases of a document that are shown per trace."""
Dialect = Annotated[str | None, about("native, mcplab, mibo, verial or mcpjam; default: detected")]


class SentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document that is not stored."""

    document: Annotated[Document, about("a suite of any dialect, as text (YAML, JSON) or as JSON")]
    dialect: Dialect = None


class ReadCase(TypedDict):
    """A case inside a document."""

    id: str
    name: str
    assertions: int


class Validation(TypedDict):
    """The result of reading a document."""

    valid: bool
    problems: Annotated[list[Problem], about("the first 100, in document order; only warnings if valid")]
    name: str | None
    dialect: str | None
    case_count: int
    cases: Annotated[list[ReadCase], about("the first 1,000")]


class TrialRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A document, and the traces to try it on: the newest of an agent or of the project."""

    project_id: str
    agent_id: Annotated[str | None, about("default: every agent of the project")] = None
    document: Document
    dialect: Dialect = None
    when: Annotated[dict[str, Json] | None, When] = None
    trace_id: Annotated[str | None, about("try it on this trace first")] = None
    limit: Annotated[int, about("number of traces", ge=1, le=MOST_TRACES)] = 10


class TriedAssertion(TypedDict):
    """One assertion on one trace."""

    label: str
    outcome: str
    code: str | None
    reason: str


class TriedResult(TypedDict):
    """One case on one trace."""

    case: str
    outcome: str
    score: float | None
    code: str | None
    reason: str | None
    assertions: list[TriedAssertion]


class TriedTrace(TypedDict):
    """One trace."""

    id: str
    agent_id: str
    external_id: str
    input_text: str | None
    created_at: str
    is_for: Annotated[bool, about("whether `when` matches; the cases are decided only on matching traces")]
    error: Annotated[str | None, about("why nothing was decided: a code and a message")]
    results: Annotated[list[TriedResult], about("the first 50 cases")]
    more_results: int


class TrialResult(TypedDict):
    """The results of a trial, which are not stored."""

    dialect: str
    counts: Annotated[dict[str, int], about("number of results by outcome, over all traces")]
    traces: list[TriedTrace]


@operation("cases", "POST /api/cases/validate")
async def validate_case(caller: Caller, spec: SentDocument) -> Validation:
    """Validate a document without storing it; requires an organization key. Problems have a line, a column and the nearest known word."""
    return await validate_document(caller, spec.document, dialect=spec.dialect)


async def validate_document(caller: Caller, document: Document, *, dialect: str | None = None, name: str | None = None) -> Validation:
    """Return whether a document is valid as a case, with all of its problems. Raises `Refusal` if it cannot be read at all."""
    require_writer(caller, "validating documents")
    try:
        suite, _ = await read_sent_suite(document, dialect=dialect, name=name)
        await asyncio.to_thread(refuse_secrets_in_suite, suite, "document")
    except Refusal as refusal:
        problems = list_refused_problems(refusal, "document")
        # Too large, or of an unknown dialect: it was not parsed.
        if not problems:
            raise
        return describe_validation(None, problems)
    return describe_validation(suite, shown_problems(suite.warnings))


def list_refused_problems(refusal: Refusal, field: str) -> list[Problem]:
    """Return the problems of a refusal; those of parts of `field` have a path and no line."""
    problems = [show_row(Problem, problem) for problem in refusal.problems]
    if problems:
        return problems
    nested = {name: texts for name, texts in refusal.fields.items() if name.startswith((f"{field}.", f"{field}["))}
    nothing: dict[str, Json] = {**dict.fromkeys(list_fields(Problem)), "level": "error", "nearest": []}
    return [
        show_row(Problem, nothing, message=f"{refusal.message}: {text}", path=f"${name.removeprefix(field)}")
        for name, texts in nested.items()
        for text in texts
    ]


def describe_validation(suite: Suite | None, problems: list[Problem]) -> Validation:
    """Return the validation of a document; None: it is invalid."""
    described = {"name": None, "dialect": None, "cases": [], "case_count": 0}
    if suite is not None:
        cases = [{"id": case.id, "name": case.name, "assertions": len(case.assertions)} for case in suite.cases[:MOST_CASES_SHOWN]]
        described = {"name": suite.name, "dialect": suite.dialect, "cases": cases, "case_count": len(suite.cases)}
    return show_row(Validation, described, valid=suite is not None, problems=problems)


@operation("cases", "POST /api/cases/try", name="try_case")
async def try_document(hub: Hub, caller: Caller, trial: TrialRequest) -> TrialResult:
    """Decide a document on the newest stored traces without storing anything or calling a judge; requires an organization key."""
    require_writer(caller, "trying documents")
    suite, text = await read_sent_suite(trial.document, dialect=trial.dialect)
    found = await _read_traces(hub, caller, trial)
    prepared = await asyncio.to_thread(copy_context().run, partial(PreparedSuite, suite))
    decidable = [(number, read) for number, read in enumerate(found) if read.is_decided]
    records = [
        RecordToDecide(evidence=read.evidence, positions=read.list_positions(prepared), clock=read.row["created_at"])
        for _, read in decidable
        if read.evidence is not None
    ]
    decisions = SuiteDecisions(
        hub.decisions, (caller.organization_id, caller.actor), SuiteSource(text=text, dialect=suite.dialect), suite.cases
    )
    decided = iter(await decisions.decide(records))
    by_number = {number: next(decided) for number, _ in decidable}
    shown = [_show_trace(read, suite, by_number.get(number)) for number, read in enumerate(found)]
    counts = dict(Counter(result.outcome for results in by_number.values() for result in results))
    return {"dialect": suite.dialect, "traces": shown, "counts": counts}


async def _read_traces(hub: Hub, caller: Caller, trial: TrialRequest) -> list[ReadTrace]:
    async with reading(hub, caller) as tx:
        await tx.check_place(trial.project_id, trial.agent_id)
        query = select_visible(traces, caller, project_id=trial.project_id, agent_id=trial.agent_id, columns=COLUMNS)
        rows = list((await fetch_page_or_refuse(tx.connection, query, traces, limit=trial.limit)).rows)
        if trial.trace_id is not None:
            first = await tx.find_visible(traces, "trace", trial.trace_id, columns=COLUMNS)
            rows = [first, *(row for row in rows if row["id"] != first["id"])][: trial.limit]
        stored = await fetch_pieces(tx.connection, tx.owner, rows)
    # One at a time, since reading a trace may need much memory.
    return [await read_stored_trace(each, read_when(trial.when)) for each in stored]


def _show_trace(read: ReadTrace, suite: Suite, results: Sequence[CaseResult] | None) -> TriedTrace:
    row = read.row
    error = None if read.error is None else f"{read.error[0]}: {read.error[1]}"
    if error is None and read.evidence is not None and read.evidence.no_run is not None:
        error = f"no_run: {read.evidence.no_run}"
    elif results is not None and not results:
        error = f"other_case: the trace names the case {read.evidence.case if read.evidence else None!r}, which is not in the document"
    shown = [_show_result(result) for result in (results or ())[:_MOST_RESULTS]]
    omitted = max(0, len(results or ()) - _MOST_RESULTS)
    return show_row(TriedTrace, row, is_for=read.is_for, error=error, results=shown, more_results=omitted)


def _show_result(result: CaseResult) -> TriedResult:
    verdicts = [verdict.with_words() for verdict in result.verdicts]
    assertions: list[TriedAssertion] = [
        {"label": assertion.label or assertion.check, "outcome": verdict.outcome, "code": verdict.code, "reason": verdict.reason}
        for assertion, verdict in zip(result.case.assertions, verdicts, strict=False)
    ]
    fields = {name: getattr(result, name) for name in ("outcome", "score", "code", "reason")}
    return show_row(TriedResult, fields, case=result.case.id, assertions=assertions)
