"""Answers those who wait for a batch of writes: all of it is kept, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence


def settle_waiters(waiting: Sequence[asyncio.Future[None]], fault: Exception | None) -> None:
    """Tell everybody who still waits that the write succeeded, or raise `fault` where they wait."""
    for kept in waiting:
        # Who was cancelled meanwhile has gone, but what they handed over is written all the same.
        if kept.done():
            continue
        if fault is None:
            kept.set_result(None)
        else:
            kept.set_exception(fault)
