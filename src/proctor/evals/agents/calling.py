"""Calls functions of the user's own, asynchronous or not, and ends those that take too long.

A function that is not asynchronous runs in a thread of its own, so that it may block; blocking calls it makes go to the loop that waits for
it. A function that cannot be stopped is abandoned. One that raises `SystemExit` ends only itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from contextvars import ContextVar
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from proctor.evals.agents.blocking import HOME_LOOP
from proctor.model.show import exception_text
from proctor.processes.threads import run_in_thread
from proctor.targets.shared.interrupts import is_interrupt

# --- the deadline of the prompts of an iteration


class Deadline:
    """When an iteration has to be over, and whether one of its prompts was ended by that."""

    __slots__ = ("at", "missed")

    def __init__(self, limit_s: float) -> None:
        self.at = time.monotonic() + limit_s
        self.missed = False


DEADLINE: ContextVar[Deadline | None] = ContextVar("DEADLINE", default=None)
"""Of the iteration that this is a part of, if it is."""


class PromptLimit:
    """How long one prompt may take: its own limit, or what is left of its iteration."""

    __slots__ = ("_deadline", "_own_s", "seconds")

    def __init__(self, own_s: float) -> None:
        deadline = DEADLINE.get()
        left = None if deadline is None else deadline.at - time.monotonic()
        self._own_s = own_s
        self._deadline = deadline if left is not None and left < own_s else None
        self.seconds = own_s if self._deadline is None or left is None else left

    def explain_expiry(self) -> str:
        """Return the message for a prompt that took too long, and mark the iteration if the limit was its own."""
        if self._deadline is None:
            return f"Operation timed out after {self._own_s * 1000:g}ms"
        self._deadline.missed = True
        return "the iteration ran out of time"


def copy_context() -> contextvars.Context:
    """Return a copy of the present context in which blocking calls go to this loop."""
    context = contextvars.copy_context()
    context.run(HOME_LOOP.set, asyncio.get_running_loop())
    return context


class FunctionExit(Exception):
    """Raised for a function that raised what would have ended more than itself."""


async def call_function(function: Callable[[Any], object], argument: object, context: contextvars.Context) -> object:
    """Return what the function answers, awaited where it can be. Raises `FunctionExit` for what would end an event loop."""
    try:
        if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 - asks what kind of call it is
            answer = function(argument)
        else:
            answer = await _run_in_thread(lambda: function(argument), context.copy())
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


async def _run_in_thread(work: Callable[[], object], context: contextvars.Context) -> object:
    answer, error = await run_in_thread(work, context, "proctor eval")
    if isinstance(error, (StopIteration, KeyboardInterrupt, SystemExit, GeneratorExit)):
        # These would end what waits for it.
        raise FunctionExit(_describe_exit(error))
    if error is not None:
        raise error
    return answer


def describe_exception(error: BaseException) -> str:
    """Return an exception in words."""
    return str(error) or type(error).__name__
