"""Traces that wait for the judge: every agent in turn, a few at once, so that a long queue of one does not hold up the others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class JudgeTurns(Generic[T]):
    """A queue for each agent, and some who work on all of them in turn. `work` raises nothing."""

    def __init__(self, at_once: int, work: Callable[[T], Awaitable[None]]) -> None:
        self._at_once = max(1, at_once)
        self._work = work
        self._queues: dict[str, deque[T]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, agent_id: str, item: T) -> None:
        """Let something wait for its turn."""
        self._queues.setdefault(agent_id, deque()).append(item)
        # One that has come to its end no longer looks for more.
        if sum(not task.done() for task in self._tasks) < self._at_once:
            task = asyncio.create_task(self._run(), name="judge traces")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def full(self, most: int) -> frozenset[str]:
        """Agents of which this many wait, or more."""
        return frozenset(agent for agent, queue in self._queues.items() if len(queue) >= most)

    @property
    def waiting(self) -> int:
        """How much waits, of everybody."""
        return sum(map(len, self._queues.values()))

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._tasks

    async def settled(self) -> None:
        """Wait until nothing waits any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def some_progress(self, seconds: float) -> None:
        """Wait until one of those who work is done, but not for long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def abandon(self) -> None:
        """Stop at once."""
        self._queues.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        while self._queues:
            agent, queue = next(iter(self._queues.items()))
            item = queue.popleft()
            # To the end of the round, or out of it.
            del self._queues[agent]
            if queue:
                self._queues[agent] = queue
            await self._work(item)
