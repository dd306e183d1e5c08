"""The run flow for agents (`/v1`): a solver starts a run of a published benchmark and gets a token for it.

The owner of the benchmark owns the run: a solver of another organization can neither upload its state nor read its criteria, but its
organization can read the result. With `scored`, responses to the token omit details and evidence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.keys import KeySpec, issue_key
from proctor.service.hub import Hub, stamp
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.benchmarks import find_published_version
from proctor.service.verification.authoring.tasks import TASK
from proctor.service.verification.runs.benchmark_runs import read_version_snapshot
from proctor.service.verification.runs.records import add_run, end_overdue_tasks, list_task_runs_of
from proctor.service.verification.runs.resources import CRITERION_RUN, RUN, TASK_RUN
from proctor.service.verification.runs.task_runs import begin_task_run, verify_task_run
from proctor.service.verification.sandboxes.playgrounds import SANDBOX, list_sandboxes_of
from proctor.service.verification.sandboxes.system_kinds import describe_endpoints
from proctor.service.verification.shared.declaration import Operation, Resource
from proctor.service.verification.shared.fields import FLAG, Field, Shape, nested_field, read_only, read_only_id, text
from proctor.service.verification.shared.resources import Transaction, reading, writing
from proctor.simulators.seeds import find_kind
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import shared_record

TOKEN_S = 24 * 3600.0
"""Seconds that the token of a run is valid."""
RUN_BY = "run_by"
"""The link from a run to the solver's organization, if it is not the owner's."""

_RUN_SANDBOX = Shape(
    "RunSandbox",
    "A sandbox of a run.",
    {
        **{name: SANDBOX.whole.fields[name] for name in ("id", "simulator_id", "status", "credentials")},
        "playground_id": read_only_id("playground"),
        "type": read_only("string", null=True),
    },
)
_REFERENCE = Shape(
    "Reference",
    "The benchmark of a run.",
    {"slug": read_only("string"), "version": read_only("integer", null=True), "name": read_only("string")},
)
_HEAD = Shape(
    "RunHead",
    "A run.",
    {
        "benchmark_run_id": read_only_id("benchmark_run"),
        "benchmark": nested_field(_REFERENCE, many=False),
        "scored": read_only("boolean"),
        "phase": read_only("string"),
        "status": read_only("string"),
        "sandboxes": nested_field(_RUN_SANDBOX),
    },
)
_TASK_FIELDS = ("id", "task_id", "name", "phase")
_TO_DO = Shape(
    "TaskToDo",
    "A task of a new run.",
    {
        **{name: TASK_RUN.whole.fields[name] for name in _TASK_FIELDS},
        "start_url": read_only("string", "path that starts it"),
        "complete_url": read_only("string", "path that completes it"),
    },
)
_DONE = TASK_RUN.whole.pick("TaskDone", "The state of a task of a run.", *_TASK_FIELDS, "status", "verdict", "score")
_FIGURES = ("verdict", "score", "started_at", "completed_at")
_STARTED = _HEAD.extend(
    "StartedRun",
    "A new run; the token is shown only once.",
    {
        "bearer_token": read_only("string"),
        "bearer_token_expires_at": read_only("string"),
        "endpoints": read_only(
            "object", "addresses of the systems of the started task, for use with the token", additionalProperties={"type": "string"}
        ),
        "task_runs": nested_field(_TO_DO),
    },
)
_STATUS = _HEAD.extend(
    "RunStatus", "The state of a run.", {**{name: RUN.fields[name] for name in _FIGURES}, "task_runs": nested_field(_DONE)}
)
_STARTED_TASK = Shape(
    "StartedTaskRun",
    "A started task with its input.",
    {
        "task_run_id": read_only_id("task_run"),
        **{name: TASK_RUN.fields[name] for name in ("benchmark_run_id", "task_id", "name", "phase", "status")},
        "task_item": TASK.fields["task_item"],
        "timeout": TASK_RUN.fields["timeout"],
        "started_at": read_only("string"),
    },
)
_WITHHELD = ("details", "evidence", "code")
"""Fields that the token of a scored run does not get."""
_CHECKED = ("id", "task_run_id", "criterion_id", "passed", "score", "outcome", *_WITHHELD, "started_at", "completed_at")
_CHECK = Shape(
    "CriterionCheck",
    "The result of a criterion; without details and evidence for a scored run.",
    {name: dataclasses.replace(CRITERION_RUN.whole.fields[name], always=name not in _WITHHELD) for name in _CHECKED},
)
_VERIFIED = Shape(
    "VerifiedTaskRun",
    "A verified task run.",
    {
        "task_run_id": read_only_id("task_run"),
        **{
            name: TASK_RUN.fields[name]
            for name in ("benchmark_run_id", "task_id", "phase", "status", "verdict", "score", "undecided", "axes", "outcome")
        },
        "scored": read_only("boolean"),
        "criterion_runs": nested_field(_CHECK),
    },
)
PUBLIC_RUN = Resource(
    kind="benchmark_run",
    name="Run",
    about="A run of a published benchmark.",
    tag="public runs",
    fields={
        "benchmark": Field(text(200), "slug@version; without @version the newest", required=True, null=False),
        "scored": RUN.fields["scored"],
        "agent": RUN.fields["agent"],
        "unlisted": Field(FLAG, "exclude this run from leaderboards (default false)", default=False, null=False),
    },
)


@Operation(PUBLIC_RUN, "POST /v1/benchmark-runs", doing="", takes=PUBLIC_RUN.new, gives=_STARTED, creates=True)
async def start_public_run(hub: Hub, caller: Caller, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Start a run of a published benchmark, own or public; requires a solver key. The response has the run's token."""
    if caller.kind not in ("solver", "organization"):
        raise Refusal("FORBIDDEN", "starting runs requires a solver key")
    fields = PUBLIC_RUN.read(request_body)
    expires_at = stamp(hub.clock() + TOKEN_S)
    async with writing(hub, caller) as tx:
        version = await find_published_version(tx, fields["benchmark"])
        # The owner of the benchmark owns the run; the audit note has the key.
        of_owner = tx.act_for(version["organization_id"])
        snapshot = await read_version_snapshot(tx, version)
        solver = None if caller.solver_id is None else await tx.find("solver", caller.solver_id)
        options = {name: fields[name] for name in ("scored", "agent", "unlisted")}
        run, tasks = await add_run(of_owner, snapshot, solver=solver, **options)
        # By this link the solver's organization finds a run of another owner.
        if of_owner.owner != tx.owner:
            await tx.link(run["id"], RUN_BY, tx.owner)
        spec = KeySpec(kind="run", name=f"run {run['id']}", benchmark_run_id=run["id"], expires_at=expires_at)
        _, token = await issue_key(tx.connection, hub, of_owner.caller, spec)
        sandboxes = await _list_sandboxes(of_owner, tasks)
        kinds = (find_kind(sandbox["type"]) for sandbox in sandboxes if sandbox["type"] is not None)
        return {
            **_show_head(run),
            "bearer_token": token,
            "bearer_token_expires_at": expires_at,
            "endpoints": describe_endpoints([kind for kind in kinds if kind is not None], run["id"]),
            "task_runs": [_show_to_do(row) for row in tasks],
            "sandboxes": sandboxes,
        }


@Operation(PUBLIC_RUN, "GET /v1/benchmark-runs/{benchmark_run_id}", doing="", gives=_STATUS)
async def get_public_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read the state of a run; with its token, or a key of its owner or of its solver's organization."""
    async with reading(hub, caller) as tx:
        run = await _find_visible(tx, id)
    owner = msgspec.structs.replace(caller, organization_id=run["organization_id"])
    # On behalf of the owner: `_find_visible` has checked access.
    await end_overdue_tasks(hub, owner, id)
    async with reading(hub, caller) as tx:
        run = await _find_visible(tx, id)
        of_owner = tx.act_for(owner.organization_id)
        tasks = await list_task_runs_of(of_owner, id)
        # Its systems are for the owner and the token of the run; the solver's organization reads the result.
        sandboxes = await _list_sandboxes(of_owner, tasks) if of_owner.owner == tx.owner else []
    figures = {name: value for name, value in RUN.show(run).items() if name in _FIGURES}
    done = [_pick(_DONE, TASK_RUN.show(task)) for task in tasks]
    return {**_show_head(run), **figures, "task_runs": done, "sandboxes": sandboxes}


@Operation(PUBLIC_RUN, "POST /v1/task-runs/{task_run_id}/start", doing="", gives=_STARTED_TASK)
async def start_public_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Start a task; with the run's token. One at a time."""
    return _pick(_STARTED_TASK, {**await begin_task_run(hub, caller, id), "task_run_id": id})


@Operation(PUBLIC_RUN, "POST /v1/task-runs/{task_run_id}/complete", doing="", gives=_VERIFIED)
async def complete_public_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Complete and verify a task; with the run's token."""
    verified = await verify_task_run(hub, caller, id)
    # An agent that knew why it failed could retry until it passes; the owner gets everything.
    withheld = _WITHHELD if verified["scored"] and caller.kind == "run" else ()
    checks = [{name: entry[name] for name in _CHECKED if name not in withheld} for entry in verified["criterion_runs"]]
    return _pick(_VERIFIED, {**verified, "task_run_id": id, "criterion_runs": checks})


async def _find_visible(tx: Transaction, id: str) -> Row:
    caller = tx.caller
    if caller.kind not in ("organization", "run"):
        raise Refusal("FORBIDDEN", "reading a run requires its token or an organization key")
    if caller.kind == "run" and id != caller.benchmark_run_id:
        raise not_found("benchmark run", id)
    record = await tx.find(RUN.kind, id)
    if record is None and caller.kind == "organization":
        record = await shared_record(tx.connection, tx.owner, RUN.kind, RUN_BY, id)
    if record is None:
        raise not_found("benchmark run", id)
    return record


def _show_head(run: Row) -> dict[str, Json]:
    return {"benchmark_run_id": run["id"], **{name: run["body"][name] for name in ("benchmark", "scored", "phase", "status")}}


def _show_to_do(row: Row) -> dict[str, Json]:
    paths = {name: f"/v1/task-runs/{row['id']}/{verb}" for name, verb in (("start_url", "start"), ("complete_url", "complete"))}
    return {"id": row["id"], **{name: row["body"][name] for name in ("task_id", "name", "phase")}, **paths}


async def _list_sandboxes(tx: Transaction, tasks: list[Row]) -> list[dict[str, Json]]:
    playgrounds = [row["body"]["playground_id"] for row in tasks if row["body"]["playground_id"] is not None]
    return [_pick(_RUN_SANDBOX, sandbox) for sandbox in await list_sandboxes_of(tx, playgrounds)]


def _pick(shape: Shape, record: Mapping[str, Json]) -> dict[str, Json]:
    return {name: record[name] for name in shape.fields}
