"""What whoever runs a service wants to see at a glance: how it is, what waits, how much room is left, what is kept for how long."""

from __future__ import annotations

import asyncio
import shutil

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_operator
from proctor.service.hub import Hub
from proctor.store.runs.queue_sizes import count_queue


async def read_figures(hub: Hub, caller: Caller) -> dict[str, Json]:
    """Return what waits, the room there is and what is kept; of the whole service, so only for who may read that."""
    await require_operator(hub, caller)
    async with hub.database.reading() as connection:
        queue = await count_queue(connection)
    now = hub.clock()
    return {
        "queue": {
            "traces": queue.traces,
            "trace_wait_s": queue.measure_trace_wait(now),
            "runs_queued": queue.runs_queued,
            "runs_running": queue.runs_running,
            "run_wait_s": queue.measure_run_wait(now),
            "deliveries": queue.deliveries,
        },
        "storage": await asyncio.to_thread(_measure_storage, hub),
        "retention": {"days": hub.settings.retention_days, "bytes": hub.settings.retention_bytes},
        "workers": {"runs": hub.settings.workers, "traces": hub.settings.evaluators},
    }


def _measure_storage(hub: Hub) -> dict[str, Json]:
    """Return the size of a database in a file with what belongs to it, and how much is free beside it; None where nobody here knows."""
    file = hub.database.file
    size: int | None = None
    if file is not None:
        beside = [file, file.with_name(f"{file.name}-wal")]
        size = sum(one.stat().st_size for one in beside if one.exists())
    try:
        free: int | None = shutil.disk_usage(hub.settings.home).free
    except OSError:
        free = None
    return {"database": "postgresql" if file is None else "sqlite", "database_bytes": size, "free_bytes": free}
