"""Benchmark runs are deleted as early as other runs, with everything that belongs to them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.settings import ServiceSettings
from proctor.service.upkeep.retention import IDLE_S, SweepCounts, sweep_once
from proctor.service.verification.authoring import benchmarks, criteria, datasets, environments, tasks
from proctor.service.verification.runs import benchmark_runs
from proctor.service.verification.runs import shares as run_shares
from proctor.service.verification.runs.public_runs import start_public_run
from proctor.service.verification.runs.task_runs import put_task_run_state
from proctor.service.verification.sandboxes import records as sandbox_records
from proctor.store.runs.retention import sum_stored_bytes
from proctor.store.sql.tables import keys, links, records
from tests.databases import TestDatabase

NOW = 1_800_000_000.0
DAY = 86_400.0
STATE: dict[str, Any] = {"voice": {"transcripts": [{"turns": [{"speaker": "agent", "text": "hello " * 200}]}]}}
VOICE = {"assert": "voice-transcript", "speaker": "agent", "contains": ["hello"]}
OF_RUNS = ("benchmark_run", "run_share", "task_run", "criterion_run", "state", "playground", "sandbox", "dataset", "entity")


class Clock:
    """Set by the test."""

    def __init__(self) -> None:
        self.at = NOW

    def __call__(self) -> float:
        return self.at


async def published(hub: Hub) -> dict[str, Any]:
    environment = await environments.create_environment(hub, LOCAL, {"name": "clinic"})
    simulator = await environments.create_simulator(hub, LOCAL, {"name": "records", "type": "FHIR"})
    await environments.add_simulator(hub, LOCAL, environment["id"], simulator["id"])
    benchmark = await benchmarks.create_benchmark(hub, LOCAL, {"name": "Calls", "environment_id": environment["id"]})
    task = await tasks.create_task(hub, LOCAL, {"benchmark_id": benchmark["id"], "name": "call"})
    await criteria.create_criterion(hub, LOCAL, {"task_id": task["id"], "label": "greets", "assertion": VOICE})
    return await benchmarks.publish_benchmark(hub, LOCAL, benchmark["id"])


async def made(hub: Hub, benchmark: dict[str, Any], *, complete: bool = True) -> str:
    """A run with its states and those of its task, its token, a shared link, its playground and a dataset in it."""
    started = await start_public_run(hub, LOCAL, {"benchmark": benchmark["reference"]})
    id = started["benchmark_run_id"]
    await benchmark_runs.put_benchmark_run_state(hub, LOCAL, id, STATE)
    await put_task_run_state(hub, LOCAL, started["task_runs"][0]["id"], STATE)
    dataset = await datasets.create_dataset(hub, LOCAL, {"name": "patients", "type": "FHIR"})
    branch = await sandbox_records.add_dataset(hub, LOCAL, started["sandboxes"][0]["id"], dataset["id"])
    await datasets.create_entity(hub, LOCAL, branch["id"], {"name": "John", "data": {"resourceType": "Patient"}})
    await datasets.delete_dataset(hub, LOCAL, dataset["id"])
    await run_shares.create_share(hub, LOCAL, id)
    if complete:
        await benchmark_runs.complete_benchmark_run(hub, LOCAL, id)
    return id


async def left(hub: Hub) -> dict[str, int]:
    """How many records of each kind a run is made of are left, and links and tokens with them."""
    async with hub.database.reading() as connection:
        of = sa.select(records.c.kind, sa.func.count()).where(records.c.kind.in_(OF_RUNS)).group_by(records.c.kind)
        found: dict[str, int] = {row[0]: row[1] for row in await connection.execute(of)}
        branches = sa.select(sa.func.count()).where(links.c.kind.in_(("sandbox_dataset", "share_token")))
        tokens = sa.select(sa.func.count()).where(keys.c.kind == "run")
        found["links"] = (await connection.execute(branches)).scalar_one()
        found["tokens"] = (await connection.execute(tokens)).scalar_one()
        return {name: count for name, count in found.items() if count}


def _of(runs: int) -> dict[str, int]:
    if not runs:
        return {}
    one = dict.fromkeys((*OF_RUNS, "tokens"), 1)
    return {name: count * runs for name, count in {**one, "state": 2, "links": 2}.items()}


def test_a_benchmark_run_that_is_too_old_goes_with_its_states_and_everything_else(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        benchmark = await published(hub)
        await made(hub, benchmark)
        clock.at += 8 * DAY
        new = await made(hub, benchmark)
        assert await left(hub) == _of(2)
        clock.at += 1 * DAY
        swept = await sweep_once(hub)
        assert (swept.benchmark_runs, swept.traces, swept.runs) == (1, 0, 0)
        assert swept.bytes > 0
        assert await left(hub) == _of(1)
        assert (await benchmark_runs.get_benchmark_run(hub, LOCAL, new))["status"] == "completed"
        # Authored objects stay.
        assert (await benchmarks.get_benchmark(hub, LOCAL, benchmark["id"]))["published"]
        assert await sweep_once(hub) == SweepCounts()

    database.run_hub(use, clock=clock, retention_days=8.5)


@pytest.mark.parametrize("batch", [1, 100])
def test_over_the_size_limit_the_oldest_benchmark_runs_are_deleted_first(database: TestDatabase, batch: int) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        benchmark = await published(hub)
        for _ in range(3):
            last = await made(hub, benchmark)
            clock.at += DAY
        async with hub.database.reading() as connection:
            total = await sum_stored_bytes(connection)
        swept = await sweep_once(Hub(database=hub.database, settings=_with(hub, total - 1), clock=clock), batch=batch)
        assert swept.benchmark_runs == 1
        async with hub.database.reading() as connection:
            assert await sum_stored_bytes(connection) == total - swept.bytes
        await sweep_once(Hub(database=hub.database, settings=_with(hub, total // 3 + 100), clock=clock), batch=batch)
        assert await left(hub) == _of(1)
        await benchmark_runs.get_benchmark_run(hub, LOCAL, last)
        await sweep_once(Hub(database=hub.database, settings=_with(hub, 0), clock=clock), batch=batch)
        assert await left(hub) == {}

    database.run_hub(use, clock=clock)


def _with(hub: Hub, retention_bytes: int) -> ServiceSettings:
    return msgspec.structs.replace(hub.settings, retention_bytes=retention_bytes)


def test_an_unfinished_benchmark_run_stays_until_it_is_long_untouched(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        benchmark = await published(hub)
        id = await made(hub, benchmark, complete=False)
        clock.at += IDLE_S - 10
        assert (await sweep_once(hub)).benchmark_runs == 0
        # An upload is a touch.
        await benchmark_runs.put_benchmark_run_state(hub, LOCAL, id, STATE)
        clock.at += IDLE_S - 10
        assert (await sweep_once(hub)).benchmark_runs == 0
        clock.at += 20
        assert (await sweep_once(hub)).benchmark_runs == 1
        assert await left(hub) == {}

    database.run_hub(use, clock=clock, retention_days=1, retention_bytes=0)


def test_unfinished_runs_do_not_hide_older_ones(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        benchmark = await published(hub)
        for complete in (False, False, True):
            await made(hub, benchmark, complete=complete)
            clock.at += 1
        clock.at += 2 * DAY
        assert (await sweep_once(hub, batch=1)).benchmark_runs == 1

    database.run_hub(use, clock=clock, retention_days=1)


def test_a_branch_whose_entity_a_task_was_given_stays(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        benchmark = await published(hub)
        await made(hub, benchmark)
        page = await datasets.list_datasets(hub, LOCAL)
        entity = (await datasets.list_entities(hub, LOCAL, page["data"][0]["id"]))["data"][0]
        task = await tasks.create_task(hub, LOCAL, {"benchmark_id": benchmark["id"], "name": "again"})
        await tasks.bind_entity(hub, LOCAL, task["id"], {"entity_id": entity["id"]})
        clock.at += 2 * DAY
        await sweep_once(hub)
        assert await left(hub) == {"dataset": 1, "entity": 1}

    database.run_hub(use, clock=clock, retention_days=1)
