"""Backtests: a case decided on stored traces, as a run.

    newest first      the traces of an agent or project that existed when the backtest was requested
    `looked_at`       the progress, stored with every step, so that a requeued run continues there
    `left_out`        skipped traces by reason; they are not attempts
    numbers           the results of each case are numbered from 0: they are the attempts of the run

A run plans as many attempts as there are traces. At its end, its attempts are those that were decided.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.traces.case_history import COLUMNS, StoredTrace, fetch_pieces
from proctor.store.sql.pages import fetch_all
from proctor.store.sql.queries import ListQuery, list_query
from proctor.store.sql.tables import traces

STORED_TRACES = "stored traces"
"""The name of the target in runs that call no agent."""
STEP = 20
"""Traces of one step."""
STEP_BYTES = 2_000_000
"""Compressed bytes of the traces of one step; in memory they may be a hundred times as large."""

LeftOut = Literal["still_open", "not_chosen", "no_run", "other_case"]


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """The traces of a backtest, and its progress."""

    case_id: str
    version: int
    agent_id: str | None = None
    """None: every agent of the project."""
    when: dict[str, Json] | None = None
    since: str | None = None
    until: str
    """Traces before this time, at most the time of the request."""
    traces: int
    """Number of traces, at most the requested number."""
    looked_at: int = 0
    left_out: dict[str, int] = {}
    edge: tuple[str, str] | None = None
    """Time and id of the last trace that was examined."""
    is_done: bool = False


async def count_traces(connection: AsyncConnection, organization_id: str, project_id: str, backtest: Backtest, limit: int) -> int:
    """Return the number of traces, at most `limit`."""
    some = _make_query(organization_id, project_id, backtest, ("id",)).whole.limit(limit).subquery()
    return int((await connection.execute(sa.select(sa.func.count()).select_from(some))).scalar_one())


async def fetch_next_traces(connection: AsyncConnection, organization_id: str, project_id: str, backtest: Backtest) -> list[StoredTrace]:
    """Return the next traces, newest first; none at the end."""
    traces_left = backtest.traces - backtest.looked_at
    if traces_left <= 0:
        return []
    # Sizes first, which bounds the memory of a step to at least one trace.
    sizes = _order(_make_query(organization_id, project_id, backtest, ("id", "size")).whole).limit(min(STEP, traces_left))
    chosen: list[str] = []
    bytes_left = STEP_BYTES
    for row in (await connection.execute(sizes)).mappings():
        bytes_left -= row["size"]
        if chosen and bytes_left < 0:
            break
        chosen.append(row["id"])
    rows = _order(sa.select(*(traces.c[name] for name in COLUMNS)).where(traces.c.id.in_(chosen)))
    return await fetch_pieces(connection, organization_id, await fetch_all(connection, rows))


def _make_query(organization_id: str, project_id: str, backtest: Backtest, columns: tuple[str, ...]) -> ListQuery:
    along = [traces.c.created_at < backtest.until]
    if backtest.since is not None:
        along.append(traces.c.created_at >= backtest.since)
    if backtest.edge is not None:
        along.append(sa.tuple_(traces.c.created_at, traces.c.id) < sa.tuple_(*map(sa.literal, backtest.edge)))
    equal = {"organization_id": organization_id, "project_id": project_id, "agent_id": backtest.agent_id}
    return list_query(traces, equal, columns=columns, along=along)


def _order(query: sa.Select[Any]) -> sa.Select[Any]:
    return query.order_by(traces.c.created_at.desc(), traces.c.id.desc())
