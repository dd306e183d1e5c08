"""Runs: queued, taken by one worker, completed even if workers die, each attempt stored once."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.errors import StoreError
from proctor.model.evidence import Evidence
from proctor.model.run import RunEntry
from proctor.model.verdict import TextRange
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.projects import delete_project, update_project
from proctor.service.access.secrets import set_secret
from proctor.service.hub import Hub, new_id
from proctor.service.refusals import Refusal
from proctor.service.runs.comparisons import compare_runs
from proctor.service.runs.requests import NewRun, RunSearch, cancel_run, get_run, list_runs, start_run
from proctor.service.runs.results import (
    REPORTS,
    AttemptFilter,
    ReadResult,
    events,
    find_last_event,
    get_run_result,
    list_run_results,
    run_report,
    show_run_result,
)
from proctor.service.runs.worker import Cleaner, make_range_finder, run_worker, work_once
from proctor.service.traces.cases import NewCase, create_case
from proctor.store.runs.run_rows import LeaseLost, RunLease, RunRows, claim_run, iterate_entries, list_done_attempts, list_events_after
from proctor.store.sql.tables import run_entries, runs
from tests.databases import TestDatabase
from tests.service.agents import LOOPBACK, Agent, a_project, an_agent, suite, until, working
from tests.users.talks import reply

WATCHES: dict[str, Any] = {"on_written": lambda: None, "find_ranges": make_range_finder(())}


async def start(hub: Hub, agent: Agent, *ids: str, project: str | None = None, **more: Any) -> str:
    place = project or await a_project(hub, targets={"shop": agent.target})
    return str((await start_run(hub, LOCAL, NewRun(project_id=place, suite=suite(*ids), **more)))["id"])


async def kinds(hub: Hub, run_id: str) -> list[str]:
    async with hub.database.reading() as connection:
        found = await list_events_after(connection, run_id, 0, limit=1000)
    assert [row["number"] for row in found] == list(range(1, len(found) + 1))
    return [row["kind"] for row in found]


async def attempts(hub: Hub, run_id: str) -> list[tuple[str, int]]:
    async with hub.database.reading() as connection:
        return sorted(await list_done_attempts(connection, run_id))


async def expire(hub: Hub, run_id: str) -> None:
    async with hub.database.writing() as connection:
        await connection.execute(sa.update(runs).where(runs.c.id == run_id).values(leased_until=hub.clock() - 1))


def test_a_run_is_driven_to_its_end_and_everything_is_stored(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a", "b", repeat=2, note="first")
            queued = await get_run(hub, LOCAL, run_id)
            assert (queued["status"], queued["attempts"], queued["finished"], queued["target"]) == ("queued", 4, 0, "shop")
            assert await work_once(hub) == run_id
            run = await get_run(hub, LOCAL, run_id)
            assert (run["status"], run["outcome"], run["finished"], run["note"]) == ("completed", "pass", 4, "first")
            assert run["counts"] == {"pass": 4, "fail": 0, "error": 0, "skip": 0}
            assert agent.times == {"a": 2, "b": 2}
            assert await attempts(hub, run_id) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
            received = await kinds(hub, run_id)
            assert received[:2] == ["queued", "running"] and received[-1] == "completed"
            assert Counter(received) == {"queued": 1, "running": 1, "started": 4, "finished": 4, "completed": 1}
            assert await work_once(hub) is None
            assert hub.counters.read()["runs_finished"] == 1

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_simulated_user_talks_to_the_agent(database: TestDatabase) -> None:
    replies = [{"text": reply(say).text, "usage": {"total_tokens": 5}} for say in ("one", "two", "three")]
    document = suite("a", models={"person": {"provider": "scripted", "replies": replies}})
    document["cases"] = [
        {
            "id": "model",
            "user": {"goal": "to hear two", "model": "person", "stop_when": {"response_contains": "two"}},
            "expect": ["goal_reached"],
        },
        {"id": "script", "user": {"script": ["four"], "stop_when": {"response_contains": "five"}}, "expect": ["goal_reached"]},
    ]

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            project = await a_project(hub, targets={"shop": agent.target})
            run_id = (await start_run(hub, LOCAL, NewRun(project_id=project, suite=document)))["id"]
            await work_once(hub)
            assert agent.times == {"one": 1, "two": 1, "four": 1}
            model, script = json.loads(await run_report(hub, LOCAL, run_id, "json"))["cases"]
            assert (model["outcome"], model["simulated_user"]["ended"], model["simulated_user"]["usage"]) == (
                "pass",
                "done",
                {"total_tokens": 10},
            )
            assert (script["outcome"], script["simulated_user"]["ended"]) == ("fail", "gave_up")

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_failing_case_fails_the_run(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            agent.answer = "goodbye {}"
            run_id = await start(hub, agent, "a")
            await work_once(hub)
            run = await get_run(hub, LOCAL, run_id)
            assert (run["status"], run["outcome"], run["counts"]["fail"]) == ("completed", "fail", 1)
            page = await list_run_results(hub, LOCAL, run_id)
            whole = await get_run_result(hub, LOCAL, run_id, page["data"][0]["id"])
            assert "goodbye a" in whole["result"]["assertions"][0]["reason"]
            assert whole["evidence"]["text"] == "goodbye a"

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_run_of_a_dead_worker_is_resumed_without_repeating_attempts(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            agent.slow_s = 0.05
            run_id = await start(hub, agent, "a", "b", "c", repeat=4, concurrency=1)
            dying = asyncio.create_task(work_once(hub))
            await until(hub, run_id, lambda run: run["finished"] >= 3)
            # As a killed process: it neither releases the run nor records anything.
            await _drop(dying)
            before = await attempts(hub, run_id)
            assert (await get_run(hub, LOCAL, run_id))["status"] == "running" and 3 <= len(before) < 12
            assert await work_once(hub) is None, "the lease holds"
            await expire(hub, run_id)
            assert await work_once(hub) == run_id
            assert (await get_run(hub, LOCAL, run_id))["counts"]["pass"] == 12
            assert len(await attempts(hub, run_id)) == 12
            # Only attempts in progress when the worker died were repeated.
            assert 12 <= sum(agent.times.values()) <= 13
            assert (await kinds(hub, run_id)).count("finished") == 12

    database.run_hub(use, allowed_addresses=LOOPBACK)


async def _drop(task: asyncio.Task[Any]) -> None:
    """End a worker so that it cannot say goodbye."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_of_many_workers_one_gets_a_run(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            project = await a_project(hub, targets={"shop": agent.target})
            ids = {await start(hub, agent, "a", "b", project=project) for _ in range(6)}
            other = Hub(database=hub.database, settings=hub.settings)
            async with working(run_worker, hub), working(run_worker, other):
                for run_id in ids:
                    await until(hub, run_id, lambda run: run["status"] == "completed")
            assert agent.times == {"a": 6, "b": 6}

    database.run_hub(use, allowed_addresses=LOOPBACK, workers=3)


def test_a_run_is_claimed_once_however_many_ask_at_the_same_moment(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")

        async def ask(owner: str) -> str | None:
            async with hub.database.writing() as connection:
                row = await claim_run(connection, owner=owner, now=hub.clock(), lease_s=30, at=hub.now())
            return None if row is None else row["id"]

        found = await asyncio.gather(*(ask(f"w{number}") for number in range(8)))
        assert [id for id in found if id is not None] == [run_id]

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_runs_wait_while_their_project_is_paused(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            project = await a_project(hub, targets={"shop": agent.target})
            run_id = await start(hub, agent, "a", project=project)
            await update_project(hub, LOCAL, project, {"paused": True})
            assert await work_once(hub) is None
            with pytest.raises(Refusal, check=lambda error: error.code == "CONFLICT"):
                await start(hub, agent, "a", project=project)
            await update_project(hub, LOCAL, project, {"paused": False})
            assert await work_once(hub) == run_id

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_worker_without_its_lease_can_write_nothing(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")

        async def rows(owner: str) -> RunRows:
            async with hub.database.writing() as connection:
                assert await claim_run(connection, owner=owner, now=hub.clock(), lease_s=30, at=hub.now()) is not None
            parts: dict[str, Any] = {"clock": hub.clock, "now": hub.now, "new_id": new_id, "clean": Cleaner(()), **WATCHES}
            return RunRows(hub.database, RunLease(run_id=run_id, owner=owner, lasts_s=30), **parts)

        first = await rows("first")
        await first.append(RunEntry(case="a", outcome="pass"))
        await first.append(RunEntry(case="a", outcome="fail"))
        async with hub.database.reading() as connection:
            outcomes = [entry.outcome async for entry in iterate_entries(connection, run_id)]
        assert outcomes == ["pass"], "an attempt is stored once"
        await expire(hub, run_id)
        second = await rows("second")
        with pytest.raises(LeaseLost):
            await first.append(RunEntry(case="b", outcome="pass"))
        await second.append(RunEntry(case="c", outcome="pass"))
        await second.wait_until_written()
        assert await attempts(hub, run_id) == [("a", 0), ("c", 0)]
        assert (await get_run(hub, LOCAL, run_id))["counts"]["pass"] == 2

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_run_that_ends_its_workers_is_given_up(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")
            for number in range(5):
                async with hub.database.writing() as connection:
                    assert await claim_run(connection, owner=f"w{number}", now=hub.clock(), lease_s=-1, at=hub.now()) is not None
            assert await work_once(hub) == run_id
            run = await get_run(hub, LOCAL, run_id)
            assert run["status"] == "failed" and "started 5 times" in run["error"] and not agent.times

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_run_that_waits_is_cancelled_at_once(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")
            assert (await cancel_run(hub, LOCAL, run_id))["status"] == "cancelled"
            assert (await cancel_run(hub, LOCAL, run_id))["status"] == "cancelled"
            assert await work_once(hub) is None
            assert await kinds(hub, run_id) == ["queued", "cancelled"]
            assert not agent.times

    database.run_hub(use, allowed_addresses=LOOPBACK)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_that_goes_on_is_cancelled_within_a_second(elsewhere: bool, database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a", "b", "c", concurrency=1, repeat=100)
            # Of another process only the database is known.
            asker = Hub(database=hub.database, settings=hub.settings) if elsewhere else hub
            async with working(run_worker, hub):
                await until(hub, run_id, lambda run: run["finished"] >= 2)
                agent.slow_s = 30.0
                began = time.monotonic()
                assert (await cancel_run(asker, LOCAL, run_id))["cancel_requested"]
                run = await until(hub, run_id, lambda run: run["status"] == "cancelled", within_s=3)
                assert time.monotonic() - began < 5.0
            assert run["finished"] >= 2 and run["outcome"] is None
            received = await kinds(hub, run_id)
            assert "cancelling" in received and received[-1] == "cancelled"
            assert len(await attempts(hub, run_id)) == run["finished"]

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_run_whose_worker_is_gone_can_still_be_cancelled(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")
            async with hub.database.writing() as connection:
                await claim_run(connection, owner="gone", now=hub.clock(), lease_s=-1, at=hub.now())
            assert (await cancel_run(hub, LOCAL, run_id))["status"] == "cancelled"
            assert await work_once(hub) is None

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_service_that_stops_gives_its_runs_back(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            agent.slow_s = 0.02
            run_id = await start(hub, agent, "a", "b", "c", repeat=10, concurrency=1)
            async with working(run_worker, hub):
                await until(hub, run_id, lambda run: run["finished"] >= 3)
            run = await get_run(hub, LOCAL, run_id)
            assert run["status"] == "queued" and 3 <= run["finished"] < 30
            assert "waiting" in await kinds(hub, run_id)
            assert await work_once(hub) == run_id
            assert (await get_run(hub, LOCAL, run_id))["counts"]["pass"] == 30
            assert 30 <= sum(agent.times.values()) <= 31

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_lease_is_renewed_as_long_as_the_agent_takes(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            agent.slow_s = 1.5
            run_id = await start(hub, agent, "a")
            async with working(run_worker, hub), working(run_worker, Hub(database=hub.database, settings=hub.settings)):
                run = await until(hub, run_id, lambda run: run["status"] == "completed")
            assert run["counts"]["pass"] == 1 and agent.times == {"a": 1}

    database.run_hub(use, allowed_addresses=LOOPBACK, lease_s=0.6)


def test_results_lost_with_the_database_are_repeated_by_the_next_worker(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a", "b", concurrency=1)

            async def gone(*words: object, **more: object) -> None:
                raise StoreError("the database cannot be used: gone")

            with monkeypatch.context() as broken:
                broken.setattr(RunRows, "_write_batch", gone)
                with pytest.raises(StoreError, match="gone"):
                    await work_once(hub)
            assert (await get_run(hub, LOCAL, run_id))["status"] == "running"
            await expire(hub, run_id)
            assert await work_once(hub) == run_id
            assert (await get_run(hub, LOCAL, run_id))["counts"]["pass"] == 2

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_deleting_a_project_ends_its_runs(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            project = await a_project(hub, targets={"shop": agent.target})
            run_id = await start(hub, agent, "a", "b", project=project, repeat=1000, concurrency=1)
            working_on = asyncio.create_task(work_once(hub))
            await until(hub, run_id, lambda run: run["finished"] >= 1)
            await delete_project(hub, LOCAL, project)
            assert await asyncio.wait_for(working_on, 5) == run_id
            async with hub.database.reading() as connection:
                assert (await connection.execute(sa.select(sa.func.count()).select_from(run_entries))).scalar_one() == 0

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_judge_answers_are_deleted_with_their_project(database: TestDatabase, caplog: pytest.LogCaptureFixture) -> None:
    async def use(hub: Hub) -> None:
        paths = [database.home / "projects" / await a_project(hub) / "judge" / "ab" / "c.json" for _ in range(2)]
        for path in paths:
            path.parent.mkdir(parents=True)
            path.write_bytes(b"{}")
        gone = paths[0].parents[2]
        await delete_project(hub, LOCAL, gone.name)
        assert not gone.exists() and paths[1].exists()
        await delete_project(hub, LOCAL, await a_project(hub))
        assert not caplog.records
        stuck = await a_project(hub)
        (database.home / "projects" / stuck).write_bytes(b"no folder")
        await delete_project(hub, LOCAL, stuck)
        assert [record.message for record in caplog.records] == ["the judge's cache of a deleted project could not be deleted"]
        with pytest.raises(Refusal, check=lambda error: error.missing == "project"):
            await delete_project(hub, LOCAL, "../projects/" + paths[1].parents[2].name)
        assert paths[1].exists()

    caplog.set_level("WARNING", "proctor.serve")
    database.run_hub(use)


def test_cases_of_the_project_can_be_run_by_their_ids(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            project = await a_project(hub, targets={"shop": agent.target})
            made = [await create_case(hub, LOCAL, NewCase(project_id=project, document=suite("a"), name=name)) for name in ("one", "two")]
            run = await start_run(hub, LOCAL, NewRun(project_id=project, cases=[case["id"] for case in made]))
            await work_once(hub)
            assert await attempts(hub, run["id"]) == [("a", 0), ("two/a", 0)]
            assert (await get_run(hub, LOCAL, run["id"]))["outcome"] == "pass"
            with pytest.raises(Refusal, match="no case"):
                await start_run(hub, LOCAL, NewRun(project_id=await a_project(hub), cases=[made[0]["id"]], target=agent.target))

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_only_chosen_cases_are_run(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "apple", "pear", "plum", selection="p and not plum")
            await work_once(hub)
            assert agent.times == {"apple": 1, "pear": 1}
            for selection in ("nothing", "(", "x" * 5000):
                with pytest.raises(Refusal) as refused:
                    await start(hub, agent, "apple", selection=selection)
                assert list(refused.value.fields) == ["selection"]
            assert (await get_run(hub, LOCAL, run_id))["selection"] == "p and not plum"

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_secrets_of_the_project_are_used_and_never_stored(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_ONLY", "the-service's-own-secret")

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            agent.answer = "hello {}, your token is plainwords-in-here and your password: \ud800"
            project = await a_project(hub)
            await set_secret(hub, LOCAL, project, "SHOP", "plainwords-in-here")
            target = {**agent.target, "auth": {"type": "bearer", "token": "${SHOP}"}}
            run = await start_run(hub, LOCAL, NewRun(project_id=project, suite=suite("a"), target=target))
            await work_once(hub)
            assert agent.server.requests[0].headers["authorization"] == "Bearer plainwords-in-here"
            page = await list_run_results(hub, LOCAL, run["id"])
            whole = await get_run_result(hub, LOCAL, run["id"], page["data"][0]["id"])
            assert whole["outcome"] == "pass" and "plainwords" not in str(whole)
            for format in REPORTS:
                assert b"plainwords" not in await run_report(hub, LOCAL, run["id"], format)
            assert len((await list_run_results(hub, LOCAL, run["id"], AttemptFilter(text="YOUR Token")))["data"]) == 1
            assert not (await list_run_results(hub, LOCAL, run["id"], AttemptFilter(text="plainwords")))["data"]
            with pytest.raises(Refusal) as refused:
                own = {**agent.target, "auth": {"type": "bearer", "token": "${SERVER_ONLY}"}}
                await start_run(hub, LOCAL, NewRun(project_id=project, suite=suite("a"), target=own))
            assert "the project has no secret SERVER_ONLY" in str(refused.value.fields)

    database.run_hub(use, allowed_addresses=LOOPBACK)


async def test_an_address_that_turns_out_to_be_private_is_refused_when_it_is_reached(hub: Hub) -> None:
    async with an_agent() as agent:
        project = await a_project(hub)
        await set_secret(hub, LOCAL, project, "WHERE", agent.url)
        run = await start_run(hub, LOCAL, NewRun(project_id=project, suite=suite("a"), target={"type": "http", "url": "${WHERE}"}))
        await work_once(hub)
        page = await list_run_results(hub, LOCAL, run["id"])
        assert page["data"][0]["code"] == "address_refused" and "--allowed-address" in page["data"][0]["reason"]
        assert not agent.times


def test_two_runs_are_compared_and_reported(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            project = await a_project(hub, targets={"shop": agent.target})
            base = await start(hub, agent, "a", "b", project=project, repeat=8)
            await work_once(hub)
            agent.answer = "goodbye {}"
            candidate = await start(hub, agent, "a", "b", project=project, repeat=8)
            await work_once(hub)
            found = await compare_runs(hub, LOCAL, candidate, base)
            assert found["comparison"]["verdict"] == "regressed"
            assert (found["base"]["run_id"], found["candidate"]["run_id"]) == (base, candidate)
            for format in REPORTS:
                assert (b"greetings" if format == "html" else b"goodbye") in await run_report(hub, LOCAL, candidate, format), format
            with pytest.raises(Refusal, check=lambda error: error.missing == "run"):
                await compare_runs(hub, LOCAL, candidate, "run_none")

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_results_come_in_pages_and_can_be_narrowed(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a", "b", "c", repeat=4)
            await work_once(hub)
            seen: list[tuple[str, int]] = []
            cursor: str | None = None
            while True:
                page = await list_run_results(hub, LOCAL, run_id, limit=5, cursor=cursor)
                seen += [(row["case"], row["attempt"]) for row in page["data"]]
                cursor = page["_meta"]["next"]
                if cursor is None:
                    break
            assert sorted(seen) == await attempts(hub, run_id)
            assert len((await list_run_results(hub, LOCAL, run_id, AttemptFilter(case="b")))["data"]) == 4
            assert not (await list_run_results(hub, LOCAL, run_id, AttemptFilter(outcome="fail")))["data"]
            assert [run["id"] for run in (await list_runs(hub, LOCAL, RunSearch(status="completed")))["data"]] == [run_id]

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_other_organizations_see_nothing(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")
        other = Caller(organization_id="org_other")
        assert not (await list_runs(hub, other))["data"]
        for ask in (get_run, cancel_run, list_run_results):
            with pytest.raises(Refusal) as refused:
                await ask(hub, other, run_id)
            assert refused.value.code == "NOT_FOUND"
        one_agent = Caller(organization_id=LOCAL.organization_id, kind="project", project_id="p", agent_ids=("x",))
        with pytest.raises(Refusal, check=lambda error: error.code == "FORBIDDEN"):
            await get_run(hub, one_agent, run_id)

    database.run_hub(use, allowed_addresses=LOOPBACK)


# --- events -------------------------------------------------------------------------------------------------------------------------------


async def collected(stream: AsyncIterator[dict[str, Any] | None]) -> list[dict[str, Any]]:
    return [event async for event in stream if event is not None]


def never() -> bool:
    return False


def test_events_are_streamed_as_they_happen_and_can_be_resumed_anywhere(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a", "b")
            whole = asyncio.create_task(collected(events(hub, run_id, 0, stopping=never)))
            await asyncio.sleep(0)
            await work_once(hub)
            received = await asyncio.wait_for(whole, 5)
            assert received[-1]["kind"] == "completed" and received[-1]["counts"] == {"pass": 2}
            later = await collected(events(hub, run_id, 4, stopping=never))
            assert later == received[4:] and later[0]["id"] == 5
            assert await collected(events(hub, run_id, received[-1]["id"], stopping=never)) == []

    database.run_hub(use, allowed_addresses=LOOPBACK)


async def test_the_last_event_of_a_run_is_found_by_a_word_that_means_it(hub: Hub) -> None:
    project = await a_project(hub, targets={"shop": {"type": "http", "url": "https://shop.example.com"}})
    run_id = (await start_run(hub, LOCAL, NewRun(project_id=project, suite=suite("a"), name="nightly")))["id"]
    assert {await find_last_event(hub, LOCAL, word) for word in (run_id, "latest", "nightly")} == {(run_id, 1)}


@pytest.mark.timeout(60)
def test_a_slow_reader_delays_no_one_and_misses_nothing(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a", "b", repeat=100, concurrency=8)
            stream = events(hub, run_id, 0, stopping=never)
            first = await anext(stream)
            # No event is read during the run; it completes anyway.
            await asyncio.wait_for(work_once(hub), 20)
            rest = await collected(stream)
            assert first is not None and [event["id"] for event in (first, *rest)] == list(range(1, len(rest) + 2))
            assert Counter(event["kind"] for event in rest)["finished"] == 200

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_quiet_stream_beats_and_ends_when_the_service_stops(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")
        stop = asyncio.Event()
        stream = events(hub, run_id, 0, stopping=stop.is_set, beat_every_s=0.05)
        assert (await anext(stream) or {})["kind"] == "queued"
        assert await asyncio.wait_for(anext(stream), 2) is None
        stop.set()
        assert await collected(stream) == []

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_the_shown_part_of_a_very_long_answer_is_stored_separately(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            agent.answer = "x" * 600_000 + " hello {} " + "y" * 600_000
            run_id = await start(hub, agent, "a")
            assert await work_once(hub) == run_id
        (result,) = (await list_run_results(hub, LOCAL, run_id))["data"]
        whole = await get_run_result(hub, LOCAL, run_id, result["id"])
        async with hub.database.writing() as connection:
            await connection.execute(sa.update(run_entries).where(run_entries.c.run_id == run_id).values(body=b"spoiled"))

        def write(read: ReadResult) -> dict[str, Any]:
            assert read.entry.evidence is not None and read.entry.evidence.text is not None
            return {
                "length": len(read.entry.evidence.text),
                "ranges": read.result.ranges,
                "text": read.entry.evidence.text[600_001:600_006],
            }

        shown = await show_run_result(hub, LOCAL, run_id, result["id"], view="v", write=write)
        assert shown == {"length": len(whole["evidence"]["text"]), "ranges": ((TextRange("$.text", 600_001, 600_006),),), "text": "hello"}

    database.run_hub(use, allowed_addresses=LOOPBACK)


def test_any_answer_of_an_agent_can_be_stored_and_read_again(database: TestDatabase) -> None:
    odd: dict[str, Any] = {"half": "\ud800", "nul": "a\0b", "large": 10**40, "none": float("nan"), "password": "hunter2-hunter2"}

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run_id = await start(hub, agent, "a")
        async with hub.database.writing() as connection:
            assert await claim_run(connection, owner="me", now=hub.clock(), lease_s=30, at=hub.now()) is not None
        parts: dict[str, Any] = {"clock": hub.clock, "now": hub.now, "new_id": new_id, "clean": Cleaner(("sesame-open",)), **WATCHES}
        rows = RunRows(hub.database, RunLease(run_id=run_id, owner="me", lasts_s=30), **parts)
        evidence = Evidence(body=odd, text='say "sesame-open"')
        await rows.append(RunEntry(case="a\ud800", outcome="error", evidence=evidence, reason="sesame-open\0\udc00"))
        page = await list_run_results(hub, LOCAL, run_id)
        whole = await get_run_result(hub, LOCAL, run_id, page["data"][0]["id"])
        assert whole["evidence"]["text"] == 'say "[redacted]"'
        assert whole["evidence"]["body"]["large"] == 10**40 and whole["evidence"]["body"]["none"] is None
        assert "hunter2" not in str(whole) and "sesame" not in str(whole)

    database.run_hub(use, allowed_addresses=LOOPBACK)
