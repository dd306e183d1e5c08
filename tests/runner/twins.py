"""In-memory doubles of what the runner calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proctor.cassettes.ports import Tape
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence
from proctor.model.run import RunEntry

Answer = Callable[[Attempt], Awaitable[Evidence]]


class MemoryLog:
    """Stores entries in a list."""

    def __init__(self) -> None:
        self.entries: list[RunEntry] = []

    async def append(self, entry: RunEntry) -> None:
        self.entries.append(entry)


class StubTarget:
    """Answers with a function and counts its attempts."""

    name = "stub"

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.attempts: list[tuple[str, int]] = []
        self.busy = self.most_busy = 0
        self.opened = self.closed = 0

    async def open(self) -> None:
        self.opened += 1

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        self.attempts.append((attempt.case.id, attempt.number))
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            await asyncio.sleep(0)
            return await self.answer(attempt)
        finally:
            self.busy -= 1

    async def close(self) -> None:
        self.closed += 1
