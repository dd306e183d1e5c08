"""The clock of the machine is put back: nothing that waits, waits any longer for that."""

from __future__ import annotations

import pytest

from proctor.service.hub import Hub, SteadyClock
from proctor.service.traces.evaluator import evaluate_all
from proctor.service.upkeep.clock_watch import repair_waits
from tests.databases import TestDatabase
from tests.service.trace_world import Clock, new_trace, request, root, send, trace_rows, world

HOUR = 3600.0


def test_a_clock_that_is_put_back_goes_on_and_one_put_forward_is_followed() -> None:
    wall, passing = Clock(), Clock(50.0)
    clock = SteadyClock(wall, passing)
    start = wall.now
    passing.now += 10
    wall.now += 10
    assert clock() == start + 10
    wall.now -= HOUR
    passing.now += 5
    assert clock() == start + 15
    wall.now = start + 2 * HOUR
    assert clock() == start + 2 * HOUR
    passing.now += 1
    assert clock() == start + 2 * HOUR + 1


def test_traces_are_evaluated_in_time_although_the_clock_was_put_back(database: TestDatabase) -> None:
    wall, passing = Clock(), Clock(50.0)

    async def use(hub: Hub) -> None:
        await world(hub)
        await send(hub, request(root(new_trace(), "Refund done")))
        wall.now -= HOUR
        passing.now += hub.settings.quiet_period_s + 1
        assert await evaluate_all(hub) == 1

    database.run_hub(use, clock=SteadyClock(wall, passing))


@pytest.mark.parametrize("column", ["due_at", "leased_until"])
def test_a_service_that_starts_after_the_clock_was_put_back_finds_what_waits(database: TestDatabase, column: str) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        import sqlalchemy as sa

        from proctor.store.sql.tables import traces

        await world(hub)
        await send(hub, request(root(new_trace(), "Refund done")))
        if column == "leased_until":
            async with hub.database.writing() as connection:
                await connection.execute(sa.update(traces).values(leased_until=clock.now + 30, lease_owner="gone"))
        clock.now -= HOUR
        assert await evaluate_all(hub) == 0
        assert await repair_waits(hub) >= 1
        assert await repair_waits(hub) == 0
        assert await evaluate_all(hub) == 1
        assert [row["status"] for row in await trace_rows(hub)] == ["evaluated"]

    database.run_hub(use, clock=clock)


def test_an_agent_whose_own_quiet_period_is_long_is_not_taken_for_a_clock_that_was_put_back(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        await world(hub, settings={"quiet_period_s": HOUR})
        await send(hub, request(root(new_trace(), "Refund done")))
        assert await repair_waits(hub) == 0
        assert await evaluate_all(hub) == 0
        clock.now += HOUR + 1
        assert await evaluate_all(hub) == 1

    database.run_hub(use, clock=clock)
