"""`/api/runs`: suites run on request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from proctor.actions.workspace.run_names import LONGEST
from proctor.model.json_values import read_digits
from proctor.rest.route_parts import (
    STILL_HERE,
    Body,
    CountedStream,
    PageMeta,
    PageOf,
    TheCaller,
    TheHub,
    ThePaging,
    make_router,
    write_event,
)
from proctor.scoring.paired import LEAST_ALPHA
from proctor.service.hub import Hub
from proctor.service.runs import comparisons
from proctor.service.runs import figures as run_figures
from proctor.service.runs import requests as runs
from proctor.service.runs import results as run_results
from proctor.service.runs.names import MOST_TAGS

router = make_router("runs")
Outcome = Literal["pass", "fail", "error", "skip"]
Format = Literal["json", "jsonl", "junit", "markdown", "html", "otlp"]
Status = Literal["queued", "running", "completed", "cancelled", "failed"]
_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "One event: `id` its number, `event` its kind, `data` JSON with `id`, `kind`, `at` and the fields of the kind.",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The events.", "content": {"text/event-stream": {"schema": _EVENT}}},
    204: {"description": "The run has ended and all events were sent: do not reconnect."},
}
_REPORTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The report.",
        "content": {kind: {"schema": {} if kind == "application/json" else {"type": "string"}} for kind in run_results.REPORTS.values()},
    }
}
# The report contains answers of agents, which must not affect other pages.
_REPORT_POLICY = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


class Counts(BaseModel):
    """Number of attempts by outcome."""

    model_config = {"populate_by_name": True}

    passed: int = Field(alias="pass")
    fail: int
    error: int
    skip: int


class LeftOut(BaseModel):
    """Traces that a case is not for, by reason."""

    still_open: int = Field(description="incomplete: more spans may arrive")
    not_chosen: int = Field(description="`when` of the case does not match")
    no_run: int = Field(description="not runs of an agent")
    other_case: int = Field(description="they name a case that is not in the document")


class Backtest(BaseModel):
    """The traces of a backtest, and its progress."""

    case_id: str
    version: int = Field(description="of the case when the backtest was requested")
    agent_id: str | None = Field(description="none: every agent of the project")
    since: str | None
    until: str
    traces: int = Field(description="number of traces, at most the requested number")
    looked_at: int
    left_out: LeftOut = Field(description="skipped traces, which have no results")


class Run(BaseModel):
    """A queued, running or finished run of a suite."""

    id: str
    project_id: str
    suite_name: str
    dialect: str
    target: str | None
    status: Status
    outcome: Outcome | None = Field(description="outcome of the whole run, when it is completed")
    error: str | None = Field(description="why it failed")
    note: str
    name: str = Field(description="name of the run, not unique")
    tags: list[str]
    cancel_requested: bool
    repeat: int
    concurrency: int
    timeout_s: float
    selection: str | None
    attempts: int = Field(description="total number of attempts")
    finished: int = Field(description="number of finished attempts")
    counts: Counts
    backtest: Backtest | None = Field(description="set if a case is decided on stored traces and no agent is called")
    created_at: str
    started_at: str | None
    completed_at: str | None
    updated_at: str


class NewRun(Body):
    """A new run: `suite` or `cases`, and options."""

    project_id: str
    suite: str | dict[str, Any] | list[Any] | None = Field(None, description="a suite of any dialect, as text (YAML, JSON) or as JSON")
    cases: list[str] | None = Field(None, description="ids of cases of the project, instead of a suite", max_length=runs.MOST_CASES)
    dialect: str | None = Field(None, description="native, mcplab, mibo, verial or mcpjam; default: detected")
    target: str | dict[str, Any] | None = Field(
        None,
        description="the name of a target of the suite or of the project's settings, or a target; default: the only one, or an "
        "MCPLab suite's own agents",
    )
    repeat: int = Field(1, ge=1, le=runs.MOST_REPEATS, description="attempts per case")
    concurrency: int = Field(4, ge=1, le=runs.MOST_AT_ONCE, description="concurrent attempts")
    timeout_s: float = Field(120.0, gt=0, le=runs.LONGEST_ATTEMPT_S, description="timeout of one attempt")
    selection: str | None = Field(None, max_length=runs.LONGEST_SELECTION, description="cases to run, as `-k` of the command line")
    note: str = Field("", max_length=runs.LONGEST_NOTE)
    name: str = Field("", max_length=LONGEST, description="name of the run; a shared name refers to the newest")
    tags: list[str] = Field([], max_length=MOST_TAGS, description="tags, to find the run by `@tag`")


class RunResultSummary(BaseModel):
    """One finished attempt."""

    id: str
    run_id: str
    case: str
    attempt: int
    outcome: Outcome
    score: float | None
    verdict: str | None
    code: str | None
    reason: str | None = Field(description="why it did not pass: its own reason, or that of its first assertion that did not pass")
    started_at: str
    duration_ms: float | None
    created_at: str


class ResultsMeta(PageMeta):
    """Cursors of a page of attempts, and its position."""

    position: int | None = Field(description="of the first attempt, counted from 0 at the newest; null for a page by cursor")
    total: int | None = Field(description="number of matching finished attempts; null with a text search")


class RunResultSummaryPage(BaseModel):
    """A page of finished attempts, newest first."""

    model_config = {"populate_by_name": True}

    data: list[RunResultSummary]
    meta: ResultsMeta = Field(alias="_meta")


class LatencyBin(BaseModel):
    """Number of attempts with a duration between two bounds; the last bin includes its upper bound."""

    low_ms: float
    high_ms: float
    count: int


class Latency(BaseModel):
    """Durations of the attempts of a run."""

    looked_at: int = Field(description="attempts with a known duration among the examined ones")
    total: int = Field(description="finished attempts")
    is_sample: bool = Field(description="whether only a sample, spread evenly over the run, was examined")
    least_ms: float | None
    median_ms: float | None
    p95_ms: float | None
    most_ms: float | None
    bins: list[LatencyBin]


class RunResult(RunResultSummary):
    """An attempt with every assertion and the evidence."""

    result: Any = Field(description="assertions with their verdicts, reasons and pointers into the evidence")
    evidence: Any = Field(description="the evidence, redacted")


class FailedAttempt(BaseModel):
    """One attempt of a group."""

    id: str
    case: str
    attempt: int
    outcome: Outcome


class FailureGroup(BaseModel):
    """Attempts that failed for the same reason."""

    reason: str = Field(description="reason of the first attempt, with the name of the assertion")
    code: str | None
    outcome: Outcome
    count: int
    cases: int = Field(description="number of different cases")
    results: list[FailedAttempt] = Field(description="the first attempts")


class Failures(BaseModel):
    """Failures of a run, the largest group first."""

    groups: list[FailureGroup]
    looked_at: int = Field(description="number of grouped attempts")
    more: bool = Field(description="whether there are older failures that were not examined")
    more_groups: int = Field(description="number of further groups")


class Comparison(BaseModel):
    """Two runs compared by case."""

    base: dict[str, Any]
    candidate: dict[str, Any]
    comparison: dict[str, Any] = Field(description="verdict (regressed, improved, unchanged, too_little_data), reason, rates, cases")
    latency: dict[str, Any]
    tokens: dict[str, Any]
    cost: dict[str, Any] | None = Field(None, description="if either run has costs")
    base_incomplete: dict[str, Any] | None = Field(None, description="how complete the base is, if it is incomplete")
    candidate_incomplete: dict[str, Any] | None = Field(None, description="the same for the candidate")
    reasons: dict[str, str] = Field(default={}, description="the first reason of every newly failing case")
    failing: list[str] = Field(default=[], description="every case of the candidate that does not pass")
    lacking: list[str] = Field(default=[], description="every case of the candidate with missing evidence")
    unmet: dict[str, int] = Field(default={}, description="number of cases without evidence, and of records without a case")
    warnings: list[str] = Field(default=[], description="limits of the figures")


@router.post("/api/runs", response_model=Run, status_code=202)
async def start_run(hub: TheHub, caller: TheCaller, body: NewRun) -> object:
    """Queue a run; requires an organization key. An invalid run is rejected with all of its problems."""
    return await runs.start_run(hub, caller, runs.RunSpec(**body.model_dump()))


@router.get("/api/runs", response_model=PageOf[Run])
async def list_runs(
    hub: TheHub,
    caller: TheCaller,
    paging: ThePaging,
    project_id: Annotated[str | None, Query()] = None,
    status: Annotated[Status | None, Query()] = None,
    name: Annotated[str | None, Query()] = None,
    tag: Annotated[str | None, Query(description="without the `@`")] = None,
    query: Annotated[str | None, Query(description="text in names of runs and suites, or in notes")] = None,
) -> object:
    """List runs, newest first."""
    wanted = runs.RunSearch(project_id=project_id, status=status, name=name, tag=tag, query=query)
    return await runs.list_runs(hub, caller, wanted, limit=paging.limit, cursor=paging.cursor)


@router.get("/api/runs/{run_id}", response_model=Run)
async def get_run(hub: TheHub, caller: TheCaller, run_id: str) -> object:
    """Read a run: by its id, its name, `@tag`, `latest` or `previous`; the other routes accept the same."""
    return await runs.get_run(hub, caller, run_id)


@router.post("/api/runs/{run_id}/cancel", response_model=Run)
async def cancel_run(hub: TheHub, caller: TheCaller, run_id: str) -> object:
    """Cancel a run; requires an organization key. Finished attempts stay; an ended run is not changed."""
    return await runs.cancel_run(hub, caller, run_id)


@router.get("/api/runs/{run_id}/results", response_model=RunResultSummaryPage)
async def list_run_results(
    hub: TheHub,
    caller: TheCaller,
    run_id: str,
    paging: ThePaging,
    outcome: Annotated[Outcome | None, Query()] = None,
    case: Annotated[str | None, Query()] = None,
    q: Annotated[
        str | None,
        Query(max_length=run_results.LONGEST_TEXT, description="text in the input, the answer or a reason"),
    ] = None,
    position: Annotated[
        int | None,
        Query(ge=0, le=2**31, description="first attempt of the page, counted from 0 at the newest; instead of `cursor`"),
    ] = None,
) -> object:
    """List the finished attempts of a run, newest first, by cursor or position.

    With `q` a page may be short: each request searches at most 10,000 attempts, and `_meta.next` continues.
    """
    wanted = run_results.AttemptFilter(outcome=outcome, case=case, text=q)
    return await run_results.list_run_results(hub, caller, run_id, wanted, limit=paging.limit, cursor=paging.cursor, position=position)


@router.get("/api/runs/{run_id}/results/{result_id}", response_model=RunResult)
async def get_run_result(hub: TheHub, caller: TheCaller, run_id: str, result_id: str) -> object:
    """Read an attempt with every assertion, its verdict and the evidence."""
    return await run_results.get_run_result(hub, caller, run_id, result_id)


@router.get("/api/runs/{run_id}/failures", response_model=Failures)
async def group_run_failures(hub: TheHub, caller: TheCaller, run_id: str) -> object:
    """Group the failures of a run by reason, ignoring numbers and quoted values."""
    return msgspec.to_builtins(await run_figures.group_run_failures(hub, caller, run_id))


@router.get("/api/runs/{run_id}/latency", response_model=Latency)
async def measure_latency(hub: TheHub, caller: TheCaller, run_id: str) -> object:
    """Measure the durations of the attempts of a run; a long run is sampled."""
    return msgspec.to_builtins(await run_figures.measure_latency(hub, caller, run_id))


@router.get("/api/runs/{run_id}/report", response_class=Response, responses=_REPORTS)
async def run_report(
    hub: TheHub,
    caller: TheCaller,
    run_id: str,
    format: Annotated[Format, Query(description="otlp: OpenTelemetry events, OTLP in lines of JSON")] = "json",
) -> Response:
    """Write a report of a run, or of its finished attempts while it is running."""
    report = await run_results.run_report(hub, caller, run_id, format)
    headers = {"content-security-policy": _REPORT_POLICY} if format == "html" else None
    return Response(report, media_type=run_results.REPORTS[format], headers=headers)


@router.get("/api/runs/{run_id}/compare", response_model=Comparison)
async def compare_runs(
    hub: TheHub,
    caller: TheCaller,
    run_id: str,
    base: Annotated[str, Query(description="the base run, in the same project: its id, its name, `@tag`, or `previous`")] = "previous",
    alpha: Annotated[float, Query(ge=LEAST_ALPHA, lt=1, description="significance level")] = 0.05,
) -> object:
    """Compare a run with another: changed cases, and whether the change is significant."""
    return await comparisons.compare_runs(hub, caller, run_id, base, alpha=alpha)


@router.get("/api/runs/{run_id}/events", response_class=StreamingResponse, responses=_EVENTS)
async def run_stream(
    request: Request,
    hub: TheHub,
    caller: TheCaller,
    run_id: str,
    after: Annotated[int, Query(ge=0, le=2**53, description="start after the event with this id")] = 0,
    last_event_id: Annotated[str | None, Header(description="sent by a browser that reconnects; wins over `after`")] = None,
) -> Response:
    """Follow a run by server-sent events, from the beginning or after an event, until it has ended."""
    last = read_digits(last_event_id, 15)
    number = after if last is None else last
    followed = await run_results.find_followed_run(hub, caller, run_id, number)
    if followed is None:
        # An `EventSource` does not reconnect after 204, but after every other end of a stream.
        return Response(status_code=204)
    return CountedStream(request.app.state.streams, caller.actor, _stream_events(request, hub, followed, number))


async def _stream_events(request: Request, hub: Hub, run_id: str, after: int) -> AsyncIterator[bytes]:
    stopping = request.app.state.stopping
    yield b"retry: 1000\n\n"
    async for event in run_results.events(hub, run_id, after, stopping=stopping.is_set):
        yield STILL_HERE if event is None else write_event(event)
