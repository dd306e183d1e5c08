"""Task runs: started, given their state, completed (which verifies them at once), cancelled.

Verifying takes as long as it takes, so it happens between two transactions: the first reads what is to be verified, the second writes the
result, unless somebody else was first; where another state was uploaded meanwhile, that one is verified.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.paging import paged
from proctor.service.refusals import Refusal
from proctor.service.verification import resources
from proctor.service.verification.resources import authorize, required
from proctor.service.verification.run_records import (
    RUN,
    TASK_RUN,
    change_run,
    criterion_runs_of,
    end_task_run,
    finalize,
    is_overdue,
    keep_verified,
    locked_run,
    locked_task_run,
    refuse_finished,
    shown_criterion_run,
    shown_task_run,
    snapshot_of_task,
    task_runs_of,
)
from proctor.service.verification.states import keep_state, read_uploaded, uploaded_state
from proctor.service.verification.verifying import verify
from proctor.store.pages import Row
from proctor.store.records import change_record, records_of
from proctor.store.tables import records

_TRIES = 3


async def list_task_runs(
    hub: Hub, caller: Caller, *, benchmark_run_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """A page of task runs, of one benchmark run where it is named."""
    authorize(caller)
    if benchmark_run_id is not None:
        await look_at_run(hub, caller, benchmark_run_id)
    async with hub.database.reading() as connection:
        if benchmark_run_id is not None:
            await required(connection, caller, RUN, benchmark_run_id)
        query = records_of(caller.organization_id, TASK_RUN, parent_id=benchmark_run_id)
        page = await paged(connection, query, records, limit=limit, cursor=cursor)
    return resources.page_of(page, [shown_task_run(row) for row in page.rows])


async def get_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One task run with its snapshot and its criterion runs."""
    authorize(caller)
    async with hub.database.reading() as connection:
        row = await required(connection, caller, TASK_RUN, id)
    if is_overdue(hub, row):
        await look_at_run(hub, caller, row["parent_id"])
    async with hub.database.reading() as connection:
        row = await required(connection, caller, TASK_RUN, id)
        return await _in_full(connection, caller, row)


async def put_task_run_state(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Upload the state a task run is verified on; one it had is replaced."""
    authorize(caller, "the state of a run is uploaded")
    kept = read_uploaded(given)
    async with hub.database.writing() as connection:
        row, _ = await locked_task_run(connection, hub, caller, id)
        if row["body"]["status"] == "active":
            return {"task_run_id": id, **await keep_state(connection, hub, caller, row, kept)}
    # Raised outside: that it is over its time, if it is, stays written down.
    raise _finished(row)


async def start_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Start a task run; at most one of a benchmark run is started at a time."""
    _agent_or_organization(caller)
    async with hub.database.writing() as connection:
        row, run = await locked_task_run(connection, hub, caller, id)
        refusal = await _not_to_start(connection, caller, row, run)
        if refusal is None:
            now = hub.now()
            body = {**row["body"], "phase": "started", "started_at": now}
            changed = await change_record(connection, caller.organization_id, id, now=now, body=body)
            assert changed is not None
            if run["body"]["phase"] == "created":
                await change_run(connection, hub, caller, run, phase="started", started_at=now)
            await note(connection, hub, caller, "start", TASK_RUN, id)
            snapshot = await snapshot_of_task(connection, caller.organization_id, id)
            return {**shown_task_run(changed), "task_item": snapshot.get("task_item")}
    raise refusal


async def complete_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Verify a task run on what was uploaded, at once. Shows it with its criterion runs, and whether the benchmark run is `scored`.

    A run token completes what it has started; an organization key also what was never started.
    """
    _agent_or_organization(caller)
    for _ in range(_TRIES):
        async with hub.database.writing() as connection:
            # Looked at before what is over its time is ended: completing that is an answer, not a mistake.
            before = await required(connection, caller, TASK_RUN, id)
            row, run = await locked_task_run(connection, hub, caller, id)
            if before["body"]["status"] == "active" and row["body"]["status"] == "timed_out":
                return {**shown_task_run(row), "criterion_runs": [], "scored": run["body"]["scored"]}
            snapshot = await snapshot_of_task(connection, caller.organization_id, id)
            uploaded = await uploaded_state(connection, caller.organization_id, row)
        _refuse_to_complete(caller, row)
        started_at = hub.now()
        verified = await verify(hub, snapshot, uploaded.evidence, who=(caller.organization_id, caller.actor))
        async with hub.database.writing() as connection:
            run = await required(connection, caller, RUN, row["parent_id"], lock=True)
            row = await required(connection, caller, TASK_RUN, id, lock=True)
            refuse_finished(row)
            if (await uploaded_state(connection, caller.organization_id, row)).stamps == uploaded.stamps:
                row, criteria = await keep_verified(connection, hub, caller, row, verified, started_at)
                await finalize(connection, hub, caller, run)
                shown = [shown_criterion_run(criterion) for criterion in criteria]
                return {**shown_task_run(row), "criterion_runs": shown, "scored": run["body"]["scored"]}
    raise Refusal("CONFLICT", "the state of the run is being replaced again and again; complete it when the upload is done")


async def cancel_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """End a task run without verifying it; it does not enter the score of its benchmark run."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row, run = await locked_task_run(connection, hub, caller, id)
        if row["body"]["status"] == "active":
            row = await end_task_run(connection, hub, caller, row, "cancelled")
            await finalize(connection, hub, caller, run)
            return await _in_full(connection, caller, row)
    raise _finished(row)


async def look_at_run(hub: Hub, caller: Caller, run_id: str) -> None:
    """Write down which tasks of a benchmark run are over their time."""
    async with hub.database.reading() as connection:
        late = any(is_overdue(hub, row) for row in await task_runs_of(connection, caller.organization_id, run_id))
    if late:
        async with hub.database.writing() as connection:
            await locked_run(connection, hub, caller, run_id)


async def _in_full(connection: AsyncConnection, caller: Caller, row: Row) -> dict[str, Json]:
    criteria = await criterion_runs_of(connection, caller.organization_id, row["id"])
    snapshot = await snapshot_of_task(connection, caller.organization_id, row["id"])
    return {**shown_task_run(row), "snapshot": snapshot, "criterion_runs": [shown_criterion_run(criterion) for criterion in criteria]}


def _agent_or_organization(caller: Caller) -> None:
    if caller.kind not in ("organization", "run"):
        raise Refusal("FORBIDDEN", "task runs are started and completed with the run's token or an organization key")


def _finished(row: Row) -> Refusal:
    return Refusal("CONFLICT", f"the task run is {row['body']['status']} already")


async def _not_to_start(connection: AsyncConnection, caller: Caller, row: Row, run: Row) -> Refusal | None:
    if row["body"]["status"] != "active":
        return _finished(row)
    if row["body"]["phase"] != "created":
        return Refusal("CONFLICT", "the task run is started already")
    for other in await task_runs_of(connection, caller.organization_id, run["id"]):
        if other["body"]["status"] == "active" and other["body"]["phase"] == "started":
            return Refusal("CONFLICT", f"the task run {other['id']!r} is started; complete it first")
    return None


def _refuse_to_complete(caller: Caller, row: Row) -> None:
    if row["body"]["status"] != "active":
        raise _finished(row)
    if caller.kind == "run" and row["body"]["phase"] != "started":
        raise Refusal("CONFLICT", "the task run has not been started")
