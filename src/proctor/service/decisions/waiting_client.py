"""Gives up work whose client has left.

The door that answers a request says how to find out that its client has left; work that takes long is done as long as it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from proctor.service.refusals import Refusal

T = TypeVar("T")
CLIENT_LEAVES: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("CLIENT_LEAVES", default=None)
"""Returns when the client of this request has left; nothing where nobody knows."""


async def run_while_client_waits(work: Coroutine[Any, Any, T]) -> T:
    """Do the work, unless the client leaves before it is done; then raise `Refusal`, which nobody hears."""
    leaves = CLIENT_LEAVES.get()
    if leaves is None:
        return await work
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(leaves())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal("BAD_REQUEST", "the client left before there was an answer")
    finally:
        # Also when this request is cancelled itself: neither of the two may outlive it.
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
    return working.result()
