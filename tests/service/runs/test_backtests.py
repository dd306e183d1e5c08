"""Backtests: a case on stored traces, as a run that is resumed, cancelled and read like any other."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from proctor.errors import StoreError
from proctor.service.access import agents, projects
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.runs import backtest, backtest_runner, worker
from proctor.service.runs.requests import NewBacktest, cancel_run, get_run, list_runs, start_backtest
from proctor.service.runs.results import events, list_run_results, read_run_result, run_report
from proctor.service.runs.worker import run_worker, work_once
from proctor.service.traces.case_history import list_run_history
from proctor.service.traces.cases import NewCase, create_case
from proctor.store.sql.compressed_json import from_json, pack
from proctor.store.sql.tables import results, runs, traces
from tests.databases import TestDatabase
from tests.service.agents import until, working

SUITE = {"proctor": 1, "name": "manners", "cases": [{"id": "greets", "expect": [{"response_contains": "hello"}]}]}
JUDGED = {"proctor": 1, "cases": [{"id": "kind", "expect": [{"judged": {"criteria": "is kind"}}]}]}


async def a_world(hub: Hub, document: Any = SUITE, **case: Any) -> tuple[str, str, str]:
    """A project, an agent and a paused case of it."""
    project = str((await projects.create_project(hub, LOCAL, projects.NewProject(name="p")))["id"])
    agent = str((await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project, name="a")))["id"])
    spec = NewCase(project_id=project, document=document, active=False, **case)
    return project, agent, str((await create_case(hub, LOCAL, spec))["id"])


async def add_trace(hub: Hub, project: str, agent: str, number: int, output: str = "hello", **more: Any) -> str:
    at = f"2026-11-01T09:{number // 60:02}:{number % 60:02}.000Z"
    row: dict[str, Any] = {"id": f"trc_{number:04}", "organization_id": LOCAL.organization_id, "project_id": project, "agent_id": agent}
    row |= {"external_id": f"x{number}", "format": "mibo", "status": "evaluated", "body": pack({"data": {"output": output}})}
    async with hub.database.writing() as connection:
        await connection.execute(traces.insert().values(**{**row, "created_at": at, "updated_at": at, **more}))
    return row["id"]


async def list_decided(hub: Hub, run_id: str) -> list[tuple[str, str, str]]:
    """Trace, case and outcome of every attempt, in the order of their numbers."""
    page = await list_run_results(hub, LOCAL, run_id, limit=100)
    found: list[tuple[str, int, str, str]] = []
    for row in page["data"]:
        read = await read_run_result(hub, LOCAL, run_id, row["id"])
        assert read.entry.evidence is not None
        found.append((row["case"], row["attempt"], str(read.entry.evidence.metadata[backtest_runner.TRACE_KEY]), row["outcome"]))
    return [(trace, case, outcome) for case, _, trace, outcome in sorted(found)]


def test_a_paused_case_is_decided_on_every_stored_trace_it_is_about(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        project, agent, case = await a_world(hub, when={"metadata": {"env": "prod"}})
        prod: dict[str, Any] = {"metadata": {"env": "prod"}}
        await add_trace(hub, project, agent, 1, "hello you", **prod)
        await add_trace(hub, project, agent, 2, "go away", **prod)
        await add_trace(hub, project, agent, 3, metadata={"env": "test"})
        await add_trace(hub, project, agent, 4, status="open", **prod)
        await add_trace(hub, project, agent, 5, size=2_000_000, **prod)
        run = await start_backtest(hub, LOCAL, case, NewBacktest(name="before", tags=["try"]))
        assert (run["status"], run["target"], run["attempts"]) == ("queued", "stored traces", 5)
        await add_trace(hub, project, agent, 6, "came later", created_at="2999-01-01T00:00:00.000Z", **prod)
        assert await work_once(hub) == run["id"]
        done: Any = await get_run(hub, LOCAL, str(run["id"]))
        assert (done["status"], done["outcome"], done["attempts"]) == ("completed", "fail", 3), done
        assert done["counts"] == {"pass": 1, "fail": 1, "error": 1, "skip": 0}
        figures = done["backtest"]
        assert (figures["case_id"], figures["version"], figures["traces"], figures["looked_at"]) == (case, 1, 5, 5)
        assert figures["left_out"] == {"still_open": 1, "not_chosen": 1, "no_run": 0, "other_case": 0}
        # Newest first.
        assert await list_decided(hub, done["id"]) == [
            ("trc_0005", "greets", "error"), ("trc_0002", "greets", "fail"), ("trc_0001", "greets", "pass"),
        ]  # fmt: skip
        report = from_json(await run_report(hub, LOCAL, done["id"], "json"))
        assert report["counts"]["fail"] == 1 and report.get("incomplete") is None
        (row,) = (await list_run_history(hub, LOCAL, case))["data"]
        assert row["run_id"] == done["id"] and row["flaky"] is False
        assert (await list_runs(hub, LOCAL))["data"][0]["name"] == "before"
        async with hub.database.reading() as connection:
            # It stores no results of traces: the case is not active yet.
            assert (await connection.execute(sa.select(sa.func.count()).select_from(results))).scalar_one() == 0

    database.run_hub(use)


def test_a_backtest_that_decided_nothing_has_not_passed(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        project, agent, case = await a_world(hub, when={"tags": ["never"]})
        await add_trace(hub, project, agent, 1)
        run = await start_backtest(hub, LOCAL, case, NewBacktest())
        await work_once(hub)
        done: Any = await get_run(hub, LOCAL, str(run["id"]))
        assert (done["status"], done["outcome"], done["attempts"]) == ("completed", "error", 0)

    database.run_hub(use)


def test_of_many_traces_the_newest_in_the_requested_period_are_used(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        project, agent, case = await a_world(hub)
        for number in range(50):
            await add_trace(hub, project, agent, number)
        spec = NewBacktest(since="2026-11-01T09:00:10Z", until="2026-11-01T09:00:40Z", limit=25)
        run = await start_backtest(hub, LOCAL, case, spec)
        await work_once(hub)
        assert [trace for trace, _, _ in await list_decided(hub, str(run["id"]))] == [f"trc_{n:04}" for n in range(39, 14, -1)]

    database.run_hub(use)


@pytest.mark.parametrize("dies", ["before the results are stored", "between results and progress"])
def test_a_backtest_that_is_taken_up_again_decides_every_trace_once(
    dies: str, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backtest, "STEP", 3)
    place = "keep_settings" if "progress" in dies else "make_entry"
    real, calls = getattr(backtest_runner, place), 0

    def break_off(*words: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == (2 if place == "keep_settings" else 5):
            raise StoreError("the database is gone")
        return real(*words, **more)

    monkeypatch.setattr(backtest_runner, place, break_off)

    async def use(hub: Hub) -> None:
        two = {"proctor": 1, "cases": [{"id": name, "expect": [{"response_contains": "hello"}]} for name in ("a", "b")]}
        project, agent, case = await a_world(hub, two)
        for number in range(8):
            await add_trace(hub, project, agent, number, status="open" if number == 7 else "evaluated")
        run = await start_backtest(hub, LOCAL, case, NewBacktest())
        with pytest.raises(StoreError):
            await work_once(hub)
        async with hub.database.writing() as connection:
            await connection.execute(sa.update(runs).values(leased_until=0.0))
        await work_once(hub)
        done: Any = await get_run(hub, LOCAL, str(run["id"]))
        assert (done["status"], done["outcome"], done["attempts"]) == ("completed", "pass", 14), done
        assert done["backtest"]["looked_at"] == 8 and done["backtest"]["left_out"]["still_open"] == 1
        decided = await list_decided(hub, done["id"])
        assert sorted(decided) == [(f"trc_{n:04}", name, "pass") for n in range(7) for name in ("a", "b")]

    database.run_hub(use)


def test_a_backtest_is_cancelled_and_keeps_what_it_has(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtest, "STEP", 2)
    monkeypatch.setattr(backtest_runner, "REST", 1e9)

    async def use(hub: Hub) -> None:
        project, agent, case = await a_world(hub)
        for number in range(6):
            await add_trace(hub, project, agent, number)
        run_id = str((await start_backtest(hub, LOCAL, case, NewBacktest()))["id"])
        async with working(run_worker, hub):
            await until(hub, run_id, lambda run: run["finished"] == 2 and run["backtest"]["looked_at"] == 2)
            await cancel_run(hub, LOCAL, run_id)
            await until(hub, run_id, lambda run: run["status"] == "cancelled")
        report = from_json(await run_report(hub, LOCAL, run_id, "json"))
        assert report["incomplete"]["attempts_planned"] == 6 and report["incomplete"]["attempts_finished"] == 2
        kinds = [event["kind"] async for event in events(hub, run_id, 0, stopping=lambda: False) if event is not None]
        assert kinds[0] == "queued" and kinds.count("finished") == 2 and kinds[-1] == "cancelled"

    database.run_hub(use)


def test_a_backtest_yields_to_another_project_and_continues(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtest, "STEP", 1)
    monkeypatch.setattr(backtest_runner, "REST", 100.0)
    for name in ("TURN_S", "LONG_TURN_S", "PATIENCE_S", "LOOK_EVERY_S"):
        monkeypatch.setattr(worker, name, 0.01)

    async def use(hub: Hub) -> None:
        project, agent, case = await a_world(hub)
        for number in range(12):
            await add_trace(hub, project, agent, number)
        first = str((await start_backtest(hub, LOCAL, case, NewBacktest()))["id"])
        other, agent, case = await a_world(hub)
        await add_trace(hub, other, agent, 100)
        second = str((await start_backtest(hub, LOCAL, case, NewBacktest()))["id"])
        await work_once(hub)
        found: Any = await get_run(hub, LOCAL, first)
        assert found["status"] == "queued" and found["finished"] < 12 and found["backtest"]["looked_at"] == found["finished"]
        while await work_once(hub) is not None:
            pass
        assert [(await get_run(hub, LOCAL, id))["outcome"] for id in (first, second)] == ["pass", "pass"]
        assert sorted(await list_decided(hub, first)) == [(f"trc_{n:04}", "greets", "pass") for n in range(12)]

    database.run_hub(use)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "too many traces": ({}, {"limit": 10_001}, "VALIDATION_ERROR", "expected 1 to 10000"),
    "a judge without a number": ({"document": JUDGED}, {}, "VALIDATION_ERROR", "calls a judge for every trace"),
    "a judge about too many": ({"document": JUDGED}, {"limit": 201}, "VALIDATION_ERROR", "expected 1 to 200"),
    "no judge": ({"document": JUDGED}, {"limit": 10}, "VALIDATION_ERROR", "need a judge"),
    "a time in words": ({}, {"since": "yesterday"}, "VALIDATION_ERROR", "expected a time"),
    "an agent that is not there": ({}, {"agent_id": "agent_nowhere"}, "NOT_FOUND", "agent_nowhere"),
    "no trace of that time": ({}, {"until": "2020-01-01T00:00:00Z"}, "CONFLICT", "no stored traces"),
    "a name that cannot be one": ({}, {"name": "@x"}, "VALIDATION_ERROR", ""),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_invalid_backtest_is_refused_and_nothing_is_queued(what: str, database: TestDatabase) -> None:
    case_fields, fields, code, message = REFUSED[what]

    async def use(hub: Hub) -> None:
        project, agent, case = await a_world(hub, **case_fields)
        await add_trace(hub, project, agent, 1)
        with pytest.raises(Refusal) as caught:
            await start_backtest(hub, LOCAL, case, NewBacktest(**fields))
        assert caught.value.code == code and message in str([caught.value.message, dict(caught.value.fields)])
        assert (await list_runs(hub, LOCAL))["data"] == []

    database.run_hub(use)
