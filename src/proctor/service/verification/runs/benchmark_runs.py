"""Benchmark runs of an owner: created from the present benchmark or a published version, completed, cancelled, published."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Unpack

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.paging import show_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.benchmarks import take_snapshot
from proctor.service.verification.authoring.solvers import UNLISTED
from proctor.service.verification.runs.records import (
    add_run,
    change_run,
    end_overdue_tasks,
    end_task_run,
    list_criterion_runs_of,
    list_task_runs_of,
    refuse_finished,
)
from proctor.service.verification.runs.resources import CRITERION_RUN, RUN, STORED_STATE, TASK_RUN, UPLOAD
from proctor.service.verification.runs.states import pack_upload, store_state
from proctor.service.verification.runs.task_runs import complete_task_run
from proctor.service.verification.shared.declaration import Operation
from proctor.service.verification.shared.resources import Paging, Records, Transaction, reading, writing
from proctor.store.sql.compressed_json import unpack
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import find_marked, records_of


@Operation(RUN, "GET /benchmark-runs", gives=RUN.summary, pages=True, within="benchmark_id", tool="list")
async def list_benchmark_runs(hub: Hub, caller: Caller, *, benchmark_id: str | None = None, **paging: Unpack[Paging]) -> Records:
    """List benchmark runs, newest first, including those of a deleted benchmark."""
    async with reading(hub, caller) as tx:
        page = await tx.fetch_page(records_of(caller.organization_id, RUN.kind, parent_id=benchmark_id), **paging)
    return show_page(page, RUN.show)


@Operation(RUN, "POST /benchmark-runs", takes=RUN.new, gives=RUN.whole, creates=True, tool=("start", "create"))
async def create_benchmark_run(hub: Hub, caller: Caller, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Create a run of a benchmark, with one task run per task."""
    fields = RUN.read(request_body)
    async with writing(hub, caller) as tx:
        benchmark, version = await tx.require("benchmark", fields["benchmark_id"], lock=True), fields["version"]
        if version is None:
            snapshot = await take_snapshot(tx, benchmark)
        else:
            published = await tx.find_by_slug("benchmark_version", f"{benchmark['slug']}@{version}")
            if published is None:
                raise not_found("version of this benchmark", str(version))
            snapshot = await read_version_snapshot(tx, published)
        run, _ = await add_run(tx, snapshot, scored=fields["scored"], agent=fields["agent"])
        return await _show_in_full(tx, run)


@Operation(RUN, "GET /benchmark-runs/{benchmark_run_id}", gives=RUN.whole, tool="get")
async def get_benchmark_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a benchmark run with its task runs and criterion runs."""
    await end_overdue_tasks(hub, caller, id)
    async with reading(hub, caller) as tx:
        return await _show_in_full(tx, await tx.require(RUN.kind, id))


@Operation(
    RUN,
    "PUT /benchmark-runs/{benchmark_run_id}/state",
    takes=UPLOAD,
    takes_whole=True,
    gives=STORED_STATE,
    doing="uploading the state of a run",
    tool="putState",
)
async def put_benchmark_run_state(hub: Hub, caller: Caller, id: str, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Upload the state that all tasks of a run share; requires an organization key, since an agent must not grade itself."""
    upload = await asyncio.to_thread(pack_upload, hub, request_body)
    await end_overdue_tasks(hub, caller, id)
    async with writing(hub, caller) as tx:
        run = await tx.require(RUN.kind, id, lock=True)
        refuse_finished(run)
        return {"benchmark_run_id": id, **await store_state(tx, run, upload)}


@Operation(RUN, "POST /benchmark-runs/{benchmark_run_id}/complete", gives=RUN.whole, tool="complete")
async def complete_benchmark_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Verify every open task run; the last one completes the run."""
    await end_overdue_tasks(hub, caller, id)
    async with reading(hub, caller) as tx:
        refuse_finished(await tx.require(RUN.kind, id))
        tasks = await list_task_runs_of(tx, id)
    for task in tasks:
        if task["body"]["status"] == "active":
            # One transaction each: verifying may take long, and earlier results stay if a later one fails.
            await complete_task_run(hub, caller, task["id"])
    return await get_benchmark_run(hub, caller, id)


@Operation(RUN, "POST /benchmark-runs/{benchmark_run_id}/cancel", gives=RUN.whole, tool="cancel")
async def cancel_benchmark_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Cancel a run; results of completed tasks stay."""
    await end_overdue_tasks(hub, caller, id)
    async with writing(hub, caller) as tx:
        run = await tx.require(RUN.kind, id, lock=True)
        refuse_finished(run)
        for task in await list_task_runs_of(tx, id):
            if task["body"]["status"] == "active":
                await end_task_run(tx, task, "cancelled")
        run = await change_run(tx, run, status="cancelled", phase="completed", completed_at=hub.now())
        return await _show_in_full(tx, run)


@Operation(RUN, "POST /benchmark-runs/{benchmark_run_id}/publish", gives=RUN.whole, tool="publish")
async def publish_benchmark_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Put a completed run on the leaderboard."""
    return await _set_published(hub, caller, id, published=True)


@Operation(RUN, "POST /benchmark-runs/{benchmark_run_id}/unpublish", gives=RUN.whole, tool="unpublish")
async def unpublish_benchmark_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Remove a run from the leaderboard."""
    return await _set_published(hub, caller, id, published=False)


async def _set_published(hub: Hub, caller: Caller, id: str, *, published: bool) -> dict[str, Json]:
    await end_overdue_tasks(hub, caller, id)
    async with writing(hub, caller) as tx:
        run = await tx.require(RUN.kind, id, lock=True)
        if published and run["body"]["status"] != "completed":
            raise Refusal("CONFLICT", f"only a completed run can be published; this one is {run['body']['status']}")
        if published and await is_unlisted(tx, run):
            raise Refusal("CONFLICT", "the solver has opted out of leaderboards")
        return await _show_in_full(tx, await change_run(tx, run, published=published))


async def is_unlisted(tx: Transaction, run: Row) -> bool:
    """Return whether a run or its solver has opted out of leaderboards."""
    solver_id = run["body"].get("solver_id")
    return bool(run["body"].get("unlisted") or (solver_id and await find_marked(tx.connection, UNLISTED, [solver_id])))


async def read_version_snapshot(tx: Transaction, version: Row) -> dict[str, Json]:
    """Return the frozen copy of a version."""
    blob = await tx.act_for(version["organization_id"]).read_blob(version["id"])
    assert blob is not None  # written with the version
    return unpack(blob)


async def _show_in_full(tx: Transaction, run: Row) -> dict[str, Json]:
    tasks = await list_task_runs_of(tx, run["id"])
    by_task: dict[str, list[Json]] = {task["id"]: [] for task in tasks}
    for row in await list_criterion_runs_of(tx, list(by_task)):
        by_task[row["parent_id"]].append(CRITERION_RUN.show(row))
    return {**RUN.show(run), "task_runs": [{**TASK_RUN.show(task), "criterion_runs": by_task[task["id"]]} for task in tasks]}
