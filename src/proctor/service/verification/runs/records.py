"""Records of benchmark runs, task runs and criterion runs: creating, finding, locking and ending them.

Benchmark runs and task runs are `created`, `started`, then `completed`. Every change locks the benchmark run first. An overdue task run has
ended as `timed_out`, which the next request records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.runs.resources import CRITERION_RUN, RUN, TASK_RUN
from proctor.service.verification.runs.states import drop_sealed_states
from proctor.service.verification.runs.verifying import VerifiedTask, score_run
from proctor.service.verification.sandboxes.playgrounds import close_playground, open_playground
from proctor.service.verification.shared.resources import Transaction, reading, writing
from proctor.store.sql.compressed_json import pack, unpack
from proctor.store.sql.pages import Row


async def add_run(
    tx: Transaction,
    snapshot: Mapping[str, Json],
    *,
    scored: bool,
    agent: str | None = None,
    solver: Row | None = None,
    unlisted: bool = False,
) -> tuple[Row, list[Row]]:
    """Store a run of the benchmark in `snapshot`, with one task run per task. The transaction is, or acts for, its owner's."""
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
    run = await tx.insert(RUN.kind, RUN.prefix, body, parent_id=snapshot["id"])
    rows = [await _add_task_run(tx, run, snapshot, number) for number in range(len(tasks))]
    await tx.note("create", RUN.kind, run["id"], {"benchmark_id": snapshot["id"]})
    return run, rows


async def _add_task_run(tx: Transaction, run: Row, snapshot: Mapping[str, Json], position: int) -> Row:
    # Versions published before thresholds have none.
    threshold = {} if snapshot.get("threshold") is None else {"threshold": snapshot["threshold"]}
    task: dict[str, Json] = {**snapshot["tasks"][position], **threshold}
    playground_id = None
    environment_id = snapshot.get("environment_id")
    # The environment of an old version may be deleted.
    if environment_id is not None and await tx.find("environment", environment_id) is not None:
        playground_id = (await open_playground(tx, environment_id, run["id"]))["id"]
    timeout = task.get("timeout") or snapshot.get("timeout")
    body = TASK_RUN.fill(task_id=task["id"], name=task["name"], playground_id=playground_id, timeout=timeout, position=position)
    return await tx.insert(TASK_RUN.kind, TASK_RUN.prefix, body, parent_id=run["id"], blob=pack(task), now=run["created_at"])


async def list_task_runs_of(tx: Transaction, run_id: str) -> list[Row]:
    """Return the task runs of a benchmark run, in the order of its tasks."""
    return _sort_by_position(await tx.children(TASK_RUN.kind, run_id))


async def list_criterion_runs_of(tx: Transaction, task_runs: str | Sequence[str]) -> list[Row]:
    """Return the criterion runs of task runs, in the order of the criteria."""
    return _sort_by_position(await tx.children(CRITERION_RUN.kind, task_runs))


async def read_task_snapshot(tx: Transaction, task_run_id: str) -> dict[str, Json]:
    """Return the task as it was when the run was made."""
    blob = await tx.read_blob(task_run_id)
    return {} if blob is None else unpack(blob)


def _sort_by_position(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["body"].get("position", 0))


async def require_task_run(tx: Transaction, id: str) -> Row:
    """Return a task run. The token of a run only finds tasks of that run."""
    task_run = await tx.require(TASK_RUN.kind, id)
    if tx.caller.kind == "run" and task_run["parent_id"] != tx.caller.benchmark_run_id:
        raise not_found("task run", id)
    return task_run


async def lock_task_run(tx: Transaction, id: str) -> tuple[Row, Row]:
    """Lock a task run and its benchmark run."""
    task_run = await require_task_run(tx, id)
    # Always the benchmark run first, which prevents deadlocks.
    run = await tx.require(RUN.kind, task_run["parent_id"], lock=True)
    return await tx.require(TASK_RUN.kind, id, lock=True), run


def refuse_finished(row: Row) -> None:
    """Reject changes of an ended run."""
    if row["body"]["status"] != "active":
        raise Refusal("CONFLICT", f"the {row['kind'].replace('_', ' ')} is already {row['body']['status']}")


async def end_overdue_tasks(hub: Hub, caller: Caller, run_id: str) -> None:
    """End the overdue tasks of a benchmark run."""
    async with reading(hub, caller) as tx:
        # A read first, since reading a run is frequent and seldom needs the write lock.
        late = any(is_overdue(hub, row) for row in await list_task_runs_of(tx, run_id))
    if late:
        async with writing(hub, caller) as tx:
            run = await tx.require(RUN.kind, run_id, lock=True)
            for row in await list_task_runs_of(tx, run_id):
                if is_overdue(hub, row):
                    await end_task_run(tx, row, "timed_out", score=0.0, verdict="fail", outcome="fail")
            await finalize(tx, run)


def is_overdue(hub: Hub, row: Row) -> bool:
    """Return whether a started task run has exceeded its timeout."""
    body = row["body"]
    if body["status"] != "active" or body["started_at"] is None or body["timeout"] is None:
        return False
    return hub.clock() - datetime.fromisoformat(body["started_at"]).timestamp() > body["timeout"]


async def end_task_run(tx: Transaction, row: Row, status: str, **fields: Json) -> Row:
    """End a task run, and its playground with it."""
    body = {**row["body"], **fields, "status": status, "completed_at": tx.hub.now(), "phase": "completed"}
    changed = await tx.rewrite(row, body=body)
    await drop_sealed_states(tx, [row["id"]])
    if body["playground_id"] is not None:
        await close_playground(tx, body["playground_id"])
    await tx.note(status, TASK_RUN.kind, row["id"])
    return changed


async def store_verified(tx: Transaction, row: Row, verified: VerifiedTask, started_at: str) -> tuple[Row, list[Row]]:
    """Store the result of a task run, with one criterion run per criterion."""
    now = tx.hub.now()
    criterion_runs: list[Row] = []
    for position, criterion in enumerate(verified.criteria):
        body = {**criterion, "started_at": started_at, "completed_at": now, "position": position}
        criterion_runs.append(await tx.insert(CRITERION_RUN.kind, CRITERION_RUN.prefix, body, parent_id=row["id"], now=now))
    fields: dict[str, Json] = {name: getattr(verified, name) for name in ("outcome", "score", "verdict", "undecided", "axes")}
    fields["started_at"] = row["body"]["started_at"] or started_at
    return await end_task_run(tx, row, "completed", **fields), criterion_runs


async def finalize(tx: Transaction, run: Row) -> Row:
    """End a benchmark run after its last task run, with the mean of decided tasks."""
    tasks = [row["body"] for row in await tx.children(TASK_RUN.kind, run["id"])]
    if run["body"]["status"] != "active" or any(task["status"] == "active" for task in tasks):
        return run
    # A cancelled task does not count. One that timed out counts as failed.
    decided = [task for task in tasks if task["status"] != "cancelled"]
    figures = score_run(decided, run["body"].get("threshold")) if decided else {}
    started = min((task["started_at"] for task in tasks if task["started_at"]), default=None)
    return await change_run(
        tx,
        run,
        status="completed" if decided else "cancelled",
        phase="completed",
        started_at=run["body"]["started_at"] or started,
        completed_at=tx.hub.now(),
        **figures,
    )


async def change_run(tx: Transaction, run: Row, **fields: Json) -> Row:
    """Change a locked benchmark run."""
    changed = await tx.rewrite(run, body={**run["body"], **fields})
    if "status" in fields:
        await drop_sealed_states(tx, [run["id"]])
        await tx.note(fields["status"], RUN.kind, run["id"])
    return changed
