"""The worker that repairs waits for a time that no clock of this service meant: the machine's clock was put back meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from proctor.errors import StoreError
from proctor.service.hub import Hub
from proctor.service.notify.export import LONGEST_WAIT_S as LONGEST_EXPORT_WAIT_S
from proctor.service.notify.webhooks import ATTEMPTS_AFTER_S
from proctor.service.traces.due_signal import get_due_signal
from proctor.service.traces.intake import LONGEST_WAIT_S, read_quiet_period_s
from proctor.store.upkeep.clock_repair import has_future_waits, list_agent_settings, make_due

LOOK_EVERY_S = 30.0
_LOG = logging.getLogger("proctor.service")


async def watch_clock(hub: Hub, stop: asyncio.Event) -> None:
    """Repair waits at the start and now and then, until told to stop."""
    while not stop.is_set():
        try:
            found = await repair_waits(hub)
            if found:
                _LOG.warning("work was due far in the future, and is due now: was the clock put back?", extra={"rows": found})
        except StoreError as error:
            _LOG.warning("waits cannot be looked at now", extra={"error": str(error)})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_EVERY_S)


async def repair_waits(hub: Hub) -> int:
    """Make due what waits for longer than anything has to; return how many rows that were."""
    settings = hub.settings
    bounds = {
        "now": hub.clock(),
        "longest_wait_s": max(LONGEST_WAIT_S, LONGEST_EXPORT_WAIT_S, settings.quiet_period_s, settings.lease_s),
        "longest_delivery_s": max(ATTEMPTS_AFTER_S),
    }
    async with hub.database.reading() as connection:
        # A look first: it takes no lock, and nearly always there is nothing to repair.
        if not await has_future_waits(connection, **bounds):
            return 0
        # An agent may ask for a longer wait than the service; what waits for that is not late.
        own = [read_quiet_period_s(settings) or 0.0 for settings in await list_agent_settings(connection)]
        bounds["longest_wait_s"] = max(bounds["longest_wait_s"], *own, 0.0)
    async with hub.database.writing() as connection:
        found = await make_due(connection, **bounds)
    # The evaluator sleeps until the time that has just been changed.
    get_due_signal(hub.database).set()
    return found
