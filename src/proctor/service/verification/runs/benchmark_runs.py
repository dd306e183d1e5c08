"""Benchmark runs of an owner: created from the present benchmark or a published version, completed, cancelled, published."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Unpack

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.benchmarks import take_snapshot
from proctor.service.verification.authoring.solvers import UNLISTED
from proctor.service.verification.runs.records import (
    add_run,
    change_run,
    end_task_run,
    list_criterion_runs_of,
    list_task_runs_of,
    lock_run,
    refuse_finished,
)
from proctor.service.verification.runs.resources import CRITERION_RUN, RUN, STORED_STATE, TASK_RUN, UPLOAD
from proctor.service.verification.runs.states import pack_upload, store_state
from proctor.service.verification.runs.task_runs import complete_task_run, end_overdue_tasks
from proctor.service.verification.shared import resources
from proctor.service.verification.shared.declaration import Operation
from proctor.service.verification.shared.resources import Paging, authorize, require_record
from proctor.store.sql.compressed_json import unpack
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import records
from proctor.store.sql.verification_records import find_by_slug, find_marked, read_blob, records_of


@Operation(RUN, "GET /benchmark-runs", gives=RUN.summary, pages=True, within="benchmark_id", tool="list")
async def list_benchmark_runs(hub: Hub, caller: Caller, *, benchmark_id: str | None = None, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List benchmark runs, newest first, including those of a deleted benchmark."""
    authorize(caller)
    async with hub.database.reading() as connection:
        query = records_of(caller.organization_id, RUN.kind, parent_id=benchmark_id)
        page = await fetch_page_or_refuse(connection, query, records, **paging)
    return resources.make_page(page, [RUN.show(row) for row in page.rows])


@Operation(RUN, "POST /benchmark-runs", takes=RUN.new, gives=RUN.whole, creates=True, tool=("start", "create"))
async def create_benchmark_run(hub: Hub, caller: Caller, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Create a run of a benchmark, with one task run per task."""
    authorize(caller)
    fields = RUN.read(request_body)
    async with hub.database.writing() as connection:
        benchmark = await require_record(connection, caller, "benchmark", fields["benchmark_id"], lock=True)
        snapshot = await _read_snapshot(connection, caller, benchmark, fields["version"])
        run, _ = await add_run(connection, hub, caller, snapshot, scored=fields["scored"], agent=fields["agent"])
        return await _show_in_full(connection, caller, run)


@Operation(RUN, "GET /benchmark-runs/{benchmark_run_id}", gives=RUN.whole, tool="get")
async def get_benchmark_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a benchmark run with its task runs and criterion runs."""
    authorize(caller)
    await end_overdue_tasks(hub, caller, id)
    async with hub.database.reading() as connection:
        return await _show_in_full(connection, caller, await require_record(connection, caller, RUN.kind, id))


@Operation(RUN, "PUT /benchmark-runs/{benchmark_run_id}/state", takes=UPLOAD, takes_whole=True, gives=STORED_STATE, tool="putState")
async def put_benchmark_run_state(hub: Hub, caller: Caller, id: str, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Upload the state that all tasks of a run share; requires an organization key, since an agent must not grade itself."""
    authorize(caller, "uploading the state of a run")
    upload = await asyncio.to_thread(pack_upload, hub, request_body)
    async with hub.database.writing() as connection:
        run = await lock_run(connection, hub, caller, id)
        if run["body"]["status"] == "active":
            return {"benchmark_run_id": id, **await store_state(connection, hub, caller, run, upload)}
    # Outside the transaction, so that overdue tasks found by `lock_run` stay ended.
    raise refuse_finished(run)


@Operation(RUN, "POST /benchmark-runs/{benchmark_run_id}/complete", gives=RUN.whole, tool="complete")
async def complete_benchmark_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Verify every open task run; the last one completes the run."""
    authorize(caller)
    async with hub.database.writing() as connection:
        run = await lock_run(connection, hub, caller, id)
        tasks = await list_task_runs_of(connection, caller.organization_id, id)
    if run["body"]["status"] != "active":
        raise refuse_finished(run)
    for task in tasks:
        if task["body"]["status"] == "active":
            # One transaction each: verifying may take long, and earlier results stay if a later one fails.
            await complete_task_run(hub, caller, task["id"])
    return await get_benchmark_run(hub, caller, id)


@Operation(RUN, "POST /benchmark-runs/{benchmark_run_id}/cancel", gives=RUN.whole, tool="cancel")
async def cancel_benchmark_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Cancel a run; results of completed tasks stay."""
    authorize(caller)
    async with hub.database.writing() as connection:
        run = await lock_run(connection, hub, caller, id)
        if run["body"]["status"] == "active":
            for task in await list_task_runs_of(connection, caller.organization_id, id):
                if task["body"]["status"] == "active":
                    await end_task_run(connection, hub, caller, task, "cancelled")
            run = await change_run(connection, hub, caller, run, status="cancelled", phase="completed", completed_at=hub.now())
            return await _show_in_full(connection, caller, run)
    raise refuse_finished(run)


@Operation(RUN, "POST /benchmark-runs/{benchmark_run_id}/publish", gives=RUN.whole, tool="publish")
async def publish_benchmark_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Put a completed run on the leaderboard."""
    return await _set_published(hub, caller, id, published=True)


@Operation(RUN, "POST /benchmark-runs/{benchmark_run_id}/unpublish", gives=RUN.whole, tool="unpublish")
async def unpublish_benchmark_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Remove a run from the leaderboard."""
    return await _set_published(hub, caller, id, published=False)


async def _set_published(hub: Hub, caller: Caller, id: str, *, published: bool) -> dict[str, Json]:
    authorize(caller)
    await end_overdue_tasks(hub, caller, id)
    async with hub.database.writing() as connection:
        run = await require_record(connection, caller, RUN.kind, id, lock=True)
        if published and run["body"]["status"] != "completed":
            raise Refusal("CONFLICT", f"only a completed run can be published; this one is {run['body']['status']}")
        if published and await is_unlisted(connection, run):
            raise Refusal("CONFLICT", "the solver has opted out of leaderboards")
        return await _show_in_full(connection, caller, await change_run(connection, hub, caller, run, published=published))


async def is_unlisted(connection: AsyncConnection, run: Row) -> bool:
    """Return whether a run or its solver has opted out of leaderboards."""
    solver_id = run["body"].get("solver_id")
    return bool(run["body"].get("unlisted") or (solver_id and await find_marked(connection, UNLISTED, [solver_id])))


async def _read_snapshot(connection: AsyncConnection, caller: Caller, benchmark: Row, version: int | None) -> dict[str, Json]:
    if version is None:
        return await take_snapshot(connection, caller, benchmark)
    published = await find_by_slug(connection, caller.organization_id, "benchmark_version", f"{benchmark['slug']}@{version}")
    if published is None:
        raise not_found("version of this benchmark", str(version))
    return await read_version_snapshot(connection, published)


async def read_version_snapshot(connection: AsyncConnection, version: Row) -> dict[str, Json]:
    """Return the frozen copy of a version."""
    blob = await read_blob(connection, version["organization_id"], version["id"])
    assert blob is not None  # written with the version
    return unpack(blob)


async def _show_in_full(connection: AsyncConnection, caller: Caller, run: Row) -> dict[str, Json]:
    tasks = await list_task_runs_of(connection, caller.organization_id, run["id"])
    by_task: dict[str, list[Json]] = {task["id"]: [] for task in tasks}
    for row in await list_criterion_runs_of(connection, caller.organization_id, list(by_task)):
        by_task[row["parent_id"]].append(CRITERION_RUN.show(row))
    return {**RUN.show(run), "task_runs": [{**TASK_RUN.show(task), "criterion_runs": by_task[task["id"]]} for task in tasks]}
