"""Returns freed memory to the operating system.

After large bodies the C allocator keeps the memory it got. Once enough was freed, `malloc_trim` is called, where the C library has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
from collections.abc import AsyncGenerator

from fastapi import FastAPI

from proctor.service.hub import Hub

EVERY_S = 2.0
ENOUGH = 2_000_000
"""Freed bytes since the last call from which another one is worthwhile."""


class ReleasedBytes:
    """Counts the bytes freed in this process since memory was last returned."""

    size = 0

    def add(self, size: int) -> None:
        """Count freed bytes."""
        self.size += size


RELEASED = ReleasedBytes()


def return_memory() -> bool:
    """Make the allocator return memory, and return whether the platform supports that."""
    gc.collect()  # reference cycles, such as an error and its traceback, are freed only here
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    trim(0)
    return True


@contextlib.asynccontextmanager
async def returning_memory(app: FastAPI, hub: Hub) -> AsyncGenerator[None]:
    """Return memory periodically while the application runs."""

    async def run() -> None:
        again = False
        while True:
            await asyncio.sleep(EVERY_S)
            is_enough = RELEASED.size >= ENOUGH
            if is_enough or again:
                RELEASED.size = 0
                if not await asyncio.to_thread(return_memory):
                    return
            # Memory that was still in use is returned the next time.
            again = is_enough

    task = asyncio.create_task(run(), name="return memory")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
