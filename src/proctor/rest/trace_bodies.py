"""Reads the bodies of traces: small ones at once, large ones in a thread beside the event loop.

Decoded, a body takes many times the memory that it took as bytes. So only so much is open at one moment: a few megabytes of small bodies,
and one large one. What waits for its turn is held as it came, and was counted when it came in (`limits.py`); whoever waits for too long is
told to come again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request

from proctor.rest.memory import RELEASED
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.traces.intake import Run, run_here

LARGE = 200_000
"""Bytes from which a body is read beside the event loop: about where that takes longer than anybody should wait."""
LARGE_DENSE = 20_000
"""The same for protobuf, of which two bytes can be a message."""
DECODED = 10
"""How many times as large a large body is about, once it is decoded."""
MOST_OPEN = 4_000_000
"""Bytes of small bodies that are open at one moment."""
PATIENCE_S = 30.0
"""How long a request with traces waits, for its turn and for the disk together, before it is told to come again."""
RETRY_AFTER_S = 2.0


class ByteGate:
    """Lets so many bytes through at one moment, in the order in which they came; more than that only alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int, until: float) -> None:
        """Wait for the turn, until a moment of the event loop's clock. Raises `Refusal`."""
        # Nobody overtakes: small bodies, one after the other, would keep a larger one out until its time is over.
        if not self._waiting and self._has_room(size):
            self._open += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            async with asyncio.timeout_at(until):
                await turn
        # Also where the request is cancelled: a turn that nobody uses would keep its bytes for ever.
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave(size)  # its turn came, and nobody is there any more
            turn.cancel()
            # Those behind it may have waited for nothing else than its size.
            self._admit_next()
            if isinstance(error, TimeoutError):
                raise Refusal("UNAVAILABLE", "too many traces wait to be read", retry_after_s=RETRY_AFTER_S) from None
            raise

    def leave(self, size: int) -> None:
        """Make room for others."""
        self._open -= size
        self._admit_next()

    def _has_room(self, size: int) -> bool:
        return self._open == 0 or self._open + size <= self._most

    def _admit_next(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._has_room(self._waiting[0][0])):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._open += size
                turn.set_result(None)


@contextlib.contextmanager
def _pause_collector() -> Generator[None]:
    """Pause the search for garbage, which would look at everything in a large document again and again, and hold up every thread."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class TraceReader:
    """Reads bodies, each where it belongs."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="read traces")
        self._small = ByteGate(MOST_OPEN)
        # Into 0 bytes fits nothing but what comes alone: one large body at a time.
        self._large = ByteGate(0)

    @contextlib.asynccontextmanager
    async def open_body(self, size: int, until: float, *, dense: bool = False) -> AsyncGenerator[Run]:
        """Admit a body of so many bytes and yield the way to run work on it in the right place."""
        if size <= (LARGE_DENSE if dense else LARGE):
            await self._small.enter(size, until)
            try:
                yield run_here
            finally:
                self._small.leave(size)
            return
        await self._large.enter(size, until)
        try:
            with _pause_collector():
                yield self._run_in_thread
        finally:
            self._large.leave(size)
            RELEASED.add(DECODED * size)

    async def _run_in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def get_deadline() -> float:
    """Return until when a request that came now waits."""
    return asyncio.get_running_loop().time() + PATIENCE_S


@contextlib.asynccontextmanager
async def open_reader(app: FastAPI, hub: Hub) -> AsyncGenerator[None]:
    """Read bodies for an application, for as long as it answers requests."""
    app.state.trace_reading = made = TraceReader()
    try:
        yield
    finally:
        made.close()


def trace_reading(request: Request) -> TraceReader:
    """Return where the application that got this request reads bodies."""
    return request.app.state.trace_reading
