"""Runs blocking user code in a daemon thread, and asynchronous code from ordinary code.

Code under test may raise anything, even `KeyboardInterrupt`. A real Ctrl-C is raised by a signal handler, and only in the main thread. If
that is the handler of `asyncio.Runner`, it is visible in the traceback. Python's default handler is not, so any `KeyboardInterrupt` in the
main thread may then be real. An event loop that handles the signal itself raises nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from proctor.errors import InputError


def is_loop_running() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def run_in_thread(work: Callable[[], object], context: contextvars.Context, name: str) -> tuple[Any, BaseException | None]:
    """Run `work` in a thread and return its result and its exception; the thread is abandoned at the timeout.

    The exception is returned, not raised: a `StopIteration` or `SystemExit` would end the event loop's task or the program instead.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()

    def settle(answer: object, error: BaseException | None) -> None:
        # The future may have been cancelled by the timeout.
        if not done.done():
            done.set_result((answer, error))

    def main() -> None:
        answer, failure = None, None
        try:
            answer = context.run(work)
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, answer, failure)
        except RuntimeError:
            return  # the loop was closed: the result is not needed

    # The loop waits for executor threads when it closes; a hanging function would block it.
    threading.Thread(target=main, name=name, daemon=True).start()
    return await done


Result = TypeVar("Result")


def wait_for_end(work: Callable[[], Coroutine[Any, Any, Result]], *, called: str, instead: str) -> Result:
    """Run `work` to its end in a new loop. Raises `InputError` inside a running loop, which it would block.

    `called` is what the user wrote, `instead` what to write in a notebook or other code in a loop.
    """
    if not is_loop_running():
        return asyncio.run(work())
    raise InputError(
        f"{called}(...) cannot wait where an event loop is running, as in a notebook or an async function: "
        f"write `await {instead}(...)`, with the same arguments"
    )


def is_interrupt(error: BaseException) -> bool:
    """Return whether this is the user's own Ctrl-C; true if unclear."""
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return True
    # `asyncio.Runner` installs a handler of this name for the signal.
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].name == "_on_sigint"
