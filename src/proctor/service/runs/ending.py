"""The end of a run: how its attempts came out, and what pages and comparisons will ask of it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from proctor.actions.workspace.run_history import result_of
from proctor.errors import InputError, StoreError
from proctor.model.run import RunEntry
from proctor.model.verdict import OUTCOMES
from proctor.service.hub import Hub
from proctor.service.runs.building import header_of, read_kept_suite
from proctor.service.runs.failures import find_failures
from proctor.service.runs.figures import keep_figures, tally_run
from proctor.service.runs.latency import find_latency
from proctor.store.runs.run_rows import iterate_entries
from proctor.store.sql.pages import Row

_LOG = logging.getLogger("proctor.service")


async def count_attempts(hub: Hub, run: Row, status: Literal["completed", "cancelled", "failed"]) -> tuple[dict[str, int], str]:
    """Return how many attempts ended how, and what the run as a whole is."""
    entries: list[RunEntry] = []
    async with hub.database.reading() as connection:
        async for entry in iterate_entries(connection, run["id"], evidence=False):
            entries.append(entry)
    found = Counter(entry.outcome for entry in entries)
    counts = {outcome: found[outcome] for outcome in OUTCOMES if found[outcome]}
    try:
        result = await asyncio.to_thread(lambda: result_of(header_of(run), read_kept_suite(run), entries, status))
    except InputError:
        # It could be read when it came; a newer version may read it no more.
        return counts, "error"
    return counts, result.outcome


async def keep_run_figures(hub: Hub, run: Row, counts: Mapping[str, int]) -> None:
    """Work out what pages and comparisons ask of a run that has just ended, and keep it. Without it they work it out themselves."""
    try:
        async with hub.database.reading() as connection:
            tally = await tally_run(connection, run["id"])
            failures = await find_failures(connection, run)
            latency = await find_latency(connection, run["id"], sum(counts.values()))
        async with hub.database.writing() as connection:
            await keep_figures(connection, run["id"], tally, failures, latency)
    except StoreError as error:
        # The run has ended well, whatever becomes of this.
        _LOG.warning("what was found out about a run could not be kept", extra={"run": run["id"], "reason": str(error)})
