"""The write queue for traces: a request is answered after its commit, and many requests share one commit.

Requests that arrive during a commit go into the next one. A request with very many traces is written in pieces. The queue is bounded in
requests and bytes; what does not fit, or cannot be written in time, is answered 503.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncGenerator, Sequence

from fastapi import FastAPI, Request

from proctor.errors import StoreError
from proctor.rest.trace_bodies import PATIENCE_S, RETRY_AFTER_S
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.store.sql.database import is_gone
from proctor.store.traces.traces import Arrival, ArrivalResult, Key, keep_arrivals

MOST_BYTES = 64_000_000
"""Compressed bytes that may be queued."""
BATCH_BYTES = 16_000_000
BATCH_REQUESTS = 256
BATCH_TRACES = 2_000
PIECE = 1_000
"""Traces of one request that are written in one transaction."""


class _QueuedWrite:
    """Traces of a request that are written together."""

    __slots__ = ("answer", "arrivals", "size")

    def __init__(self, arrivals: Sequence[Arrival], answer: asyncio.Future[list[ArrivalResult]]) -> None:
        self.arrivals = arrivals
        self.answer = answer
        self.size = sum(len(arrival.body) for arrival in arrivals)


class TraceWriter:
    """Writes traces, many requests in one transaction."""

    def __init__(self, hub: Hub, *, patience_s: float = PATIENCE_S) -> None:
        self._hub = hub
        self._patience_s = patience_s
        self._queue: deque[_QueuedWrite] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """The number of queued requests."""
        return len(self._queue)

    async def store(self, arrivals: Sequence[Arrival], *, until: float | None = None) -> list[ArrivalResult]:
        """Write traces durably until a time of the event loop's clock. Raises `Refusal` (UNAVAILABLE)."""
        until = asyncio.get_running_loop().time() + self._patience_s if until is None else until
        stored: list[ArrivalResult] = []
        # The next piece goes to the end of the queue, so that a large request does not delay the small ones after it.
        for start in range(0, len(arrivals), PIECE):
            stored += await self._store_piece(arrivals[start : start + PIECE], until)
        return stored

    async def _store_piece(self, arrivals: Sequence[Arrival], until: float) -> list[ArrivalResult]:
        waiting = _QueuedWrite(arrivals, asyncio.get_running_loop().create_future())
        if len(self._queue) >= self._hub.settings.queue_size or self._size + waiting.size > MOST_BYTES:
            raise Refusal("UNAVAILABLE", "the write queue is full", retry_after_s=RETRY_AFTER_S)
        self._queue.append(waiting)
        self._size += waiting.size
        # The task ends when the queue is empty; the next request starts another.
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), name="trace writer")
        try:
            async with asyncio.timeout_at(until):
                return await waiting.answer
        except TimeoutError:
            # It may be stored later, when the database is back: sent again, it is the same trace.
            raise Refusal("UNAVAILABLE", "the database did not store the trace in time", retry_after_s=RETRY_AFTER_S) from None
        finally:
            # A write in progress stays counted until it ends, even if its request has timed out.
            if waiting in self._queue:
                self._queue.remove(waiting)
                self._size -= waiting.size

    async def close(self) -> None:
        """Wait for the write in progress."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _drain(self) -> None:
        while self._queue:
            batch = self._take_batch()
            try:
                await self._commit(batch)
            finally:
                # Only now: a batch that is being written is still in memory.
                self._size -= sum(waiting.size for waiting in batch)

    def _take_batch(self) -> list[_QueuedWrite]:
        # The first is taken whatever its size: one larger than a batch would otherwise wait forever.
        batch = [self._queue.popleft()]
        size, count = batch[0].size, len(batch[0].arrivals)
        while self._queue and len(batch) < BATCH_REQUESTS:
            waiting = self._queue[0]
            size += waiting.size
            count += len(waiting.arrivals)
            if size > BATCH_BYTES or count > BATCH_TRACES:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _commit(self, batch: list[_QueuedWrite]) -> None:
        try:
            answers = await self._write(batch)
        except Exception as error:
            # If the database is gone, each request would fail as well.
            if len(batch) > 1 and not is_gone(error):
                # One request is to blame: write each separately.
                for waiting in batch:
                    await self._commit([waiting])
            elif isinstance(error, StoreError):
                _fail(batch, Refusal("UNAVAILABLE", str(error), retry_after_s=RETRY_AFTER_S))
            else:
                _fail(batch, error)
        else:
            for waiting, answer in zip(batch, answers, strict=True):
                # A request that timed out has cancelled the future, and setting it would raise.
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)
            now = self._hub.clock()
            if any(arrival.due_at <= now for waiting in batch for arrival in waiting.arrivals):
                self._hub.due_signal.set()
            self._hub.counters.add("traces_received", sum(trace.refused is None for answer in answers for trace in answer))

    async def _write(self, batch: list[_QueuedWrite]) -> list[list[ArrivalResult]]:
        """Write a batch in one transaction. A trace that occurs several times is written in order of arrival."""
        rounds: list[list[Arrival]] = []
        earlier: Counter[Key] = Counter()
        places: list[list[tuple[int, Key]]] = []
        for waiting in batch:
            places.append([])
            for arrival in waiting.arrivals:
                place = earlier[arrival.key]
                earlier[arrival.key] += 1
                if place == len(rounds):
                    rounds.append([])
                rounds[place].append(arrival)
                places[-1].append((place, arrival.key))
        now = self._hub.now()
        async with self._hub.database.writing() as connection:
            stored = [await keep_arrivals(connection, arrivals, now) for arrivals in rounds]
        return [[stored[place][key] for place, key in of_one] for of_one in places]


def _fail(batch: list[_QueuedWrite], error: BaseException) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)


@contextlib.asynccontextmanager
async def writing(app: FastAPI, hub: Hub) -> AsyncGenerator[None]:
    """Run the trace writer of an application."""
    app.state.trace_writer = TraceWriter(hub)
    try:
        yield
    finally:
        await app.state.trace_writer.close()


def trace_writer(request: Request) -> TraceWriter:
    """Return the trace writer of the application."""
    return request.app.state.trace_writer
