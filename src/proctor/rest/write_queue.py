"""The queue in front of the disk: what came in is answered when it is durable, and many requests share one commit.

One request at a time would wait for the disk each; so while a commit is under way, what comes in waits, and all of it goes into the next
one. A request with very many traces is kept piece by piece, with others in between. The queue is bounded in requests and bytes: what does
not fit is refused at once, to come again later, and so is what the database could not take in time. Nothing is answered with success that
is not on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Sequence

from fastapi import FastAPI, Request

from proctor.errors import StoreError
from proctor.rest.trace_bodies import PATIENCE_S, RETRY_AFTER_S
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.traces.due_signal import get_due_signal
from proctor.store.sql.database import is_gone
from proctor.store.traces.traces import Arrival, KeptTrace, Key, keep_arrivals

MOST_BYTES = 64_000_000
"""Compressed bytes that may wait."""
BATCH_BYTES = 16_000_000
BATCH_REQUESTS = 256
BATCH_TRACES = 2_000
PIECE = 1_000
"""Traces of one request that are kept in one transaction."""


class _Waiting:
    """Traces of a request that are to be kept together."""

    __slots__ = ("answer", "arrivals", "size")

    def __init__(self, arrivals: Sequence[Arrival], answer: asyncio.Future[list[KeptTrace]]) -> None:
        self.arrivals = arrivals
        self.answer = answer
        self.size = sum(len(arrival.body) for arrival in arrivals)


class TraceWriter:
    """Keeps traces, many requests in one transaction."""

    def __init__(self, hub: Hub, *, patience_s: float = PATIENCE_S) -> None:
        self._hub = hub
        self._patience_s = patience_s
        self._queue: deque[_Waiting] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many requests wait for the disk."""
        return len(self._queue)

    async def keep(self, arrivals: Sequence[Arrival], *, until: float | None = None) -> list[KeptTrace]:
        """Keep what came in; it is durable when this returns. Raises `Refusal` (UNAVAILABLE) when it cannot be.

        `until` is when to give up, by the clock of the event loop.
        """
        until = asyncio.get_running_loop().time() + self._patience_s if until is None else until
        kept: list[KeptTrace] = []
        # The next piece joins the end of the queue, so that one request with very many traces does not hold up the small ones behind it.
        for start in range(0, len(arrivals), PIECE):
            kept += await self._keep_piece(arrivals[start : start + PIECE], until)
        return kept

    async def _keep_piece(self, arrivals: Sequence[Arrival], until: float) -> list[KeptTrace]:
        waiting = _Waiting(arrivals, asyncio.get_running_loop().create_future())
        if len(self._queue) >= self._hub.settings.queue_size or self._size + waiting.size > MOST_BYTES:
            raise Refusal("UNAVAILABLE", "too many traces wait for the disk", retry_after_s=RETRY_AFTER_S)
        self._queue.append(waiting)
        self._size += waiting.size
        # The task ends when the queue is empty; whoever comes first after that starts the next one.
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), name="trace writer")
        try:
            async with asyncio.timeout_at(until):
                return await waiting.answer
        except TimeoutError:
            # It may be kept all the same, when the database is back: sent again, it is the same trace.
            raise Refusal("UNAVAILABLE", "the database did not take the trace in time", retry_after_s=RETRY_AFTER_S) from None
        finally:
            # What is being written is held until that ends, whoever still waits for it.
            if waiting in self._queue:
                self._queue.remove(waiting)
                self._size -= waiting.size

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _drain(self) -> None:
        while self._queue:
            batch = self._taken()
            try:
                await self._commit(batch)
            finally:
                # Only now: what is being written is still in memory, and counts against what may wait.
                self._size -= sum(waiting.size for waiting in batch)

    def _taken(self) -> list[_Waiting]:
        # The first is taken whatever its size: one that is larger than a batch would never have its turn.
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

    async def _commit(self, batch: list[_Waiting]) -> None:
        try:
            answers = await self._kept(batch)
        except Exception as error:
            # A database that is gone refuses each of them as well; one by one that would only take longer.
            if len(batch) > 1 and not is_gone(error):
                # One of them is to blame, and the others are not.
                for waiting in batch:
                    await self._commit([waiting])
            elif isinstance(error, StoreError):
                _fail(batch, Refusal("UNAVAILABLE", str(error), retry_after_s=RETRY_AFTER_S))
            else:
                _fail(batch, error)
        else:
            for waiting, answer in zip(batch, answers, strict=True):
                # Whoever gave up has cancelled the future: to set it would raise, and the others of the batch would get no answer.
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)
            now = self._hub.clock()
            if any(arrival.due_at <= now for waiting in batch for arrival in waiting.arrivals):
                get_due_signal(self._hub.database).set()
            self._hub.counters.add("traces_received", sum(kept.refused is None for answer in answers for kept in answer))

    async def _kept(self, batch: list[_Waiting]) -> list[list[KeptTrace]]:
        """Return one transaction. A trace that comes several times in it is kept several times, in the order it came."""
        rounds: list[dict[Key, Arrival]] = []
        places: list[list[int]] = []
        for waiting in batch:
            places.append([_place(rounds, arrival) for arrival in waiting.arrivals])
        now = self._hub.now()
        async with self._hub.database.writing() as connection:
            found = [await keep_arrivals(connection, list(one.values()), now) for one in rounds]
        return [
            [found[place][arrival.key] for place, arrival in zip(of_one, waiting.arrivals, strict=True)]
            for of_one, waiting in zip(places, batch, strict=True)
        ]


def _place(rounds: list[dict[Key, Arrival]], arrival: Arrival) -> int:
    """Return the first round that has nothing of this trace, and nothing of it after."""
    place = len(rounds)
    while place and arrival.key not in rounds[place - 1]:
        place -= 1
    if place == len(rounds):
        rounds.append({})
    rounds[place][arrival.key] = arrival
    return place


def _fail(batch: list[_Waiting], error: BaseException) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)


@contextlib.asynccontextmanager
async def writing(app: FastAPI, hub: Hub) -> AsyncGenerator[None]:
    """The writer of an application, for as long as it answers requests."""
    app.state.trace_writer = TraceWriter(hub)
    try:
        yield
    finally:
        await app.state.trace_writer.close()


def trace_writer(request: Request) -> TraceWriter:
    """Return the writer of the application that got this request."""
    return request.app.state.trace_writer
