"""Wakes whoever evaluates traces in this process when some were kept that are due. Without it they are found a little later."""

from __future__ import annotations

import asyncio
import contextlib
from weakref import WeakKeyDictionary

from proctor.store.database import Database

_SIGNALS: WeakKeyDictionary[Database, asyncio.Event] = WeakKeyDictionary()


def due_signal(database: Database) -> asyncio.Event:
    """Set when traces were kept in a database by this process that may be evaluated now."""
    return _SIGNALS.setdefault(database, asyncio.Event())


async def either(one: asyncio.Event, other: asyncio.Event, seconds: float) -> None:
    """Wait until one of two things happens, but not for longer than some seconds."""
    waiting = [asyncio.ensure_future(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*waiting, return_exceptions=True)
