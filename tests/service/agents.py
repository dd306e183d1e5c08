"""What tests of runs need: a project, a suite, and an agent on loopback that counts its requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from proctor.service.access.callers import LOCAL
from proctor.service.access.projects import NewProject, create_project
from proctor.service.hub import Hub
from proctor.service.runs.requests import get_run
from tests.targets.loopback import ReceivedRequest, Reply, Server, serve

LOOPBACK = ("127.0.0.1",)


def suite(*ids: str, expected: str = "hello", **more: Any) -> dict[str, Any]:
    """One case per id, whose message is the id."""
    ids = ids or ("a", "b", "c")
    return {
        "proctor": 1,
        "name": "greetings",
        "cases": [{"id": id, "input": id, "expect": [{"response_contains": expected}]} for id in ids],
        **more,
    }


class Agent:
    """Answers `hello MESSAGE` after a configurable delay."""

    def __init__(self, server: Server) -> None:
        self.url = server.url
        self.server = server
        self.slow_s = 0.0
        self.answer = "hello {}"

    @property
    def times(self) -> Counter[str]:
        """How often every message came."""
        return Counter(request.json["input"] for request in self.server.requests)

    @property
    def target(self) -> dict[str, Any]:
        return {"type": "http", "url": self.url, "response_path": "text"}


@contextlib.asynccontextmanager
async def an_agent() -> AsyncIterator[Agent]:
    async def answer(request: ReceivedRequest) -> Reply:
        await asyncio.sleep(agent.slow_s)
        return Reply(body={"text": agent.answer.format(request.json["input"])})

    async with serve(answer) as server:
        agent = Agent(server)
        yield agent


async def a_project(hub: Hub, **settings: Any) -> str:
    return str((await create_project(hub, LOCAL, NewProject(name="shop", settings=settings)))["id"])


async def until(hub: Hub, run_id: str, holds: Callable[[dict[str, Any]], bool], *, within_s: float = 10.0) -> dict[str, Any]:
    """Wait until a condition on the run is true, and return the run."""
    async with asyncio.timeout(within_s):
        while not holds(run := await get_run(hub, LOCAL, run_id)):
            await asyncio.sleep(0.02)
        return run


@contextlib.asynccontextmanager
async def working(work: Callable[[Hub, asyncio.Event], Awaitable[None]], hub: Hub) -> AsyncIterator[asyncio.Event]:
    """A worker for as long as the block lasts."""
    stop = asyncio.Event()
    task = asyncio.create_task(asyncio.wait_for(work(hub, stop), 60))
    try:
        yield stop
    finally:
        stop.set()
        await task
