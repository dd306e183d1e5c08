"""`/api/traces`: what was received, for people and tools. Traces come in elsewhere: `/public/traces`, `/v1/traces`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response
from pydantic import BaseModel, Field

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, as_kept, routed
from proctor.rest.routes.results import ResultSummary
from proctor.service.traces import search
from proctor.service.traces.search import TraceFilter

router = routed("traces")


class TraceSummary(BaseModel):
    """A trace without what was received."""

    id: str
    project_id: str
    agent_id: str
    external_id: str = Field(description="`x-request-id`, the id of the OTLP trace, or one that was made up")
    format: str
    status: str = Field(description="open (more may come), complete, evaluated, failed")
    revision: int = Field(description="counts up with everything that comes in for it")
    size: int = Field(description="bytes as kept")
    metadata: dict[str, Any] | None
    input_text: str | None = Field(description="the beginning of what was asked")
    outcome: str | None = Field(description="the worst of its results")
    error: str | None = Field(None, description="why it could not be evaluated: a code and a sentence")
    no_run: str | None = Field(None, description="why it is no run of an agent; such a trace is kept and not judged")
    created_at: str
    updated_at: str


class Trace(TraceSummary):
    """A trace with what was received, the evidence in it, and its results."""

    received: Any = Field(description="the body as it came, redacted; of a trace that came in pieces the list of them")
    evidence: dict[str, Any] | None = Field(description="what cases are decided on; none where nothing can be read out of it")
    results: list[ResultSummary]


def narrowed(
    project_id: Annotated[str | None, Query()] = None,
    agent_id: Annotated[str | None, Query()] = None,
    outcome: Annotated[Literal["pass", "fail", "error", "skip"] | None, Query()] = None,
    since: Annotated[str | None, Query(description="from this time on; ISO 8601")] = None,
    until: Annotated[str | None, Query(description="before this time; ISO 8601")] = None,
) -> TraceFilter:
    """What a list is narrowed to."""
    return TraceFilter(project_id=project_id, agent_id=agent_id, outcome=outcome, since=since, until=until)


@router.get("/api/traces", response_model=PageOf[TraceSummary])
async def list_traces(
    hub: TheHub,
    caller: TheCaller,
    paging: ThePaging,
    wanted: Annotated[TraceFilter, Depends(narrowed)],
    status: Annotated[Literal["open", "complete", "evaluated", "failed"] | None, Query()] = None,
    external_id: Annotated[str | None, Query()] = None,
    query: Annotated[str | None, Query(max_length=200, description="looked for in what was asked and in the external id")] = None,
    metadata: Annotated[list[str] | None, Query(description="`name=value`, may be repeated", max_length=10)] = None,
) -> object:
    """List and search traces, newest first."""
    more = {"status": status, "external_id": external_id, "query": query, "cursor": paging.cursor}
    return await search.list_traces(hub, caller, wanted, metadata=metadata or (), limit=paging.limit, **more)


@router.get("/api/traces/{trace_id}", response_model=Trace)
async def get_trace(hub: TheHub, caller: TheCaller, trace_id: str) -> Response:
    """Read a trace with what was received, the evidence in it, and its results."""
    return as_kept(await search.get_trace(hub, caller, trace_id))
