"""Wakes whoever waits for something to happen to a run, at once when it happens in this process.

Only a wake-up: what happened is read from the database. So nothing is queued for anybody, a slow reader costs nothing, and what happens in
another process is seen a moment later, when the reader looks again by itself.
"""

from __future__ import annotations

import asyncio
import contextlib

QUEUED = ""
"""What is waited for by those who look for any run to drive."""


class RunSignals:
    """Wakes by run id."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def wake(self, run_id: str) -> None:
        """Wake those who watch a run."""
        for event in self._waiting.get(run_id, ()):
            event.set()

    def watch(self, run_id: str) -> Watch:
        """Watch a run, from now to the end of the block."""
        return Watch(self._waiting, run_id)


class Watch:
    """One who waits. Entered before looking at the database, nothing that happens after the look is missed."""

    def __init__(self, waiting: dict[str, set[asyncio.Event]], run_id: str) -> None:
        self._waiting = waiting
        self._run_id = run_id
        self._event = asyncio.Event()

    def __enter__(self) -> Watch:
        self._waiting.setdefault(self._run_id, set()).add(self._event)
        return self

    def __exit__(self, *error: object) -> None:
        others = self._waiting[self._run_id]
        others.discard(self._event)
        if not others:
            del self._waiting[self._run_id]

    async def wait(self, timeout_s: float) -> None:
        """Wait until something has happened since the last wait, or the time is up."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_s)
        # After the wait and before the caller looks: what happens during its look sets the event again.
        self._event.clear()
