"""Projects with a shorter retention than the service: deletion, preview, and invalid values."""

from __future__ import annotations

import os

import pytest
import sqlalchemy as sa

from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.upkeep import retention
from proctor.service.upkeep.retention import NewRetention, SweepCounts, get_retention, preview_retention, set_retention, sweep_once
from proctor.store.sql.tables import audit, projects
from tests.databases import TestDatabase
from tests.service.upkeep.test_retention import DAY, NOW, add_run, add_trace, fill, left


async def add_project(hub: Hub, id: str = "p") -> None:
    row = {"id": id, "organization_id": LOCAL.organization_id, "name": id, "created_at": "t", "updated_at": "t"}
    async with hub.database.writing() as connection:
        await connection.execute(projects.insert().values(row))


def test_retention_of_a_project_deletes_only_its_own_records(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await add_project(hub)
        await fill(hub)
        await add_trace(hub, "trc_other", 9, project_id="another")
        await add_trace(hub, "trc_leased", 9, leased_until=NOW + 10)
        await add_run(hub, "run_running", 9, "running")
        wanted = NewRetention(trace_days=3, run_days=6)
        preview = await preview_retention(hub, LOCAL, "p", wanted)
        assert preview == {"trace_days": 3, "run_days": 6, "traces": 3, "runs": 1, "counted_to": 1_000_000}
        assert await sweep_once(hub) == SweepCounts(), "a preview changes nothing"
        await set_retention(hub, LOCAL, "p", wanted)
        swept = await sweep_once(hub, batch=1)
        assert (swept.traces, swept.runs) == (2, 1)
        assert await left(hub) == ["run_1", "run_5", "run_running", "trc_1", "trc_leased", "trc_other"]
        assert await sweep_once(hub) == SweepCounts()

    database.run_hub(use, clock=lambda: NOW)


def test_one_of_both_can_be_bounded_and_the_bound_can_be_taken_away(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await add_project(hub)
        await fill(hub)
        changed = await set_retention(hub, LOCAL, "p", NewRetention(run_days=1))
        bounds = {"service_days": 90.0, "service_bytes": None}
        assert changed == await get_retention(hub, LOCAL, "p") == {"project_id": "p", "trace_days": None, "run_days": 1, **bounds}
        assert (await sweep_once(hub)).runs == 3
        assert await left(hub) == ["trc_1", "trc_5", "trc_9"]
        await set_retention(hub, LOCAL, "p", NewRetention())
        await add_run(hub, "run_old", 80)
        assert await sweep_once(hub) == SweepCounts()
        async with hub.database.reading() as connection:
            notes = (await connection.execute(sa.select(audit.c.action, audit.c.resource_id, audit.c.details).order_by(audit.c.id))).all()
        first = {"trace_days": None, "run_days": 1, "before": {"trace_days": None, "run_days": None}}
        second = {"trace_days": None, "run_days": None, "before": {"trace_days": None, "run_days": 1}}
        assert [tuple(row) for row in notes] == [("set_retention", "p", first), ("set_retention", "p", second)]

    database.run_hub(use, clock=lambda: NOW, retention_days=90.0)


@pytest.mark.parametrize(
    ("service", "days", "message"),
    [
        (None, 0, "expected 1 to 3650, got 0"),
        (None, -1, "expected 1 to 3650, got -1"),
        (None, 3_651, "expected 1 to 3650, got 3651"),
        (30.5, 31, "the service deletes all data after 30.5 days, got 31"),
        (0.5, 1, "the service deletes all data after 0.5 days, got 1"),
    ],
)
def test_days_out_of_bounds_are_refused_and_nothing_is_set(database: TestDatabase, service: float | None, days: int, message: str) -> None:
    async def use(hub: Hub) -> None:
        await add_project(hub)
        for verb in (set_retention, preview_retention):
            with pytest.raises(Refusal) as refused:
                await verb(hub, LOCAL, "p", NewRetention(trace_days=days, run_days=days))
            assert refused.value.fields == {"trace_days": [message], "run_days": [message]}
        assert (await get_retention(hub, LOCAL, "p"))["trace_days"] is None

    database.run_hub(use, clock=lambda: NOW, retention_days=service)


def test_a_service_limit_below_an_earlier_project_limit_counts(database: TestDatabase) -> None:
    async def set_long(hub: Hub) -> None:
        await add_project(hub)
        await fill(hub)
        await set_retention(hub, LOCAL, "p", NewRetention(trace_days=100, run_days=100))

    async def sweep(hub: Hub) -> None:
        await sweep_once(hub)
        assert await left(hub) == ["run_1", "trc_1"]

    database.run_hub(set_long, clock=lambda: NOW)
    database.run_hub(sweep, clock=lambda: NOW, retention_days=2)


def test_a_preview_counts_no_further_than_its_bound(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MOST_COUNTED", 2)

    async def use(hub: Hub) -> None:
        await add_project(hub)
        await fill(hub)
        preview = await preview_retention(hub, LOCAL, "p", NewRetention(trace_days=1, run_days=1))
        assert (preview["traces"], preview["runs"], preview["counted_to"]) == (2, 2, 2)

    database.run_hub(use, clock=lambda: NOW + DAY)


def test_replies_of_the_judge_stay_as_long_as_the_longer_of_both(database: TestDatabase) -> None:
    def keep(project: str, age_days: float) -> str:
        path = database.home / "projects" / project / "judge" / f"{age_days}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")
        os.utime(path, (NOW - age_days * DAY,) * 2)
        return str(path)

    mine, theirs = [keep("p", 4), keep("p", 6)], keep("another", 9)

    async def use(hub: Hub) -> None:
        await add_project(hub)
        await add_project(hub, "without_a_judge")
        for project in ("p", "without_a_judge"):
            await set_retention(hub, LOCAL, project, NewRetention(trace_days=1, run_days=5))
        assert (await sweep_once(hub)).replies == 1

    database.run_hub(use, clock=lambda: NOW)
    assert [os.path.exists(path) for path in (*mine, theirs)] == [True, False, True]
