"""Does what a system has left to do after it has answered: a phone call goes on, webhook after webhook, beside everything else."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from proctor.errors import StoreError

GoOn = Callable[[str], Awaitable[str]]
"""Lets the system do one thing, and returns where it goes on; nowhere: it is done."""


class Follower:
    """A thread that lets a system go on until it is done. `close` ends it, also while somebody outside is asked."""

    def __init__(self, go_on: GoOn, then: str) -> None:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()
        self._thread = threading.Thread(target=self._run, args=(go_on, then, started), name="proctor-following", daemon=True)
        self._thread.start()
        # Waited for: `close` may come at once, and needs both.
        self._loop, self._task = started.result()

    @property
    def is_working(self) -> bool:
        """Whether something is left to do."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Leave undone what is left to do."""
        # The loop may have come to its end by itself.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self, go_on: GoOn, then: str, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]]) -> None:
        async def work() -> None:
            task = asyncio.current_task()
            assert task is not None
            started.set_result((asyncio.get_running_loop(), task))
            path = then
            while path:
                path = await go_on(path)

        # A sandbox that is served no longer ends what its systems do.
        with contextlib.suppress(asyncio.CancelledError, ConnectionAbortedError, StoreError):
            asyncio.run(work())
