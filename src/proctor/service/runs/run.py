"""Runs and their attempts, as REST, MCP, pages and `proctor view` show them.

A new field of a run is declared in `ShownRun` and computed in `show_run` and `show_stored_run`; a column of the page is in
`pages/templates/parts.html`. Figures over the attempts are in `figures.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypedDict, TypeVar, get_args

import msgspec

from proctor.actions.history.compare import find_reason
from proctor.actions.workspace.run_history import StoredRun
from proctor.model.case import MOST_REPEATS
from proctor.model.evidence import Json
from proctor.model.run import RunEntry, RunHeader
from proctor.model.verdict import Outcome
from proctor.service.resource import Counts, about, list_fields, show_row
from proctor.service.runs import backtest
from proctor.service.runs.building import read_run_request
from proctor.service.runs.names import MOST_TAGS, read_tags
from proctor.service.suites.documents import Problem
from proctor.service.suites.outbound import LONGEST_ATTEMPT_S
from proctor.store.files.run_references import LONGEST
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import runs

MOST_AT_ONCE = 64
"""Concurrent attempts of one run."""
MOST_CASES = 100
LONGEST_NOTE = 4_000
LONGEST_SELECTION = 4_000
MOST_TRACES = 10_000
"""Traces of one backtest."""
USUAL_TRACES = 1_000
"""Default number of traces of a backtest."""
MOST_JUDGED_TRACES = 200
"""Traces of a backtest with a judge."""
LOCAL_PROJECT = "local"
"""The project of the runs of a folder."""

RunStatus = Literal["queued", "running", "completed", "cancelled", "failed"]
Document = str | dict[str, Json] | list[Json]
_STATUSES: dict[str, RunStatus] = {
    "completed": "completed",
    "running": "running",
    "interrupted": "cancelled",
    "cancelled": "cancelled",
    "budget": "cancelled",
    "not_ended": "failed",
    "failed": "failed",
}
"""The status of a stored run in the terms of the service."""


class LeftOut(TypedDict):
    """Traces that a case is not for, by reason."""

    still_open: Annotated[int, about("incomplete: more spans may arrive")]
    not_chosen: Annotated[int, about("`when` of the case does not match")]
    no_run: Annotated[int, about("not runs of an agent")]
    other_case: Annotated[int, about("they name a case that is not in the document")]


class Backtest(TypedDict):
    """The traces of a backtest, and its progress."""

    case_id: str
    version: Annotated[int, about("of the case when the backtest was requested")]
    agent_id: Annotated[str | None, about("none: every agent of the project")]
    since: str | None
    until: str
    traces: Annotated[int, about("number of traces, at most the requested number")]
    looked_at: int
    left_out: Annotated[LeftOut, about("skipped traces, which have no results")]


class ShownRun(TypedDict):
    """A run of the service or of a folder, as pages show it."""

    id: str
    project_id: str
    suite_name: str
    dialect: str
    target: str | None
    status: RunStatus
    outcome: Annotated[Outcome | None, about("outcome of the whole run, when it is completed")]
    error: Annotated[str | None, about("why it failed")]
    note: str
    name: Annotated[str, about("name of the run, not unique")]
    tags: list[str]
    cancel_requested: bool
    repeat: int
    selection: str | None
    attempts: Annotated[int, about("total number of attempts")]
    finished: Annotated[int, about("number of finished attempts")]
    counts: Counts
    created_at: str
    started_at: str | None
    completed_at: str | None


class Run(ShownRun):
    """A queued, running or finished run of a suite."""

    concurrency: int
    timeout_s: float
    backtest: Annotated[Backtest | None, about("set if a case is decided on stored traces and no agent is called")]
    schedule_id: Annotated[str | None, about("the schedule that started it")]
    due_at: Annotated[str | None, about("when its schedule was due; none: started by hand")]
    updated_at: str


RUN_COLUMNS = (*(name for name in list_fields(Run) if name in runs.c), "settings")
"""The columns that a run is shown from: without its suite, which may be megabytes."""


def show_run(row: Row) -> Run:
    """Return a run of the service."""
    request = read_run_request(row)
    counts = _complete_counts(row["counts"] or {})
    return show_row(
        Run,
        row,
        name=row["name"] or "",
        tags=read_tags(row["tags"]),
        repeat=request.repeat,
        concurrency=request.concurrency,
        timeout_s=request.timeout_s,
        selection=request.selection,
        attempts=request.attempts,
        finished=sum((row["counts"] or {}).values()),
        counts=counts,
        backtest=None if request.backtest is None else _show_backtest(request.backtest),
    )


def find_stored_status(stored: StoredRun) -> RunStatus:
    """Return the status of a stored run."""
    return "failed" if stored.problem is not None else _STATUSES.get(stored.ended or "not_ended", "failed")


def show_stored_run(stored: StoredRun, outcome: Outcome | None) -> ShownRun:
    """Return a run of a folder."""
    header = stored.header or RunHeader(run_id=stored.run_id, started_at="", suite_name=stored.run_id, dialect="", target="", repeat=1)
    return {
        "id": stored.run_id,
        "project_id": LOCAL_PROJECT,
        "suite_name": header.suite_name,
        "dialect": header.dialect,
        "target": header.target,
        "status": find_stored_status(stored),
        "outcome": outcome,
        "error": stored.problem,
        "note": header.note,
        "name": header.name,
        "tags": [*header.tags, *(("baseline",) if stored.is_baseline else ())],
        "cancel_requested": False,
        "repeat": header.repeat,
        "selection": None,
        "attempts": stored.finished if stored.planned is None else stored.planned,
        "finished": stored.finished,
        "counts": _complete_counts(stored.counts),
        "created_at": header.started_at,
        "started_at": header.started_at,
        "completed_at": None,
    }


_KIND = ("repeat", "selection", "target", "schedule_id")
Started = TypeVar("Started", bound=ShownRun)


def pair_newest(new: Sequence[Started], previous: Mapping[str, Started]) -> list[tuple[Started, Started | None]]:
    """Return the newest completed run of each kind with the run to compare it with; `new` are newest first, `previous` is by id.

    Of a suite, runs without an earlier one of their kind are left out if others have one: a soak test does not hide a nightly run.
    """
    newest: dict[tuple[object, ...], Started] = {}
    for run in new:
        if run["status"] == "completed":
            newest.setdefault((run["suite_name"], *(run.get(key) for key in _KIND)), run)
    by_suite: dict[str, list[tuple[Started, Started | None, bool]]] = {}
    for run in newest.values():
        before = previous.get(run["id"])
        is_alike = before is not None and all(before.get(key) == run.get(key) for key in _KIND)
        by_suite.setdefault(run["suite_name"], []).append((run, before, is_alike))
    return [
        (run, before)
        for pairs in by_suite.values()
        for number, (run, before, is_alike) in enumerate(pairs)
        if is_alike or (number == 0 and not any(alike for _, _, alike in pairs))
    ]


def find_previous(run: ShownRun, others: Iterable[ShownRun]) -> ShownRun | None:
    """Return the run to compare with: the last completed one of the same kind before it; `others` are newest first.

    Of the same suite, runs of the same schedule with the same repeats, selection and target are preferred, and among these runs with the
    same name and tags. So a nightly run is not compared with a soak test in between.
    """
    place = (run["created_at"], run["id"])
    older = [other for other in others if other["status"] == "completed" and (other["created_at"], other["id"]) < place]
    same = [other for other in older if other["suite_name"] == run["suite_name"]]
    alike = [other for other in same if all(other.get(key) == run.get(key) for key in _KIND)]
    same_name = [other for other in alike if other["name"] == run["name"] and set(other["tags"]) == set(run["tags"])]
    return next(iter(same_name or alike or same), None)


def _complete_counts(counts: dict[str, int]) -> Counts:
    return show_row(Counts, dict.fromkeys(list_fields(Counts), 0) | counts)


def _show_backtest(progress: backtest.Backtest) -> Backtest:
    left_out = show_row(LeftOut, dict.fromkeys(get_args(backtest.LeftOut), 0) | progress.left_out)
    return show_row(Backtest, msgspec.structs.asdict(progress), left_out=left_out)


class RunResultSummary(TypedDict):
    """One finished attempt."""

    id: str
    run_id: str
    case: str
    attempt: int
    outcome: Outcome
    score: float | None
    verdict: str | None
    code: str | None
    reason: Annotated[str | None, about("why it did not pass: its own reason, or that of its first assertion that did not pass")]
    started_at: str
    duration_ms: Annotated[float | None, about("of the agent, if known, else of the whole attempt")]
    created_at: str


class RunResult(RunResultSummary):
    """An attempt with every assertion and the evidence."""

    result: Annotated[Json, about("assertions with their verdicts, reasons and pointers into the evidence")]
    evidence: Annotated[Json, about("the evidence, redacted")]


class ResultsMeta(TypedDict):
    """Cursors of a page of attempts, and its position."""

    next: Annotated[str | None, about("cursor of the page with older rows; also present after a short page")]
    prev: Annotated[str | None, about("cursor of the page with newer rows")]
    limit: int
    position: Annotated[int | None, about("of the first attempt, counted from 0 at the newest; null for a page by cursor")]
    total: Annotated[int | None, about("number of matching finished attempts; null with a text search")]


class RunResultSummaryPage(TypedDict):
    """A page of finished attempts, newest first."""

    data: list[RunResultSummary]
    _meta: ResultsMeta


class AttemptFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of a list of attempts; None means no condition."""

    outcome: Annotated[str | None, Outcome] = None
    case: str | None = None
    text: Annotated[str | None, about("text in the input, the answer or a reason", max_length=200)] = msgspec.field(default=None, name="q")


def show_attempt(entry: RunEntry, *, id: str, run_id: str, created_at: str) -> RunResultSummary:
    """Return one attempt, of the service or of a folder."""
    fields = {name: getattr(entry, name, None) for name in list_fields(RunResultSummary)}
    # Without its own reason: that of its first assertion that did not pass.
    reason = entry.reason or find_reason(entry, None) or None
    return show_row(RunResultSummary, fields, id=id, run_id=run_id, reason=reason, created_at=created_at, duration_ms=entry.find_agent_ms())


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, `suite` or `cases`, and how."""

    suite: Annotated[Document | None, about("a suite of any dialect, as text (YAML, JSON) or as JSON")] = None
    cases: Annotated[list[str] | None, about("ids of cases of the project, instead of a suite", max_length=MOST_CASES)] = None
    dialect: Annotated[str | None, about("native, mcplab, mibo, verial or mcpjam; default: detected")] = None
    target: Annotated[
        str | dict[str, Json] | None,
        about(
            "the name of a target of the suite or of the project's settings, or a target; default: the only one, or an MCPLab suite's own "
            "agents"
        ),
    ] = None
    repeat: Annotated[int, about("attempts per case", ge=1, le=MOST_REPEATS)] = 1
    concurrency: Annotated[int, about("concurrent attempts", ge=1, le=MOST_AT_ONCE)] = 4
    timeout_s: Annotated[float, about("timeout of one attempt", gt=0, le=LONGEST_ATTEMPT_S)] = 120.0
    selection: Annotated[str | None, about("cases to run, as `-k` of the command line", max_length=LONGEST_SELECTION)] = None
    note: Annotated[str, about(max_length=LONGEST_NOTE)] = ""
    name: Annotated[str, about("name of the run; a shared name refers to the newest", max_length=LONGEST)] = ""
    tags: Annotated[list[str], about("tags, to find the run by `@tag`", max_length=MOST_TAGS)] = []


class NewRun(RunOptions, frozen=True, kw_only=True):
    """A new run: `suite` or `cases`, and options."""

    project_id: str


class RunSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of a list of runs; None means no condition."""

    project_id: str | None = None
    status: RunStatus | None = None
    name: str | None = None
    suite: Annotated[str | None, about("name of the suite")] = None
    tag: Annotated[str | None, about("without the `@`")] = None
    schedule_id: Annotated[str | None, about("the runs of a schedule")] = None
    query: Annotated[str | None, about("text in names of runs and suites, or in notes")] = None


class NewBacktest(msgspec.Struct, frozen=True, kw_only=True):
    """The stored traces that a case is decided on: the newest of its agent or project."""

    agent_id: Annotated[str | None, about("default: the agent of the case, or every agent of its project")] = None
    since: Annotated[str | None, about("traces from this time on; ISO 8601", max_length=100)] = None
    until: Annotated[str | None, about("traces before this time; default: now", max_length=100)] = None
    limit: Annotated[
        int | None,
        about(
            f"number of newest traces; default: {USUAL_TRACES:,}. Required for a case with a judge: at most {MOST_JUDGED_TRACES}",
            ge=1,
            le=MOST_TRACES,
        ),
    ] = None
    note: Annotated[str, about(max_length=LONGEST_NOTE)] = ""
    name: Annotated[str, about("name of the run", max_length=LONGEST)] = ""
    tags: Annotated[list[str], about("tags, to find the run by `@tag`", max_length=MOST_TAGS)] = []


class RunFinding(TypedDict):
    """A problem that prevents a run."""

    field: Annotated[str, about("field of the request; empty: the whole request")]
    message: str
    line: int | None
    column: int | None
    path: Annotated[str | None, about("place in the document")]
    nearest: list[str]
    hint: str | None


class PlannedRun(TypedDict):
    """The plan of a run."""

    startable: bool
    problems: list[RunFinding]
    warnings: Annotated[list[Problem], about("problems in the suite that do not prevent the run")]
    suite_name: str | None
    dialect: str | None
    target: Annotated[str | None, about("the target; none if a problem makes it unknown")]
    attempts: int | None
    case_count: int
    cases: Annotated[list[str], about("ids of the first 1,000 cases")]
