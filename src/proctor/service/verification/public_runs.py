"""The run flow for agents (`/v1`): a solver starts a run of a published benchmark and gets a token for it and nothing else.

A run belongs to the owner of the benchmark: who runs a public benchmark of somebody else must neither grade the run (upload its state)
nor read its criteria. The solver's organization can read how it went. With `scored`, what a token is told leaves out details and
evidence.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.keys import issue_key
from proctor.service.hub import Hub, stamp
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.benchmark_runs import version_snapshot
from proctor.service.verification.benchmarks import published_version
from proctor.service.verification.fields import Field, flag, read_fields, text
from proctor.service.verification.playgrounds import sandboxes_of
from proctor.service.verification.run_records import RUN, add_run, shown_run, shown_task_run, task_runs_of
from proctor.service.verification.task_runs import complete_task_run, look_at_run, start_task_run
from proctor.store.pages import Row
from proctor.store.records import find_record, link, shared_record

TOKEN_S = 24 * 3600.0
"""How long the token of a run lasts."""
RUN_BY = "run_by"
"""The link from a run to the organization of the solver, where that is another one than the owner's."""

_NEW = {
    "benchmark": Field(text(200), required=True, null=False),
    "scored": Field(flag, default=False, null=False),
    "agent": Field(text(200)),
}
_WITHHELD = ("details", "evidence", "code")
_CRITERION = ("id", "task_run_id", "criterion_id", "passed", "score", "outcome", *_WITHHELD, "started_at", "completed_at")


async def start_public_run(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """A run of `benchmark` (`slug@version`), the caller's own or a public one; `scored?`, `agent?`. The token is shown this once."""
    if caller.kind not in ("solver", "organization"):
        raise Refusal("FORBIDDEN", "runs are started with a solver key")
    fields = read_fields(_NEW, given, "benchmark run")
    expires_at = stamp(hub.clock() + TOKEN_S)
    async with hub.database.writing() as connection:
        version = await published_version(connection, caller, fields["benchmark"])
        # The owner of the benchmark owns the run; the note says whose key it was.
        owner = msgspec.structs.replace(caller, organization_id=version["organization_id"])
        snapshot = await version_snapshot(connection, version)
        run, tasks = await add_run(
            connection, hub, owner, snapshot, scored=fields["scored"], agent=fields["agent"], solver_id=caller.solver_id
        )
        if owner.organization_id != caller.organization_id:
            await link(connection, run["id"], RUN_BY, caller.organization_id, hub.now())
        name = f"run {run['id']}"
        _, token = await issue_key(connection, hub, owner, "run", name, benchmark_run_id=run["id"], expires_at=expires_at)
        return {
            **_head(run),
            "bearer_token": token,
            "bearer_token_expires_at": expires_at,
            # Filled where a live simulator stands behind a sandbox.
            "endpoints": {},
            "task_runs": [_to_do(row) for row in tasks],
            "sandboxes": await _sandboxes(connection, owner, tasks),
        }


async def get_public_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """How a run stands, for its token, its owner, and the organization of its solver."""
    async with hub.database.reading() as connection:
        run = await _visible(connection, caller, id)
    owner = msgspec.structs.replace(caller, organization_id=run["organization_id"])
    await look_at_run(hub, owner, id)
    async with hub.database.reading() as connection:
        run = await _visible(connection, caller, id)
        tasks = await task_runs_of(connection, owner.organization_id, id)
        own = caller.organization_id == owner.organization_id
        sandboxes = await _sandboxes(connection, owner, tasks) if own else []
    shown = [shown_task_run(task) for task in tasks]
    summary = [{name: task[name] for name in ("id", "task_id", "name", "phase", "status", "verdict", "score")} for task in shown]
    figures = {name: shown_run(run)[name] for name in ("verdict", "score", "started_at", "completed_at")}
    return {**_head(run), **figures, "task_runs": summary, "sandboxes": sandboxes}


async def start_public_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Start a task; says what the agent has to do (`task_item`)."""
    found = await start_task_run(hub, caller, id)
    shown = ("benchmark_run_id", "task_id", "name", "phase", "status", "task_item", "timeout", "started_at")
    return {"task_run_id": id, **{name: found[name] for name in shown}}


async def complete_public_task_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Complete a task and say how it went; to a token of a scored run, without details and evidence."""
    found = await complete_task_run(hub, caller, id)
    withheld = _WITHHELD if found["scored"] and caller.kind == "run" else ()
    criteria = [{name: entry[name] for name in _CRITERION if name not in withheld} for entry in found["criterion_runs"]]
    shown = ("benchmark_run_id", "task_id", "phase", "status", "verdict", "score", "axes", "outcome", "scored")
    return {"task_run_id": id, **{name: found[name] for name in shown}, "criterion_runs": criteria}


async def _visible(connection: AsyncConnection, caller: Caller, id: str) -> Row:
    if caller.kind not in ("organization", "run"):
        raise Refusal("FORBIDDEN", "a run is read with its token or an organization key")
    if caller.kind == "run" and id != caller.benchmark_run_id:
        raise not_found("benchmark run", id)
    found = await find_record(connection, caller.organization_id, RUN, id)
    if found is None and caller.kind == "organization":
        found = await shared_record(connection, caller.organization_id, RUN, RUN_BY, id)
    if found is None:
        raise not_found("benchmark run", id)
    return found


def _head(run: Row) -> dict[str, Json]:
    return {"benchmark_run_id": run["id"], **{name: run["body"][name] for name in ("benchmark", "scored", "phase", "status")}}


def _to_do(row: Row) -> dict[str, Json]:
    paths = {name: f"/v1/task-runs/{row['id']}/{verb}" for name, verb in (("start_url", "start"), ("complete_url", "complete"))}
    return {"id": row["id"], **{name: row["body"][name] for name in ("task_id", "name", "phase")}, **paths}


async def _sandboxes(connection: AsyncConnection, owner: Caller, tasks: list[Row]) -> list[dict[str, Json]]:
    playgrounds = [row["body"]["playground_id"] for row in tasks if row["body"]["playground_id"] is not None]
    shown = ("id", "playground_id", "simulator_id", "type", "status", "credentials")
    return [{name: sandbox[name] for name in shown} for sandbox in await sandboxes_of(connection, owner, playgrounds)]
