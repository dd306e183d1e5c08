"""Reads the bodies of traces: small ones on the event loop, large ones in a thread.

A decoded body takes many times the memory of its bytes. So only a few megabytes of small bodies and one large body are decoded at a time.
The others wait as bytes, which `limits.py` has counted; a request that waits too long is answered 503.
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
"""Bytes from which a body is read in a thread."""
LARGE_DENSE = 20_000
"""The same for protobuf, where two bytes can be a message."""
DECODED = 10
"""Approximate ratio of decoded size to bytes of a large body."""
MOST_OPEN = 4_000_000
"""Bytes of small bodies that are decoded at a time."""
PATIENCE_S = 30.0
"""Seconds that a request with traces waits, for its turn and for the disk together, before it is answered 503."""
RETRY_AFTER_S = 2.0


class ByteGate:
    """A first-in-first-out semaphore over bytes; a body larger than the limit is admitted alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int, until: float) -> None:
        """Wait for admission until a time of the event loop's clock. Raises `Refusal`."""
        # In order of arrival: small bodies would otherwise starve a larger one.
        if not self._waiting and self._fits(size):
            self._open += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            async with asyncio.timeout_at(until):
                await turn
        # Also if the request is cancelled: an unused admission would never be released.
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave(size)  # admitted, but the request has ended
            turn.cancel()
            # Those after it may have waited only for its size.
            self._admit_next()
            if isinstance(error, TimeoutError):
                raise Refusal("UNAVAILABLE", "too many traces are waiting to be read", retry_after_s=RETRY_AFTER_S) from None
            raise

    def leave(self, size: int) -> None:
        """Release the bytes."""
        self._open -= size
        self._admit_next()

    def _fits(self, size: int) -> bool:
        return self._open == 0 or self._open + size <= self._most

    def _admit_next(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._open += size
                turn.set_result(None)


@contextlib.contextmanager
def _pause_collector() -> Generator[None]:
    """Pause garbage collection, which would scan a large document repeatedly and block every thread."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class TraceReader:
    """Reads small bodies on the event loop and large ones in a thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="read traces")
        self._small = ByteGate(MOST_OPEN)
        # Nothing fits into 0 bytes except a body alone: one large body at a time.
        self._large = ByteGate(0)

    @contextlib.asynccontextmanager
    async def open_body(self, size: int, until: float, *, dense: bool = False) -> AsyncGenerator[Run]:
        """Admit a body of this size and yield a function that runs work on it."""
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
    app.state.trace_reading = reader = TraceReader()
    try:
        yield
    finally:
        reader.close()


def trace_reading(request: Request) -> TraceReader:
    """Return where the application that got this request reads bodies."""
    return request.app.state.trace_reading
