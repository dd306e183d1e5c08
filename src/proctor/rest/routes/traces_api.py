"""`/api/traces/events`: an event stream of received traces. The other operations are declared in `service/traces`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from proctor.rest.route_parts import STILL_HERE, CountedStream, TheCaller, TheHub, make_router, write_event
from proctor.service.hub import Hub
from proctor.service.traces import feed

router = make_router("traces")
_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "One event: `id` to continue from, `event` is `received` (a new trace) or `decided` (a case was decided on one), "
    "`data` JSON with `id`, `kind`, `at`, `trace_id`, `agent_id`, and "
    "`external_id`, `status`, `input_text`, or `case_id`, `outcome`, `code`.",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
}
_EVENTS: dict[int | str, dict[str, Any]] = {200: {"description": "The events.", "content": {"text/event-stream": {"schema": _EVENT}}}}


@router.get("/api/traces/events", response_class=StreamingResponse, responses=_EVENTS)
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
    return CountedStream(request.app.state.streams, caller.actor, _stream_events(request, hub, followed, follow))


async def _stream_events(request: Request, hub: Hub, followed: feed.Followed, follow: bool) -> AsyncIterator[bytes]:
    stopping = request.app.state.stopping
    # The position first: a reader that is disconnected before the first event continues from here.
    yield f"retry: 1000\nid: {followed.place.write()}\n\n".encode()
    async for event in feed.follow_traces(hub, followed, stopping=stopping.is_set, follow=follow):
        yield STILL_HERE if event is None else write_event(event)
