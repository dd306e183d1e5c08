"""Large bodies: other requests are answered while one is read, open bytes are limited, and waiting ends."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from proctor.rest import trace_bodies, write_queue
from proctor.rest.trace_bodies import ByteGate
from proctor.rest.write_queue import TraceWriter
from proctor.service.access import agents, projects
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.store.traces.traces import Arrival
from tests.databases import TestDatabase
from tests.rest.listening import Listening

AT_LEAST = 5
"""Answers that others get while one large body is worked on. On the event loop it would be one, or two."""


def mibo_body(agent: str, spans: int) -> tuple[bytes, str]:
    attributes = {"gen_ai.response.text": "Refund done, and more of it", "http.response.status_code": 200, "nested": {"a": [1, {"b": "c"}]}}
    made = [{"span_id": f"s{number}", "name": "step", "attributes": attributes} for number in range(spans)]
    return json.dumps({"spans": made, "platformId": agent}).encode(), "application/json"


def otlp_body(agent: str, traces: int) -> tuple[bytes, str]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    made = ExportTraceServiceRequest()
    group = made.resource_spans.add()
    name = group.resource.attributes.add()
    name.key, name.value.string_value = "mibo.platform_id", agent
    scope = group.scope_spans.add()
    for _ in range(traces):
        span = scope.spans.add()
        span.trace_id, span.span_id, span.name, span.end_time_unix_nano = os.urandom(16), os.urandom(8), "agent", 1
    return made.SerializeToString(), "application/x-protobuf"


class Probes:
    """Requests the health of a service repeatedly, and records time and duration of each answer."""

    def __init__(self, url: str) -> None:
        self._address = url.partition("//")[2]
        self._stop = threading.Event()
        self.answers: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        connection = HTTPConnection(self._address, timeout=60)
        while not self._stop.is_set():
            started = time.monotonic()
            connection.request("GET", "/health")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            self.answers.append((time.monotonic(), time.monotonic() - started))
        connection.close()

    @contextmanager
    def going(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(60)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("path", "make", "size"),
    [("/public/traces", mibo_body, 40_000), ("/v1/traces", otlp_body, 12_000)],
    ids=["mibo", "many traces in otlp"],
)
@pytest.mark.timeout(60)
def test_others_are_answered_while_a_large_body_is_worked_on(tmp_path: Path, path: str, make: Any, size: int) -> None:
    with Listening(f"sqlite:///{tmp_path}/p.db", tmp_path) as server:

        async def prepared(hub: Hub) -> str:
            project = await projects.create_project(hub, LOCAL, projects.NewProject(name="shop"))
            return str((await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project["id"], name="shop")))["id"])

        body, kind = make(server.run(prepared), size)
        probes = Probes(server.url)
        with probes.going():
            connection = HTTPConnection(server.url.partition("//")[2], timeout=60)
            connection.connect()
            started = time.monotonic()
            connection.request("POST", path, body, {"content-type": kind})
            answer = connection.getresponse()
            answer.read()
            ended = time.monotonic()
            connection.close()
        assert answer.status in (200, 201)
        durations = [took for at, took in probes.answers if started < at < ended]
        assert len(durations) >= AT_LEAST, f"{len(durations)} answers in {ended - started:.2f} s"
        assert max(durations) < (ended - started) / 2, "no request waited for most of it"


def run(use: Any) -> None:
    asyncio.run(asyncio.wait_for(use(), 20))


def test_a_gate_lets_through_what_fits_in_the_order_it_came_and_what_does_not_alone() -> None:
    async def use() -> None:
        gate, order = ByteGate(10), list[str]()

        async def pass_through(name: str, size: int) -> None:
            await gate.enter(size, asyncio.get_running_loop().time() + 10)
            order.append(f"+{name}")
            await asyncio.sleep(0.02)
            order.append(f"-{name}")
            gate.leave(size)

        await asyncio.gather(*(pass_through(*one) for one in [("a", 6), ("b", 4), ("large", 50), ("c", 1), ("d", 1)]))
        assert order == ["+a", "+b", "-a", "-b", "+large", "-large", "+c", "+d", "-c", "-d"]

    run(use)


def test_a_long_wait_at_a_gate_ends_with_retry_after_and_delays_no_one() -> None:
    async def use() -> None:
        gate = ByteGate(10)
        now = asyncio.get_running_loop().time
        await gate.enter(10, now() + 10)
        late = asyncio.create_task(gate.enter(50, now() + 0.02))
        gone = asyncio.create_task(gate.enter(50, now() + 10))
        last = asyncio.create_task(gate.enter(5, now() + 10))
        with pytest.raises(Refusal, match="waiting to be read") as caught:
            await late
        assert caught.value.status == 503 and caught.value.retry_after_s
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        gate.leave(10)
        await last
        await gate.enter(5, now() + 10)

    run(use)


def test_one_large_body_is_open_at_a_time_and_small_ones_continue() -> None:
    async def use() -> None:
        place = trace_bodies.TraceReader()
        until = asyncio.get_running_loop().time() + 10
        open_now, most = 0, 0

        def work() -> str:
            nonlocal open_now, most
            open_now += 1
            most = max(most, open_now)
            time.sleep(0.02)
            open_now -= 1
            return threading.current_thread().name

        async def read(size: int) -> str:
            async with place.open_body(size, until) as run:
                return str(await run(work))

        names = await asyncio.gather(*(read(trace_bodies.LARGE + 1) for _ in range(4)))
        assert most == 1 and all(name.startswith("read traces") for name in names)
        assert await read(trace_bodies.LARGE) == threading.current_thread().name
        place.close()

    run(use)


def arrivals(agent: str, project: str, count: int, size: int = 10) -> list[Arrival]:
    base: dict[str, Any] = {"organization_id": LOCAL.organization_id, "project_id": project, "agent_id": agent, "format": "mibo"}
    ids = [os.urandom(8).hex() for _ in range(count)]
    return [Arrival(id=id, external_id=id, body=b"x" * size, due_at=1.0, quiet_due_at=1.0, **base) for id in ids]


async def an_agent(hub: Hub) -> tuple[str, str]:
    project = await projects.create_project(hub, LOCAL, projects.NewProject(name="shop"))
    return (await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project["id"], name="shop")))["id"], project["id"]


async def test_a_request_with_very_many_traces_does_not_hold_up_a_small_one(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr(write_queue, "PIECE", 100)
    monkeypatch.setattr(write_queue, "BATCH_TRACES", 100)
    agent, project = await an_agent(hub)
    keeper = TraceWriter(hub)
    many = asyncio.create_task(keeper.store(arrivals(agent, project, 1_000)))
    await asyncio.sleep(0)
    (small,) = await keeper.store(arrivals(agent, project, 1))
    assert small.created and not many.done()
    stored = await many
    assert len(stored) == 1_000 and all(one.created for one in stored)


def test_bytes_waiting_for_the_disk_are_counted_until_released(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = asyncio.Event()
    keep = write_queue.keep_arrivals

    async def stuck(*arguments: Any) -> Any:
        await go_on.wait()
        return await keep(*arguments)

    monkeypatch.setattr(write_queue, "keep_arrivals", stuck)
    monkeypatch.setattr(write_queue, "MOST_BYTES", 1_000)

    async def use(hub: Hub) -> None:
        agent, project = await an_agent(hub)
        keeper = TraceWriter(hub, patience_s=0.1)
        first = asyncio.create_task(keeper.store(arrivals(agent, project, 1, 600)))
        await asyncio.sleep(0.01)
        with pytest.raises(Refusal, match="the write queue is full"):
            await keeper.store(arrivals(agent, project, 1, 600))
        with pytest.raises(Refusal, match="did not store the trace in time"):
            await first
        with pytest.raises(Refusal, match="the write queue is full"):
            # Its sender has disconnected, but the database still processes it.
            await keeper.store(arrivals(agent, project, 1, 600))
        with pytest.raises(Refusal, match="did not store the trace in time"):
            await keeper.store(arrivals(agent, project, 1, 300))
        assert keeper.waiting == 0, "what was not begun is let go of with its sender"
        go_on.set()
        await keeper.close()
        assert (await keeper.store(arrivals(agent, project, 1, 900)))[0].created

    database.run_hub(use)
