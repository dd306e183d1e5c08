"""Whether an event loop runs here: who blocks inside of one holds up everything else in it."""

from __future__ import annotations

import asyncio


def is_loop_running() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
