"""Task runs: start, upload state, complete (which verifies), cancel.

Verifying may take long and happens between two transactions: the first reads the state, the second writes the result, unless another
request was first; if the state has changed, the new one is verified. Overdue tasks are ended before, in a transaction of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Unpack

import msgspec

from proctor.cassettes.redaction import redact
from proctor.model.account import Account
from proctor.model.evidence import Evidence, Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.authoring.seeding import Baseline
from proctor.service.verification.authoring.tasks import TASK, read_scenario
from proctor.service.verification.runs.records import (
    change_run,
    end_overdue_tasks,
    end_task_run,
    finalize,
    list_criterion_runs_of,
    list_task_runs_of,
    lock_task_run,
    read_task_snapshot,
    refuse_finished,
    require_task_run,
    store_verified,
)
from proctor.service.verification.runs.resources import CRITERION_RUN, RUN, STORED_STATE, TASK_RUN, TASK_RUN_OF_RUN, UPLOAD
from proctor.service.verification.runs.states import UploadedState, find_uploads, open_uploads, pack_upload, read_stamps, store_state
from proctor.service.verification.runs.verifying import verify
from proctor.service.verification.sandboxes.playgrounds import close_overdue, prepare_playground, start_playground
from proctor.service.verification.sandboxes.requests import make_stamps, read_end_state
from proctor.service.verification.shared.declaration import Operation
from proctor.service.verification.shared.fields import read_only
from proctor.service.verification.shared.hidden_values import HiddenValues, find_hidden_values
from proctor.service.verification.shared.resources import Paging, Records, Transaction, declare_standard, list_plain, reading, writing
from proctor.store.accounts.sandboxes import find_heads
from proctor.store.sql.pages import Row

_TRIES = 3
_STARTED = TASK_RUN.summary.extend("TaskRunToDo", "A started task run with its input.", {"task_item": TASK.fields["task_item"]})
_COMPLETED = TASK_RUN_OF_RUN.extend("CompletedTaskRun", "A verified task run.", {"scored": read_only("boolean")})


@Operation(TASK_RUN, "GET /task-runs", gives=TASK_RUN.summary, pages=True, within="benchmark_run_id", tool="list")
async def list_task_runs(hub: Hub, caller: Caller, *, benchmark_run_id: str | None = None, **paging: Unpack[Paging]) -> Records:
    """List task runs, newest first."""
    if benchmark_run_id is not None:
        await end_overdue_tasks(hub, caller, benchmark_run_id)
    return await list_plain(hub, caller, TASK_RUN, parent_id=benchmark_run_id, **paging)


@Operation(TASK_RUN, "GET /task-runs/{task_run_id}", gives=TASK_RUN.whole, tool="get")
async def get_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a task run with its snapshot and criterion runs."""
    await _read_up_to_date(hub, caller, id)
    async with reading(hub, caller) as tx:
        return await _show_in_full(tx, await tx.require(TASK_RUN.kind, id))


@Operation(TASK_RUN, "POST /task-runs/{task_run_id}/start", gives=_STARTED, rest=False, tool="start")
async def start_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Start a task run; one of a benchmark run at a time."""
    return await begin_task_run(hub, caller, id)


async def begin_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Start a task run, for its owner or with the token of its run: seed its systems, and start its scenario."""
    _authorize_agent(caller)
    await close_overdue(hub, caller)
    row = await _read_up_to_date(hub, caller, id)
    async with reading(hub, caller) as tx:
        snapshot = await read_task_snapshot(tx, id)
    playground_id: str | None = row["body"]["playground_id"]
    prepared: list[tuple[Row, Baseline | None]] = []
    # Seeding takes long, and happens before the run is locked.
    if playground_id is not None and row["body"]["phase"] == "created":
        entities = [entity["id"] for entity in snapshot.get("entities") or () if "id" in entity]
        prepared = await prepare_playground(hub, caller, playground_id, entities)
    async with writing(hub, caller) as tx:
        row, run = await lock_task_run(tx, id)
        refuse_finished(row)
        if row["body"]["phase"] != "created":
            raise Refusal("CONFLICT", "the task run is already started")
        for other in await list_task_runs_of(tx, run["id"]):
            if other["body"]["status"] == "active" and other["body"]["phase"] == "started":
                raise Refusal("CONFLICT", f"the task run {other['id']!r} is started; complete it first")
        await start_playground(tx, row, prepared, read_scenario(snapshot.get("scenario")) if prepared else ())
        now = hub.now()
        changed = await tx.rewrite(row, body={**row["body"], "phase": "started", "started_at": now})
        if run["body"]["phase"] == "created":
            await change_run(tx, run, phase="started", started_at=now)
        await tx.note("start", TASK_RUN.kind, id)
        return {**TASK_RUN.show(changed), "task_item": snapshot.get("task_item")}


@Operation(
    TASK_RUN,
    "PUT /task-runs/{task_run_id}/state",
    takes=UPLOAD,
    takes_whole=True,
    gives=STORED_STATE,
    doing="uploading the state of a run",
    tool="putState",
)
async def put_task_run_state(hub: Hub, caller: Caller, id: str, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Upload the state for verifying a task run; requires an organization key, since an agent must not grade itself."""
    upload = await asyncio.to_thread(pack_upload, hub, request_body)
    await _read_up_to_date(hub, caller, id)
    async with writing(hub, caller) as tx:
        row, _ = await lock_task_run(tx, id)
        refuse_finished(row)
        return {"task_run_id": id, **await store_state(tx, row, upload)}


@Operation(TASK_RUN, "POST /task-runs/{task_run_id}/complete", gives=_COMPLETED, tool="complete")
async def complete_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Verify a task run on its uploaded state, or on its simulated systems."""
    # A run token must not see withheld details; it completes tasks under /v1.
    return await verify_task_run(hub, caller, id)


async def verify_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Complete a task run, for its owner or with the token of its run; the result has `scored` of the benchmark run.

    A run token completes started tasks; an organization key also others.
    """
    _authorize_agent(caller)
    before = await _read_up_to_date(hub, caller, id)
    for _ in range(_TRIES):
        async with reading(hub, caller) as tx:
            row = await tx.require(TASK_RUN.kind, id)
            run = await tx.require(RUN.kind, row["parent_id"])
            # Completing a task that has just timed out is not an error.
            if before["body"]["status"] == "active" and row["body"]["status"] == "timed_out":
                return {**TASK_RUN.show(row), "criterion_runs": [], "scored": run["body"]["scored"]}
            refuse_finished(row)
            if caller.kind == "run" and row["body"]["phase"] != "started":
                raise Refusal("CONFLICT", "the task run has not been started")
            snapshot = await read_task_snapshot(tx, id)
            uploads = await find_uploads(tx, row)
            heads = [] if uploads.rows else await _list_heads(tx, row)
        uploaded = await open_uploads(hub, uploads) if uploads.rows else await _read_live_state(hub, heads)
        started_at = hub.now()
        verified = await verify(hub, snapshot, uploaded.evidence, who=(caller.organization_id, caller.actor), hidden=uploaded.hidden)
        async with writing(hub, caller) as tx:
            row, run = await lock_task_run(tx, id)
            refuse_finished(row)
            # Verified without a lock, since that may take long. If the state or the systems have changed, it is verified again.
            stamps = await read_stamps(tx, row)
            if (stamps or tuple(make_stamps(await _list_heads(tx, row)))) == uploaded.stamps:
                row, criteria = await store_verified(tx, row, verified, started_at)
                await finalize(tx, run)
                criterion_runs = [CRITERION_RUN.show(criterion) for criterion in criteria]
                return {**TASK_RUN.show(row), "criterion_runs": criterion_runs, "scored": run["body"]["scored"]}
    raise Refusal("CONFLICT", "the state of the run keeps changing; complete it when the upload or the agent is done")


async def _read_live_state(hub: Hub, heads: Sequence[Row]) -> UploadedState:
    """Return the state of simulated systems: their data, and all requests to them; empty evidence without systems."""
    if not heads:
        return UploadedState(Evidence(), HiddenValues(), ())
    final = await read_end_state(hub, heads)
    plain_state = msgspec.to_builtins(final.state)
    hidden = await asyncio.to_thread(lambda: find_hidden_values(plain_state, redact(plain_state)))
    account = Account(unplayed=final.unplayed) if final.unplayed else None
    return UploadedState(Evidence(state=final.state, account=account), hidden, final.stamps)


async def _list_heads(tx: Transaction, task_run: Row) -> list[Row]:
    playground_id = task_run["body"]["playground_id"]
    sandboxes = [] if playground_id is None else await tx.children("sandbox", playground_id)
    heads = await find_heads(tx.connection, [row["id"] for row in sandboxes])
    return [heads[row["id"]] for row in sandboxes if row["id"] in heads]


@Operation(TASK_RUN, "POST /task-runs/{task_run_id}/cancel", gives=TASK_RUN.whole, tool="cancel")
async def cancel_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Cancel a task run without verifying it; it does not count in the score of its benchmark run."""
    await _read_up_to_date(hub, caller, id)
    async with writing(hub, caller) as tx:
        row, run = await lock_task_run(tx, id)
        refuse_finished(row)
        row = await end_task_run(tx, row, "cancelled")
        await finalize(tx, run)
        return await _show_in_full(tx, row)


async def _read_up_to_date(hub: Hub, caller: Caller, id: str) -> Row:
    """Return a task run after ending the overdue tasks of its run, as it was before."""
    async with reading(hub, caller) as tx:
        row = await require_task_run(tx, id)
    await end_overdue_tasks(hub, caller, row["parent_id"])
    return row


async def _show_in_full(tx: Transaction, row: Row) -> dict[str, Json]:
    criteria = await list_criterion_runs_of(tx, row["id"])
    snapshot = await read_task_snapshot(tx, row["id"])
    return {**TASK_RUN.show(row), "snapshot": snapshot, "criterion_runs": [CRITERION_RUN.show(criterion) for criterion in criteria]}


def _authorize_agent(caller: Caller) -> None:
    if caller.kind not in ("organization", "run"):
        raise Refusal("FORBIDDEN", "starting and completing task runs requires the run's token or an organization key")


list_criterion_runs, _, get_criterion_run, _, _ = declare_standard(
    CRITERION_RUN,
    "/criterion-runs",
    within="task_run_id",
    list="List criterion runs, newest first.",
    get="Read a criterion run with its evidence.",
)
