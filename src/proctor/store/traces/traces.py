"""One row per trace; spans that arrive later are stored in a parts table.

A trace is identified by its agent and its external id. A body in one piece replaces the earlier one; spans are added to it. Every arrival
increments `revision`, and a part has the number of its revision, so that parts are in the order of their arrival.

A worker leases a trace: `leased_until` and `lease_owner`. A dead worker loses its lease by time alone. Results clear `due_at` only if
nothing has arrived since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningInsert

from proctor.store.sql.pages import Row
from proctor.store.sql.tables import agents, trace_parts, traces

LARGEST_TRACE = 64 * 1024 * 1024
"""Stored bytes of one trace. Spans beyond that are rejected."""

Format = Literal["mibo", "otlp"]
Key = tuple[str, str]
"""Agent and external id."""


class Arrival(msgspec.Struct, kw_only=True):
    """Data that arrived for one trace, ready to be stored. `id` is the trace's if it is new."""

    id: str
    organization_id: str
    project_id: str
    agent_id: str
    external_id: str
    format: Format
    body: bytes
    """Compressed JSON: an object (a body in one piece), or a list (groups of spans)."""
    metadata: dict[str, Any] | None = None
    replaces: bool = True
    """Whether it takes the place of what was there; otherwise it is added to it."""
    ended: bool = True
    """Whether nothing more is expected."""
    due_at: float
    """From when it may be evaluated, if `ended` or if it stays like this."""
    quiet_due_at: float
    """The same, if its root came earlier."""

    @property
    def key(self) -> Key:
        """What it is known by."""
        return (self.agent_id, self.external_id)


class ArrivalResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of storing an arrival."""

    id: str
    created: bool
    revision: int
    status: str
    created_at: str
    updated_at: str
    refused: str | None = None
    """Why it was rejected: `agent_gone`, `too_large`."""


async def keep_arrivals(connection: AsyncConnection, arrivals: Sequence[Arrival], now: str) -> dict[Key, ArrivalResult]:
    """Store arrivals, at most one for each trace. Arrivals for deleted agents are rejected."""
    there = await _list_existing_agents(connection, {arrival.agent_id for arrival in arrivals})
    answers: dict[Key, ArrivalResult] = {}
    # In one order everywhere: two servers that keep the same traces never wait for each other in a circle.
    ordered = sorted((arrival for arrival in arrivals if arrival.agent_id in there), key=lambda arrival: arrival.key)
    for arrival in arrivals:
        if arrival.agent_id not in there:
            answers[arrival.key] = _make_refusal(arrival, "agent_gone", now)
    if not ordered:
        return answers
    statement = _POSTGRES_KEEP if connection.dialect.name == "postgresql" else _SQLITE_KEEP
    found = (await connection.execute(statement, [_make_row(arrival, now) for arrival in ordered])).all()
    by_key = {(row.agent_id, row.external_id): row for row in found}
    again: list[tuple[Arrival, Any]] = []
    for arrival in ordered:
        row = by_key[arrival.key]
        # The statement returns the row that is there afterwards: with another id than ours it was there before.
        if row.id != arrival.id:
            again.append((arrival, row))
            continue
        status = "complete" if arrival.ended else "open"
        answers[arrival.key] = ArrivalResult(id=row.id, created=True, revision=1, status=status, created_at=now, updated_at=now)
    if again:
        answers |= await _extend_traces(connection, again, now)
    return answers


async def _extend_traces(connection: AsyncConnection, again: list[tuple[Arrival, Any]], now: str) -> dict[Key, ArrivalResult]:
    """Add to traces that were there, or replace them. Their rows are locked by now."""
    added: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    replaced: list[dict[str, Any]] = []
    answers: dict[Key, ArrivalResult] = {}
    for arrival, row in again:
        # A body in one piece has no parts that spans could be added to: spans under the same id take its place.
        adds = not arrival.replaces and row.format == "otlp"
        size = len(arrival.body) + (row.size if adds else 0)
        if adds and size > LARGEST_TRACE:
            answers[arrival.key] = _make_refusal(arrival, "too_large", now)
            continue
        # A late span does not open a trace again whose root has ended; it only waits for silence once more.
        ended = arrival.ended or (adds and row.status != "open")
        status = "complete" if ended else "open"
        due = arrival.due_at if arrival.ended or not ended else arrival.quiet_due_at
        change: dict[str, Any] = {"at_id": row.id, "new_status": status, "new_due_at": due, "new_size": size}
        if adds:
            added.append({**change, "new_metadata": {**(row.metadata or {}), **(arrival.metadata or {})}})
            # The upsert has counted the revision up under the lock of the row, so no other part has this number.
            parts.append({"trace_id": row.id, "number": row.revision, "body": arrival.body, "created_at": now})
        else:
            replaced.append({**change, "new_metadata": arrival.metadata, "new_format": arrival.format, "new_body": arrival.body})
        answers[arrival.key] = ArrivalResult(
            id=row.id, created=False, revision=row.revision, status=status, created_at=row.created_at, updated_at=now
        )
    if replaced:
        await connection.execute(sa.delete(trace_parts).where(trace_parts.c.trace_id.in_([change["at_id"] for change in replaced])))
        await connection.execute(_REPLACE, replaced)
    if added:
        await connection.execute(_ADD, added)
        await connection.execute(sa.insert(trace_parts), parts)
    return answers


def _make_refusal(arrival: Arrival, why: str, now: str) -> ArrivalResult:
    return ArrivalResult(id=arrival.id, created=False, revision=0, status="failed", created_at=now, updated_at=now, refused=why)


def _make_row(arrival: Arrival, now: str) -> dict[str, Any]:
    return {
        "id": arrival.id,
        "organization_id": arrival.organization_id,
        "project_id": arrival.project_id,
        "agent_id": arrival.agent_id,
        "external_id": arrival.external_id,
        "format": arrival.format,
        "status": "complete" if arrival.ended else "open",
        "revision": 1,
        "size": len(arrival.body),
        "body": arrival.body,
        "metadata": arrival.metadata,
        "due_at": arrival.due_at,
        "created_at": now,
        "updated_at": now,
    }


def _make_keep_statement(insert: sqlite.Insert | postgresql.Insert) -> ReturningInsert[Any]:
    # `DO NOTHING` would return no row for what was there, and lock none. This one returns and locks it, in either database, and what is
    # added to the row afterwards in the same transaction cannot get lost between two servers.
    there = insert.on_conflict_do_update(
        index_elements=["agent_id", "external_id"],
        set_={"revision": traces.c.revision + 1, "updated_at": insert.excluded.updated_at},
    )
    known = ("id", "agent_id", "external_id", "revision", "status", "format", "size", "created_at", "metadata")
    return there.returning(*(traces.c[name] for name in known))


_SQLITE_KEEP = _make_keep_statement(sqlite.insert(traces))
_POSTGRES_KEEP = _make_keep_statement(postgresql.insert(traces))
_ADD = (
    sa.update(traces)
    .where(traces.c.id == sa.bindparam("at_id"))
    .values(
        status=sa.bindparam("new_status"),
        due_at=sa.bindparam("new_due_at"),
        size=sa.bindparam("new_size"),
        metadata=sa.bindparam("new_metadata"),
        # New content: the count of dead workers starts again.
        attempts=0,
    )
)
_REPLACE = _ADD.values(format=sa.bindparam("new_format"), body=sa.bindparam("new_body"))


async def _list_existing_agents(connection: AsyncConnection, ids: set[str]) -> set[str]:
    query = sa.select(agents.c.id).where(agents.c.id.in_(sorted(ids))).order_by(agents.c.id)
    # PostgreSQL: none of them goes away before the traces are there. SQLite has one writer, and leaves this out.
    return set((await connection.execute(query.with_for_update(read=True, key_share=True))).scalars())


async def list_pieces(connection: AsyncConnection, rows: Sequence[Row]) -> dict[str, list[bytes]]:
    """Return everything that came for these traces, by their ids and in the order it came. The rows have `id`, `body` and `revision`."""
    found = {row["id"]: [row["body"]] if row["body"] is not None else [] for row in rows}
    # The first part is in the row itself; only few traces have several parts and cost a second query.
    several = [row["id"] for row in rows if row["revision"] > 1]
    if several:
        query = sa.select(trace_parts.c.trace_id, trace_parts.c.body).where(trace_parts.c.trace_id.in_(several))
        for trace_id, body in (await connection.execute(query.order_by(trace_parts.c.trace_id, trace_parts.c.number))).all():
            found[trace_id].append(body)
    return found
