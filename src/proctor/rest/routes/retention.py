"""`/api/projects/{project_id}/retention`: how long a project keeps what is its own."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from proctor.rest.route_parts import Body, TheCaller, TheHub, make_router
from proctor.service.upkeep import retention
from proctor.service.upkeep.retention import LONGEST_DAYS, Retention

router = make_router("projects")
_TRACES = "days for which traces and their results stay; null: as long as the service keeps them"
_RUNS = "days for which runs that have ended stay; null: as long as the service keeps them"


class ProjectRetention(BaseModel):
    """How long things of a project stay."""

    project_id: str
    trace_days: int | None = Field(description=_TRACES)
    run_days: int | None = Field(description=_RUNS)
    service_days: float | None = Field(description="after so many days the service deletes the same of everybody, whatever a project says")
    service_bytes: int | None = Field(description="beyond so many bytes the service deletes the oldest of everybody")


class NewRetention(Body):
    """What is set; what is left out has no bound of its own."""

    trace_days: int | None = Field(None, ge=1, le=LONGEST_DAYS, description=_TRACES)
    run_days: int | None = Field(None, ge=1, le=LONGEST_DAYS, description=_RUNS)


class RetentionPreview(BaseModel):
    """What would be deleted."""

    trace_days: int | None
    run_days: int | None
    traces: int = Field(description="traces that are older")
    runs: int = Field(description="runs that are older and have ended")
    counted_to: int = Field(description="so many are counted of each; there may be more than that")


@router.get("/api/projects/{project_id}/retention", response_model=ProjectRetention)
async def get_retention(hub: TheHub, caller: TheCaller, project_id: str) -> object:
    """Read how long things of a project stay."""
    return await retention.get_retention(hub, caller, project_id)


@router.put("/api/projects/{project_id}/retention", response_model=ProjectRetention)
async def set_retention(hub: TheHub, caller: TheCaller, project_id: str, body: NewRetention) -> object:
    """Set how long things of a project stay, at most as long as the service keeps them; with an organization key. What is older is deleted
    within the hour.
    """
    return await retention.set_retention(hub, caller, project_id, Retention(**body.model_dump()))


@router.get("/api/projects/{project_id}/retention/preview", response_model=RetentionPreview)
async def preview_retention(
    hub: TheHub,
    caller: TheCaller,
    project_id: str,
    trace_days: Annotated[int | None, Query(ge=1, le=LONGEST_DAYS)] = None,
    run_days: Annotated[int | None, Query(ge=1, le=LONGEST_DAYS)] = None,
) -> object:
    """Count what would be deleted if this were set; with an organization key. Nothing is changed."""
    return await retention.preview_retention(hub, caller, project_id, Retention(trace_days=trace_days, run_days=run_days))
