"""`/api/traces`: received traces. They are sent to `/public/traces` and `/v1/traces`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from proctor.rest.route_parts import (
    STILL_HERE,
    Body,
    CountedStream,
    PageOf,
    TheCaller,
    TheHub,
    ThePaging,
    list_sent_fields,
    make_router,
    make_stored_response,
    write_event,
)
from proctor.rest.routes.results import ResultSummary, read_trace_filter
from proctor.service.hub import Hub
from proctor.service.traces import feed, search
from proctor.service.traces.reevaluation import MOST_TRACES, ReevaluationRequest, request_reevaluation
from proctor.service.traces.search import TraceFilter, TraceSearch

router = make_router("traces")


class TraceSummary(BaseModel):
    """A trace without its body."""

    id: str
    project_id: str
    agent_id: str
    external_id: str = Field(description="`x-request-id`, the id of the OTLP trace, or a generated id")
    format: str
    status: str = Field(description="open (more may arrive), complete, evaluated (see `not_judged`), failed")
    revision: int = Field(description="incremented with all data that arrives for it")
    size: int = Field(description="stored bytes")
    metadata: dict[str, Any] | None
    input_text: str | None = Field(description="the beginning of the input")
    outcome: str | None = Field(description="the worst outcome of its results")
    error: str | None = Field(None, description="why it could not be evaluated: a code and a message")
    no_run: str | None = Field(None, description="why it is not a run of an agent; such a trace is stored and not judged")
    not_judged: str | None = Field(
        None, description="why an evaluated trace has no verdict: no case is for it, or it is not a run of an agent"
    )
    created_at: str
    updated_at: str


class Trace(TraceSummary):
    """A trace with its body, its evidence and its results."""

    received: Any = Field(description="the received body, redacted; a list if the trace arrived in pieces")
    evidence: dict[str, Any] | None = Field(description="the evidence that cases are decided on; none if it has none")
    results: list[ResultSummary]


class FacetValue(BaseModel):
    """A value and its number of traces."""

    value: str
    count: int
    name: str | None = Field(description="of an agent or a case")


class Facets(BaseModel):
    """Number of traces by agent, outcome, status and case. Each facet ignores its own filter."""

    looked_at: int = Field(description="number of newest traces that were counted; at most 2,000")
    more: bool = Field(description="whether there are older traces that were not counted")
    since: str | None = Field(description="time of the oldest counted trace")
    agents: list[FacetValue]
    outcomes: list[FacetValue]
    statuses: list[FacetValue]
    cases: list[FacetValue] = Field(description="cases that were decided on them")


_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "One event: `id` to continue from, `event` is `received` (a new trace) or `decided` (a case was decided on one), "
    "`data` JSON with `id`, `kind`, `at`, `trace_id`, `agent_id`, and "
    "`external_id`, `status`, `input_text`, or `case_id`, `outcome`, `code`.",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
}
_EVENTS: dict[int | str, dict[str, Any]] = {200: {"description": "The events.", "content": {"text/event-stream": {"schema": _EVENT}}}}


def read_trace_search(
    wanted: Annotated[TraceFilter, Depends(read_trace_filter)],
    status: Annotated[Literal["open", "complete", "evaluated", "failed"] | None, Query()] = None,
    external_id: Annotated[str | None, Query()] = None,
    query: Annotated[str | None, Query(max_length=200, description="text in the input or the external id")] = None,
    metadata: Annotated[list[str] | None, Query(description="`name=value`, may be repeated", max_length=10)] = None,
    case_id: Annotated[str | None, Query(description="decided on this case; `outcome` is then that of the case")] = None,
) -> TraceSearch:
    """Return the search for traces."""
    narrowed = msgspec.structs.asdict(wanted)
    return TraceSearch(**narrowed, status=status, external_id=external_id, query=query, metadata=metadata or (), case_id=case_id)


@router.get("/api/traces", response_model=PageOf[TraceSummary])
async def list_traces(
    hub: TheHub, caller: TheCaller, paging: ThePaging, wanted: Annotated[TraceSearch, Depends(read_trace_search)]
) -> object:
    """List and search traces, newest first."""
    return await search.list_traces(hub, caller, wanted, limit=paging.limit, cursor=paging.cursor)


@router.get("/api/traces/facets", response_model=Facets)
async def count_facets(hub: TheHub, caller: TheCaller, wanted: Annotated[TraceSearch, Depends(read_trace_search)]) -> object:
    """Count the newest traces of a search by agent, outcome, status and case."""
    return search.show_facets(await search.count_facets(hub, caller, wanted))


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


@router.get("/api/traces/{trace_id}", response_model=Trace)
async def get_trace(hub: TheHub, caller: TheCaller, trace_id: str) -> Response:
    """Read a trace with its body, its evidence and its results."""
    return make_stored_response(await search.get_trace(hub, caller, trace_id))


class Reevaluation(Body):
    """The traces to evaluate again; all conditions must hold."""

    project_id: str | None = None
    agent_id: str | None = None
    case_id: str | None = Field(None, description="the traces of the agent or project of this case")
    trace_ids: list[str] | None = Field(None, min_length=1, max_length=MOST_TRACES)
    since: str | None = Field(None, description="received from this time on; ISO 8601")
    until: str | None = Field(None, description="received before this time; ISO 8601")


class Reevaluated(BaseModel):
    """The number of traces to evaluate again."""

    traces: int


@router.post("/api/traces/reevaluate", response_model=Reevaluated, status_code=202)
async def reevaluate_traces(hub: TheHub, caller: TheCaller, body: Reevaluation) -> object:
    """Evaluate traces again, against the current cases. Results of the same case version are replaced."""
    wanted = list_sent_fields(body)
    if wanted.get("trace_ids") is not None:
        wanted["trace_ids"] = tuple(wanted["trace_ids"])
    return await request_reevaluation(hub, caller, ReevaluationRequest(**wanted))
