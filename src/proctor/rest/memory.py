"""Gives memory back to the machine that is not needed any more.

What many large bodies took is free inside the process when they are done with, and stays with it: the allocator keeps what it has. So now
and then, when enough was let go of, it is asked to give back what it can. That is a matter of the C library; where there is no such call,
nothing is asked.
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
"""Bytes that were let go of since the last time, from which on it is worth the while."""


class ReleasedBytes:
    """How many bytes were let go of since memory was last given back."""

    def __init__(self) -> None:
        self.size = 0

    def add(self, size: int) -> None:
        """Count what is not needed any more."""
        self.size += size


RELEASED = ReleasedBytes()
"""Of this process."""


def give_memory_back() -> bool:
    """Ask the allocator to give memory back and return whether that can be asked at all."""
    gc.collect()  # what refers to itself, such as an error and where it was raised, is not let go of before
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    trim(0)
    return True


@contextlib.asynccontextmanager
async def keep_giving_back(app: FastAPI, hub: Hub) -> AsyncGenerator[None]:
    """Give memory back now and then, for as long as the application runs."""

    async def now_and_then() -> None:
        again = False
        while True:
            await asyncio.sleep(EVERY_S)
            is_enough = RELEASED.size >= ENOUGH
            if is_enough or again:
                RELEASED.size = 0
                if not await asyncio.to_thread(give_memory_back):
                    return
            # What was still in use, by whoever had not quite done with it, is given back the next time.
            again = is_enough

    task = asyncio.create_task(now_and_then(), name="give memory back")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
