"""Task runs: start, upload state, complete (which verifies), cancel.

Verifying may take long and happens between two transactions: the first reads the state, the second writes the result, unless another
request was first; if the state has changed, the new one is verified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Unpack

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.cassettes.redaction import redact
from proctor.model.account import Account
from proctor.model.evidence import Evidence, Json, State
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.authoring.tasks import TASK, read_scenario
from proctor.service.verification.runs.records import (
    change_run,
    end_task_run,
    finalize,
    is_overdue,
    list_criterion_runs_of,
    list_task_runs_of,
    lock_run,
    lock_task_run,
    read_task_snapshot,
    refuse_finished,
    store_verified,
)
from proctor.service.verification.runs.resources import CRITERION_RUN, RUN, STORED_STATE, TASK_RUN, TASK_RUN_OF_RUN, UPLOAD
from proctor.service.verification.runs.states import UploadedState, find_uploads, open_uploads, pack_upload, read_stamps, store_state
from proctor.service.verification.runs.verifying import verify
from proctor.service.verification.sandboxes.lifecycle import PreparedSystem
from proctor.service.verification.sandboxes.playgrounds import close_overdue, prepare_playground, start_playground
from proctor.service.verification.sandboxes.requests import make_stamps, read_end_state
from proctor.service.verification.shared import resources
from proctor.service.verification.shared.declaration import Operation
from proctor.service.verification.shared.fields import read_only
from proctor.service.verification.shared.hidden_values import HiddenValues, find_hidden_values
from proctor.service.verification.shared.resources import Paging, authorize, declare_standard, require_record
from proctor.simulators.seeds import ScenarioStep
from proctor.store.accounts.sandboxes import find_heads
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import change_record, children

# --- the end state of a task run without an upload: data of its simulated systems, and all requests to them


async def read_live_state(hub: Hub, caller: Caller, task_run: Row) -> UploadedState:
    """Return the state of the systems of a task run; empty evidence if it has none, or was not started."""
    async with hub.database.reading() as connection:
        heads = await _list_heads(connection, caller, task_run)
    if not heads:
        return UploadedState(Evidence(), HiddenValues(), ())
    final = await read_end_state(hub, heads)
    account = Account(unplayed=final.unplayed) if final.unplayed else None
    return UploadedState(Evidence(state=final.state, account=account), await asyncio.to_thread(_find_hidden, final.state), final.stamps)


async def _list_heads(connection: AsyncConnection, caller: Caller, task_run: Row) -> list[Row]:
    playground_id = task_run["body"]["playground_id"]
    if playground_id is None:
        return []
    sandboxes = await children(connection, caller.organization_id, "sandbox", playground_id)
    heads = await find_heads(connection, [row["id"] for row in sandboxes])
    return [heads[row["id"]] for row in sandboxes if row["id"] in heads]


def _find_hidden(state: State) -> HiddenValues:
    plain_state = msgspec.to_builtins(state)
    return find_hidden_values(plain_state, redact(plain_state))


_TRIES = 3
_STARTED = TASK_RUN.summary.extend("TaskRunToDo", "A started task run with its input.", {"task_item": TASK.fields["task_item"]})
_COMPLETED = TASK_RUN_OF_RUN.extend("CompletedTaskRun", "A verified task run.", {"scored": read_only("boolean")})


@Operation(TASK_RUN, "GET /task-runs", gives=TASK_RUN.summary, pages=True, within="benchmark_run_id", tool="list")
async def list_task_runs(hub: Hub, caller: Caller, *, benchmark_run_id: str | None = None, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List task runs, newest first."""
    authorize(caller)
    if benchmark_run_id is not None:
        await end_overdue_tasks(hub, caller, benchmark_run_id)
    return await resources.list_plain(hub, caller, TASK_RUN, parent_id=benchmark_run_id, **paging)


@Operation(TASK_RUN, "GET /task-runs/{task_run_id}", gives=TASK_RUN.whole, tool="get")
async def get_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a task run with its snapshot and criterion runs."""
    authorize(caller)
    async with hub.database.reading() as connection:
        row = await require_record(connection, caller, TASK_RUN.kind, id)
    if is_overdue(hub, row):
        await end_overdue_tasks(hub, caller, row["parent_id"])
    async with hub.database.reading() as connection:
        row = await require_record(connection, caller, TASK_RUN.kind, id)
        return await _show_in_full(connection, caller, row)


@Operation(TASK_RUN, "POST /task-runs/{task_run_id}/start", gives=_STARTED, rest=False, tool="start")
async def start_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Start a task run; one of a benchmark run at a time."""
    authorize(caller)
    return await begin_task_run(hub, caller, id)


async def begin_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Start a task run, for its owner or with the token of its run: seed its systems, and start its scenario."""
    _authorize_agent(caller)
    await close_overdue(hub, caller)
    steps, prepared = await _prepare_systems(hub, caller, id)
    async with hub.database.writing() as connection:
        row, run = await lock_task_run(connection, hub, caller, id)
        refusal = await _find_reason_not_to_start(connection, caller, row, run)
        if refusal is None:
            await start_playground(connection, hub, caller, row, prepared, steps)
            now = hub.now()
            body = {**row["body"], "phase": "started", "started_at": now}
            changed = await change_record(connection, caller.organization_id, id, now=now, body=body)
            assert changed is not None
            if run["body"]["phase"] == "created":
                await change_run(connection, hub, caller, run, phase="started", started_at=now)
            await note(connection, hub, caller, "start", TASK_RUN.kind, id)
            snapshot = await read_task_snapshot(connection, caller.organization_id, id)
            return {**TASK_RUN.show(changed), "task_item": snapshot.get("task_item")}
    # Outside the transaction, so that overdue tasks found by `lock_task_run` stay ended.
    raise refusal


async def _prepare_systems(hub: Hub, caller: Caller, id: str) -> tuple[Sequence[ScenarioStep], list[tuple[Row, PreparedSystem | None]]]:
    """Return the prepared systems of a task run. Permission is checked later, under the lock."""
    async with hub.database.reading() as connection:
        row = await require_record(connection, caller, TASK_RUN.kind, id)
        snapshot = await read_task_snapshot(connection, caller.organization_id, id)
    playground_id = row["body"]["playground_id"]
    # The token of another run is rejected under the lock; nothing is prepared for it.
    foreign = caller.kind == "run" and row["parent_id"] != caller.benchmark_run_id
    if playground_id is None or foreign or row["body"]["phase"] != "created":
        return (), []
    entities = [entity["id"] for entity in snapshot.get("entities") or () if "id" in entity]
    prepared = await prepare_playground(hub, caller, playground_id, entities)
    return read_scenario(snapshot.get("scenario")) if prepared else (), prepared


@Operation(TASK_RUN, "PUT /task-runs/{task_run_id}/state", takes=UPLOAD, takes_whole=True, gives=STORED_STATE, tool="putState")
async def put_task_run_state(hub: Hub, caller: Caller, id: str, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Upload the state for verifying a task run; requires an organization key, since an agent must not grade itself."""
    authorize(caller, "uploading the state of a run")
    upload = await asyncio.to_thread(pack_upload, hub, request_body)
    async with hub.database.writing() as connection:
        row, _ = await lock_task_run(connection, hub, caller, id)
        if row["body"]["status"] == "active":
            return {"task_run_id": id, **await store_state(connection, hub, caller, row, upload)}
    # Outside the transaction, so that an overdue task stays ended.
    raise refuse_finished(row)


@Operation(TASK_RUN, "POST /task-runs/{task_run_id}/complete", gives=_COMPLETED, tool="complete")
async def complete_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Verify a task run on its uploaded state, or on its simulated systems."""
    # A run token must not see withheld details; it completes tasks under /v1.
    authorize(caller)
    return await verify_task_run(hub, caller, id)


async def verify_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Complete a task run, for its owner or with the token of its run; the result has `scored` of the benchmark run.

    A run token completes started tasks; an organization key also others.
    """
    _authorize_agent(caller)
    for _ in range(_TRIES):
        async with hub.database.writing() as connection:
            # Read before overdue tasks are ended: completing one of these is not an error.
            before = await require_record(connection, caller, TASK_RUN.kind, id)
            row, run = await lock_task_run(connection, hub, caller, id)
            if before["body"]["status"] == "active" and row["body"]["status"] == "timed_out":
                return {**TASK_RUN.show(row), "criterion_runs": [], "scored": run["body"]["scored"]}
            snapshot = await read_task_snapshot(connection, caller.organization_id, id)
            uploads = await find_uploads(connection, caller.organization_id, row)
        # Outside the transaction, so that overdue tasks stay ended.
        if row["body"]["status"] != "active":
            raise refuse_finished(row)
        if caller.kind == "run" and row["body"]["phase"] != "started":
            raise Refusal("CONFLICT", "the task run has not been started")
        uploaded = await open_uploads(hub, uploads) if uploads.rows else await read_live_state(hub, caller, row)
        started_at = hub.now()
        verified = await verify(hub, snapshot, uploaded.evidence, who=(caller.organization_id, caller.actor), hidden=uploaded.hidden)
        async with hub.database.writing() as connection:
            run = await require_record(connection, caller, RUN.kind, row["parent_id"], lock=True)
            row = await require_record(connection, caller, TASK_RUN.kind, id, lock=True)
            if row["body"]["status"] != "active":
                raise refuse_finished(row)
            # Verified without a lock, since that may take long. If the state or the systems have changed, it is verified again.
            stamps = await read_stamps(connection, caller.organization_id, row)
            if (stamps or tuple(make_stamps(await _list_heads(connection, caller, row)))) == uploaded.stamps:
                row, criteria = await store_verified(connection, hub, caller, row, verified, started_at)
                await finalize(connection, hub, caller, run)
                criterion_runs = [CRITERION_RUN.show(criterion) for criterion in criteria]
                return {**TASK_RUN.show(row), "criterion_runs": criterion_runs, "scored": run["body"]["scored"]}
    raise Refusal("CONFLICT", "the state of the run keeps changing; complete it when the upload or the agent is done")


@Operation(TASK_RUN, "POST /task-runs/{task_run_id}/cancel", gives=TASK_RUN.whole, tool="cancel")
async def cancel_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Cancel a task run without verifying it; it does not count in the score of its benchmark run."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row, run = await lock_task_run(connection, hub, caller, id)
        if row["body"]["status"] == "active":
            row = await end_task_run(connection, hub, caller, row, "cancelled")
            await finalize(connection, hub, caller, run)
            return await _show_in_full(connection, caller, row)
    raise refuse_finished(row)


async def end_overdue_tasks(hub: Hub, caller: Caller, run_id: str) -> None:
    """End the overdue tasks of a benchmark run."""
    async with hub.database.reading() as connection:
        # A read first, since reading a run is frequent and seldom needs the write lock.
        late = any(is_overdue(hub, row) for row in await list_task_runs_of(connection, caller.organization_id, run_id))
    if late:
        async with hub.database.writing() as connection:
            await lock_run(connection, hub, caller, run_id)


async def _show_in_full(connection: AsyncConnection, caller: Caller, row: Row) -> dict[str, Json]:
    criteria = await list_criterion_runs_of(connection, caller.organization_id, row["id"])
    snapshot = await read_task_snapshot(connection, caller.organization_id, row["id"])
    return {**TASK_RUN.show(row), "snapshot": snapshot, "criterion_runs": [CRITERION_RUN.show(criterion) for criterion in criteria]}


def _authorize_agent(caller: Caller) -> None:
    if caller.kind not in ("organization", "run"):
        raise Refusal("FORBIDDEN", "starting and completing task runs requires the run's token or an organization key")


async def _find_reason_not_to_start(connection: AsyncConnection, caller: Caller, row: Row, run: Row) -> Refusal | None:
    if row["body"]["status"] != "active":
        return refuse_finished(row)
    if row["body"]["phase"] != "created":
        return Refusal("CONFLICT", "the task run is already started")
    for other in await list_task_runs_of(connection, caller.organization_id, run["id"]):
        if other["body"]["status"] == "active" and other["body"]["phase"] == "started":
            return Refusal("CONFLICT", f"the task run {other['id']!r} is started; complete it first")
    return None


list_criterion_runs, _, get_criterion_run, _, _ = declare_standard(
    CRITERION_RUN,
    "/criterion-runs",
    within="task_run_id",
    list="List criterion runs, newest first.",
    get="Read a criterion run with its evidence.",
)
