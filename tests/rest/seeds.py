"""The data of a service for the authorization table: one of everything, in two organizations.

A seed is an async function `(hub, caller, place)` that is called for the organization `home` and for `foreign`, after `Service.keys()`
has made projects, agents, solvers and benchmark runs. Ids end in the place: `case_home`, `trc_foreign`. To add one, write it and list it in
`SEEDS`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from proctor.doctor.model import Examination, Examined, Finding
from proctor.formats.suites import read_suite
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.secrets import set_secret
from proctor.service.hub import Hub
from proctor.service.runs.proposals import make_digest
from proctor.store.sql.compressed_json import compress_bytes, pack
from proctor.store.sql.tables import (
    alert_rules,
    annotation_rows,
    audit,
    case_versions,
    cases,
    keys,
    proposals,
    results,
    run_entries,
    run_events,
    run_snapshots,
    runs,
    schedules,
    traces,
)
from tests.rest.services import FOREIGN
from tests.rest.verification_seeds import seed_verification

SUITE = """\
proctor: 1
cases:
  - id: greets
    input: hello
    expect:
      - response_contains: hello
"""


async def seed_cases(hub: Hub, caller: Caller, place: str) -> None:
    at = {"created_at": hub.now(), "updated_at": hub.now()}
    async with hub.database.writing() as connection:
        for number in (1, 2):
            id = f"case_{place}" if number == 1 else f"case_{place}_2"
            values = {
                "id": id,
                "organization_id": caller.organization_id,
                "project_id": f"proj_{place}",
                "agent_id": f"agent_{place}_{number}",
            }
            await connection.execute(cases.insert().values(**values, name=id, dialect="native", document=SUITE, **at))
            version = {"case_id": id, "version": 1, "dialect": "native", "document": SUITE, "created_at": hub.now()}
            await connection.execute(case_versions.insert().values(version))


async def seed_traces(hub: Hub, caller: Caller, place: str) -> None:
    at = {"created_at": hub.now(), "updated_at": hub.now()}
    async with hub.database.writing() as connection:
        for number in (1, 2):
            mark = place if number == 1 else f"{place}_2"
            ours = {"organization_id": caller.organization_id, "project_id": f"proj_{place}", "agent_id": f"agent_{place}_{number}", **at}
            trace = {
                "id": f"trc_{mark}",
                "external_id": mark,
                "format": "mibo",
                "status": "evaluated",
                "body": pack({"of": mark, "data": {"text": mark}}),
            }
            await connection.execute(traces.insert().values(**trace, input_text=f"asked at {mark}", metadata={"env": mark}, **ours))
            result = {"id": f"res_{mark}", "trace_id": f"trc_{mark}", "case_id": f"case_{mark}", "case_version": 1, "case_key": "greets"}
            await connection.execute(results.insert().values(**result, trace_revision=1, outcome="pass", body=pack({"of": mark}), **ours))


async def seed_keys(hub: Hub, caller: Caller, place: str) -> None:
    ours = {"organization_id": caller.organization_id}
    async with hub.database.writing() as connection:
        key = {
            "id": f"key_{place}",
            "kind": "organization",
            "name": "to revoke",
            "prefix": "vk_",
            "suffix": "xxxx",
            "hash": f"none {place}",
        }
        await connection.execute(keys.insert().values(**key, created_at=hub.now(), **ours))
        note = {
            "id": f"aud_{place}",
            "at": hub.now(),
            "actor": "local",
            "action": "create",
            "resource": "key",
            "resource_id": f"key_{place}",
        }
        await connection.execute(audit.insert().values(**note, **ours))


async def seed_alerts(hub: Hub, caller: Caller, place: str) -> None:
    rule = {"id": f"alr_{place}", "organization_id": caller.organization_id, "project_id": f"proj_{place}", "name": place}
    more = {"kind": "pass_rate", "settings": {}, "webhook_url": "https://example.com/hook", "active": False}
    async with hub.database.writing() as connection:
        await connection.execute(alert_rules.insert().values(**rule, **more, created_at=hub.now(), updated_at=hub.now()))


async def seed_schedules(hub: Hub, caller: Caller, place: str) -> None:
    own = {"id": f"sch_{place}", "organization_id": caller.organization_id, "project_id": f"proj_{place}", "name": place}
    run = {"suite": SUITE, "run": {"target": {"type": "http", "url": "https://example.com/"}}, "overlap": "skip"}
    at = {"cron": "@yearly", "timezone": "UTC", "active": False, "created_at": hub.now(), "updated_at": hub.now()}
    async with hub.database.writing() as connection:
        await connection.execute(schedules.insert().values(**own, **run, **at))


async def seed_proposals(hub: Hub, caller: Caller, place: str) -> None:
    own = {"id": f"prop_{place}", "organization_id": caller.organization_id, "project_id": f"proj_{place}", "name": place}
    text = {"document": SUITE, "dialect": "native", "because": "seen", "digest": make_digest(read_suite(SUITE), "")}
    state = {"source": "traces", "status": "pending", "proposed_by": "local", "created_at": hub.now(), "updated_at": hub.now()}
    async with hub.database.writing() as connection:
        await connection.execute(proposals.insert().values(**own, **text, **state))


async def seed_secrets(hub: Hub, caller: Caller, place: str) -> None:
    await set_secret(hub, caller, f"proj_{place}", "TOKEN", f"secret of {place}")


Seed = Callable[[Hub, Caller, str], Awaitable[None]]


async def seed_runs(hub: Hub, caller: Caller, place: str) -> None:
    at = {"created_at": hub.now(), "updated_at": hub.now()}
    run = {"id": f"run_{place}", "organization_id": caller.organization_id, "project_id": f"proj_{place}", "suite_name": place, **at}
    entry = {"id": f"att_{place}", "run_id": f"run_{place}", "case_id": "greets", "attempt": 0, "outcome": "pass", "created_at": hub.now()}
    async with hub.database.writing() as connection:
        done = {"status": "completed", "outcome": "pass", "counts": {"pass": 1}, "settings": {"attempts": 1}, "note": ""}
        done |= {"name": f"named-{place}", "tags": f",tagged-{place},"}
        await connection.execute(runs.insert().values(**run, dialect="native", document=SUITE, **done))
        finding = Finding(check="ping", area="lifecycle", level="MUST", verdict="fail", reason=f"no answer of {place}")
        part = Examined(revision="2025-11-25", profile="mcp-2025-11-25@1", findings=(finding,), score=0, incomplete=False)
        found = Examination(target=f"server of {place}", transport="http", examined=(part,), snapshot={"version": 1, "tools": {}})
        body = compress_bytes(msgspec.json.encode(found))
        await connection.execute(run_snapshots.insert().values(run_id=f"run_{place}", kind="examination", body=body))
        second = {**run, "id": f"run_{place}_2", **done, "name": None, "tags": None}
        await connection.execute(runs.insert().values(**second, dialect="native", document=SUITE))
        await connection.execute(run_entries.insert().values(**entry, body=pack({"case": "greets", "outcome": "pass", "reason": place})))
        for number, kind in enumerate(("queued", "running", "completed"), 1):
            event = {"run_id": f"run_{place}", "number": number, "kind": kind, "body": {"of": place}, "at": hub.now()}
            await connection.execute(run_events.insert().values(event))


async def seed_annotations(hub: Hub, caller: Caller, place: str) -> None:
    at = {"created_at": hub.now(), "updated_at": hub.now(), "organization_id": caller.organization_id, "project_id": f"proj_{place}"}
    fields = {"label": "fail", "note": f"of {place}", "author": "local"}
    async with hub.database.writing() as connection:
        for mark, agent, subject, subject_id, parent in (
            ("", f"agent_{place}_1", "result", f"res_{place}", f"trc_{place}"),
            ("_2", f"agent_{place}_2", "trace", f"trc_{place}_2", f"trc_{place}_2"),
            ("_run", "", "attempt", f"att_{place}", f"run_{place}"),
        ):
            about = {"subject": subject, "subject_id": subject_id, "parent_id": parent, "agent_id": agent}
            await connection.execute(annotation_rows.insert().values(id=f"ann_{place}{mark}", **about, **fields, **at))


SEEDS: list[Seed] = [
    seed_cases,
    seed_traces,
    seed_keys,
    seed_verification,
    seed_secrets,
    seed_alerts,
    seed_schedules,
    seed_proposals,
    seed_runs,
    seed_annotations,
]


async def sow(hub: Hub) -> None:
    """Everything, for both organizations."""
    for caller, place in ((LOCAL, "home"), (FOREIGN, "foreign")):
        await sow_place(hub, caller, place)


async def sow_place(hub: Hub, caller: Caller, place: str) -> None:
    """One of everything, except what `fill_place` already made."""
    for seed in SEEDS:
        await seed(hub, caller, place)
