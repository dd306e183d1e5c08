"""`/api/traces/reevaluate`: traces against the cases as they are now."""

from __future__ import annotations

from pydantic import BaseModel, Field

from proctor.rest.route_parts import Body, TheCaller, TheHub, list_sent_fields, make_router
from proctor.service.traces.reevaluation import MOST_TRACES, ReevaluationRequest, request_reevaluation

router = make_router("traces")


class Reevaluation(Body):
    """Which traces; all that is named must hold."""

    project_id: str | None = None
    agent_id: str | None = None
    case_id: str | None = Field(None, description="the traces of the agent, or project, that this case is for")
    trace_ids: list[str] | None = Field(None, min_length=1, max_length=MOST_TRACES)
    since: str | None = Field(None, description="received from this time on; ISO 8601")
    until: str | None = Field(None, description="received before this time; ISO 8601")


class Reevaluated(BaseModel):
    """How many traces will be evaluated again."""

    traces: int


@router.post("/api/traces/reevaluate", response_model=Reevaluated, status_code=202)
async def reevaluate_traces(hub: TheHub, caller: TheCaller, body: Reevaluation) -> object:
    """Have traces evaluated again, against the cases as they are now. Results of the same case version are replaced."""
    wanted = list_sent_fields(body)
    if wanted.get("trace_ids") is not None:
        wanted["trace_ids"] = tuple(wanted["trace_ids"])
    return await request_reevaluation(hub, caller, ReevaluationRequest(**wanted))
