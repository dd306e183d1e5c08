"""`/api/runs/dry-run`: the plan of a run, and its problems."""

from __future__ import annotations

from pydantic import BaseModel, Field

from proctor.rest.route_parts import TheCaller, TheHub, make_router
from proctor.rest.routes.cases import Problem
from proctor.rest.routes.runs import NewRun
from proctor.service.runs import requests
from proctor.service.runs.requests import RunSpec

router = make_router("runs")


class RunFinding(BaseModel):
    """A problem that prevents a run."""

    field: str = Field(description="field of the request; empty: the whole request")
    message: str
    line: int | None
    column: int | None
    path: str | None = Field(description="place in the document")
    nearest: list[str]
    hint: str | None


class PlannedRun(BaseModel):
    """The plan of a run."""

    startable: bool
    problems: list[RunFinding]
    warnings: list[Problem] = Field(description="problems in the suite that do not prevent the run")
    suite_name: str | None
    dialect: str | None
    target: str | None = Field(description="the target; none if a problem makes it unknown")
    attempts: int | None
    case_count: int
    cases: list[str] = Field(description="ids of the first 1,000 cases")


@router.post("/api/runs/dry-run", response_model=PlannedRun)
async def plan_run(hub: TheHub, caller: TheCaller, body: NewRun) -> object:
    """Check a run without starting it; requires an organization key. The response lists every problem."""
    return await requests.plan_run(hub, caller, RunSpec(**body.model_dump()))
