"""The queue of traces to evaluate: leased by workers, written back at the end.

Any number of workers, also in several processes on one PostgreSQL: a trace is leased by one of them at a time. Results are written by
the holder of the lease, in the transaction that gives it back. Agents have turns: one with a long queue does not hold up the others. A
lease that ran out means that a worker died; how often that happened to a trace is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.pages import Row
from proctor.store.sql.queries import BulkStatement, clean_text
from proctor.store.sql.sqlite_driver import OneWayConnection
from proctor.store.sql.tables import results, traces

# Writes many rows to SQLite in few statements and one switch to the driver's thread.

_SIZES = (500, 250, 100, 50, 20, 10, 5, 2, 1)
"""Rows per statement. Few sizes, because the driver caches prepared statements."""


async def run_for_rows(
    connection: AsyncConnection, statement: Callable[[str], str], names: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Run a statement for rows. `statement` builds it from the text after VALUES; `names` are the fields of a row, in order."""
    works: list[tuple[str, tuple[Any, ...]]] = []
    start = 0
    while start < len(rows):
        # The widest row has 16 fields: 500 rows are 8,000 parameters, and SQLite allows 32,766 per statement.
        size = next(size for size in _SIZES if size <= len(rows) - start)
        some = rows[start : start + size]
        works.append((_write_statement(statement, len(names), size), tuple(row[name] for row in some for name in names)))
        start += size
    driver = cast(OneWayConnection, (await connection.get_raw_connection()).driver_connection)
    await driver.run_all(works)


@lru_cache(maxsize=100)
def _write_statement(statement: Callable[[str], str], width: int, count: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement(", ".join([row] * count))


_LEASED = (
    "id", "organization_id", "project_id", "agent_id", "external_id", "format", "revision", "body", "metadata", "due_at", "attempts",
    "created_at",
)  # fmt: skip
MOST_AGENTS = 50
"""Maximum agents per batch; the others are next. A share of a batch must be worth its query."""


class FinishedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluated trace, as leased, and its result."""

    row: Row
    status: str
    outcome: str | None = None
    error: str | None = None
    no_run: str | None = None
    """Why it is not an agent run: then it has no results, and old ones are deleted."""
    input_text: str | None = None
    digest: str | None = None


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a batch: its size, and the eligible agents."""

    owner: str
    now: float
    until: float
    """When the lease expires unless it is renewed."""
    limit: int
    most_bytes: int
    after: str = ""
    """The agent with the last turn; those after it come first."""
    without: frozenset[str] = frozenset()
    """Agents without a turn now."""


async def find_next_due(connection: AsyncConnection, now: float) -> float | None:
    """Return when the next unleased trace is due."""
    # One index lookup per waiting agent. A plain minimum over the table would read all waiting rows, and an idle worker
    # queries this twice a second.
    of_agent = (
        sa.select(traces.c.due_at)
        .where(traces.c.agent_id == _WAITING.c.agent_id, traces.c.due_at.is_not(None), traces.c.leased_until.is_(None))
        .order_by(traces.c.due_at)
        .limit(1)
        .scalar_subquery()
    )
    first = (await connection.execute(sa.select(sa.func.min(of_agent)).select_from(_WAITING))).scalar_one_or_none()
    # An expired lease is work too: its worker died.
    abandoned = sa.select(traces.c.due_at).where(traces.c.leased_until < now, traces.c.due_at.is_not(None)).limit(1)
    expired = (await connection.execute(abandoned)).scalar_one_or_none()
    return min((due for due in (first, expired) if due is not None), default=None)


async def lease_batch(connection: AsyncConnection, turn: BatchRequest) -> list[tuple[str, str]]:
    """Choose and lease traces; return their ids and agents in working order."""
    chosen = await choose_batch(connection, turn)
    await lease_chosen(connection, turn, chosen)
    return chosen


async def lease_chosen(connection: AsyncConnection, turn: BatchRequest, chosen: Sequence[tuple[str, str]]) -> None:
    """Lease traces, except those that another worker has leased in the meantime; `list_leased` returns ours."""
    await _write_lease(connection, turn, [id for id, _ in chosen], traces.c.leased_until.is_(None))


async def list_leased(connection: AsyncConnection, owner: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the traces among these that `owner` has leased, in the same order."""
    query = sa.select(*(traces.c[name] for name in _LEASED)).where(traces.c.id.in_(ids), traces.c.lease_owner == owner)
    leased = (await connection.execute(query)).all()
    rows: dict[str, dict[str, Any]] = {row[0]: dict(zip(_LEASED, row, strict=True)) for row in leased}
    return [rows[id] for id in ids if id in rows]


async def choose_batch(connection: AsyncConnection, turn: BatchRequest) -> list[tuple[str, str]]:
    """Return the ids and agents of due traces: round robin over the agents, the longest due first, up to the share of each agent.

    The total may slightly exceed the byte limit; otherwise a trace larger than the limit would never be chosen.
    """
    chosen: dict[str, list[tuple[str, str]]] = {agent: [] for agent in await _list_agents_in_turn(connection, turn)}
    places_left, bytes_left = turn.limit, turn.most_bytes
    agents = list(chosen)
    # The second pass gives unused shares to the agents that have more due traces than their share.
    for _ in range(2):
        unsatisfied: list[str] = []
        for position, agent in enumerate(agents):
            # What is left, divided by the agents that are left and rounded up: every agent gets at least one.
            share = -(-places_left // (len(agents) - position))
            if share <= 0 or bytes_left <= 0:
                break
            query = sa.select(traces.c.id, traces.c.size).where(traces.c.agent_id == agent, traces.c.due_at <= turn.now)
            query = query.where(traces.c.leased_until.is_(None)).order_by(traces.c.due_at, traces.c.id)
            # Nothing is leased yet, so the second pass skips the choices of the first; `SKIP LOCKED` does not skip rows that this
            # transaction has locked itself.
            query = query.offset(len(chosen[agent])).limit(share)
            ids, size = await _take_fitting(connection, query, bytes_left // (len(agents) - position))
            chosen[agent] += [(id, agent) for id in ids]
            places_left -= len(ids)
            bytes_left -= size
            if len(ids) == share:
                unsatisfied.append(agent)
        agents = unsatisfied
    # The first of each agent, then the second of each: a batch that is cut short is still fair.
    return [choice for rank in zip_longest(*chosen.values()) for choice in rank if choice is not None]


async def has_abandoned(connection: AsyncConnection, now: float) -> bool:
    """Return whether a worker with leases is gone."""
    query = sa.select(traces.c.id).where(traces.c.leased_until < now, traces.c.due_at.is_not(None)).limit(1)
    return (await connection.execute(query)).first() is not None


async def lease_abandoned(connection: AsyncConnection, turn: BatchRequest, few: int) -> list[str]:
    """Lease traces whose worker is gone, count that, and return their ids.

    Only a few at once, because one of them may crash its worker again. A trace that was abandoned before is leased alone.
    """
    query = sa.select(traces.c.id, traces.c.size, traces.c.attempts).where(traces.c.leased_until < turn.now, traces.c.due_at.is_not(None))
    abandoned = (
        await connection.execute(query.order_by(traces.c.leased_until, traces.c.id).limit(few).with_for_update(skip_locked=True))
    ).all()
    fresh: list[str] = []
    left_bytes = turn.most_bytes
    for id, size, attempts in abandoned:
        if attempts:
            # It was in a group that failed once: alone it shows whether it is the cause.
            fresh = [id]
            break
        left_bytes -= size
        if fresh and left_bytes < 0:
            break
        fresh.append(id)
    await _write_lease(connection, turn, fresh, traces.c.leased_until < turn.now, attempts=traces.c.attempts + 1)
    return fresh


async def _list_agents_in_turn(connection: AsyncConnection, turn: BatchRequest) -> list[str]:
    """Return the agents with waiting traces, once around, starting after the last one."""
    agents = sorted((await connection.execute(sa.select(_WAITING.c.agent_id).where(_WAITING.c.agent_id.is_not(None)))).scalars())
    ordered = [*(id for id in agents if id > turn.after), *(id for id in agents if id <= turn.after)]
    return [id for id in ordered if id not in turn.without][: min(MOST_AGENTS, turn.limit)]


async def _take_fitting(connection: AsyncConnection, query: sa.Select[Any, Any], left_bytes: int) -> tuple[list[str], int]:
    ids: list[str] = []
    total = 0
    # SKIP LOCKED is for PostgreSQL; SQLite has one writer, and the compiler omits it there.
    for id, size in (await connection.execute(query.with_for_update(skip_locked=True))).all():
        if ids and total + size > left_bytes:
            break
        ids.append(id)
        total += size
    return ids, total


async def _write_lease(
    connection: AsyncConnection, turn: BatchRequest, ids: Sequence[str], free: sa.ColumnElement[bool], **more: Any
) -> None:
    if ids:
        # SQLite chooses in an earlier read transaction, so another process may have leased or finished some of them. Traces that are no
        # longer free or due are skipped here and missing in `list_leased`.
        mine = sa.update(traces).where(traces.c.id.in_(ids), free, traces.c.due_at.is_not(None))
        await connection.execute(mine.values(leased_until=turn.until, lease_owner=turn.owner, **more))


async def renew_leases(connection: AsyncConnection, *, owner: str, ids: Sequence[str], until: float) -> None:
    """Extend the leases of traces in progress."""
    await connection.execute(_update_mine(owner, ids).values(leased_until=until))


def _update_mine(owner: str, ids: Sequence[str]) -> sa.Update:
    # By owner: a worker that stalled beyond its lease must not change the lease of its successor.
    return sa.update(traces).where(traces.c.id.in_(ids), traces.c.lease_owner == owner)


async def return_leases(connection: AsyncConnection, *, owner: str, ids: Sequence[str]) -> None:
    """Return traces unchanged to the queue."""
    # `due_at` and `attempts` stay: the trace keeps its position in the queue, and returning it is not counted as a failure.
    await connection.execute(_update_mine(owner, ids).values(leased_until=None, lease_owner=None))


async def abandon_leases(connection: AsyncConnection, *, owner: str, ids: Sequence[str]) -> None:
    """Release traces as if their worker had died, so that it is counted."""
    # Zero is an expired lease: `lease_abandoned` finds it, and counts the attempt.
    await connection.execute(_update_mine(owner, ids).values(leased_until=0.0, lease_owner=None))


async def finish_traces(connection: AsyncConnection, *, owner: str, done: Sequence[FinishedTrace], found: Sequence[dict[str, Any]]) -> int:
    """Write results and end the leases; return the number of traces that were still ours. Results of others are not written."""
    ids = [item.row["id"] for item in done]
    query = sa.select(traces.c.id).where(traces.c.id.in_(ids), traces.c.lease_owner == owner)
    # Locked in the same order as arriving traces, to avoid deadlocks.
    locked = query.order_by(traces.c.agent_id, traces.c.external_id).with_for_update()
    mine = set((await connection.execute(locked)).scalars())
    written = [row for row in found if row["trace_id"] in mine]
    postgres = connection.dialect.name == "postgresql"
    if written:
        await (
            _POSTGRES_RESULTS.run(connection, written) if postgres else run_for_rows(connection, _write_sqlite_results, _RESULT, written)
        )
    # Results of an earlier revision of a trace that no longer apply.
    ours = [item for item in done if item.row["id"] in mine]
    changed = [
        # One more than the revision if the trace is not an agent run: then the results of this revision are deleted, too.
        {"of_trace": item.row["id"], "of_revision": item.row["revision"] + (item.no_run is not None)}
        for item in ours
        # The first revision has no earlier results, and most traces never have a second: they need no DELETE.
        if item.row["revision"] > 1 or item.no_run is not None
    ]
    if changed:
        await connection.execute(_FORGET, changed)
    ended = [_make_end_row(item) for item in ours]
    await (_FINISH.run(connection, ended) if postgres else run_for_rows(connection, _write_sqlite_finish, _ENDED, ended))
    return len(mine)


def _make_end_row(one: FinishedTrace) -> dict[str, Any]:
    return {
        "at_id": one.row["id"],
        "at_revision": one.row["revision"],
        "at_due": one.row["due_at"],
        "new_status": one.status,
        "new_outcome": one.outcome,
        "new_error": None if one.error is None else clean_text(one.error),
        "new_no_run": None if one.no_run is None else clean_text(one.no_run),
        "new_input": None if one.input_text is None else clean_text(one.input_text),
        "new_digest": None if one.digest is None else clean_text(one.digest),
    }


_FORGET = sa.delete(results).where(
    results.c.trace_id == sa.bindparam("of_trace"), results.c.trace_revision < sa.bindparam("of_revision", type_=sa.BigInteger)
)
# If either has changed, something has arrived; then the trace stays due.
_UNCHANGED = sa.and_(
    traces.c.revision == sa.bindparam("at_revision", type_=sa.BigInteger), traces.c.due_at == sa.bindparam("at_due", type_=sa.Float)
)
_FINISH = BulkStatement(
    sa.update(traces)
    .where(traces.c.id == sa.bindparam("at_id"))
    .values(
        status=sa.case((_UNCHANGED, sa.bindparam("new_status", type_=sa.Text)), else_=traces.c.status),
        # Written even if something has arrived: it is the last decision, and the trace is evaluated again soon.
        outcome=sa.bindparam("new_outcome"),
        error=sa.bindparam("new_error"),
        no_run=sa.bindparam("new_no_run"),
        input_text=sa.bindparam("new_input"),
        digest=sa.bindparam("new_digest"),
        due_at=sa.case((_UNCHANGED, sa.null()), else_=traces.c.due_at),
        leased_until=sa.null(),
        lease_owner=sa.null(),
        # The evaluation is finished: the next one counts its attempts from 0.
        attempts=sa.literal_column("0"),
    ),
    ("new_status", "new_outcome", "new_error", "new_no_run", "new_input", "new_digest"),
)


_RESULT = tuple(column.name for column in results.c)
_CHANGED = ("trace_revision", "outcome", "score", "verdict", "code", "body", "updated_at")
_ENDED = ("at_id", "at_revision", "at_due", "new_status", "new_outcome", "new_error", "new_no_run", "new_input", "new_digest")


def _make_postgres_results() -> BulkStatement:
    insert = postgresql.insert(results)
    statement = insert.on_conflict_do_update(
        index_elements=["trace_id", "case_id", "case_version", "case_key"],
        set_={name: insert.excluded[name] for name in _CHANGED},
        # Not only `>`: re-evaluating the same revision replaces its result. An older one never replaces a newer one.
        where=insert.excluded.trace_revision >= results.c.trace_revision,
    )
    return BulkStatement(statement, _RESULT)


_POSTGRES_RESULTS = _make_postgres_results()


def _write_sqlite_results(values: str) -> str:
    changes = ", ".join(f"{name} = excluded.{name}" for name in _CHANGED)
    return (
        f"INSERT INTO results ({', '.join(_RESULT)}) VALUES {values} "
        f"ON CONFLICT (trace_id, case_id, case_version, case_key) DO UPDATE SET {changes} "
        "WHERE excluded.trace_revision >= results.trace_revision"
    )


def _write_sqlite_finish(values: str) -> str:
    unchanged = "traces.revision = ended.at_revision AND traces.due_at = ended.at_due"
    return (
        f"WITH ended ({', '.join(_ENDED)}) AS (VALUES {values}) UPDATE traces SET "
        f"status = CASE WHEN {unchanged} THEN ended.new_status ELSE traces.status END, "
        "outcome = ended.new_outcome, error = ended.new_error, no_run = ended.new_no_run, input_text = ended.new_input, "
        "digest = ended.new_digest, "
        f"due_at = CASE WHEN {unchanged} THEN NULL ELSE traces.due_at END, "
        "leased_until = NULL, lease_owner = NULL, attempts = 0 FROM ended WHERE traces.id = ended.at_id"
    )


def _query_waiting_agents() -> sa.CTE:
    """Return a query for every agent with a waiting trace, by a few index lookups."""
    first = sa.select(sa.func.min(traces.c.agent_id).label("agent_id")).where(traces.c.due_at.is_not(None))
    # Neither database skips from one index value to the next by itself (`SELECT DISTINCT` reads every entry), so the query steps from
    # each agent to the next larger one.
    agents = first.cte("waiting", recursive=True)
    next_agent = sa.select(sa.func.min(traces.c.agent_id)).where(traces.c.due_at.is_not(None), traces.c.agent_id > agents.c.agent_id)
    return agents.union_all(sa.select(next_agent.scalar_subquery()).where(agents.c.agent_id.is_not(None)))


_WAITING = _query_waiting_agents()
