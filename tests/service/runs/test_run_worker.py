"""Faults around a worker: lost leases, cancellations at awkward moments, jumping clocks, and waiting runs of others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.actions.running.run_builder import BuiltRun
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.projects import NewProject, create_project
from proctor.service.hub import Hub
from proctor.service.runs import worker
from proctor.service.runs.requests import NewRun, cancel_run, get_run, start_run
from proctor.service.runs.worker import RunTurns, run_worker, work_once
from proctor.store.accounts.tenants import ensure_organization
from proctor.store.runs import run_rows
from proctor.store.sql.tables import runs
from tests.databases import TestDatabase
from tests.service.agents import LOOPBACK, Agent, a_project, an_agent, suite, until, working
from tests.targets.loopback import ReceivedRequest, Reply, serve


@pytest.fixture
def sqlite(sqlite_url: str, tmp_path: Path) -> TestDatabase:
    return TestDatabase(sqlite_url, tmp_path)


async def start(hub: Hub, agent: Agent, *ids: str, caller: Caller = LOCAL, project: str | None = None, **more: Any) -> str:
    if project is None:
        async with hub.database.writing() as connection:
            await ensure_organization(connection, caller.organization_id, "someone", hub.now())
        project = str((await create_project(hub, caller, NewProject(name="p", settings={"targets": {"shop": agent.target}})))["id"])
    return str((await start_run(hub, caller, NewRun(project_id=project, suite=suite(*ids), **more)))["id"])


async def row_of(hub: Hub, run_id: str) -> dict[str, Any]:
    async with hub.database.reading() as connection:
        return dict((await connection.execute(sa.select(runs).where(runs.c.id == run_id))).mappings().one())


async def holds(check: Callable[[], bool], within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not check():
            await asyncio.sleep(0.01)


class SlowStart:
    """Puts something slow before a run can begin: in making it ready, or in opening its target."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: str, seconds: float) -> None:
        self.begun = 0
        real = worker.build_project_run

        async def build_project_run(*words: Any) -> BuiltRun:
            if where == "building":
                self.begun += 1
                await asyncio.sleep(seconds)
            ready = await real(*words)
            if where == "opening":
                inner = ready.target.open

                async def opening() -> None:
                    self.begun += 1
                    await asyncio.sleep(seconds)
                    await inner()

                ready.target.open = opening  # type: ignore[method-assign] - the target of this run only
            return ready

        monkeypatch.setattr(worker, "build_project_run", build_project_run)


@pytest.mark.parametrize("where", ["building", "opening"])
def test_a_slow_start_keeps_its_lease(where: str, database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowStart(monkeypatch, where, 1.5)

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")
            async with working(run_worker, hub), working(run_worker, Hub(database=hub.database, settings=hub.settings)):
                await until(hub, run_id, lambda run: run["status"] == "completed")
            assert slow.begun == 1 and agent.times == {"a": 1}

    database.run_hub(use, allowed_addresses=LOOPBACK, lease_s=0.6)


@pytest.mark.parametrize("where", ["building", "opening"])
def test_a_run_that_has_not_begun_yet_is_cancelled_within_a_second(
    where: str, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowStart(monkeypatch, where, 30)

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")
            async with working(run_worker, hub):
                await holds(lambda: slow.begun == 1)
                began = time.monotonic()
                await cancel_run(hub, LOCAL, run_id)
                await until(hub, run_id, lambda run: run["status"] == "cancelled", within_s=3)
                assert time.monotonic() - began < 5.0
            assert not agent.times

    database.run_hub(use, allowed_addresses=LOOPBACK)


@pytest.mark.parametrize("where", ["building", "opening"])
def test_a_service_that_stops_gives_back_a_run_that_has_not_begun_yet(
    where: str, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowStart(monkeypatch, where, 30)

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")
            async with working(run_worker, hub):
                await holds(lambda: slow.begun == 1)
            run = await get_run(hub, LOCAL, run_id)
            assert run["status"] == "queued", run

    database.run_hub(use, allowed_addresses=LOOPBACK)


@pytest.mark.parametrize("where", ["building", "opening"])
def test_a_worker_that_loses_a_run_before_it_began_drives_others(
    where: str, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowStart(monkeypatch, where, 30)

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            lost = await start(hub, agent, "lost")
            async with working(run_worker, hub):
                await holds(lambda: slow.begun == 1)
                monkeypatch.undo()
                taken = {"lease_owner": "another", "leased_until": hub.clock() + 600}
                async with hub.database.writing() as connection:
                    await connection.execute(sa.update(runs).where(runs.c.id == lost).values(taken))
                other = await start(hub, agent, "other")
                await until(hub, other, lambda run: run["status"] == "completed", within_s=8)
            assert (await row_of(hub, lost))["lease_owner"] == "another" and agent.times == {"other": 1}

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_lease_is_renewed_although_the_clock_was_put_back(sqlite: TestDatabase) -> None:
    back = [0.0]

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")
            agent.slow_s = 30.0
            async with working(run_worker, hub):
                await holds(lambda: bool(agent.times))
                await asyncio.sleep(0.2)  # that it began is written by now, which renews the lease too
                back[0] = 3600.0
                async with asyncio.timeout(5):
                    while (await row_of(hub, run_id))["leased_until"] > hub.clock() + 60:
                        await asyncio.sleep(0.05)
                await cancel_run(hub, LOCAL, run_id)

    sqlite.run_hub(use, clock=lambda: time.time() - back[0], allowed_addresses=LOOPBACK, lease_s=1.5)


def test_tenants_take_turns_however_many_runs_one_of_them_sent(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            greedy = [await start(hub, agent, "a", repeat=3) for _ in range(6)]
            modest = await start(hub, agent, "b", caller=Caller(organization_id="org_modest"))
            async with working(run_worker, hub):
                async with asyncio.timeout(20):
                    while (await row_of(hub, modest))["status"] != "completed":
                        await asyncio.sleep(0.01)
                done = [run_id for run_id in greedy if (await row_of(hub, run_id))["status"] == "completed"]
            assert len(done) <= 2, "one before, and one that may have been finished since"

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_projects_of_one_tenant_take_turns(sqlite: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            busy = await a_project(hub, targets={"shop": agent.target})
            greedy = [await start(hub, agent, "a", project=busy) for _ in range(4)]
            modest = await start(hub, agent, "b")
            async with working(run_worker, hub):
                await until(hub, modest, lambda run: run["status"] == "completed")
                done = [run_id for run_id in greedy if (await row_of(hub, run_id))["status"] == "completed"]
            assert len(done) <= 2

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_long_run_yields_to_waiting_runs_and_repeats_no_request(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TURN_S", 0.3)
    monkeypatch.setattr(worker, "PATIENCE_S", 0.1)

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            agent.slow_s = 0.03
            long = await start(hub, agent, "a", repeat=60, concurrency=2)
            async with working(run_worker, hub):
                await until(hub, long, lambda run: run["finished"] >= 1)
                other = Caller(organization_id="org_other")
                short = await start(hub, agent, "b", caller=other)
                async with asyncio.timeout(10):
                    while (await row_of(hub, short))["status"] != "completed":
                        await asyncio.sleep(0.01)
                assert (await get_run(hub, LOCAL, long))["finished"] < 60
                run = await until(hub, long, lambda run: run["status"] == "completed", within_s=20)
            assert run["counts"]["pass"] == 60 and agent.times == {"a": 60, "b": 1}

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_long_run_continues_when_no_other_waits(sqlite: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TURN_S", 0.1)
    monkeypatch.setattr(worker, "PATIENCE_S", 0.0)

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            agent.slow_s = 0.03
            project = await a_project(hub, targets={"shop": agent.target})
            long = await start(hub, agent, "a", project=project, repeat=40, concurrency=2)
            # One's own runs wait for one's own.
            await start(hub, agent, "b", project=project)
            assert await work_once(hub) == long
            assert (await get_run(hub, LOCAL, long))["status"] == "completed"

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_stored_entries_are_unpacked_outside_the_event_loop(sqlite: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = run_rows.read_entry, set[threading.Thread]()

    def noting(body: bytes) -> Any:
        seen.add(threading.current_thread())
        return real(body)

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a", repeat=45)
            monkeypatch.setattr(run_rows, "read_entry", noting)
            await work_once(hub)
            assert (await get_run(hub, LOCAL, run_id))["outcome"] == "pass"
            async with hub.database.reading() as connection:
                stored = [entry async for entry in run_rows.iterate_entries(connection, run_id)]
            assert sorted(entry.attempt for entry in stored) == list(range(45)) and all(entry.evidence is not None for entry in stored)

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)
    assert seen and threading.main_thread() not in seen


def test_a_target_that_does_not_open_in_time_fails_its_run(sqlite: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    SlowStart(monkeypatch, "opening", 30)
    monkeypatch.setattr(worker, "OPEN_S", 0.2)

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")
            await asyncio.wait_for(work_once(hub), 20)
            run = await get_run(hub, LOCAL, run_id)
            assert run["status"] == "failed" and "was not open within 0.2 s" in run["error"], run

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_run_in_which_nothing_ends_is_given_up_when_others_wait(sqlite: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("TURN_S", 0.1), ("PATIENCE_S", 0.0), ("LONG_TURN_S", 0.3), ("GOODBYE_S", 0.3)):
        monkeypatch.setattr(worker, name, seconds)

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            agent.slow_s = 30
            stuck = await start(hub, agent, "a")
            await start(hub, agent, "b", caller=Caller(organization_id="org_other"))
            assert await asyncio.wait_for(work_once(hub), 20) == stuck
            run = await get_run(hub, LOCAL, stuck)
            assert run["status"] == "failed" and "no attempt was finished" in run["error"], run

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_run_that_progressed_and_stalled_returns_to_the_queue(sqlite: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("TURN_S", 0.1), ("PATIENCE_S", 0.0), ("GOODBYE_S", 0.3)):
        monkeypatch.setattr(worker, name, seconds)

    async def use(hub: Hub) -> None:
        async def second_hangs(request: ReceivedRequest) -> Reply:
            if request.json["input"] == "a" and agent.times["a"] == 2:
                await asyncio.sleep(60)
            return Reply(body={"text": "hello"})

        async with serve(second_hangs) as server:
            agent = Agent(server)
            long = await start(hub, agent, "a", repeat=2, concurrency=1)
            await start(hub, agent, "b", caller=Caller(organization_id="org_other"))
            assert await asyncio.wait_for(work_once(hub), 20) == long
            run = await get_run(hub, LOCAL, long)
            assert (run["status"], run["finished"], agent.times["a"]) == ("queued", 1, 2), run
            for _ in range(3):
                await work_once(hub)
            run = await get_run(hub, LOCAL, long)
            assert (run["status"], run["counts"]["pass"], agent.times["a"]) == ("completed", 2, 3), run

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_run_that_is_slow_to_begin_gets_something_done_in_every_turn(sqlite: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    SlowStart(monkeypatch, "opening", 0.7)
    monkeypatch.setattr(worker, "TURN_S", 0.0)
    monkeypatch.setattr(worker, "PATIENCE_S", 0.0)

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            slow = await start(hub, agent, "a", repeat=2, concurrency=1)
            for _ in range(4):
                await start(hub, agent, "b", caller=Caller(organization_id="org_other"))
            turns = RunTurns()
            driven: list[str] = []
            while (await row_of(hub, slow))["status"] != "completed":
                driven.append(str(await work_once(hub, None, turns)))
            assert driven.count(slow) <= 3 and agent.times["a"] == 2

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)
