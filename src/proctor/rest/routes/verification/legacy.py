"""`/evals`, `/eval-runs` and `/runs`: what came before criteria and benchmark runs."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import Field

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, given, routed
from proctor.rest.routes.verification.bodies import OfBenchmark, OfTask, OfTaskRun, Shown, Stamped, Written
from proctor.rest.routes.verification.criteria import Label, Weight
from proctor.rest.routes.verification.runs import BenchmarkRun, BenchmarkRunSummary, NewBenchmarkRun
from proctor.service.verification import benchmark_runs, legacy_evals

router = routed("legacy")


class Eval(Stamped):
    """A claim about the state after a task, as a text."""

    task_id: str
    label: str
    assert_: str = Field(alias="assert", description="English, or a typed assertion as JSON")
    weight: float


class NewEval(Written):
    """What an eval is made of."""

    task_id: str
    label: Label
    assert_: str = Field(validation_alias="assert", min_length=1, description="English, or a typed assertion as JSON")
    weight: Weight = 1.0


class EvalChanges(Written):
    """What changes; the rest stays."""

    label: Label = ""
    assert_: str = Field("", validation_alias="assert", min_length=1)
    weight: Weight = 1.0


class EvalRun(Shown):
    """What an eval came to."""

    id: str
    task_run_id: str
    eval_id: str
    result: str = Field(description="pass or fail")
    passed: bool
    score: float
    details: str | None
    started_at: str
    completed_at: str | None


class OlderRunSummary(BenchmarkRunSummary):
    """A benchmark run in its older states."""

    run_id: str
    status: str = Field(description="pending, running, completed, cancelled or failed")


class OlderRun(BenchmarkRun):
    """The same with its task runs."""

    run_id: str
    status: str = Field(description="pending, running, completed, cancelled or failed")


@router.get("/evals", response_model=PageOf[Eval])
async def list_evals(hub: TheHub, caller: TheCaller, paging: ThePaging, task_id: OfTask) -> object:
    """List evals, newest first."""
    return await legacy_evals.list_evals(hub, caller, task_id=task_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/evals", response_model=Eval, status_code=201)
async def create_eval(hub: TheHub, caller: TheCaller, body: NewEval) -> object:
    """Create an eval of a task."""
    return await legacy_evals.create_eval(hub, caller, _stated(body))


@router.get("/evals/{eval_id}", response_model=Eval)
async def get_eval(hub: TheHub, caller: TheCaller, eval_id: str) -> object:
    """Read an eval."""
    return await legacy_evals.get_eval(hub, caller, eval_id)


@router.patch("/evals/{eval_id}", response_model=Eval)
async def update_eval(hub: TheHub, caller: TheCaller, eval_id: str, body: EvalChanges) -> object:
    """Change an eval."""
    return await legacy_evals.update_eval(hub, caller, eval_id, _stated(body))


@router.delete("/evals/{eval_id}", status_code=204)
async def delete_eval(hub: TheHub, caller: TheCaller, eval_id: str) -> Response:
    """Delete an eval."""
    await legacy_evals.delete_eval(hub, caller, eval_id)
    return Response(status_code=204)


@router.get("/eval-runs", response_model=PageOf[EvalRun])
async def list_eval_runs(hub: TheHub, caller: TheCaller, paging: ThePaging, task_run_id: OfTaskRun) -> object:
    """List eval runs, newest first."""
    return await legacy_evals.list_eval_runs(hub, caller, task_run_id=task_run_id, limit=paging.limit, cursor=paging.cursor)


@router.get("/eval-runs/{eval_run_id}", response_model=EvalRun)
async def get_eval_run(hub: TheHub, caller: TheCaller, eval_run_id: str) -> object:
    """Read an eval run."""
    return await legacy_evals.get_eval_run(hub, caller, eval_run_id)


@router.get("/runs", response_model=PageOf[OlderRunSummary])
async def list_runs(hub: TheHub, caller: TheCaller, paging: ThePaging, benchmark_id: OfBenchmark) -> object:
    """List benchmark runs in their older states, newest first."""
    return await legacy_evals.list_runs(hub, caller, benchmark_id=benchmark_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/runs", response_model=OlderRun, status_code=201)
async def create_run(hub: TheHub, caller: TheCaller, body: NewBenchmarkRun) -> object:
    """Make a run of a benchmark."""
    return legacy_evals.older_run(await benchmark_runs.create_benchmark_run(hub, caller, given(body)))


@router.get("/runs/{benchmark_run_id}", response_model=OlderRun)
async def get_run(hub: TheHub, caller: TheCaller, benchmark_run_id: str) -> object:
    """Read a run with its task runs."""
    return legacy_evals.older_run(await benchmark_runs.get_benchmark_run(hub, caller, benchmark_run_id))


@router.post("/runs/{benchmark_run_id}/complete", response_model=OlderRun)
async def complete_run(hub: TheHub, caller: TheCaller, benchmark_run_id: str) -> object:
    """Verify every task run that is still open, and with the last one complete the run."""
    return legacy_evals.older_run(await benchmark_runs.complete_benchmark_run(hub, caller, benchmark_run_id))


@router.post("/runs/{benchmark_run_id}/cancel", response_model=OlderRun)
async def cancel_run(hub: TheHub, caller: TheCaller, benchmark_run_id: str) -> object:
    """End a run; what its completed tasks came to is kept."""
    return legacy_evals.older_run(await benchmark_runs.cancel_benchmark_run(hub, caller, benchmark_run_id))


def _stated(body: NewEval | EvalChanges) -> dict[str, Any]:
    fields = given(body)
    if "assert_" in fields:
        fields["assert"] = fields.pop("assert_")
    return fields
