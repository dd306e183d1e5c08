"""`/api/runs`: suites driven on request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from proctor.rest.route_parts import Body, PageOf, TheCaller, TheHub, ThePaging, routed
from proctor.rest.streams import CountedStream
from proctor.scoring.paired import LEAST_ALPHA
from proctor.service.hub import Hub
from proctor.service.runs import events as run_events
from proctor.service.runs import requests as runs
from proctor.service.runs import results as run_results

router = routed("runs")
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
    cancel_requested: bool
    repeat: int
    concurrency: int
    timeout_s: float
    selection: str | None
    attempts: int = Field(description="how many attempts there will be")
    finished: int = Field(description="how many attempts are finished")
    counts: Counts
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
    reason: str | None
    started_at: str
    duration_ms: float | None
    created_at: str


class RunResult(RunResultSummary):
    """The same with every assertion and the evidence."""

    result: Any = Field(description="assertions with their verdicts, reasons and pointers into the evidence")
    evidence: Any = Field(description="what was observed, redacted")


class Comparison(BaseModel):
    """Two runs side by side, joined by case."""

    base: dict[str, Any]
    candidate: dict[str, Any]
    comparison: dict[str, Any] = Field(description="verdict (regressed, improved, unchanged, too_little_data), reason, rates, cases")
    latency: dict[str, Any]
    tokens: dict[str, Any]


@router.post("/api/runs", response_model=Run, status_code=202)
async def start_run(hub: TheHub, caller: TheCaller, body: NewRun) -> object:
    """Put a run in the queue; with an organization key. What cannot be driven is refused at once, with every problem."""
    return await runs.start_run(hub, caller, **body.model_dump())


@router.get("/api/runs", response_model=PageOf[Run])
async def list_runs(
    hub: TheHub,
    caller: TheCaller,
    paging: ThePaging,
    project_id: Annotated[str | None, Query()] = None,
    status: Annotated[Status | None, Query()] = None,
) -> object:
    """List runs, newest first."""
    return await runs.list_runs(hub, caller, project_id=project_id, status=status, limit=paging.limit, cursor=paging.cursor)


@router.get("/api/runs/{run_id}", response_model=Run)
async def get_run(hub: TheHub, caller: TheCaller, run_id: str) -> object:
    """Read a run."""
    return await runs.get_run(hub, caller, run_id)


@router.post("/api/runs/{run_id}/cancel", response_model=Run)
async def cancel_run(hub: TheHub, caller: TheCaller, run_id: str) -> object:
    """End a run; with an organization key. What is finished stays; one that has ended is left as it is."""
    return await runs.cancel_run(hub, caller, run_id)


@router.get("/api/runs/{run_id}/results", response_model=PageOf[RunResultSummary])
async def list_run_results(
    hub: TheHub,
    caller: TheCaller,
    run_id: str,
    paging: ThePaging,
    outcome: Annotated[Outcome | None, Query()] = None,
    case: Annotated[str | None, Query()] = None,
) -> object:
    """List the finished attempts of a run, newest first."""
    more = {"outcome": outcome, "case": case, "cursor": paging.cursor}
    return await run_results.list_run_results(hub, caller, run_id, limit=paging.limit, **more)


@router.get("/api/runs/{run_id}/results/{result_id}", response_model=RunResult)
async def get_run_result(hub: TheHub, caller: TheCaller, run_id: str, result_id: str) -> object:
    """Read an attempt with every assertion, its verdict and the evidence."""
    return await run_results.get_run_result(hub, caller, run_id, result_id)


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
    base: Annotated[str, Query(description="the id of the run to compare with")],
    alpha: Annotated[float, Query(ge=LEAST_ALPHA, lt=1, description="the chance of a false alarm")] = 0.05,
) -> object:
    """Compare a run with another one: what changed, and whether it is more than chance."""
    return await run_results.compare_runs(hub, caller, run_id, base, alpha=alpha)


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
    number = (
        int(last_event_id) if last_event_id and last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 16 else after
    )
    if not await run_events.has_more(hub, caller, run_id, number):
        return Response(status_code=204)
    headers = {"x-accel-buffering": "no"}
    return CountedStream(request.app.state.streams, caller.actor, _stream_events(request, hub, run_id, number), headers=headers)


async def _stream_events(request: Request, hub: Hub, run_id: str, after: int) -> AsyncIterator[bytes]:
    stopping = request.app.state.stopping
    yield b"retry: 1000\n\n"
    async for event in run_events.events(hub, run_id, after, stopping=stopping.is_set):
        if event is None:
            yield b": still here\n\n"
            continue
        number, kind = event["id"], event["kind"]
        yield f"id: {number}\nevent: {kind}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"
