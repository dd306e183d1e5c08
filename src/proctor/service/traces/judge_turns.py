"""A queue of traces that wait for the judge: every agent in turn, a few at once, so that a long queue of one does not hold up the
others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class JudgeTurns(Generic[T]):
    """A queue for each agent, and a few tasks that work on all of them in turn. `work` raises nothing."""

    def __init__(self, at_once: int, work: Callable[[T], Awaitable[None]]) -> None:
        self._at_once = max(1, at_once)
        self._work = work
        self._queues: dict[str, deque[T]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, agent_id: str, item: T) -> None:
        """Queue an item of an agent."""
        self._queues.setdefault(agent_id, deque()).append(item)
        # One that has come to its end no longer looks for more.
        if sum(not task.done() for task in self._tasks) < self._at_once:
            task = asyncio.create_task(self._work_in_turn(), name="judge traces")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def list_full_agents(self, most: int) -> frozenset[str]:
        """Return the agents of which this many items wait, or more."""
        return frozenset(agent for agent, queue in self._queues.items() if len(queue) >= most)

    @property
    def waiting(self) -> int:
        """How many items wait, over all agents."""
        return sum(map(len, self._queues.values()))

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._tasks

    async def wait_until_idle(self) -> None:
        """Wait until nothing waits any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def wait_for_progress(self, seconds: float) -> None:
        """Wait until one of the tasks is done, at most so many seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def abandon(self) -> None:
        """Stop at once and drop what waits."""
        self._queues.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work_in_turn(self) -> None:
        while self._queues:
            # A dictionary keeps the order of insertion: its first agent is the one that has waited longest, which costs no search.
            agent, queue = next(iter(self._queues.items()))
            # No `await` from here until the queue is back in its place: several tasks share the queues without a lock.
            item = queue.popleft()
            # To the end of the round, or out of it.
            del self._queues[agent]
            if queue:
                self._queues[agent] = queue
            await self._work(item)
