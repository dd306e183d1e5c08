"""Wakes the evaluator of this process when due traces were stored; without it they are found a little later."""

from __future__ import annotations

import asyncio
import contextlib
from weakref import WeakKeyDictionary

from proctor.store.sql.database import Database

# Weak, so that the signal of a closed database is freed.
_SIGNALS: WeakKeyDictionary[Database, asyncio.Event] = WeakKeyDictionary()


def get_due_signal(database: Database) -> asyncio.Event:
    """Return the event that is set when this process has stored traces that are due."""
    return _SIGNALS.setdefault(database, asyncio.Event())


async def wait_for_either(one: asyncio.Event, other: asyncio.Event, seconds: float) -> None:
    """Wait until one of two events is set, or for `seconds`."""
    waiting = [asyncio.ensure_future(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*waiting, return_exceptions=True)
