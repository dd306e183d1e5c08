"""Waiting of background workers: for the first of several things, and between two steps."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from proctor.errors import StoreError

_LOG = logging.getLogger("proctor.serve")


async def wait_for_first(*waits: Awaitable[object], timeout_s: float | None = None) -> None:
    """Wait until one of these is done, or for `timeout_s`; cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def repeat(step: Callable[[], Awaitable[float]], stop: asyncio.Event, *, retry_s: float, problem: str) -> None:
    """Repeat a step, which returns the seconds until the next, until `stop` is set; try again after `retry_s` if the database is away."""
    while not stop.is_set():
        try:
            wait_s = await step()
        except StoreError as error:
            _LOG.warning(problem, extra={"error": str(error)})
            wait_s = retry_s
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), wait_s)
