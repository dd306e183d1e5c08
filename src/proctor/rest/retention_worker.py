"""The worker that keeps the database as small as the settings say."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from proctor.errors import StoreError
from proctor.service.hub import Hub
from proctor.service.upkeep.retention import SweepCounts, keep_sweeping

_LOG = logging.getLogger("proctor.serve")


async def sweep_old(hub: Hub, stop: asyncio.Event) -> None:
    """Delete what is too old or too much, now and then, until told to stop."""
    sweeping = asyncio.create_task(keep_sweeping(hub, told=_log_sweep))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((sweeping, stopped), return_when=asyncio.FIRST_COMPLETED)
        # It never ends but by an error: raised here, that is logged, and the worker is started again (`workers.py`).
        if sweeping.done():
            sweeping.result()
    finally:
        for task in (sweeping, stopped):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


def _log_sweep(what: SweepCounts | StoreError) -> None:
    if isinstance(what, StoreError):
        _LOG.warning("old traces and runs could not be deleted", extra={"error": str(what)})
    elif what != SweepCounts():
        _LOG.info("old traces and runs were deleted", extra=msgspec.structs.asdict(what))
