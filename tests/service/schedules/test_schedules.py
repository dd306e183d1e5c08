"""Schedules: one run per due time among any number of servers, whatever dies, races, or happens to the clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from proctor.errors import StoreError
from proctor.service.access.callers import LOCAL
from proctor.service.access.projects import delete_project, pause_project, resume_project, update_project
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.runs import schedules as scheduler
from proctor.service.runs.requests import NewRun, RunSearch, cancel_run, list_runs, start_run
from proctor.service.runs.results import run_report
from proctor.service.runs.run import RunOptions
from proctor.service.runs.schedules import (
    LATE_S,
    NewSchedule,
    TimesRequest,
    create_schedule,
    delete_schedule,
    get_schedule,
    list_schedules,
    preview_times,
    run_now,
    run_schedules,
    start_due_runs,
    update_schedule,
)
from proctor.service.runs.worker import work_once
from proctor.service.traces.cases import NewCase, create_case, delete_case
from proctor.store.sql.tables import runs, schedules
from tests.databases import TestDatabase
from tests.service.agents import LOOPBACK, a_project, suite, working
from tests.service.trace_world import Clock

pytestmark = pytest.mark.timeout(30)
TARGET = {"type": "http", "url": "http://127.0.0.1:9/", "response_path": "text"}
HOUR = 3_600.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


START = at("2026-11-18T10:30")


async def a_schedule(hub: Hub, **more: Any) -> str:
    project = more.pop("project_id", None) or await a_project(hub, targets={"shop": TARGET})
    given: dict[str, Any] = {"name": "nightly", "cron": "@hourly", "run": {"suite": suite("a")}, **more}
    return str((await create_schedule(hub, LOCAL, NewSchedule(project_id=project, **given)))["id"])


async def due_times(hub: Hub, id: str) -> list[str | None]:
    """The due times of the runs, oldest first, without date and seconds."""
    found = (await list_runs(hub, LOCAL, RunSearch(schedule_id=id), limit=100))["data"]
    return [run["due_at"] and run["due_at"][11:16] for run in reversed(found)]


async def end_runs(hub: Hub) -> None:
    async with hub.database.writing() as connection:
        over = {"status": "completed", "outcome": "pass", "completed_at": hub.now()}
        await connection.execute(sa.update(runs).where(runs.c.status == "queued").values(over))


def count_looks(monkeypatch: pytest.MonkeyPatch, failing: int = 0) -> Callable[[int], Awaitable[None]]:
    """Let a scheduler poll constantly and fail at first; return a function that waits for a number of further polls."""
    ended = 0
    start = scheduler.start_due_runs

    async def look(hub: Hub) -> int:
        nonlocal ended
        try:
            if ended < failing:
                raise StoreError("away")
            return await start(hub)
        finally:
            ended += 1

    async def wait(times: int) -> None:
        enough = ended + times
        while ended < enough:
            await asyncio.sleep(0.01)

    monkeypatch.setattr(scheduler, "_LOOK_S", 0.01)
    monkeypatch.setattr(scheduler, "start_due_runs", look)
    return wait


def use_with(database: TestDatabase, use: Any, clock: Clock) -> None:
    database.run_hub(use, clock=clock, allowed_addresses=LOOPBACK)


def test_a_run_is_started_at_each_due_time_and_belongs_to_its_schedule(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        id = await a_schedule(hub, run={"suite": suite("a", "b"), "repeat": 3, "tags": ["smoke"], "selection": "a"})
        assert await start_due_runs(hub) == 0
        clock.now = at("2026-11-18T11:00")
        assert [await start_due_runs(hub), await start_due_runs(hub)] == [1, 0]
        (run,) = (await list_runs(hub, LOCAL, RunSearch(schedule_id=id)))["data"]
        assert (run["schedule_id"], run["due_at"], run["name"], run["tags"]) == (id, "2026-11-18T11:00:00.000Z", "nightly", ["smoke"])
        assert (run["status"], run["repeat"], run["attempts"]) == ("queued", 3, 3)
        assert (await list_runs(hub, LOCAL, RunSearch(name="nightly", status="queued")))["data"] == [run]
        schedule = await get_schedule(hub, LOCAL, id)
        assert schedule["next_at"] == "2026-11-18T12:00:00.000Z" and schedule["missed"] is None
        assert schedule["last_run"] and (schedule["last_run"]["id"], schedule["last_run"]["status"]) == (run["id"], "queued")
        assert await work_once(hub) == run["id"]

    use_with(database, use, clock)


def test_two_servers_that_race_start_one_run(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        ids = [await a_schedule(hub) for _ in range(3)]
        for hour in range(4):
            clock.now = at("2026-11-18T11:00") + hour * HOUR
            assert sum(await asyncio.gather(*(start_due_runs(hub) for _ in range(4)))) == 3
            await end_runs(hub)
        for id in ids:
            assert await due_times(hub, id) == ["11:00", "12:00", "13:00", "14:00"]
            assert (await get_schedule(hub, LOCAL, id))["missed"] is None

    use_with(database, use, clock)


def test_two_servers_with_their_own_connections_race(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        from proctor.store.sql.database import open_database

        id = await a_schedule(hub)
        other = msgspec.structs.replace(hub, database=await open_database(database.url))
        try:
            for hour in range(5):
                clock.now = at("2026-11-18T11:00") + hour * HOUR
                started = await asyncio.gather(start_due_runs(hub), start_due_runs(other))
                assert sorted(started) == [0, 1]
                await end_runs(hub)
        finally:
            await other.database.close()
        assert len(await due_times(hub, id)) == 5

    use_with(database, use, clock)


@pytest.mark.parametrize("place", ["insert_run", "set_last_run"])
def test_a_server_that_dies_between_two_steps_neither_loses_nor_repeats_a_run(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    clock = Clock(START)

    class Death(BaseException):
        """Nothing catches it, as nothing catches `kill -9`."""

    async def die(*given: Any, **named: Any) -> None:
        raise Death

    async def use(hub: Hub) -> None:
        id = await a_schedule(hub)
        clock.now = at("2026-11-18T11:00")
        with monkeypatch.context() as patched:
            patched.setattr(scheduler if place == "insert_run" else scheduler.rows, place, die)
            with pytest.raises(Death):
                await start_due_runs(hub)
        assert await due_times(hub, id) == []
        assert [await start_due_runs(hub), await start_due_runs(hub)] == [1, 0]
        assert await due_times(hub, id) == ["11:00"]

    use_with(database, use, clock)


def test_missed_times_are_reported_once_and_caught_up_by_one_run(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        id = await a_schedule(hub)
        clock.now = at("2026-11-18T15:20")
        assert [await start_due_runs(hub), await start_due_runs(hub)] == [1, 0]
        await end_runs(hub)
        assert await due_times(hub, id) == ["15:00"]
        missed = (await get_schedule(hub, LOCAL, id))["missed"]
        assert missed == {
            "count": 5,
            "since": "2026-11-18T11:00:00.000Z",
            "until": "2026-11-18T15:00:00.000Z",
            "reason": "not_running",
            "run_id": None,
            "reported_at": "2026-11-18T15:20:00.000Z",
        }
        clock.now = at("2026-11-18T16:00")
        assert await start_due_runs(hub) == 1
        assert (await get_schedule(hub, LOCAL, id))["missed"] == missed, "reported once"
        assert (await update_schedule(hub, LOCAL, id, {"overlap": "queue"}))["missed"] is None, "until the schedule changes"

    use_with(database, use, clock)


def test_a_run_that_is_a_little_late_was_not_missed(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        id = await a_schedule(hub)
        clock.now = at("2026-11-18T11:00") + LATE_S
        assert await start_due_runs(hub) == 1
        assert (await get_schedule(hub, LOCAL, id))["missed"] is None

    use_with(database, use, clock)


def test_years_without_a_server_are_counted_up_to_a_limit(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        often, seldom = await a_schedule(hub, cron="* * * * *"), await a_schedule(hub, cron="0 0 1 * *")
        clock.now = at("2126-11-18T15:20:10")
        assert await start_due_runs(hub) == 2
        schedule = await get_schedule(hub, LOCAL, often)
        assert schedule["missed"] and schedule["missed"]["count"] in (999, 1_000)
        assert schedule["last_run"] and schedule["last_run"]["due_at"] == "2126-11-18T15:20:00.000Z"
        assert schedule["next_at"] == "2126-11-18T15:21:00.000Z"
        schedule = await get_schedule(hub, LOCAL, seldom)
        assert schedule["last_run"] and schedule["last_run"]["due_at"] == "2126-11-01T00:00:00.000Z"

    use_with(database, use, clock)


def test_a_clock_that_is_set_back_repeats_no_run(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        id = await a_schedule(hub)
        for text in ("11:00", "12:00"):
            clock.now = at(f"2026-11-18T{text}")
            await start_due_runs(hub)
            await end_runs(hub)
        clock.now = at("2026-11-18T10:59")
        for minute in range(150):
            clock.now = at("2026-11-18T10:59") + 60 * minute
            await start_due_runs(hub)
            await end_runs(hub)
        assert await due_times(hub, id) == ["11:00", "12:00", "13:00"]
        assert (await get_schedule(hub, LOCAL, id))["missed"] is None

    use_with(database, use, clock)


def test_a_due_run_is_skipped_while_the_previous_one_is_going(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        id = await a_schedule(hub)
        for hour in range(3):
            clock.now = at("2026-11-18T11:00") + hour * HOUR
            await start_due_runs(hub)
        assert await due_times(hub, id) == ["11:00"]
        schedule = await get_schedule(hub, LOCAL, id)
        assert schedule["missed"] and schedule["last_run"]
        assert (schedule["missed"]["count"], schedule["missed"]["reason"]) == (2, "overlap")
        assert schedule["missed"]["run_id"] == schedule["last_run"]["id"]
        assert schedule["missed"]["since"][11:16] == "12:00" and schedule["missed"]["until"][11:16] == "13:00"
        await end_runs(hub)
        clock.now = at("2026-11-18T14:00")
        assert await start_due_runs(hub) == 1
        assert await due_times(hub, id) == ["11:00", "14:00"]

    use_with(database, use, clock)


def test_a_queued_run_starts_when_the_previous_one_has_ended(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        id, other = await a_schedule(hub, overlap="queue"), await a_schedule(hub)
        for hour in range(4):
            clock.now = at("2026-11-18T11:00") + hour * HOUR
            await start_due_runs(hub)
        assert await due_times(hub, id) == ["11:00"] == await due_times(hub, other)
        assert (await get_schedule(hub, LOCAL, id))["next_at"] == "2026-11-18T12:00:00.000Z", "it waits"
        clock.now += 60
        await end_runs(hub)
        clock.now += 60
        assert await start_due_runs(hub) == 1
        assert await due_times(hub, id) == ["11:00", "14:00"]
        schedule = await get_schedule(hub, LOCAL, id)
        assert schedule["missed"] and (schedule["missed"]["count"], schedule["missed"]["reason"]) == (2, "overlap")

    use_with(database, use, clock)


def test_a_paused_schedule_and_a_paused_project_start_nothing(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        id, off = await a_schedule(hub), await a_schedule(hub, active=False)
        project = (await get_schedule(hub, LOCAL, id))["project_id"]
        await pause_project(hub, LOCAL, project)
        assert (await get_schedule(hub, LOCAL, off))["next_at"] is None
        for hour in range(2):
            clock.now = at("2026-11-18T11:00") + hour * HOUR
            assert await start_due_runs(hub) == 0
        missed = (await get_schedule(hub, LOCAL, id))["missed"]
        assert missed and (missed["count"], missed["reason"]) == (2, "paused")
        await resume_project(hub, LOCAL, project)
        resumed = await update_schedule(hub, LOCAL, off, {"active": True})
        assert (resumed["next_at"], resumed["missed"]) == ("2026-11-18T13:00:00.000Z", None)
        clock.now = at("2026-11-18T13:00")
        assert await start_due_runs(hub) == 2

    use_with(database, use, clock)


def test_a_run_that_cannot_start_is_a_failed_run_with_its_reason(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        project = await a_project(hub, targets={"shop": TARGET})
        case = await create_case(
            hub, LOCAL, NewCase(project_id=project, document="proctor: 1\ncases: [{id: a, input: hi, expect: [{response_contains: x}]}]")
        )
        gone_target = await a_schedule(hub, project_id=project, run={"suite": suite("a"), "target": "shop"})
        gone_case = await a_schedule(hub, project_id=project, run={"cases": [case["id"]], "target": "shop"})
        await update_project(hub, LOCAL, project, {"settings": {}})
        await delete_case(hub, LOCAL, case["id"])
        clock.now = at("2026-11-18T11:00")
        assert [await start_due_runs(hub), await start_due_runs(hub)] == [2, 0]
        for id, reason in ((gone_target, "no target"), (gone_case, case["id"])):
            schedule = await get_schedule(hub, LOCAL, id)
            last = schedule["last_run"]
            assert last and (last["status"], last["completed_at"]) == ("failed", "2026-11-18T11:00:00.000Z")
            assert reason in (last["error"] or "") and schedule["next_at"] == "2026-11-18T12:00:00.000Z"
            report = json.loads(await run_report(hub, LOCAL, last["id"], "json"))
            assert report["cases"] == []
        # The next run works after the cause is removed.
        await update_project(hub, LOCAL, project, {"settings": {"targets": {"shop": TARGET}}})
        clock.now = at("2026-11-18T12:00")
        assert await start_due_runs(hub) == 2
        last = (await get_schedule(hub, LOCAL, gone_target))["last_run"]
        assert last and last["status"] == "queued"

    use_with(database, use, clock)


def test_a_full_queue_is_a_reason_too(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(START)
    monkeypatch.setattr("proctor.service.runs.requests.MOST_QUEUED", 0)

    async def use(hub: Hub) -> None:
        id = await a_schedule(hub)
        clock.now = at("2026-11-18T11:00")
        assert await start_due_runs(hub) == 1
        last = (await get_schedule(hub, LOCAL, id))["last_run"]
        assert last and "already queued" in (last["error"] or "")

    use_with(database, use, clock)


def test_a_bug_in_one_schedule_stops_no_other(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(START)
    prepare = scheduler.prepare

    async def break_one(hub: Hub, caller: Any, spec: NewRun) -> Any:
        if spec.name == "broken":
            raise RuntimeError("bug")
        return await prepare(hub, caller, spec)

    async def use(hub: Hub) -> None:
        broken, other = await a_schedule(hub, name="broken"), await a_schedule(hub)
        monkeypatch.setattr(scheduler, "prepare", break_one)
        clock.now = at("2026-11-18T11:00")
        assert await start_due_runs(hub) == 1
        assert (await due_times(hub, broken), await due_times(hub, other)) == ([], ["11:00"])

    use_with(database, use, clock)


def test_a_database_that_is_away_is_tried_again(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(START)
    looks = count_looks(monkeypatch, failing=2)

    async def use(hub: Hub) -> None:
        id = await a_schedule(hub)
        clock.now = at("2026-11-18T11:00")
        async with working(run_schedules, hub):
            await looks(4)
        assert await due_times(hub, id) == ["11:00"]

    use_with(database, use, clock)


async def test_it_is_listed_changed_run_by_hand_and_deleted(hub: Hub) -> None:
    hub = msgspec.structs.replace(hub, clock=Clock(START), settings=msgspec.structs.replace(hub.settings, allowed_addresses=LOOPBACK))
    id = await a_schedule(hub, cron="30 2 * * *", timezone="Europe/Berlin")
    whole = await get_schedule(hub, LOCAL, id)
    assert (whole["next_at"], whole["timezone"], whole["overlap"], whole["active"]) == (
        "2026-11-19T01:30:00.000Z",
        "Europe/Berlin",
        "skip",
        True,
    )
    assert whole["run"] == msgspec.to_builtins(RunOptions(suite=suite("a")))
    (listed,) = (await list_schedules(hub, LOCAL, project_id=whole["project_id"]))["data"]
    assert listed == {**whole, "run": msgspec.to_builtins(RunOptions())}
    changed = await update_schedule(hub, LOCAL, id, {"cron": "0 12 * * MON", "name": "weekly", "run": {"suite": suite("b"), "repeat": 2}})
    assert (changed["next_at"], changed["name"], changed["run"]["repeat"]) == ("2026-11-23T11:00:00.000Z", "weekly", 2)
    run = await run_now(hub, LOCAL, id)
    assert (run["schedule_id"], run["due_at"], run["name"], run["attempts"]) == (id, None, "weekly", 2)
    assert (await get_schedule(hub, LOCAL, id))["next_at"] == changed["next_at"]
    await cancel_run(hub, LOCAL, run["id"])
    last = (await get_schedule(hub, LOCAL, id))["last_run"]
    assert last and last["status"] == "cancelled"
    await delete_schedule(hub, LOCAL, id)
    with pytest.raises(Refusal, check=lambda error: error.missing == "schedule"):
        await get_schedule(hub, LOCAL, id)
    assert len((await list_runs(hub, LOCAL))["data"]) == 1, "its runs stay"


async def test_schedules_end_with_their_project(hub: Hub) -> None:
    hub = msgspec.structs.replace(hub, settings=msgspec.structs.replace(hub.settings, allowed_addresses=LOOPBACK))
    project = (await get_schedule(hub, LOCAL, await a_schedule(hub)))["project_id"]
    await delete_project(hub, LOCAL, project)
    async with hub.database.reading() as connection:
        assert (await connection.execute(sa.select(sa.func.count()).select_from(schedules))).scalar_one() == 0


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"cron": "61 * * * *"}, {"cron": "minute: expected 0 to 59"}),
        ({"cron": "x", "timezone": "Europe/Berln"}, {"cron": "expected 5 fields", "timezone": "nearest: Europe/Berlin"}),
        ({"name": "a/b"}, {"name": "slash"}),
        ({"name": " "}, {"name": "1 to 100"}),
        ({"name": "latest"}, {"name": "latest"}),
        ({"run": {}}, {"run.suite": "expected either"}),
        ({"run": {"suite": suite("a"), "target": "gone"}}, {"run.target": "gone"}),
        ({"run": {"suite": suite("a"), "repeat": 0}}, {"run.repeat": "1 to"}),
        ({"run": {"suite": suite("a"), "repeat": "often"}}, {"run.repeat": "int"}),
        ({"run": {"suite": suite("a"), "repeats": 3}}, {"run.repeats": "unknown; expected one of suite"}),
        ({"run": {"suite": suite("a"), "selection": "nothing"}}, {"run.selection": "no case"}),
    ],
)
async def test_a_schedule_that_could_not_run_is_refused(hub: Hub, given: dict[str, Any], fields: dict[str, str]) -> None:
    hub = msgspec.structs.replace(hub, settings=msgspec.structs.replace(hub.settings, allowed_addresses=LOOPBACK))
    with pytest.raises(Refusal) as caught:
        await a_schedule(hub, **given)
    assert set(caught.value.fields) == set(fields)
    for name, text in fields.items():
        assert text in caught.value.fields[name][0]


async def test_the_next_times_are_shown_before_anything_is_stored(hub: Hub) -> None:
    hub = msgspec.structs.replace(hub, clock=Clock(at("2027-03-27T12:00")))
    found = await preview_times(hub, LOCAL, TimesRequest(cron="30 2 * * *", timezone="Europe/Berlin", count=2))
    assert found == {
        "times": [
            {"at": "2027-03-28T01:00:00.000Z", "local": "2027-03-28T03:00+02:00"},
            {"at": "2027-03-29T00:30:00.000Z", "local": "2027-03-29T02:30+02:00"},
        ]
    }
    with pytest.raises(Refusal):
        await preview_times(hub, LOCAL, TimesRequest(cron="30 2 * * *", count=51))


async def test_a_change_of_nothing_keeps_a_due_time(hub: Hub) -> None:
    clock = Clock(START)
    hub = msgspec.structs.replace(hub, clock=clock, settings=msgspec.structs.replace(hub.settings, allowed_addresses=LOOPBACK))
    id = await a_schedule(hub)
    clock.now = at("2026-11-18T11:00:01")
    await update_schedule(hub, LOCAL, id, {"active": True, "cron": "@hourly", "name": "other"})
    assert await start_due_runs(hub) == 1
    assert await due_times(hub, id) == ["11:00"]


async def test_other_runs_belong_to_no_schedule(hub: Hub) -> None:
    hub = msgspec.structs.replace(hub, settings=msgspec.structs.replace(hub.settings, allowed_addresses=LOOPBACK))
    project = await a_project(hub, targets={"shop": TARGET})
    run = await start_run(hub, LOCAL, NewRun(project_id=project, suite=suite("a")))
    assert (run["schedule_id"], run["due_at"]) == (None, None)
