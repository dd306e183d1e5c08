"""`/api/results`: results of evaluated traces."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends, Query, Response
from pydantic import BaseModel, Field

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, make_router, make_stored_response
from proctor.service.traces import search
from proctor.service.traces.search import ResultSearch, TraceFilter

router = make_router("results")


class ResultSummary(BaseModel):
    """A case decided on a trace."""

    id: str
    project_id: str
    agent_id: str
    trace_id: str
    case_id: str
    case_version: int
    case_key: str = Field(description="the id of the case inside its document")
    trace_revision: int
    outcome: str
    score: float | None
    verdict: str | None
    code: str | None
    created_at: str
    updated_at: str


class Result(ResultSummary):
    """A result with every assertion."""

    result: Any = Field(description="assertions with their verdicts, reasons and pointers into the evidence")


def read_trace_filter(
    project_id: Annotated[str | None, Query()] = None,
    agent_id: Annotated[str | None, Query()] = None,
    outcome: Annotated[Literal["pass", "fail", "error", "skip"] | None, Query()] = None,
    since: Annotated[str | None, Query(description="from this time on; ISO 8601")] = None,
    until: Annotated[str | None, Query(description="before this time; ISO 8601")] = None,
) -> TraceFilter:
    """Return the filter of a list of traces or results."""
    return TraceFilter(project_id=project_id, agent_id=agent_id, outcome=outcome, since=since, until=until)


@router.get("/api/results", response_model=PageOf[ResultSummary])
async def list_results(
    hub: TheHub,
    caller: TheCaller,
    paging: ThePaging,
    wanted: Annotated[TraceFilter, Depends(read_trace_filter)],
    case_id: Annotated[str | None, Query()] = None,
    trace_id: Annotated[str | None, Query()] = None,
    code: Annotated[str | None, Query(description="code of the case's outcome")] = None,
) -> object:
    """List results, newest first."""
    found = ResultSearch(**msgspec.structs.asdict(wanted), case_id=case_id, trace_id=trace_id, code=code)
    return await search.list_results(hub, caller, found, limit=paging.limit, cursor=paging.cursor)


@router.get("/api/results/{result_id}", response_model=Result)
async def get_result(hub: TheHub, caller: TheCaller, result_id: str) -> Response:
    """Read a result with every assertion, its verdict and the evidence for it."""
    return make_stored_response(await search.get_result(hub, caller, result_id))
