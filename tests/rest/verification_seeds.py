"""One of everything of the verification API, for the authorization table and for generated requests."""

from __future__ import annotations

import hashlib
from typing import Any

from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.store.accounts.sandboxes import NewSandbox, add_sandbox
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import keys
from proctor.store.sql.verification_records import NewRecord, add_record, change_record, link

VOICE = {"assert": "voice-transcript", "speaker": "agent", "contains": ["hello"]}
RUNS = ("complete", "cancel", "old_complete", "old_cancel", "task_complete", "task_cancel", "start")
"""Every row that ends a run has one of its own."""
REAL = {
    "environment_id": "env_home",
    "simulator_id": "sim_home",
    "dataset_id": "ds_home",
    "entity_id": "ent_home",
    "benchmark_id": "bench_home",
    "task_id": "task_home",
    "criterion_id": "crit_home",
    "input_entity_id": "ent_home",
    "playground_id": "pg_home",
    "sandbox_id": "sb_home",
    "benchmark_run_id": "br_home",
    "task_run_id": "tr_home",
    "criterion_run_id": "crun_home",
    "solver_id": "slv_home",
    "eval_id": "crit_home",
    "eval_run_id": "crun_home",
    "benchmark": "bench-home@1",
    "share_id": "shr_home",
    "type": "FHIR",
}


async def seed_verification(hub: Hub, caller: Caller, place: str) -> None:
    organization = caller.organization_id
    now = hub.now()
    task = {"id": f"task_{place}", "name": "task", "criteria": [{"id": f"crit_{place}", "assertion": VOICE}], "entities": []}
    snapshot = {"id": f"bench_{place}", "name": "b", "slug": f"bench-{place}", "version": 1, "tasks": [task]}
    async with hub.database.writing() as connection:

        async def add(id: str, kind: str, parent_id: str | None = None, *, slug: str | None = None, blob: Any = None, **body: Any) -> None:
            packed = None if blob is None else pack(blob)
            await add_record(
                connection,
                NewRecord(id=id, organization_id=organization, kind=kind, parent_id=parent_id, slug=slug, blob=packed, body=body),
                now=now,
            )

        await add(f"env_{place}", "environment", name="e")
        for id, type in (("sim", "FHIR"), ("sim2", "Files")):
            await add(f"{id}_{place}", "simulator", name="s", type=type)
        await link(connection, f"env_{place}", "environment_simulator", f"sim_{place}", now)
        await add(f"ds_{place}", "dataset", name="d", type="FHIR")
        for id in ("ent", "ent2"):
            await add(f"{id}_{place}", "entity", f"ds_{place}", name="e", data={})
        await add(f"dsb_{place}", "dataset", name="branch", type="FHIR")
        await link(connection, f"env_{place}", "environment_dataset", f"dsb_{place}", now)
        benchmark: dict[str, Any] = {"name": "b", "version": 1, "visibility": "Private", "concurrency": 1}
        await add(f"bench_{place}", "benchmark", slug=f"bench-{place}", **benchmark)
        await add(f"bv_{place}", "benchmark_version", f"bench_{place}", slug=f"bench-{place}@1", blob=snapshot, version=1, name="b")
        await add(f"task_{place}", "task", f"bench_{place}", name="task")
        await link(connection, f"task_{place}", "task_entity", f"ent_{place}", now)
        await add(f"crit_{place}", "criterion", f"task_{place}", label="c", assertion=VOICE, weight=1)
        await add(f"pg_{place}", "playground", f"env_{place}", status="active")
        # One sandbox is used by hand, the other by the started task of a run.
        for id, run in ((f"sb_{place}", None), (f"sbr_{place}", f"br_{place}")):
            await add_sandbox(connection, _sandbox(organization, id, run), now=now)
        await link(connection, f"sb_{place}", "sandbox_dataset", f"dsb_{place}", now)
        await change_record(connection, organization, f"br_{place}", now=now, body=_run(place), parent_id=f"bench_{place}")
        await add(f"tr_{place}", "task_run", f"br_{place}", blob=task, **_task_run(place))
        await add(f"tr2_{place}", "task_run", f"br_{place}", blob=task, **_task_run(place, phase="started", started_at=now))
        criterion_run: dict[str, Any] = {
            "criterion_id": f"crit_{place}",
            "passed": True,
            "score": 1.0,
            "outcome": "pass",
            "started_at": now,
        }
        await add(f"crun_{place}", "criterion_run", f"tr_{place}", **criterion_run)
        for mark in RUNS:
            await add(f"br_{place}_{mark}", "benchmark_run", f"bench_{place}", **_run(place))
            await add(f"tr_{place}_{mark}", "task_run", f"br_{place}_{mark}", blob=task, **_task_run(place))
        await add(f"br_{place}_done", "benchmark_run", f"bench_{place}", **_run(place) | {"status": "completed", "phase": "completed"})
        await add(f"shr_{place}", "run_share", f"br_{place}", visibility="evidence", suffix=place)
        await link(connection, f"shr_{place}", "share_token", hashlib.sha256(f"vrl_shr_{place}".encode()).hexdigest(), now)
        key = {"id": f"skey_{place}", "kind": "solver", "name": "s", "prefix": "vrl_slv_", "suffix": "xxxx", "hash": f"solver {place}"}
        await connection.execute(keys.insert().values(**key, solver_id=f"slv_{place}", organization_id=organization, created_at=now))


def _sandbox(organization: str, id: str, run: str | None) -> NewSandbox:
    rows = {"fhir/Patient": {"ann": {"resourceType": "Patient", "id": "ann", "meta": {"versionId": "1"}}}}
    return NewSandbox(
        id=id,
        organization_id=organization,
        kind="fhir",
        rows=rows,
        packed=pack(rows),
        benchmark_run_id=run,
        expires_at="2999-01-01T00:00:00.000Z",
    )


def _run(place: str) -> dict[str, Any]:
    return {
        "status": "active",
        "phase": "created",
        "scored": False,
        "published": False,
        "benchmark": {"slug": f"bench-{place}", "version": 1, "name": "b"},
        "started_at": None,
        "completed_at": None,
    }


def _task_run(place: str, **more: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("playground_id", "verdict", "score", "outcome", "timeout", "started_at", "completed_at"))
    return {**nothing, "task_id": f"task_{place}", "name": "task", "status": "active", "phase": "created", "axes": {}, **more}
