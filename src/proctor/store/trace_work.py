"""The work that waits in the table of traces: taken by lease, written back at the end.

Any number of workers, also in several processes on one PostgreSQL: a trace is leased by one of them at a time. Results are written by
whoever holds the lease, in the transaction that gives it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.many import Many, plain_text
from proctor.store.pages import Row
from proctor.store.tables import results, traces

_LEASED = (
    "id", "organization_id", "project_id", "agent_id", "external_id", "format", "revision", "body", "metadata", "due_at", "created_at",
)  # fmt: skip


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A trace that was worked on: as it was leased, and what came of it."""

    row: Row
    status: str
    outcome: str | None = None
    error: str | None = None
    input_text: str | None = None


async def next_due(connection: AsyncConnection, now: float) -> float | None:
    """When the next trace is due that nobody works on."""
    query = sa.select(traces.c.due_at).where(traces.c.due_at.is_not(None), _free(now)).order_by(traces.c.due_at).limit(1)
    return (await connection.execute(query)).scalar_one_or_none()


async def lease(connection: AsyncConnection, *, owner: str, now: float, until: float, limit: int, most_bytes: int) -> list[dict[str, Any]]:
    """Traces that are due, taken; the longest due first, no more than `limit`, and not much more than `most_bytes` together."""
    query = sa.select(traces.c.id, traces.c.size).where(traces.c.due_at <= now, _free(now)).order_by(traces.c.due_at).limit(limit)
    chosen: list[str] = []
    total = 0
    # SKIP LOCKED is for PostgreSQL; SQLite has one writer, and the compiler leaves it out there.
    for id, size in (await connection.execute(query.with_for_update(skip_locked=True))).all():
        if chosen and total + size > most_bytes:
            break
        chosen.append(id)
        total += size
    if not chosen:
        return []
    taken = sa.update(traces).where(traces.c.id.in_(chosen)).values(leased_until=until, lease_owner=owner)
    found = await connection.execute(taken.returning(*(traces.c[name] for name in _LEASED)))
    return [dict(zip(_LEASED, row, strict=True)) for row in found]


def _free(now: float) -> sa.ColumnElement[bool]:
    return sa.or_(traces.c.leased_until.is_(None), traces.c.leased_until < now)


async def renew(connection: AsyncConnection, *, owner: str, ids: Sequence[str], until: float) -> None:
    """Keep what is still worked on."""
    mine = sa.update(traces).where(traces.c.id.in_(ids), traces.c.lease_owner == owner)
    await connection.execute(mine.values(leased_until=until))


async def give_back(connection: AsyncConnection, *, owner: str, ids: Sequence[str]) -> None:
    """Leave traces to others at once, as they were."""
    mine = sa.update(traces).where(traces.c.id.in_(ids), traces.c.lease_owner == owner)
    await connection.execute(mine.values(leased_until=None, lease_owner=None))


async def finish(connection: AsyncConnection, *, owner: str, done: Sequence[Done], found: Sequence[dict[str, Any]]) -> int:
    """Write results and give traces back; how many of them were still ours. Results of the others are not written."""
    ids = [one.row["id"] for one in done]
    query = sa.select(traces.c.id).where(traces.c.id.in_(ids), traces.c.lease_owner == owner)
    # The order in which traces are kept, so that nobody waits in a circle.
    locked = query.order_by(traces.c.agent_id, traces.c.external_id).with_for_update()
    mine = set((await connection.execute(locked)).scalars())
    written = [row for row in found if row["trace_id"] in mine]
    if written:
        await (_POSTGRES_RESULTS if connection.dialect.name == "postgresql" else _SQLITE_RESULTS).run(connection, written)
    # What was decided on an earlier state of a trace, and no longer is.
    ours = [one for one in done if one.row["id"] in mine]
    changed = [{"of_trace": one.row["id"], "of_revision": one.row["revision"]} for one in ours if one.row["revision"] > 1]
    if changed:
        await connection.execute(_FORGET, changed)
    await _FINISH.run(connection, [_ended(one) for one in ours])
    return len(mine)


def _ended(one: Done) -> dict[str, Any]:
    return {
        "at_id": one.row["id"],
        "at_revision": one.row["revision"],
        "at_due": one.row["due_at"],
        "new_status": one.status,
        "new_outcome": one.outcome,
        "new_error": None if one.error is None else plain_text(one.error),
        "new_input": None if one.input_text is None else plain_text(one.input_text),
    }


_FORGET = sa.delete(results).where(
    results.c.trace_id == sa.bindparam("of_trace"), results.c.trace_revision < sa.bindparam("of_revision", type_=sa.BigInteger)
)
# Something came meanwhile when either of these has changed; then the trace stays due, as whoever changed it wanted.
_UNCHANGED = sa.and_(
    traces.c.revision == sa.bindparam("at_revision", type_=sa.BigInteger), traces.c.due_at == sa.bindparam("at_due", type_=sa.Float)
)
_FINISH = Many(
    sa.update(traces)
    .where(traces.c.id == sa.bindparam("at_id"))
    .values(
        status=sa.case((_UNCHANGED, sa.bindparam("new_status", type_=sa.Text)), else_=traces.c.status),
        outcome=sa.bindparam("new_outcome"),
        error=sa.bindparam("new_error"),
        input_text=sa.bindparam("new_input"),
        due_at=sa.case((_UNCHANGED, sa.null()), else_=traces.c.due_at),
        leased_until=sa.null(),
        lease_owner=sa.null(),
    ),
    ("new_status", "new_outcome", "new_error", "new_input"),
)


def _results_statement(insert: sqlite.Insert | postgresql.Insert) -> Many:
    changed = ("trace_revision", "outcome", "score", "verdict", "code", "body", "updated_at")
    statement = insert.on_conflict_do_update(
        index_elements=["trace_id", "case_id", "case_version", "case_key"],
        set_={name: insert.excluded[name] for name in changed},
        where=insert.excluded.trace_revision >= results.c.trace_revision,
    )
    return Many(statement, [column.name for column in results.c])


_SQLITE_RESULTS = _results_statement(sqlite.insert(results))
_POSTGRES_RESULTS = _results_statement(postgresql.insert(results))
