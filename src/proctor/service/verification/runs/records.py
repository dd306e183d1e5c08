"""Records of benchmark runs, task runs and criterion runs: creating, finding, locking and ending them.

Benchmark runs and task runs are `created`, `started`, then `completed`. Every change locks the benchmark run first. An overdue task run has
ended as `timed_out`, which the next request records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub, new_id
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.runs.resources import CRITERION_RUN, RUN, TASK_RUN
from proctor.service.verification.runs.states import drop_sealed_states
from proctor.service.verification.runs.verifying import VerifiedTask, score_run
from proctor.service.verification.sandboxes.playgrounds import close_playground, open_playground
from proctor.service.verification.shared.declaration import Resource
from proctor.service.verification.shared.resources import require_record
from proctor.store.sql.compressed_json import pack, unpack
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import NewRecord, add_record, change_record, children, find_record, read_blob


async def add_run(
    connection: AsyncConnection,
    hub: Hub,
    caller: Caller,
    snapshot: Mapping[str, Json],
    *,
    scored: bool,
    agent: str | None = None,
    solver: Row | None = None,
    unlisted: bool = False,
) -> tuple[Row, list[Row]]:
    """Store a run of the benchmark in `snapshot`, with one task run per task. `caller` is, or acts for, its owner."""
    tasks: list[dict[str, Json]] = snapshot["tasks"]
    if not tasks:
        raise Refusal("CONFLICT", "the benchmark has no tasks")
    body = RUN.fill(
        scored=scored,
        agent=agent,
        unlisted=unlisted,
        benchmark={name: snapshot[name] for name in ("slug", "version", "name")},
        threshold=snapshot.get("threshold"),
    )
    # The public fields of the solver at this time.
    if solver is not None:
        public = {name: solver["body"].get(name) for name in ("real_name", "agent_version")}
        body |= {"solver_id": solver["id"], "solver": {"alias": solver["slug"], **public}}
    run = await add_record(connection, _make_record(RUN, caller, snapshot["id"], body), now=hub.now())
    rows = [await _add_task_run(connection, hub, caller, run, snapshot, number) for number in range(len(tasks))]
    await note(connection, hub, caller, "create", RUN.kind, run["id"], {"benchmark_id": snapshot["id"]})
    return run, rows


async def _add_task_run(
    connection: AsyncConnection, hub: Hub, caller: Caller, run: Row, snapshot: Mapping[str, Json], position: int
) -> Row:
    # Versions published before thresholds have none.
    threshold = {} if snapshot.get("threshold") is None else {"threshold": snapshot["threshold"]}
    task: dict[str, Json] = {**snapshot["tasks"][position], **threshold}
    playground_id = None
    environment_id = snapshot.get("environment_id")
    # The environment of an old version may be deleted.
    if environment_id is not None and await find_record(connection, caller.organization_id, "environment", environment_id) is not None:
        playground_id = (await open_playground(connection, hub, caller, environment_id, run["id"]))["id"]
    timeout = task.get("timeout") or snapshot.get("timeout")
    body = TASK_RUN.fill(task_id=task["id"], name=task["name"], playground_id=playground_id, timeout=timeout, position=position)
    return await add_record(connection, _make_record(TASK_RUN, caller, run["id"], body, pack(task)), now=run["created_at"])


def _make_record(resource: Resource, caller: Caller, parent_id: str, body: dict[str, Json], blob: bytes | None = None) -> NewRecord:
    owner, kind = caller.organization_id, resource.kind
    return NewRecord(id=new_id(resource.prefix), organization_id=owner, kind=kind, parent_id=parent_id, body=body, blob=blob)


async def list_task_runs_of(connection: AsyncConnection, organization_id: str, run_id: str) -> list[Row]:
    """Return the task runs of a benchmark run, in the order of its tasks."""
    return _sort_by_position(await children(connection, organization_id, TASK_RUN.kind, run_id))


async def list_criterion_runs_of(connection: AsyncConnection, organization_id: str, task_runs: str | Sequence[str]) -> list[Row]:
    """Return the criterion runs of task runs, in the order of the criteria."""
    return _sort_by_position(await children(connection, organization_id, CRITERION_RUN.kind, task_runs))


async def read_task_snapshot(connection: AsyncConnection, organization_id: str, task_run_id: str) -> dict[str, Json]:
    """Return the task as it was when the run was made."""
    blob = await read_blob(connection, organization_id, task_run_id)
    return {} if blob is None else unpack(blob)


def _sort_by_position(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["body"].get("position", 0))


async def lock_run(connection: AsyncConnection, hub: Hub, caller: Caller, id: str) -> Row:
    """Lock a benchmark run, and end its overdue tasks."""
    run = await require_record(connection, caller, RUN.kind, id, lock=True)
    # Under the lock, and read again: ending the last task may have ended the run.
    late = [row for row in await children(connection, caller.organization_id, TASK_RUN.kind, run["id"]) if is_overdue(hub, row)]
    for row in late:
        await end_task_run(connection, hub, caller, row, "timed_out", score=0.0, verdict="fail", outcome="fail")
    if late:
        await finalize(connection, hub, caller, run)
        run = await require_record(connection, caller, RUN.kind, id, lock=True)
    return run


async def lock_task_run(connection: AsyncConnection, hub: Hub, caller: Caller, id: str) -> tuple[Row, Row]:
    """Lock a task run and its benchmark run. The token of a run only finds tasks of that run."""
    task_run = await require_record(connection, caller, TASK_RUN.kind, id)
    if caller.kind == "run" and task_run["parent_id"] != caller.benchmark_run_id:
        raise not_found("task run", id)
    # Always the benchmark run first, which prevents deadlocks.
    run = await lock_run(connection, hub, caller, task_run["parent_id"])
    return await require_record(connection, caller, TASK_RUN.kind, id, lock=True), run


def refuse_finished(row: Row) -> Refusal:
    """Return the refusal of changes of an ended run."""
    return Refusal("CONFLICT", f"the {row['kind'].replace('_', ' ')} is already {row['body']['status']}")


def is_overdue(hub: Hub, row: Row) -> bool:
    """Return whether a started task run has exceeded its timeout."""
    body = row["body"]
    if body["status"] != "active" or body["started_at"] is None or body["timeout"] is None:
        return False
    return hub.clock() - datetime.fromisoformat(body["started_at"]).timestamp() > body["timeout"]


async def end_task_run(connection: AsyncConnection, hub: Hub, caller: Caller, row: Row, status: str, **fields: Json) -> Row:
    """End a task run, and its playground with it."""
    body = {**row["body"], **fields, "status": status, "completed_at": hub.now(), "phase": "completed"}
    changed = await change_record(connection, caller.organization_id, row["id"], now=hub.now(), body=body)
    assert changed is not None  # its run was locked
    await drop_sealed_states(connection, caller.organization_id, [row["id"]])
    if body["playground_id"] is not None:
        await close_playground(connection, hub, caller, body["playground_id"])
    await note(connection, hub, caller, status, TASK_RUN.kind, row["id"])
    return changed


async def store_verified(
    connection: AsyncConnection, hub: Hub, caller: Caller, row: Row, verified: VerifiedTask, started_at: str
) -> tuple[Row, list[Row]]:
    """Store the result of a task run, with one criterion run per criterion."""
    now = hub.now()
    criterion_runs: list[Row] = []
    for position, criterion in enumerate(verified.criteria):
        body = {**criterion, "started_at": started_at, "completed_at": now, "position": position}
        criterion_runs.append(await add_record(connection, _make_record(CRITERION_RUN, caller, row["id"], body), now=now))
    fields: dict[str, Json] = {name: getattr(verified, name) for name in ("outcome", "score", "verdict", "undecided", "axes")}
    fields["started_at"] = row["body"]["started_at"] or started_at
    return await end_task_run(connection, hub, caller, row, "completed", **fields), criterion_runs


async def finalize(connection: AsyncConnection, hub: Hub, caller: Caller, run: Row) -> Row:
    """End a benchmark run after its last task run, with the mean of decided tasks."""
    tasks = [row["body"] for row in await children(connection, caller.organization_id, TASK_RUN.kind, run["id"])]
    if run["body"]["status"] != "active" or any(task["status"] == "active" for task in tasks):
        return run
    # A cancelled task does not count. One that timed out counts as failed.
    decided = [task for task in tasks if task["status"] != "cancelled"]
    figures = score_run(decided, run["body"].get("threshold")) if decided else {}
    started = min((task["started_at"] for task in tasks if task["started_at"]), default=None)
    return await change_run(
        connection,
        hub,
        caller,
        run,
        status="completed" if decided else "cancelled",
        phase="completed",
        started_at=run["body"]["started_at"] or started,
        completed_at=hub.now(),
        **figures,
    )


async def change_run(connection: AsyncConnection, hub: Hub, caller: Caller, run: Row, **fields: Json) -> Row:
    """Change a locked benchmark run."""
    changed = await change_record(connection, caller.organization_id, run["id"], now=hub.now(), body={**run["body"], **fields})
    assert changed is not None
    if "status" in fields:
        await drop_sealed_states(connection, caller.organization_id, [run["id"]])
        await note(connection, hub, caller, fields["status"], RUN.kind, run["id"])
    return changed
