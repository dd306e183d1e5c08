"""`/benchmark-runs`, `/task-runs` and `/criterion-runs`, with an organization key."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, given, routed
from proctor.rest.routes.verification.bodies import Object, OfBenchmark, OfBenchmarkRun, OfTaskRun, Shown, Stamped, Written
from proctor.service.verification import benchmark_runs, criterion_runs, task_runs
from proctor.service.verification.resources import authorize

router = routed("benchmark runs")
State = dict[str, Any]


class CriterionRun(Stamped):
    """What a criterion came to."""

    task_run_id: str
    criterion_id: str
    passed: bool
    score: float
    details: str | None
    evidence: Object | None
    outcome: str = Field(description="pass, fail, skip, or error when it could not be decided")
    code: str | None
    started_at: str
    completed_at: str | None


class TaskRunSummary(Stamped):
    """One go at a task."""

    benchmark_run_id: str
    task_id: str
    name: str
    playground_id: str | None
    status: str = Field(description="active, completed, cancelled, failed or timed_out")
    phase: str = Field(description="created, started or completed")
    verdict: str | None
    score: float | None
    axes: dict[str, Any]
    outcome: str | None
    timeout: float | None
    started_at: str | None
    completed_at: str | None


class TaskRunOfRun(TaskRunSummary):
    """The same with its criterion runs."""

    criterion_runs: list[CriterionRun]


class TaskRun(TaskRunOfRun):
    """The same with the task as it was when the run was made."""

    snapshot: Object | None


class CompletedTaskRun(TaskRunOfRun):
    """A task run that was just verified."""

    scored: bool


class BenchmarkRunSummary(Stamped):
    """One go at a benchmark."""

    benchmark_id: str
    status: str = Field(description="active, completed, cancelled or failed")
    phase: str = Field(description="created, started or completed")
    scored: bool
    verdict: str | None
    score: float | None
    outcome: str | None
    agent: str | None
    published: bool
    benchmark: Object = Field(description="slug, version and name; no version: as it was when the run was made")
    solver_id: str | None
    started_at: str | None
    completed_at: str | None


class BenchmarkRun(BenchmarkRunSummary):
    """The same with its task runs."""

    task_runs: list[TaskRunOfRun]


class NewBenchmarkRun(Written):
    """What is run."""

    benchmark_id: str
    version: Annotated[int, Field(ge=1, le=10**9)] | None = Field(None, description="a published version; left out: as it is now")
    scored: bool = Field(False, description="details and evidence are withheld from the agent")
    agent: Annotated[str, Field(min_length=1, max_length=200)] | None = None


class KeptState(Shown):
    """What was uploaded."""

    families: list[str]
    bytes: int = Field(description="as it is kept, compressed")
    updated_at: str


@router.get("/benchmark-runs", response_model=PageOf[BenchmarkRunSummary])
async def list_benchmark_runs(hub: TheHub, caller: TheCaller, paging: ThePaging, benchmark_id: OfBenchmark) -> object:
    """List benchmark runs, newest first."""
    return await benchmark_runs.list_benchmark_runs(hub, caller, benchmark_id=benchmark_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/benchmark-runs", response_model=BenchmarkRun, status_code=201)
async def create_benchmark_run(hub: TheHub, caller: TheCaller, body: NewBenchmarkRun) -> object:
    """Make a run of a benchmark, with one task run per task."""
    return await benchmark_runs.create_benchmark_run(hub, caller, given(body))


@router.get("/benchmark-runs/{benchmark_run_id}", response_model=BenchmarkRun)
async def get_benchmark_run(hub: TheHub, caller: TheCaller, benchmark_run_id: str) -> object:
    """Read a benchmark run with its task runs and criterion runs."""
    return await benchmark_runs.get_benchmark_run(hub, caller, benchmark_run_id)


@router.put("/benchmark-runs/{benchmark_run_id}/state", response_model=KeptState)
async def put_benchmark_run_state(hub: TheHub, caller: TheCaller, benchmark_run_id: str, body: State) -> object:
    """Upload the state that all tasks of a run share; with an organization key only, as an agent must not grade itself."""
    return await benchmark_runs.put_benchmark_run_state(hub, caller, benchmark_run_id, body)


@router.post("/benchmark-runs/{benchmark_run_id}/complete", response_model=BenchmarkRun)
async def complete_benchmark_run(hub: TheHub, caller: TheCaller, benchmark_run_id: str) -> object:
    """Verify every task run that is still open, and with the last one complete the run."""
    return await benchmark_runs.complete_benchmark_run(hub, caller, benchmark_run_id)


@router.post("/benchmark-runs/{benchmark_run_id}/cancel", response_model=BenchmarkRun)
async def cancel_benchmark_run(hub: TheHub, caller: TheCaller, benchmark_run_id: str) -> object:
    """End a run; what its completed tasks came to is kept."""
    return await benchmark_runs.cancel_benchmark_run(hub, caller, benchmark_run_id)


@router.post("/benchmark-runs/{benchmark_run_id}/publish", response_model=BenchmarkRun)
async def publish_benchmark_run(hub: TheHub, caller: TheCaller, benchmark_run_id: str) -> object:
    """Put a completed run on the leaderboard."""
    return await benchmark_runs.publish_benchmark_run(hub, caller, benchmark_run_id)


@router.post("/benchmark-runs/{benchmark_run_id}/unpublish", response_model=BenchmarkRun)
async def unpublish_benchmark_run(hub: TheHub, caller: TheCaller, benchmark_run_id: str) -> object:
    """Take a run off the leaderboard."""
    return await benchmark_runs.publish_benchmark_run(hub, caller, benchmark_run_id, published=False)


@router.get("/task-runs", response_model=PageOf[TaskRunSummary])
async def list_task_runs(hub: TheHub, caller: TheCaller, paging: ThePaging, benchmark_run_id: OfBenchmarkRun) -> object:
    """List task runs, newest first."""
    return await task_runs.list_task_runs(hub, caller, benchmark_run_id=benchmark_run_id, limit=paging.limit, cursor=paging.cursor)


@router.get("/task-runs/{task_run_id}", response_model=TaskRun)
async def get_task_run(hub: TheHub, caller: TheCaller, task_run_id: str) -> object:
    """Read a task run with its snapshot and criterion runs."""
    return await task_runs.get_task_run(hub, caller, task_run_id)


@router.put("/task-runs/{task_run_id}/state", response_model=KeptState)
async def put_task_run_state(hub: TheHub, caller: TheCaller, task_run_id: str, body: State) -> object:
    """Upload the state a task run is verified on; with an organization key only, as an agent must not grade itself."""
    return await task_runs.put_task_run_state(hub, caller, task_run_id, body)


@router.post("/task-runs/{task_run_id}/complete", response_model=CompletedTaskRun)
async def complete_task_run(hub: TheHub, caller: TheCaller, task_run_id: str) -> object:
    """Verify a task run on the state that was uploaded, at once."""
    # The run's token does so under /v1, where what a scored run withholds is withheld.
    authorize(caller)
    return await task_runs.complete_task_run(hub, caller, task_run_id)


@router.post("/task-runs/{task_run_id}/cancel", response_model=TaskRun)
async def cancel_task_run(hub: TheHub, caller: TheCaller, task_run_id: str) -> object:
    """End a task run without verifying it."""
    return await task_runs.cancel_task_run(hub, caller, task_run_id)


@router.get("/criterion-runs", response_model=PageOf[CriterionRun])
async def list_criterion_runs(hub: TheHub, caller: TheCaller, paging: ThePaging, task_run_id: OfTaskRun) -> object:
    """List criterion runs, newest first."""
    return await criterion_runs.list_criterion_runs(hub, caller, task_run_id=task_run_id, limit=paging.limit, cursor=paging.cursor)


@router.get("/criterion-runs/{criterion_run_id}", response_model=CriterionRun)
async def get_criterion_run(hub: TheHub, caller: TheCaller, criterion_run_id: str) -> object:
    """Read a criterion run with its evidence."""
    return await criterion_runs.get_criterion_run(hub, caller, criterion_run_id)
