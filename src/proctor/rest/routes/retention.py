"""`/api/projects/{project_id}/retention`: how long a project stores its data."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from proctor.rest.route_parts import Body, TheCaller, TheHub, make_router
from proctor.service.upkeep import retention
from proctor.service.upkeep.retention import LONGEST_DAYS, Retention

router = make_router("projects")
_TRACES = "days that traces and their results are stored; null: as long as the service stores them"
_RUNS = "days that ended runs are stored; null: as long as the service stores them"


class ProjectRetention(BaseModel):
    """Retention of a project."""

    project_id: str
    trace_days: int | None = Field(description=_TRACES)
    run_days: int | None = Field(description=_RUNS)
    service_days: float | None = Field(description="the service deletes all data after this many days, whatever the project's setting")
    service_bytes: int | None = Field(description="above this size the service deletes the oldest data of all projects")


class NewRetention(Body):
    """New retention; an omitted field has no limit of its own."""

    trace_days: int | None = Field(None, ge=1, le=LONGEST_DAYS, description=_TRACES)
    run_days: int | None = Field(None, ge=1, le=LONGEST_DAYS, description=_RUNS)


class RetentionPreview(BaseModel):
    """Data that would be deleted."""

    trace_days: int | None
    run_days: int | None
    traces: int = Field(description="number of older traces")
    runs: int = Field(description="number of older ended runs")
    counted_to: int = Field(description="maximum of each count; there may be more")


@router.get("/api/projects/{project_id}/retention", response_model=ProjectRetention)
async def get_retention(hub: TheHub, caller: TheCaller, project_id: str) -> object:
    """Read the retention of a project."""
    return await retention.get_retention(hub, caller, project_id)


@router.put("/api/projects/{project_id}/retention", response_model=ProjectRetention)
async def set_retention(hub: TheHub, caller: TheCaller, project_id: str, body: NewRetention) -> object:
    """Set the retention of a project, at most that of the service; requires an organization key. Older data is deleted within the hour."""
    return await retention.set_retention(hub, caller, project_id, Retention(**body.model_dump()))


@router.get("/api/projects/{project_id}/retention/preview", response_model=RetentionPreview)
async def preview_retention(
    hub: TheHub,
    caller: TheCaller,
    project_id: str,
    trace_days: Annotated[int | None, Query(ge=1, le=LONGEST_DAYS)] = None,
    run_days: Annotated[int | None, Query(ge=1, le=LONGEST_DAYS)] = None,
) -> object:
    """Count what would be deleted with this retention, without changing anything; requires an organization key."""
    return await retention.preview_retention(hub, caller, project_id, Retention(trace_days=trace_days, run_days=run_days))
