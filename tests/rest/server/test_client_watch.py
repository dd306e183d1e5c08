"""A request can see whether its client is connected, and leaves nothing in memory."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from proctor.rest.app import ClientWatch
from proctor.service.decisions.pool import CLIENT_LEAVES


class Body:
    """A received message that records when it is freed."""

    async def receive(self) -> dict[str, Any]:
        return {"type": "http.disconnect"}


async def test_a_timer_that_was_cancelled_keeps_nothing_of_its_request() -> None:
    async def answer(_scope: Any, _receive: Any, _send: Any) -> None:
        async with asyncio.timeout(3_600):
            pass

    # The event loop keeps cancelled timers that are due after a running one, each with the context of its request.
    running = asyncio.get_running_loop().call_later(1_800, print)
    body = Body()
    gone = weakref.ref(body)
    await asyncio.create_task(ClientWatch(answer)({"type": "http"}, body.receive, None))  # type: ignore[arg-type]
    del body
    gc.collect()
    assert gone() is None
    running.cancel()


async def test_waiting_for_the_client_ends_with_the_request() -> None:
    waits: list[Any] = []

    async def answer(_scope: Any, _receive: Any, _send: Any) -> None:
        waits.append(CLIENT_LEAVES.get())

    await ClientWatch(answer)({"type": "http"}, Body().receive, None)  # type: ignore[arg-type]
    async with asyncio.timeout(2):
        await waits[0]()
