"""One row per trace; spans that arrive later are stored in a parts table.

A trace is identified by its agent and its external id. A body in one piece replaces the earlier one; spans are added to it. Every arrival
increments `revision`, and a part has the number of its revision, so that parts are in the order of their arrival.

A worker leases a trace: `leased_until` and `lease_owner`. A dead worker loses its lease by time alone. Results clear `due_at` only if
nothing has arrived since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningInsert

from proctor.store.sql.pages import Row, fetch_all, fetch_first
from proctor.store.sql.queries import insert_or_update
from proctor.store.sql.tables import agents, exports, results, trace_parts, traces

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
    """Whether it replaces the earlier content; otherwise it is added."""
    ended: bool = True
    """Whether nothing more is expected."""
    due_at: float
    """When it may be evaluated, if `ended` or if nothing more arrives."""
    quiet_due_at: float
    """The same, if its root arrived earlier."""

    @property
    def key(self) -> Key:
        """Agent and external id."""
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
    existing_agents = await _list_existing_agents(connection, {arrival.agent_id for arrival in arrivals})
    answers: dict[Key, ArrivalResult] = {}
    # In one order everywhere, so that two servers with the same traces cannot deadlock.
    ordered = sorted((arrival for arrival in arrivals if arrival.agent_id in existing_agents), key=lambda arrival: arrival.key)
    for arrival in arrivals:
        if arrival.agent_id not in existing_agents:
            answers[arrival.key] = _make_refusal(arrival, "agent_gone", now)
    if not ordered:
        return answers
    statement = _POSTGRES_KEEP if connection.dialect.name == "postgresql" else _SQLITE_KEEP
    stored = (await connection.execute(statement, [_make_row(arrival, now) for arrival in ordered])).all()
    by_key = {(row.agent_id, row.external_id): row for row in stored}
    again: list[tuple[Arrival, Any]] = []
    for arrival in ordered:
        row = by_key[arrival.key]
        # The statement returns the final row: if its id is not ours, the trace existed before.
        if row.id != arrival.id:
            again.append((arrival, row))
            continue
        status = "complete" if arrival.ended else "open"
        answers[arrival.key] = ArrivalResult(id=row.id, created=True, revision=1, status=status, created_at=now, updated_at=now)
    if again:
        answers |= await _extend_traces(connection, again, now)
    return answers


async def _extend_traces(connection: AsyncConnection, again: list[tuple[Arrival, Any]], now: str) -> dict[Key, ArrivalResult]:
    """Extend existing traces, or replace them. Their rows are already locked."""
    added: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    replaced: list[dict[str, Any]] = []
    answers: dict[Key, ArrivalResult] = {}
    for arrival, row in again:
        # A body in one piece has no parts to which spans could be added: spans under the same id replace it.
        adds = not arrival.replaces and row.format == "otlp"
        size = len(arrival.body) + (row.size if adds else 0)
        if adds and size > LARGEST_TRACE:
            answers[arrival.key] = _make_refusal(arrival, "too_large", now)
            continue
        # A late span does not reopen a trace whose root has ended; it only restarts the quiet period.
        ended = arrival.ended or (adds and row.status != "open")
        status = "complete" if ended else "open"
        due = arrival.due_at if arrival.ended or not ended else arrival.quiet_due_at
        change: dict[str, Any] = {"at_id": row.id, "new_status": status, "new_due_at": due, "new_size": size}
        if adds:
            added.append({**change, "new_metadata": {**(row.metadata or {}), **(arrival.metadata or {})}})
            # The upsert has incremented the revision under the row lock, so no other part has this number.
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
    names = ("id", "organization_id", "project_id", "agent_id", "external_id", "format", "body", "metadata", "due_at")
    return {
        **{name: getattr(arrival, name) for name in names},
        "status": "complete" if arrival.ended else "open",
        "revision": 1,
        "size": len(arrival.body),
        "created_at": now,
        "updated_at": now,
    }


def _make_keep_statement(insert: sqlite.Insert | postgresql.Insert) -> ReturningInsert[Any]:
    # `DO NOTHING` would neither return nor lock an existing row. This statement does both, in either database, and
    # later additions to the row in the same transaction cannot be lost between two servers.
    upsert = insert.on_conflict_do_update(
        index_elements=["agent_id", "external_id"],
        set_={"revision": traces.c.revision + 1, "updated_at": insert.excluded.updated_at},
    )
    known = ("id", "agent_id", "external_id", "revision", "status", "format", "size", "created_at", "metadata")
    return upsert.returning(*(traces.c[name] for name in known))


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
    # PostgreSQL: no agent is deleted before the traces are stored. SQLite has one writer, and ignores this.
    return set((await connection.execute(query.with_for_update(read=True, key_share=True))).scalars())


async def list_pieces(connection: AsyncConnection, rows: Sequence[Row]) -> dict[str, list[bytes]]:
    """Return all stored pieces of these traces, by id and in order of arrival. The rows have `id`, `body` and `revision`."""
    bodies = {row["id"]: [row["body"]] if row["body"] is not None else [] for row in rows}
    # The first part is in the row itself; only a few traces have several parts and need a second query.
    several = [row["id"] for row in rows if row["revision"] > 1]
    if several:
        query = sa.select(trace_parts.c.trace_id, trace_parts.c.body).where(trace_parts.c.trace_id.in_(several))
        for trace_id, body in (await connection.execute(query.order_by(trace_parts.c.trace_id, trace_parts.c.number))).all():
            bodies[trace_id].append(body)
    return bodies


# The export queue: traces whose results must still be sent to another system.
# A row is written in the transaction that writes the results, and deleted when they were accepted: a crash loses nothing. The sender
# moves `next_at` on first, so that one of several servers sends; a trace that was queued again has another `next_at` and stays.


async def queue_exports(connection: AsyncConnection, new_exports: Iterable[Row], now: float) -> None:
    """Queue the export of new results."""
    # In one order everywhere, to avoid deadlocks; of each trace the first of its new results.
    first: dict[str, Row] = {}
    for row in sorted(new_exports, key=lambda row: (row["trace_id"], row["updated_at"])):
        first.setdefault(row["trace_id"], row)
    if first:
        # A waiting trace retains its earlier time.
        ordered = [
            {"trace_id": id, "organization_id": row["organization_id"], "since": row["updated_at"], "queued_at": now, "next_at": now}
            for id, row in first.items()
        ]
        await connection.execute(insert_or_update(connection, exports, ordered, key=("trace_id",), change=("next_at",)))


async def take_exports(connection: AsyncConnection, *, now: float, until: float, limit: int) -> list[Row]:
    """Lease due exports until that time and return them, the longest due first."""
    due = sa.select(exports.c.trace_id).where(exports.c.next_at <= now).order_by(exports.c.next_at).limit(limit)
    # PostgreSQL: several servers each get their own rows instead of waiting for the first. SQLite has one writer, and ignores it.
    chosen = list((await connection.execute(due.with_for_update(skip_locked=True))).scalars())
    if not chosen:
        return []
    statement = sa.update(exports).where(exports.c.trace_id.in_(chosen)).values(next_at=until).returning(*exports.c)
    return await fetch_all(connection, statement)


async def delete_exports(connection: AsyncConnection, leased: Sequence[Row]) -> None:
    """Delete exports that were sent or abandoned, except those queued again."""
    for until, ids in _group_by_lease(leased):
        # A result written during the export has reset `next_at`, and its export must not be deleted with the old one.
        await connection.execute(sa.delete(exports).where(exports.c.trace_id.in_(ids), exports.c.next_at == until))


async def postpone_exports(connection: AsyncConnection, leased: Sequence[Row], at: float) -> None:
    """Retry these exports at that time."""
    for until, ids in _group_by_lease(leased):
        await connection.execute(sa.update(exports).where(exports.c.trace_id.in_(ids), exports.c.next_at == until).values(next_at=at))


async def list_results_to_export(connection: AsyncConnection, row: Row) -> list[Row]:
    """Return the results of one trace to send."""
    ours = (results.c.organization_id == row["organization_id"], results.c.trace_id == row["trace_id"])
    query = sa.select(results).where(*ours, results.c.updated_at >= row["since"]).order_by(results.c.id)
    return await fetch_all(connection, query)


async def find_trace_to_export(connection: AsyncConnection, row: Row) -> Row | None:
    """Return the trace of the results with only the needed columns; None if it was deleted."""
    ours = (traces.c.organization_id == row["organization_id"], traces.c.id == row["trace_id"])
    columns = (traces.c.id, traces.c.format, traces.c.external_id, traces.c.revision, traces.c.body)
    return await fetch_first(connection, sa.select(*columns).where(*ours))


def _group_by_lease(leased: Sequence[Row]) -> Iterable[tuple[float, list[str]]]:
    groups: dict[float, list[str]] = {}
    for row in leased:
        groups.setdefault(row["next_at"], []).append(row["trace_id"])
    return groups.items()
