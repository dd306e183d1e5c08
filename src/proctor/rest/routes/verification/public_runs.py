"""`/v1`: the run flow for agents, with solver keys and run tokens."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proctor.rest.route_parts import TheCaller, TheHub, given, routed
from proctor.rest.routes.verification.bodies import Object, Shown, Written
from proctor.service.verification import public_runs

router = routed("public runs")


class NewRun(Written):
    """What is run."""

    benchmark: str = Field(description="slug@version; without @version the newest", max_length=200)
    scored: bool = Field(False, description="details and evidence are withheld from the agent")
    agent: Annotated[str, Field(min_length=1, max_length=200)] | None = None


class TaskToDo(Shown):
    """A task of a run that was just made."""

    id: str
    task_id: str
    name: str
    phase: str
    start_url: str
    complete_url: str


class TaskDone(Shown):
    """How a task of a run stands."""

    id: str
    task_id: str
    name: str
    phase: str
    status: str
    verdict: str | None
    score: float | None


class RunSandbox(Shown):
    """A sandbox of a run."""

    id: str
    playground_id: str
    simulator_id: str
    type: str | None
    status: str
    credentials: Object | None


class Reference(Shown):
    """Which benchmark was run."""

    slug: str
    version: int | None
    name: str


class RunHead(Shown):
    """A run."""

    benchmark_run_id: str
    benchmark: Reference
    scored: bool
    phase: str
    status: str
    sandboxes: list[RunSandbox]


class StartedRun(RunHead):
    """A run that was just made; the token is shown this once."""

    bearer_token: str
    bearer_token_expires_at: str
    endpoints: dict[str, str]
    task_runs: list[TaskToDo]


class RunStatus(RunHead):
    """How a run stands."""

    verdict: str | None
    score: float | None
    started_at: str | None
    completed_at: str | None
    task_runs: list[TaskDone]


class StartedTaskRun(Shown):
    """A task that was just started, and what is to be done."""

    task_run_id: str
    benchmark_run_id: str
    task_id: str
    name: str
    phase: str
    status: str
    task_item: Object | None
    timeout: float | None
    started_at: str


class CriterionCheck(Shown):
    """What a criterion came to; of a scored run without details and evidence."""

    id: str
    task_run_id: str
    criterion_id: str
    passed: bool
    score: float
    outcome: str
    details: str | None = None
    evidence: Object | None = None
    code: str | None = None
    started_at: str
    completed_at: str | None


class VerifiedTaskRun(Shown):
    """A task run that was just verified."""

    task_run_id: str
    benchmark_run_id: str
    task_id: str
    phase: str
    status: str
    verdict: str | None
    score: float | None
    axes: dict[str, Any]
    outcome: str | None
    scored: bool
    criterion_runs: list[CriterionCheck]


@router.post("/v1/benchmark-runs", response_model=StartedRun, status_code=201)
async def start_public_run(hub: TheHub, caller: TheCaller, body: NewRun) -> object:
    """Start a run of a published benchmark, an own or a public one; with a solver key. Gives the run's token."""
    return await public_runs.start_public_run(hub, caller, given(body))


@router.get("/v1/benchmark-runs/{benchmark_run_id}", response_model=RunStatus)
async def get_public_run(hub: TheHub, caller: TheCaller, benchmark_run_id: str) -> object:
    """Read how a run stands; with the run's token."""
    return await public_runs.get_public_run(hub, caller, benchmark_run_id)


@router.post("/v1/task-runs/{task_run_id}/start", response_model=StartedTaskRun)
async def start_public_task_run(hub: TheHub, caller: TheCaller, task_run_id: str) -> object:
    """Start a task; with the run's token. One at a time."""
    return await public_runs.start_public_task_run(hub, caller, task_run_id)


@router.post("/v1/task-runs/{task_run_id}/complete", response_model=VerifiedTaskRun, response_model_exclude_unset=True)
async def complete_public_task_run(hub: TheHub, caller: TheCaller, task_run_id: str) -> object:
    """Complete a task, which verifies it at once; with the run's token."""
    return await public_runs.complete_public_task_run(hub, caller, task_run_id)
