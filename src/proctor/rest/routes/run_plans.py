"""`/api/runs/dry-run`: what a run would be, and what keeps it from being started."""

from __future__ import annotations

from pydantic import BaseModel, Field

from proctor.rest.route_parts import TheCaller, TheHub, make_router
from proctor.rest.routes.cases import Problem
from proctor.rest.routes.runs import NewRun
from proctor.service.runs import requests
from proctor.service.runs.requests import RunSpec

router = make_router("runs")


class RunFinding(BaseModel):
    """What keeps a run from being started."""

    field: str = Field(description="which field of the request it is about; empty: all of it")
    message: str
    line: int | None
    column: int | None
    path: str | None = Field(description="where in the document it stands")
    nearest: list[str]
    hint: str | None


class PlannedRun(BaseModel):
    """What a run would be."""

    startable: bool
    problems: list[RunFinding]
    warnings: list[Problem] = Field(description="findings in the suite that keep nothing from being started")
    suite_name: str | None
    dialect: str | None
    target: str | None = Field(description="what would be driven; none where a problem keeps that from being known")
    attempts: int | None
    case_count: int
    cases: list[str] = Field(description="ids of the cases that would be driven, the first 1,000")


@router.post("/api/runs/dry-run", response_model=PlannedRun)
async def plan_run(hub: TheHub, caller: TheCaller, body: NewRun) -> object:
    """Look at everything that starting a run looks at, without starting it; with an organization key. Every problem is in the answer."""
    return await requests.plan_run(hub, caller, RunSpec(**body.model_dump()))
