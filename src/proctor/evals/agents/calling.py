"""Calls user functions, asynchronous or not, and ends those that take too long.

A synchronous function runs in its own thread, so that it may block; its blocking calls go to the loop that waits for it. A function that
cannot be stopped is abandoned. One that raises `SystemExit` ends only itself.

All blocking calls of a process share one event loop in its own thread, so that a call can use the connections of earlier ones. If an eval
runs a test function in a worker thread, blocking calls in it go to the loop of that eval instead, where the servers are connected. In a
thread with a running event loop, a blocking call would stop that loop, so it is rejected.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeVar

from proctor.model.show import exception_text
from proctor.processes.threads import is_interrupt, is_loop_running, run_in_thread


class Deadline:
    """The deadline of an iteration, and whether it ended one of the prompts."""

    __slots__ = ("at", "missed")

    def __init__(self, limit_s: float) -> None:
        self.at = time.monotonic() + limit_s
        self.missed = False


DEADLINE: ContextVar[Deadline | None] = ContextVar("DEADLINE", default=None)
"""The deadline of the current iteration, if any."""


class PromptLimit:
    """The time limit of one prompt: its own, or the remaining time of its iteration."""

    __slots__ = ("_deadline", "_own_s", "seconds")

    def __init__(self, own_s: float) -> None:
        deadline = DEADLINE.get()
        remaining_s = None if deadline is None else deadline.at - time.monotonic()
        self._own_s = own_s
        self._deadline = deadline if remaining_s is not None and remaining_s < own_s else None
        self.seconds = own_s if self._deadline is None or remaining_s is None else remaining_s

    def explain_expiry(self) -> str:
        """Return the message for a prompt that took too long, and mark the iteration if its limit was reached."""
        if self._deadline is None:
            return f"Operation timed out after {self._own_s * 1000:g}ms"
        self._deadline.missed = True
        return "the iteration ran out of time"


def copy_context() -> contextvars.Context:
    """Return a copy of the current context in which blocking calls go to this loop."""
    context = contextvars.copy_context()
    context.run(HOME_LOOP.set, asyncio.get_running_loop())
    return context


class FunctionExit(Exception):
    """Raised if a function raises an exception that would end the event loop."""


async def call_function(function: Callable[[Any], object], argument: object, context: contextvars.Context) -> object:
    """Return the result of the function, awaited if needed. Raises `FunctionExit` for an exception that would end the event loop."""
    try:
        if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 - asks what kind of call it is
            answer = function(argument)
        else:
            answer, error = await run_in_thread(lambda: function(argument), context.copy(), "proctor eval")
            if isinstance(error, (StopIteration, KeyboardInterrupt, SystemExit, GeneratorExit)):
                # These would end the waiting event loop.
                raise FunctionExit(_describe_exit(error))
            if error is not None:
                raise error
        return await answer if isawaitable(answer) else answer
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        if is_interrupt(error):
            raise
        raise FunctionExit(_describe_exit(error)) from error


def _describe_exit(error: BaseException) -> str:
    text = exception_text(error)
    return f"the function raised {type(error).__name__}{f': {text}' if text else ''}"


async def end_task(task: asyncio.Task[object]) -> None:
    """End the task, or abandon it if it does not stop."""
    if task.done():
        return
    task.cancel()
    await asyncio.wait({task}, timeout=0.2)
    if not task.done():
        # Its result is ignored from here on.
        task.add_done_callback(lambda late: late.cancelled() or late.exception())


def describe_exception(error: BaseException) -> str:
    """Return an exception as text."""
    return str(error) or type(error).__name__


T = TypeVar("T")

HOME_LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("HOME_LOOP", default=None)
"""The loop for blocking calls in this context; None: the shared one."""

_lock = threading.Lock()
_shared: asyncio.AbstractEventLoop | None = None


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Wait for `work`, which runs in another thread. Raises `RuntimeError` inside an event loop."""
    if is_loop_running():
        # Python warns about a coroutine that was never awaited, unless it is closed.
        work.close()
        raise RuntimeError("this call would stop the running event loop: use the asynchronous twin with await")
    future = asyncio.run_coroutine_threadsafe(work, HOME_LOOP.get() or _get_shared_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C while waiting also ends the work
        raise


def _get_shared_loop() -> asyncio.AbstractEventLoop:
    global _shared
    # Two concurrent first calls would start two loops, which cannot share connections.
    with _lock:
        if _shared is None:
            _shared = asyncio.new_event_loop()
            # A daemon: a test function that never ends must not block the exit of the process.
            threading.Thread(target=_serve_loop, args=(_shared,), name="proctor blocking calls", daemon=True).start()
        return _shared


def _serve_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    while True:
        # A task that calls `sys.exit` stops the loop; the exception is the result of that task.
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()
