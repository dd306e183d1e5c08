"""`/api/runs`: suites driven on request."""

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
    "description": "One event: `id` its number, `event` its kind, `data` JSON with `id`, `kind`, `at` and what the kind tells.",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The events.", "content": {"text/event-stream": {"schema": _EVENT}}},
    204: {"description": "The run has ended, and everything was told: do not ask again."},
}
_REPORTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The report.",
        "content": {kind: {"schema": {} if kind == "application/json" else {"type": "string"}} for kind in run_results.REPORTS.values()},
    }
}
# What an agent answered stands in the report: whatever it is, it stays in its page.
_REPORT_POLICY = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


class Counts(BaseModel):
    """How many attempts ended how."""

    model_config = {"populate_by_name": True}

    passed: int = Field(alias="pass")
    fail: int
    error: int
    skip: int


class LeftOut(BaseModel):
    """Traces that a case is not about, by why."""

    still_open: int = Field(description="more of them may come")
    not_chosen: int = Field(description="`when` of the case does not choose them")
    no_run: int = Field(description="they are no runs of an agent")
    other_case: int = Field(description="they name a case that the document does not have")


class Backtest(BaseModel):
    """The traces that a case is decided on, and how far that came."""

    case_id: str
    version: int = Field(description="of the case, when the backtest was sent")
    agent_id: str | None = Field(description="none: every agent of the project")
    since: str | None
    until: str
    traces: int = Field(description="how many there were, at most as many as were asked for")
    looked_at: int
    left_out: LeftOut = Field(description="of those that were looked at; they have no results")


class Run(BaseModel):
    """A suite that is driven, was, or will be."""

    id: str
    project_id: str
    suite_name: str
    dialect: str
    target: str | None
    status: Status
    outcome: Outcome | None = Field(description="of the run as a whole, when it is completed")
    error: str | None = Field(description="why it failed")
    note: str
    name: str = Field(description="what the run is called; several may have one name")
    tags: list[str]
    cancel_requested: bool
    repeat: int
    concurrency: int
    timeout_s: float
    selection: str | None
    attempts: int = Field(description="how many attempts there will be")
    finished: int = Field(description="how many attempts are finished")
    counts: Counts
    backtest: Backtest | None = Field(description="where nobody is driven, and a case is decided on stored traces")
    created_at: str
    started_at: str | None
    completed_at: str | None
    updated_at: str


class NewRun(Body):
    """What is to be driven, and how: `suite` or `cases`."""

    project_id: str
    suite: str | dict[str, Any] | list[Any] | None = Field(None, description="a suite of any dialect, as text (YAML, JSON) or as JSON")
    cases: list[str] | None = Field(None, description="ids of cases of the project, instead of a suite", max_length=runs.MOST_CASES)
    dialect: str | None = Field(None, description="native, mcplab, mibo, verial or mcpjam; left out: recognised by shape")
    target: str | dict[str, Any] | None = Field(
        None,
        description="a target of the suite or of the project's settings by its name, or a target as such; left out: the only one, or an "
        "MCPLab suite's own agents",
    )
    repeat: int = Field(1, ge=1, le=runs.MOST_REPEATS, description="how often every case is run")
    concurrency: int = Field(4, ge=1, le=runs.MOST_AT_ONCE, description="how many attempts run at once")
    timeout_s: float = Field(120.0, gt=0, le=runs.LONGEST_ATTEMPT_S, description="how long one attempt may take")
    selection: str | None = Field(None, max_length=runs.LONGEST_SELECTION, description="which cases, as `-k` of the command line")
    note: str = Field("", max_length=runs.LONGEST_NOTE)
    name: str = Field("", max_length=LONGEST, description="what to call the run; of several with one name the newest is meant")
    tags: list[str] = Field([], max_length=MOST_TAGS, description="words to find the run by, as `@tag`")


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
    reason: str | None = Field(description="why it did not pass, where it says so itself; else of its first assertion that did not")
    started_at: str
    duration_ms: float | None
    created_at: str


class ResultsMeta(PageMeta):
    """The way on from a page of attempts, and where it stands."""

    position: int | None = Field(description="of the first attempt, counted from 0 at the newest; null for a page that a cursor led to")
    total: int | None = Field(description="how many finished attempts there are like these; null where a text is looked for")


class RunResultSummaryPage(BaseModel):
    """A page of finished attempts, newest first."""

    model_config = {"populate_by_name": True}

    data: list[RunResultSummary]
    meta: ResultsMeta = Field(alias="_meta")


class LatencyBin(BaseModel):
    """How many attempts took between two bounds; those in the last one, at least the lower bound."""

    low_ms: float
    high_ms: float
    count: int


class Latency(BaseModel):
    """How long the attempts of a run took."""

    looked_at: int = Field(description="attempts whose duration is known, of those that were looked at")
    total: int = Field(description="finished attempts")
    is_sample: bool = Field(description="whether only some, spread evenly over the run, were looked at")
    least_ms: float | None
    median_ms: float | None
    p95_ms: float | None
    most_ms: float | None
    bins: list[LatencyBin]


class RunResult(RunResultSummary):
    """The same with every assertion and the evidence."""

    result: Any = Field(description="assertions with their verdicts, reasons and pointers into the evidence")
    evidence: Any = Field(description="what was observed, redacted")


class FailedAttempt(BaseModel):
    """One attempt of a group."""

    id: str
    case: str
    attempt: int
    outcome: Outcome


class FailureGroup(BaseModel):
    """Attempts that failed for the same reason."""

    reason: str = Field(description="of the first of them, with the name of the assertion")
    code: str | None
    outcome: Outcome
    count: int
    cases: int = Field(description="how many different cases")
    results: list[FailedAttempt] = Field(description="the first of them")


class Failures(BaseModel):
    """What went wrong in a run, the largest group first."""

    groups: list[FailureGroup]
    looked_at: int = Field(description="how many attempts are in the groups")
    more: bool = Field(description="whether there are older failures that were not looked at")
    more_groups: int = Field(description="groups beyond those that are listed")


class Comparison(BaseModel):
    """Two runs side by side, joined by case."""

    base: dict[str, Any]
    candidate: dict[str, Any]
    comparison: dict[str, Any] = Field(description="verdict (regressed, improved, unchanged, too_little_data), reason, rates, cases")
    latency: dict[str, Any]
    tokens: dict[str, Any]
    cost: dict[str, Any] | None = Field(None, description="where either run has costs")
    base_incomplete: dict[str, Any] | None = Field(None, description="how much there is of a base that is not all there")
    candidate_incomplete: dict[str, Any] | None = Field(None, description="the same of the candidate")
    reasons: dict[str, str] = Field(default={}, description="of every newly failing case, the first thing that went wrong")
    failing: list[str] = Field(default=[], description="every case of the candidate that does not pass, also those that failed before")
    lacking: list[str] = Field(default=[], description="every case of the candidate whose evidence lacks what a claim asks for")
    unmet: dict[str, int] = Field(default={}, description="cases of the candidate without evidence, and records that met no case")
    warnings: list[str] = Field(default=[], description="what the figures say nothing about")


@router.post("/api/runs", response_model=Run, status_code=202)
async def start_run(hub: TheHub, caller: TheCaller, body: NewRun) -> object:
    """Put a run in the queue; with an organization key. What cannot be driven is refused at once, with every problem."""
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
    query: Annotated[str | None, Query(description="looked for in the names of runs and suites, and in notes")] = None,
) -> object:
    """List runs, newest first."""
    wanted = runs.RunSearch(project_id=project_id, status=status, name=name, tag=tag, query=query)
    return await runs.list_runs(hub, caller, wanted, limit=paging.limit, cursor=paging.cursor)


@router.get("/api/runs/{run_id}", response_model=Run)
async def get_run(hub: TheHub, caller: TheCaller, run_id: str) -> object:
    """Read a run: by its id, its name, `@tag`, `latest` or `previous`; so do the other routes that read one."""
    return await runs.get_run(hub, caller, run_id)


@router.post("/api/runs/{run_id}/cancel", response_model=Run)
async def cancel_run(hub: TheHub, caller: TheCaller, run_id: str) -> object:
    """End a run; with an organization key. What is finished stays; one that has ended is left as it is."""
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
        Query(max_length=run_results.LONGEST_TEXT, description="a text that occurs in what was asked or answered, or in a reason"),
    ] = None,
    position: Annotated[
        int | None,
        Query(ge=0, le=2**31, description="begin at this one, counted from 0 at the newest; instead of `cursor`. Behind the last: nothing"),
    ] = None,
) -> object:
    """List the finished attempts of a run, newest first: page by page, or from a position on. With `q` a page may be short although there
    are more: each looks at 10,000 attempts at most, and `_meta.next` goes on.
    """
    wanted = run_results.AttemptFilter(outcome=outcome, case=case, text=q)
    return await run_results.list_run_results(hub, caller, run_id, wanted, limit=paging.limit, cursor=paging.cursor, position=position)


@router.get("/api/runs/{run_id}/results/{result_id}", response_model=RunResult)
async def get_run_result(hub: TheHub, caller: TheCaller, run_id: str, result_id: str) -> object:
    """Read an attempt with every assertion, its verdict and the evidence."""
    return await run_results.get_run_result(hub, caller, run_id, result_id)


@router.get("/api/runs/{run_id}/failures", response_model=Failures)
async def group_run_failures(hub: TheHub, caller: TheCaller, run_id: str) -> object:
    """Group what went wrong in a run by reason: reasons that differ only in numbers and quoted values are one."""
    return msgspec.to_builtins(await run_figures.group_run_failures(hub, caller, run_id))


@router.get("/api/runs/{run_id}/latency", response_model=Latency)
async def measure_latency(hub: TheHub, caller: TheCaller, run_id: str) -> object:
    """Read how long the attempts of a run took: median, slow end, distribution. Of a long run some attempts are looked at."""
    return msgspec.to_builtins(await run_figures.measure_latency(hub, caller, run_id))


@router.get("/api/runs/{run_id}/report", response_class=Response, responses=_REPORTS)
async def run_report(
    hub: TheHub,
    caller: TheCaller,
    run_id: str,
    format: Annotated[Format, Query(description="otlp: OpenTelemetry events, OTLP in lines of JSON")] = "json",
) -> Response:
    """Write a report of a run; while it goes on, of what is finished."""
    report = await run_results.run_report(hub, caller, run_id, format)
    headers = {"content-security-policy": _REPORT_POLICY} if format == "html" else None
    return Response(report, media_type=run_results.REPORTS[format], headers=headers)


@router.get("/api/runs/{run_id}/compare", response_model=Comparison)
async def compare_runs(
    hub: TheHub,
    caller: TheCaller,
    run_id: str,
    base: Annotated[
        str, Query(description="the run to compare with, in the same project: its id, its name, `@tag`, or `previous`, the one before")
    ] = "previous",
    alpha: Annotated[float, Query(ge=LEAST_ALPHA, lt=1, description="the chance of a false alarm")] = 0.05,
) -> object:
    """Compare a run with another one: what changed, and whether it is more than chance."""
    return await comparisons.compare_runs(hub, caller, run_id, base, alpha=alpha)


@router.get("/api/runs/{run_id}/events", response_class=StreamingResponse, responses=_EVENTS)
async def run_stream(
    request: Request,
    hub: TheHub,
    caller: TheCaller,
    run_id: str,
    after: Annotated[int, Query(ge=0, le=2**53, description="begin behind the event of this id")] = 0,
    last_event_id: Annotated[str | None, Header(description="what a browser sends when it comes back; wins over `after`")] = None,
) -> Response:
    """Follow a run: server-sent events with ids, from the beginning or from where a reader was, until the run has ended."""
    last = read_digits(last_event_id, 15)
    number = after if last is None else last
    followed = await run_results.find_followed_run(hub, caller, run_id, number)
    if followed is None:
        # After 204 an `EventSource` does not connect again, as it does after every other end of a stream.
        return Response(status_code=204)
    return CountedStream(request.app.state.streams, caller.actor, _stream_events(request, hub, followed, number))


async def _stream_events(request: Request, hub: Hub, run_id: str, after: int) -> AsyncIterator[bytes]:
    stopping = request.app.state.stopping
    yield b"retry: 1000\n\n"
    async for event in run_results.events(hub, run_id, after, stopping=stopping.is_set):
        yield STILL_HERE if event is None else write_event(event)
