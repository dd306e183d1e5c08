"""How much waits to be done, counted so that asking often costs little."""

from __future__ import annotations

from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.tables import alert_deliveries, runs, traces

MOST_COUNTED = 100_000
"""Rows beyond this are not counted: the figure is read every few seconds."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """What waits."""

    traces: int
    """To be evaluated; up to `MOST_COUNTED`."""
    first_due: float | None
    """When the trace that waits longest was due, in Unix seconds."""
    runs_queued: int
    runs_running: int
    first_queued: str | None
    """When the run that waits longest was queued."""
    deliveries: int
    """Messages of alerts to be sent; up to `MOST_COUNTED`."""

    def measure_trace_wait(self, now: float) -> float:
        """Return for how many seconds the trace that waits longest could have been evaluated."""
        return 0.0 if self.first_due is None else max(0.0, now - self.first_due)

    def measure_run_wait(self, now: float) -> float:
        """Return for how many seconds the run that waits longest has been in the queue."""
        return max(0.0, now - datetime.fromisoformat(self.first_queued).timestamp()) if self.first_queued else 0.0


async def count_queue(connection: AsyncConnection) -> Queue:
    """Return what waits, of all organizations."""
    due = sa.select(traces.c.due_at).where(traces.c.due_at.is_not(None)).limit(MOST_COUNTED).subquery()
    waiting, first_due = (await connection.execute(sa.select(sa.func.count(), sa.func.min(due.c.due_at)))).one()
    active = sa.select(runs.c.status, sa.func.count(), sa.func.min(runs.c.updated_at))
    active = active.where(runs.c.status.in_(("queued", "running"))).group_by(runs.c.status)
    by_status: dict[str, tuple[int, str]] = {row[0]: (row[1], row[2]) for row in await connection.execute(active)}
    unsent = sa.select(alert_deliveries.c.next_at).where(alert_deliveries.c.next_at.is_not(None)).limit(MOST_COUNTED).subquery()
    deliveries = (await connection.execute(sa.select(sa.func.count()).select_from(unsent))).scalar_one()
    return Queue(
        traces=waiting,
        first_due=first_due,
        runs_queued=by_status.get("queued", (0, ""))[0],
        runs_running=by_status.get("running", (0, ""))[0],
        first_queued=by_status["queued"][1] if "queued" in by_status else None,
        deliveries=deliveries,
    )
