"""Resolves the futures of a batch of writes: all of it is stored, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence


def settle_waiters(waiting: Sequence[asyncio.Future[None]], fault: Exception | None) -> None:
    """Resolve the pending futures, or fail them with `fault`."""
    for written in waiting:
        # The caller was cancelled, but its line is still written.
        if written.done():
            continue
        if fault is None:
            written.set_result(None)
        else:
            written.set_exception(fault)
