"""The cache of agents: maximum age, number of reads, and changes during a read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from proctor.service.access import agents
from proctor.service.access.agents import load_agents, reload_agents
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.store.sql.database import open_database
from tests.databases import TestDatabase
from tests.service.trace_world import Clock, new_trace, post, project_key, request, root, send, trace_rows, world

SPANS = {"spans": [{"span_id": "a", "name": "flow", "attributes": {"gen_ai.response.text": "hi"}}]}
HERE = LOCAL.organization_id


class SlowDatabase:
    """A database that counts reads, and can delay them between query and answer."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.readings = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Any]:
        self.readings += 1
        async with self._database.reading() as connection:
            yield connection
        await self.may_answer.wait()


async def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("named_by", ["service name", "workflow", "platform id", "key"])
def test_an_agent_that_another_server_has_just_made_gets_its_first_trace(database: TestDatabase, named_by: str) -> None:
    clock = Clock()  # A stopped clock: no time passes between the cached read and the change.

    async def use(hub: Hub) -> None:
        project, known = await world(hub)
        other_database = await open_database(database.url)
        other = Hub(database=other_database, settings=hub.settings, clock=clock)
        try:
            await post(other, {**SPANS, "platformId": known})  # the other server knows the agents now
            new = await agents.create_agent(
                hub, LOCAL, agents.NewAgent(project_id=project, name="new", service_name="new", external_ref="wf-new")
            )
            if named_by == "service name":
                await send(other, request(root(new_trace()), service="new"), caller=project_key(project))
            elif named_by == "workflow":
                await post(other, {"data": {"text": "hi"}, "metadata": {"workflowId": "wf-new"}})
            elif named_by == "platform id":
                await post(other, {**SPANS, "platformId": new["id"]})
            else:
                await post(other, SPANS, caller=project_key(project, new["id"]))
            assert (await trace_rows(hub))[-1]["agent_id"] == new["id"]
        finally:
            await other_database.close()

    database.run_hub(use, clock=clock)


async def test_many_unknown_names_at_once_share_their_readings(hub: Hub) -> None:
    await world(hub)
    slow = SlowDatabase(hub.database)
    hub = msgspec.structs.replace(hub, database=slow)  # type: ignore[arg-type]

    async def ask(number: int) -> None:
        with pytest.raises(Refusal):
            await post(hub, {**SPANS, "platformId": f"agent_{number}"})

    await load_agents(hub, HERE)
    await asyncio.gather(*(ask(number) for number in range(50)))
    assert slow.readings <= 3


async def test_many_unknown_names_in_one_request_wait_once(hub: Hub) -> None:
    await world(hub)
    await load_agents(hub, HERE)
    slow = SlowDatabase(hub.database)
    hub = msgspec.structs.replace(hub, database=slow)  # type: ignore[arg-type]
    groups = [request(root(new_trace()), service=f"unknown {number}")["resourceSpans"][0] for number in range(100)]
    with pytest.raises(Refusal):
        await send(hub, {"resourceSpans": groups}, caller=project_key("nowhere"))
    assert slow.readings == 1


async def test_a_read_from_before_a_pause_is_not_cached(hub: Hub) -> None:
    _, agent = await world(hub)
    slow = SlowDatabase(hub.database)
    held = msgspec.structs.replace(hub, database=slow)  # type: ignore[arg-type]
    slow.may_answer.clear()
    reading = asyncio.create_task(load_agents(held, HERE))
    await wait_until(lambda: slow.readings == 1)
    await asyncio.sleep(0.05)
    await agents.update_agent(hub, LOCAL, agent, {"paused": True})
    slow.may_answer.set()
    assert not (await reading)[agent].paused, "it was read before"
    with pytest.raises(Refusal, check=lambda error: error.code == "FORBIDDEN"):
        await post(hub, {**SPANS, "platformId": agent})


async def test_a_lookup_is_not_answered_by_an_earlier_read(hub: Hub) -> None:
    project, _ = await world(hub)
    slow = SlowDatabase(hub.database)
    held = msgspec.structs.replace(hub, database=slow)  # type: ignore[arg-type]
    slow.may_answer.clear()
    early = asyncio.create_task(reload_agents(held, HERE))
    await wait_until(lambda: slow.readings == 1)
    await asyncio.sleep(0.05)
    new = (await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project, name="new")))["id"]
    late = asyncio.create_task(reload_agents(held, HERE))
    slow.may_answer.set()
    assert new not in await early
    assert new in await late
