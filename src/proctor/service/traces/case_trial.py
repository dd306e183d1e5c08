"""Tries a document on the newest stored traces of an agent or a project, before it is stored.

Nothing is written. The pool decides the cases; traces that are too large are reported. No judge is called: assertions that need one are
errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import copy_context
from functools import partial

import msgspec

from proctor.decide.prepare import PreparedSuite
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.result import CaseResult
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import check_place, list_seen, require_writer
from proctor.service.decisions.messages import SuiteSource
from proctor.service.decisions.suite_verdicts import RecordToDecide, SuiteDecisions
from proctor.service.field_checks import refuse_secrets_in_suite
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse
from proctor.service.refusals import Refusal
from proctor.service.suites.documents import read_sent_suite, shown_problems
from proctor.service.traces.stored_traces import COLUMNS, ReadTrace, fetch_pieces, read_stored_trace
from proctor.store.sql.tables import traces

MOST_CASES_SHOWN = 1_000
"""Cases of a document that are listed; all of them are counted."""


async def validate_document(
    caller: Caller, document: str | dict[str, Json] | list[Json], *, dialect: str | None = None, name: str | None = None
) -> dict[str, Json]:
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


def list_refused_problems(refusal: Refusal, field: str) -> list[dict[str, Json]]:
    """Return the problems of a refusal; those of parts of `field` have a path and no line."""
    found: list[dict[str, Json]] = [dict(problem) for problem in refusal.problems]  # type: ignore[misc]  # as `shown_problems` made them
    if found:
        return found
    inside = {name: texts for name, texts in refusal.fields.items() if name.startswith((f"{field}.", f"{field}["))}
    return [_make_problem(f"{refusal.message}: {text}", f"${name.removeprefix(field)}") for name, texts in inside.items() for text in texts]


def _make_problem(message: str, path: str) -> dict[str, Json]:
    return {
        "message": message,
        "line": None,
        "column": None,
        "path": path,
        "level": "error",
        "code": None,
        "expected": None,
        "nearest": [],
        "hint": None,
    }


def describe_validation(suite: Suite | None, problems: list[dict[str, Json]]) -> dict[str, Json]:
    """Return the validation of a document; None: it is invalid."""
    found: dict[str, Json] = {"valid": suite is not None, "problems": problems, "name": None, "dialect": None, "cases": [], "case_count": 0}
    if suite is not None:
        cases = [{"id": case.id, "name": case.name, "assertions": len(case.assertions)} for case in suite.cases[:MOST_CASES_SHOWN]]
        found |= {"name": suite.name, "dialect": suite.dialect, "cases": cases, "case_count": len(suite.cases)}
    return found


MOST_TRACES = 20
_MOST_RESULTS = 50
"""Cases of a document that are shown per trace."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A document to try, and the traces to try it on."""

    project_id: str
    document: str | dict[str, Json] | list[Json]
    dialect: str | None = None
    agent_id: str | None = None
    """None: all agents of the project."""
    when: dict[str, Json] | None = None
    limit: int = 10


async def try_document(hub: Hub, caller: Caller, trial: Trial) -> dict[str, Json]:
    """Decide a document on the newest traces of an agent. Raises `Refusal` with every problem in the document."""
    require_writer(caller, "trying documents")
    if not 1 <= trial.limit <= MOST_TRACES:
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"limit": [f"expected 1 to {MOST_TRACES}"]})
    suite, text = await read_sent_suite(trial.document, dialect=trial.dialect)
    found = await _read_traces(hub, caller, trial)
    prepared = await asyncio.to_thread(copy_context().run, partial(PreparedSuite, suite))
    wanted = [(number, read) for number, read in enumerate(found) if read.is_decided]
    records = [
        RecordToDecide(evidence=read.evidence, positions=read.list_positions(prepared), clock=read.row["created_at"])
        for _, read in wanted
        if read.evidence is not None
    ]
    decisions = SuiteDecisions(
        hub.decisions, (caller.organization_id, caller.actor), SuiteSource(text=text, dialect=suite.dialect), suite.cases
    )
    decided = iter(await decisions.decide(records))
    by_number = {number: next(decided) for number, _ in wanted}
    shown = [_show_trace(read, suite, by_number.get(number)) for number, read in enumerate(found)]
    counts: dict[str, int] = {}
    for results in by_number.values():
        for result in results:
            counts[result.outcome] = counts.get(result.outcome, 0) + 1
    return {"dialect": suite.dialect, "traces": shown, "counts": counts}


async def _read_traces(hub: Hub, caller: Caller, trial: Trial) -> list[ReadTrace]:
    async with hub.database.reading() as connection:
        await check_place(connection, caller, trial.project_id, trial.agent_id)
        query = list_seen(traces, caller, project_id=trial.project_id, agent_id=trial.agent_id, columns=COLUMNS)
        rows = (await fetch_page_or_refuse(connection, query, traces, limit=trial.limit)).rows
        stored = await fetch_pieces(connection, caller.organization_id, rows)
    # One at a time, since reading a trace may need much memory.
    return [await read_stored_trace(each, trial.when) for each in stored]


def _show_trace(read: ReadTrace, suite: Suite, results: Sequence[CaseResult] | None) -> dict[str, Json]:
    row = read.row
    error = None if read.error is None else f"{read.error[0]}: {read.error[1]}"
    if error is None and read.evidence is not None and read.evidence.no_run is not None:
        error = f"no_run: {read.evidence.no_run}"
    elif results is not None and not results:
        error = f"other_case: the trace names the case {read.evidence.case if read.evidence else None!r}, which is not in the document"
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
