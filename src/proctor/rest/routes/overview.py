"""`/api/projects/{id}/overview`: what is going on in a project."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Query
from pydantic import BaseModel, Field

from proctor.rest.route_parts import TheCaller, TheHub, make_router
from proctor.rest.routes.comparisons import CaseCounts
from proctor.service.overview.read import read_overview

router = make_router("projects")


class TrendPoint(BaseModel):
    """One completed run."""

    run_id: str
    suite_name: str
    name: str
    created_at: str
    runs: int = Field(description="attempts that were decided")
    passes: int
    rate: float | None = Field(description="null where nothing was decided")
    low: float | None = Field(description="the lower bound of the rate, with 95 % confidence")
    high: float | None


class TurnedCase(BaseModel):
    """One case that turned."""

    case: str
    before: CaseCounts
    after: CaseCounts
    reason: str = Field(description="why it fails now, of the first ten newly failing cases")


class TurnedCases(BaseModel):
    """Cases that turned in the same way."""

    total: int
    cases: list[TurnedCase] = Field(description="the first twenty of them")


class SuiteChange(BaseModel):
    """What changed in a suite between its last run before the moment and its newest one since."""

    suite_name: str
    run_id: str
    before_id: str | None = Field(description="null where there is no run to compare with")
    newly_failing: TurnedCases
    newly_passing: TurnedCases
    newly_flaky: TurnedCases = Field(description="passed only sometimes, and before always or never")
    is_part: bool = Field(description="whether so many cases fail that only some of them were looked at")


class NewReason(BaseModel):
    """Why results of traces fail since the moment, and did not before."""

    reason: str
    code: str | None
    outcome: str
    count: int
    result_id: str
    trace_id: str


class Overview(BaseModel):
    """What is going on in a project."""

    project_id: str
    since: str
    trend: list[TrendPoint] = Field(description="the latest 20 completed runs, oldest first")
    alerts: list[dict[str, Any]] | None = Field(description="the rules that fire; null for project keys, which do not read alerts")
    new_runs: dict[str, int] = Field(description="how many runs were made since then, by status")
    more_runs: bool = Field(description="whether there are more than the newest hundred, which are counted")
    suites: list[SuiteChange] = Field(description="of at most five suites with a completed run since then")
    reasons: list[NewReason] = Field(description="new reasons for which results of traces fail, the commonest first")
    more_reasons: int = Field(description="reasons beyond those that are listed")


@router.get("/api/projects/{project_id}/overview", response_model=Overview)
async def get_overview(
    hub: TheHub,
    caller: TheCaller,
    project_id: str,
    since: Annotated[str | None, Query(description="what changed since this time; ISO 8601. Left out: since a day ago")] = None,
) -> object:
    """Read what is going on in a project: trend, alerts that fire, and what has changed since a moment."""
    return msgspec.to_builtins(await read_overview(hub, caller, project_id, since=since))
