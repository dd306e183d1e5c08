"""The figures of a finished run: stored with it, equal to those of its attempts, and deleted with it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from proctor.actions.history.overview import SuiteChange
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.overview import find_suite_changes
from proctor.service.runs.comparisons import compare_runs
from proctor.service.runs.figures import group_run_failures, measure_latency
from proctor.service.runs.run import show_run
from proctor.service.runs.worker import store_run_figures
from proctor.store.runs.retention import Deletable, delete_listed
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import run_entries, run_figures, runs
from tests.databases import TestDatabase
from tests.service.runs.test_large_runs import add_run, read_all


async def find_rows(hub: Hub) -> dict[str, Row]:
    async with hub.database.reading() as connection:
        return {row["id"]: dict(row) for row in (await connection.execute(sa.select(runs))).mappings()}


async def keep_all(hub: Hub) -> None:
    for row in (await find_rows(hub)).values():
        await store_run_figures(hub, row, row["counts"])


async def forget(hub: Hub) -> None:
    """Let nothing be remembered in memory, as after a restart."""
    for known in (hub.mutations, hub.comparisons):
        known._values.clear()  # pyright: ignore[reportPrivateUsage]


async def read_everything(hub: Hub) -> tuple[Any, ...]:
    """What pages show about two runs without their attempts, and the overview of them."""
    rows = await find_rows(hub)
    changes = await find_suite_changes(hub, LOCAL, "proj_1", [show_run(rows["run_b"]), show_run(rows["run_a"])])
    compared = await compare_runs(hub, LOCAL, "run_b", "run_a")
    return compared, await group_run_failures(hub, LOCAL, "run_b"), await measure_latency(hub, LOCAL, "run_b"), _sort_cases(changes)


def _sort_cases(changes: tuple[SuiteChange, ...]) -> Any:
    """The same whatever order the cases were read in, which is all that differs."""
    found: list[Any] = msgspec.to_builtins(changes)
    for change in found:
        for kind in ("newly_failing", "newly_passing"):
            change[kind]["cases"] = sorted(change[kind]["cases"], key=lambda case: case["case"])
    return found


@pytest.mark.parametrize("attempts", [40, 47])
def test_stored_figures_equal_those_of_the_attempts_and_no_attempt_is_read(database: TestDatabase, attempts: int) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", attempts, failing=1)
        await add_run(hub, "run_b", attempts, failing=3)
        async with hub.database.writing() as connection:
            # Not from the first one on, so that the numbers of attempts are more than their count.
            gone = sa.and_(run_entries.c.case_id == "case-5", run_entries.c.attempt == 1)
            await connection.execute(sa.delete(run_entries).where(gone))
        worked_out = await read_everything(hub)
        await keep_all(hub)
        await forget(hub)
        async with hub.database.writing() as connection:
            # Comparing reads no attempt; the reasons of the overview are those of single ones.
            await connection.execute(sa.update(run_entries).where(run_entries.c.outcome == "pass").values(digest=b"{", outcome="spoiled"))
        assert await read_everything(hub) == worked_out

    database.run_hub(use)


def test_unreadable_figures_or_those_of_another_version_are_computed_again(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 40, failing=1)
        await add_run(hub, "run_b", 40, failing=3)
        worked_out = await read_everything(hub)
        await keep_all(hub)
        async with hub.database.reading() as connection:
            facts, tally = (await connection.execute(sa.select(run_figures.c.facts, run_figures.c.tally))).first() or (b"", b"")
        for body in (b"spoiled", facts, tally, b""):
            await forget(hub)
            async with hub.database.writing() as connection:
                await connection.execute(
                    sa.update(run_figures).values(facts=body if body != facts else tally, tally=body if body != tally else facts)
                )
            assert await read_everything(hub) == worked_out

    database.run_hub(use)


def test_stored_figures_are_not_used_for_an_unfinished_run(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 40, failing=0)
        await add_run(hub, "run_b", 40, failing=3)
        await keep_all(hub)
        async with hub.database.writing() as connection:
            await connection.execute(sa.update(runs).where(runs.c.id == "run_b").values(status="running"))
            await connection.execute(sa.delete(run_entries).where(run_entries.c.run_id == "run_b", run_entries.c.case_id == "case-0"))
        _, _, compared, failures, latency = await read_all(hub, "run_a", "run_b")
        assert compared["comparison"]["only_in_base"] == ["case-0"] and latency.looked_at == 36
        assert [group.count for group in failures.groups] == [8]

    database.run_hub(use)


def test_stored_figures_are_deleted_with_their_run(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 10, failing=0)
        await add_run(hub, "run_b", 10, failing=0)
        await keep_all(hub)
        # Storing is idempotent: another worker may have stored it.
        await keep_all(hub)
        async with hub.database.writing() as connection:
            await delete_listed(connection, [Deletable(kind="run", id="run_a", created_at="", size=0)])
            assert list((await connection.execute(sa.select(run_figures.c.run_id))).scalars()) == ["run_b"]

    database.run_hub(use)
