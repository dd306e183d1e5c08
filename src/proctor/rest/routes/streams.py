"""Event streams and files: traces and runs as they happen, reports of runs, labels. The service declares the other operations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from proctor.model.json_values import read_digits
from proctor.rest.route_parts import STILL_HERE, CountedStream, StrictRoute, TheCaller, TheHub, write_event
from proctor.service.hub import Hub
from proctor.service.labels import agreement
from proctor.service.runs import results as run_results
from proctor.service.traces import feed

router = APIRouter(route_class=StrictRoute)
_TRACE_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "One event: `id` to continue from, `event` is `received` (a new trace) or `decided` (a case was decided on one), "
    "`data` JSON with `id`, `kind`, `at`, `trace_id`, `agent_id`, and "
    "`external_id`, `status`, `input_text`, or `case_id`, `outcome`, `code`.",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
}
_TRACE_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The events.", "content": {"text/event-stream": {"schema": _TRACE_EVENT}}}
}


@router.get("/api/traces/events", tags=["traces"], response_class=StreamingResponse, responses=_TRACE_EVENTS)
async def follow_traces(
    request: Request,
    hub: TheHub,
    caller: TheCaller,
    project_id: Annotated[str, Query()],
    agent_id: Annotated[str | None, Query()] = None,
    after: Annotated[str | None, Query(description="start after the event with this id; default: now", max_length=100)] = None,
    follow: Annotated[bool, Query(description="false: send the present events, and end")] = True,
    last_event_id: Annotated[str | None, Header(description="sent by a browser that reconnects; wins over `after`")] = None,
) -> Response:
    """Follow the traces of a project by server-sent events.

    Events are sent two seconds after they were written, each once. A case that is decided again on the same trace sends no event.
    """
    followed = await feed.find_followed_traces(hub, caller, project_id, agent_id=agent_id, after=last_event_id or after)
    return CountedStream(request.app.state.streams, caller.actor, _stream_traces(request, hub, followed, follow))


async def _stream_traces(request: Request, hub: Hub, followed: feed.FollowedFeed, follow: bool) -> AsyncIterator[bytes]:
    stopping = request.app.state.stopping
    # The position first: a reader that is disconnected before the first event continues from here.
    yield f"retry: 1000\nid: {followed.place.write()}\n\n".encode()
    async for event in feed.follow_traces(hub, followed, stopping=stopping.is_set, follow=follow):
        yield STILL_HERE if event is None else write_event(event)


Format = Literal["json", "jsonl", "junit", "sarif", "markdown", "html", "otlp"]
_RUN_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "One event: `id` its number, `event` its kind, `data` JSON with `id`, `kind`, `at` and the fields of the kind.",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
}
_RUN_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The events.", "content": {"text/event-stream": {"schema": _RUN_EVENT}}},
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


@router.get("/api/runs/{run_id}/report", tags=["runs"], response_class=Response, responses=_REPORTS)
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


@router.get("/api/runs/{run_id}/events", tags=["runs"], response_class=StreamingResponse, responses=_RUN_EVENTS)
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
    return CountedStream(request.app.state.streams, caller.actor, _stream_run(request, hub, followed, number))


async def _stream_run(request: Request, hub: Hub, run_id: str, after: int) -> AsyncIterator[bytes]:
    stopping = request.app.state.stopping
    yield b"retry: 1000\n\n"
    async for event in run_results.events(hub, run_id, after, stopping=stopping.is_set):
        yield STILL_HERE if event is None else write_event(event)


_LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Lines of JSON.", "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
}


@router.get("/api/annotations/export", tags=["annotations"], response_class=Response, responses=_LINES)
async def export_labels(hub: TheHub, caller: TheCaller, project_id: Annotated[str, Query()]) -> Response:
    """Export the labels of a project as the file that `proctor judge calibrate` reads."""
    labels_of_project = await agreement.read_agreement(hub, caller, project_id, figures=False)
    headers = {"content-disposition": 'attachment; filename="labels.jsonl"'}
    return Response(agreement.write_labels(labels_of_project), media_type="application/x-ndjson", headers=headers)
