"""`/api/projects/{id}/overview`: the state of a project."""

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
    runs: int = Field(description="decided attempts")
    passes: int
    rate: float | None = Field(description="null if nothing was decided")
    low: float | None = Field(description="the lower bound of the rate, with 95 % confidence")
    high: float | None


class TurnedCase(BaseModel):
    """A case whose results changed."""

    case: str
    before: CaseCounts
    after: CaseCounts
    reason: str = Field(description="why it fails now, for the first ten newly failing cases")


class TurnedCases(BaseModel):
    """Cases with the same change."""

    total: int
    cases: list[TurnedCase] = Field(description="the first twenty")


class SuiteChange(BaseModel):
    """Changes in a suite between its last run before the time and its newest run since."""

    suite_name: str
    run_id: str
    before_id: str | None = Field(description="null if there is no earlier run")
    newly_failing: TurnedCases
    newly_passing: TurnedCases
    newly_flaky: TurnedCases = Field(description="passed only in some attempts, and before in all or none")
    is_part: bool = Field(description="whether only some of the failing cases were compared")


class NewReason(BaseModel):
    """A new reason for failing results of traces."""

    reason: str
    code: str | None
    outcome: str
    count: int
    result_id: str
    trace_id: str


class Overview(BaseModel):
    """The state of a project."""

    project_id: str
    since: str
    trend: list[TrendPoint] = Field(description="the latest 20 completed runs, oldest first")
    alerts: list[dict[str, Any]] | None = Field(description="firing alerts; null for project keys")
    new_runs: dict[str, int] = Field(description="number of new runs by status")
    more_runs: bool = Field(description="whether there are more than the hundred that are counted")
    suites: list[SuiteChange] = Field(description="of at most five suites with a completed run since then")
    reasons: list[NewReason] = Field(description="new reasons of failing results of traces, most frequent first")
    more_reasons: int = Field(description="number of further reasons")


@router.get("/api/projects/{project_id}/overview", response_model=Overview)
async def get_overview(
    hub: TheHub,
    caller: TheCaller,
    project_id: str,
    since: Annotated[str | None, Query(description="changes since this time; ISO 8601. Default: one day ago")] = None,
) -> object:
    """Read the state of a project: trend, firing alerts, and changes since a time."""
    return msgspec.to_builtins(await read_overview(hub, caller, project_id, since=since))
