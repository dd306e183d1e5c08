from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.errors import StoreError
from proctor.service.hub import Hub, stamp
from proctor.service.upkeep.retention import SweepCounts, keep_sweeping, sweep_once
from proctor.store.runs.retention import sum_stored_bytes
from proctor.store.sql.tables import alert_deliveries, audit, keys, results, run_entries, run_events, runs, trace_parts, traces
from tests.databases import TestDatabase

NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture
def sqlite(sqlite_url: str, tmp_path: Path) -> TestDatabase:
    return TestDatabase(sqlite_url, tmp_path)


async def add_trace(hub: Hub, id: str, age_days: float, *, size: int = 100, organization: str = "o", **columns: Any) -> None:
    at = {"created_at": stamp(NOW - age_days * DAY), "updated_at": stamp(NOW)}
    ours = {"organization_id": organization, "project_id": "p", "agent_id": "a"}
    trace = {"id": id, "external_id": id, "format": "otlp", "status": "evaluated", "size": size, **ours, **at, **columns}
    result = {"id": f"res_{id}", "trace_id": id, "case_id": "c", "case_version": 1, "case_key": "k", "trace_revision": 1, "outcome": "pass"}
    async with hub.database.writing() as connection:
        await connection.execute(traces.insert().values(trace))
        await connection.execute(trace_parts.insert().values(trace_id=id, number=1, body=b"x" * size, created_at="t"))
        await connection.execute(results.insert().values({**result, "body": b"y" * 10, **ours, **at}))


async def add_run(hub: Hub, id: str, age_days: float, status: str = "completed", size: int = 100) -> None:
    at = {"created_at": stamp(NOW - age_days * DAY), "updated_at": stamp(NOW)}
    run = {"id": id, "organization_id": "o", "project_id": "p", "suite_name": "s", "dialect": "native", "document": "", "note": ""}
    async with hub.database.writing() as connection:
        await connection.execute(runs.insert().values({**run, "status": status, **at}))
        await connection.execute(
            run_entries.insert().values(id=f"att_{id}", run_id=id, case_id="c", attempt=0, outcome="pass", body=b"z" * size, created_at="t")
        )
        await connection.execute(run_events.insert().values(run_id=id, number=1, kind="k", body={}, at="t"))


async def left(hub: Hub) -> list[str]:
    """Return the remaining ids; assert that no row is orphaned."""
    async with hub.database.reading() as connection:
        found = [{str(row[0]) for row in await connection.execute(sa.select(column))} for column in _owners()]
    assert found[0] == found[1] == found[2]
    assert found[3] == found[4] == found[5]
    return sorted(found[0] | found[3])


def _owners() -> list[sa.Column[Any]]:
    return [traces.c.id, trace_parts.c.trace_id, results.c.trace_id, runs.c.id, run_entries.c.run_id, run_events.c.run_id]


async def fill(hub: Hub) -> None:
    for day in (1, 5, 9):
        await add_trace(hub, f"trc_{day}", day, organization=f"org_{day}")
        await add_run(hub, f"run_{day}", day + 0.5)


def test_old_records_are_deleted_with_everything_that_belongs_to_them(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await fill(hub)
        assert await sweep_once(hub, batch=1) == SweepCounts(traces=1, runs=2, bytes=110 + 200)
        assert await left(hub) == ["run_1", "trc_1", "trc_5"]
        assert await sweep_once(hub) == SweepCounts()

    database.run_hub(use, clock=lambda: NOW, retention_days=5.25)


@pytest.mark.parametrize(
    ("most", "stay"),
    [
        (10_000, ["run_1", "run_5", "run_9", "trc_1", "trc_5", "trc_9"]),
        (630, ["run_1", "run_5", "run_9", "trc_1", "trc_5", "trc_9"]),
        (629, ["run_1", "run_5", "trc_1", "trc_5", "trc_9"]),
        (500, ["run_1", "run_5", "trc_1", "trc_5"]),
        (211, ["run_1", "trc_1"]),
        (209, ["trc_1"]),
        (0, []),
    ],
)
@pytest.mark.parametrize("batch", [1, 100])
def test_over_the_size_limit_only_the_oldest_records_are_deleted(database: TestDatabase, most: int, stay: list[str], batch: int) -> None:
    async def use(hub: Hub) -> None:
        await fill(hub)
        async with hub.database.reading() as connection:
            assert await sum_stored_bytes(connection) == 630
        await sweep_once(hub, batch=batch)
        assert await left(hub) == stay

    database.run_hub(use, clock=lambda: NOW, retention_bytes=most)


def test_leased_traces_and_live_runs_stay(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await add_trace(hub, "trc_leased", 9, leased_until=NOW + 10)
        await add_trace(hub, "trc_lease_over", 9, leased_until=NOW - 10)
        await add_run(hub, "run_queued", 9, "queued")
        await add_run(hub, "run_running", 9, "running")
        await add_run(hub, "run_failed", 9, "failed")
        await sweep_once(hub)
        assert await left(hub) == ["run_queued", "run_running", "trc_leased"]

    database.run_hub(use, clock=lambda: NOW, retention_days=1, retention_bytes=0)


def test_old_deliveries_and_expired_tokens_go_and_notes_stay(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        old, new = stamp(NOW - 9 * DAY), stamp(NOW)
        delivery = {"organization_id": "o", "rule_id": "r", "created_at": old}
        key = {"organization_id": "o", "name": "n", "prefix": "p", "suffix": "s", "created_at": old}
        async with hub.database.writing() as connection:
            for id, next_at, at in (("ald_done", None, old), ("ald_due", 1.0, old), ("ald_new", None, new)):
                await connection.execute(alert_deliveries.insert().values({**delivery, "id": id, "next_at": next_at, "updated_at": at}))
            for id, kind, at in (("over", "run", old), ("good", "run", new), ("org", "organization", old), ("ever", "run", None)):
                await connection.execute(keys.insert().values({**key, "id": id, "kind": kind, "hash": id, "expires_at": at}))
            note = {"id": "n", "organization_id": "o", "at": old, "actor": "x", "action": "x", "resource": "x", "resource_id": "x"}
            await connection.execute(audit.insert().values(note))
        assert (await sweep_once(hub)).others == 2
        async with hub.database.reading() as connection:
            assert sorted((await connection.execute(sa.select(alert_deliveries.c.id))).scalars()) == ["ald_due", "ald_new"]
            assert sorted((await connection.execute(sa.select(keys.c.id))).scalars()) == ["ever", "good", "org"]
            assert (await connection.execute(sa.select(audit.c.id))).scalars().all() == ["n"]

    database.run_hub(use, clock=lambda: NOW, retention_days=1)


def test_sweeping_goes_on_after_a_database_that_was_gone(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(hub: Hub) -> None:
        await add_trace(hub, "trc_old", 9)
        heard: list[SweepCounts | StoreError] = []
        real = hub.database.writing

        def gone() -> Any:
            monkeypatch.setattr(hub.database, "writing", real)
            raise StoreError("gone")

        monkeypatch.setattr(hub.database, "writing", gone)
        task = asyncio.create_task(keep_sweeping(hub, every_s=0.001, report=heard.append))
        async with asyncio.timeout(10):
            while len(heard) < 2:
                await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(heard[0], StoreError)
        assert heard[1] == SweepCounts(traces=1, bytes=110)

    database.run_hub(use, clock=lambda: NOW, retention_days=1)


def test_without_a_limit_nothing_is_swept(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await add_trace(hub, "trc_old", 9_000)
        heard: list[SweepCounts | StoreError] = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await keep_sweeping(hub, report=heard.append)
        assert heard == [SweepCounts()]
        assert await left(hub) == ["trc_old"]

    database.run_hub(use, clock=lambda: NOW)


def test_judge_answers_are_deleted_by_age(sqlite: TestDatabase) -> None:
    projects = sqlite.home / "projects"

    def add_file(place: str, age_days: float) -> Path:
        path = projects / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")
        os.utime(path, (NOW - age_days * DAY,) * 2)
        return path

    old = [add_file("proj_1/judge/ab/old.json", 6), add_file("proj_2/judge/cd/old.json.17-0", 60)]
    young = [add_file("proj_1/judge/ab/young.json", 5), add_file("proj_1/another.txt", 60)]

    async def use(hub: Hub) -> SweepCounts:
        return await sweep_once(hub)

    assert sqlite.run_hub(use, clock=lambda: NOW, retention_bytes=0) == SweepCounts()
    assert all(path.exists() for path in (*old, *young))
    assert sqlite.run_hub(use, clock=lambda: NOW, retention_days=5.25) == SweepCounts(replies=2)
    assert [path.exists() for path in (*old, *young)] == [False, False, True, True]


def test_a_folder_of_judges_that_cannot_be_read_does_not_stop_the_sweep(sqlite: TestDatabase) -> None:
    (sqlite.home / "projects").write_text("no folder")

    async def use(hub: Hub) -> None:
        await fill(hub)
        assert (await sweep_once(hub)).traces == 1

    sqlite.run_hub(use, clock=lambda: NOW, retention_days=5.25)
