"""`/api/runs`: reports and event streams of runs. The other operations are declared in `service/runs`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from proctor.model.json_values import read_digits
from proctor.rest.route_parts import STILL_HERE, CountedStream, TheCaller, TheHub, make_router, write_event
from proctor.service.hub import Hub
from proctor.service.runs import results as run_results

router = make_router("runs")
Format = Literal["json", "jsonl", "junit", "sarif", "markdown", "html", "otlp"]
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
