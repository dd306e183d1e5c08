"""Calling functions of the user's own: asynchronous or not, and ended when they take too long.

A function that is not asynchronous runs in a thread of its own, so that it may block; blocking calls it makes go to the loop that waits for
it. A function that does not let itself be ended is left behind.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from proctor.evals.blocking import HOME_LOOP


def own_context() -> contextvars.Context:
    """A copy of the present context in which blocking calls go to this loop."""
    context = contextvars.copy_context()
    context.run(HOME_LOOP.set, asyncio.get_running_loop())
    return context


async def call_with(function: Callable[[Any], object], argument: object, context: contextvars.Context) -> object:
    """What the function answers; an answer that can be awaited is."""
    if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 - asks what kind of call it is
        answer = function(argument)
    else:
        answer = await _in_thread(lambda: function(argument), context.copy())
    return await answer if isawaitable(answer) else answer


async def end_task(task: asyncio.Task[object]) -> None:
    """End the task, or leave it behind when it does not let itself be ended."""
    if task.done():
        return
    task.cancel()
    await asyncio.wait({task}, timeout=0.2)
    if not task.done():
        # Whatever becomes of it, nobody is interested any more.
        task.add_done_callback(lambda late: late.cancelled() or late.exception())


async def _in_thread(work: Callable[[], object], context: contextvars.Context) -> object:
    """Run blocking work in a thread that does not keep the process alive: a pool would wait for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()

    def settle(answer: object, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(answer)

    def main() -> None:
        answer, error = None, None
        try:
            answer = context.run(work)
        except BaseException as raised:  # it is the caller's to see, whatever it is
            # A future cannot carry this one: it would end the loop that waits for it.
            error = RuntimeError("the test raised StopIteration") if isinstance(raised, StopIteration) else raised
        try:
            loop.call_soon_threadsafe(settle, answer, error)
        except RuntimeError:
            return  # the loop was closed meanwhile: nobody waits

    threading.Thread(target=main, name="proctor eval", daemon=True).start()
    return await done


def told(error: BaseException) -> str:
    """An exception in words."""
    return str(error) or type(error).__name__
