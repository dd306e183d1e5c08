"""Runs blocking user code in a daemon thread."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any


def is_loop_running() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def run_in_thread(work: Callable[[], object], context: contextvars.Context, name: str) -> tuple[Any, BaseException | None]:
    """Run `work` in a thread and return its result and its exception; the thread is abandoned when the time is up.

    What it raises is handed over as a value: an exception that ends generators or programs would end more than this call on its way.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()

    def settle(answer: object, error: BaseException | None) -> None:
        # The time may be up by now, and the future cancelled with it.
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

    # The threads of an executor are waited for when the loop ends; a function that hangs would hold up everything.
    threading.Thread(target=main, name=name, daemon=True).start()
    return await done
