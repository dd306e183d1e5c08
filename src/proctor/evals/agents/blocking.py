"""Runs asynchronous work for callers that are not asynchronous.

All blocking calls of a process share one event loop in a thread of its own, so that what one call connected the next can use. A blocking
call made by a test function that an eval runs in a worker thread goes to the loop of that eval instead: there the servers are connected.
In a thread that runs an event loop itself blocking would stop that loop, so it is refused.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from proctor.processes.threads import is_loop_running

T = TypeVar("T")

HOME_LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("HOME_LOOP", default=None)
"""The loop that blocking calls of this context go to; none: the shared one."""

_FAREWELL_S: Final = 5.0
_lock = threading.Lock()
_shared: asyncio.AbstractEventLoop | None = None


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Wait for `work`, which runs in another thread. Raises `RuntimeError` inside an event loop."""
    if is_loop_running():
        # Python warns of a coroutine that was never awaited, unless it is closed.
        work.close()
        raise RuntimeError("this call would stop the running event loop: use the asynchronous twin with await")
    future = asyncio.run_coroutine_threadsafe(work, HOME_LOOP.get() or _get_shared_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C while waiting ends the work too
        raise


def _get_shared_loop() -> asyncio.AbstractEventLoop:
    global _shared
    # Two first calls at once would start two loops, and what one of them connects the other could not use.
    with _lock:
        if _shared is None:
            _shared = asyncio.new_event_loop()
            # A daemon: a test function that never ends must not keep the process from ending.
            thread = threading.Thread(target=_serve_loop, args=(_shared,), name="proctor blocking calls", daemon=True)
            thread.start()
            # Python stops a daemon thread abruptly at exit; only this lets the loop close what is open.
            atexit.register(_stop_loop, _shared, thread)
        return _shared


def _serve_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        _run_until_stopped(loop)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            # Child processes of servers that were not closed end here.
            loop.run_until_complete(asyncio.wait(left, timeout=_FAREWELL_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped; a task that calls `sys.exit` ends itself, not the shared loop."""
    while True:
        try:
            return loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue  # the task that raised it has it as its result


def _stop_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    # `stop` alone only sets a flag: a loop that waits for input would not wake up to see it.
    loop.call_soon_threadsafe(loop.stop)
    # A second more than the loop gives its tasks, so that it can close itself after them.
    thread.join(_FAREWELL_S + 1)
