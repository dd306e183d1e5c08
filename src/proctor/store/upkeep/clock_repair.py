"""Repairs times in the database that no clock of this service can have meant: stored before the machine's clock was put back.

A process that goes on does not notice (its own clock never goes back), but one that is started afterwards finds work that is due, or
leased, far in the future. Whatever is later than the longest wait that is ever stored is due now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.tables import agents, alert_deliveries, exports, runs, traces

MARGIN_S = 60.0
"""How far the clocks of several servers may lie apart."""


async def make_due(connection: AsyncConnection, *, now: float, longest_wait_s: float, longest_delivery_s: float) -> int:
    """Make due what was stored by a clock that has been put back since; return how many rows that were."""
    found = 0
    for column, late, instead in _list_waits(now, longest_wait_s, longest_delivery_s):
        found += (await connection.execute(sa.update(column.table).where(late).values({column: instead}))).rowcount
    return found


async def has_future_waits(connection: AsyncConnection, *, now: float, longest_wait_s: float, longest_delivery_s: float) -> bool:
    """Return whether something waits for longer than anything ever has to."""
    for column, late, _ in _list_waits(now, longest_wait_s, longest_delivery_s):
        if (await connection.execute(sa.select(column).where(late).limit(1))).first() is not None:
            return True
    return False


async def list_agent_settings(connection: AsyncConnection) -> list[dict[str, Any]]:
    """Return the settings of all agents."""
    return [row.settings for row in await connection.execute(sa.select(agents.c.settings))]


def _list_waits(now: float, longest_wait_s: float, longest_delivery_s: float) -> Iterator[tuple[Any, Any, float]]:
    """Yield every time that something waits for, what is too late for it, and what it is to be instead."""
    # A wait that is legitimate must never be cut short, so the longest that is ever stored is the measure, not the usual one.
    far = now + longest_wait_s + MARGIN_S
    yield traces.c.due_at, traces.c.due_at > far, now
    # A lease that ran out: whoever had it is gone, or will find that it lost it.
    yield traces.c.leased_until, traces.c.leased_until > far, 0.0
    yield runs.c.leased_until, runs.c.leased_until > far, 0.0
    yield exports.c.next_at, exports.c.next_at > far, now
    yield alert_deliveries.c.next_at, alert_deliveries.c.next_at > now + longest_delivery_s + MARGIN_S, now
