"""Benchmark runs with everything below them, over all organizations, for retention.

Below a benchmark run are its task runs, their criterion runs, uploaded states of either, its tokens, its share links, and the playground of
each task run with its sandboxes, their events and their branches of datasets. Authored records (benchmarks, tasks, the datasets themselves)
are not below a run and stay.

Whether a run has ended is in its body, which only Python looks into: PostgreSQL refuses some of the JSON that SQLite takes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.accounts.sandboxes import delete_sandboxes, sum_bytes_of_runs
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import keys, links, records, sandboxes

_RUN = "benchmark_run"
_COUNTED = (_RUN, "task_run", "criterion_run", "state", "sealed_state")
"""Records of a run besides its sandboxes: playgrounds and the like also exist without a run, and are small."""
_BELOW = ("run_share", "task_run", "criterion_run", "state", "sealed_state", "sandbox", "event", "entity")
_IDS_AT_ONCE = 500
"""Ids in one statement: SQLite bounds how many parameters one may have."""
_SIZE = sa.func.coalesce(sa.func.length(records.c.blob), 0) + sa.func.coalesce(sa.func.length(sa.cast(records.c.body, sa.Text)), 0)
_MEMBER = (
    records.c.id,
    records.c.parent_id,
    records.c.kind,
    records.c.created_at,
    records.c.updated_at,
    records.c.body,
    _SIZE.label("size"),
)


class Family(msgspec.Struct, kw_only=True):
    """A benchmark run and what hangs on it."""

    id: str
    created_at: str
    touched_at: str
    """When anything was last done to it."""
    size: int
    ended: bool


async def list_oldest_families(connection: AsyncConnection, *, limit: int, before: str | None, idle: str) -> list[Family]:
    """Return the oldest benchmark runs that have ended or are untouched since `idle`; locked, and without those that others hold."""
    found: list[Family] = []
    last: Row | None = None
    while len(found) < limit:
        some = await _list_runs_after(connection, last, before, limit)
        families = {row["id"]: _make_family(row) for row in some}
        async for root, row in _walk_members(connection, families):
            families[root].size += row["size"] if row["kind"] in _COUNTED else 0
            families[root].touched_at = max(families[root].touched_at, row["updated_at"])
        for id, size in await sum_bytes_of_runs(connection, list(families)):
            families[id].size += size
        # Read on until there are enough: many unfinished old runs must not hide finished ones after them.
        found += [family for family in families.values() if family.ended or family.touched_at < idle]
        if len(some) < limit:
            break
        last = some[-1]
    return found[:limit]


def query_family_sizes() -> sa.Select[Any]:
    """Return a query for what all benchmark runs take."""
    of_records = sa.select(sa.func.coalesce(sa.func.sum(_SIZE), 0)).where(records.c.kind.in_(_COUNTED))
    of_sandboxes = sa.select(sa.func.coalesce(sa.func.sum(sandboxes.c.bytes), 0)).where(sandboxes.c.benchmark_run_id.is_not(None))
    return sa.select(of_records.scalar_subquery() + of_sandboxes.scalar_subquery())


async def delete_families(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete benchmark runs and everything below them."""
    gone = [*ids, *[row["id"] async for _, row in _walk_members(connection, ids)]]
    for some in _split_batches(gone):
        await connection.execute(sa.delete(links).where(sa.or_(links.c.from_id.in_(some), links.c.to_id.in_(some))))
        await connection.execute(sa.delete(records).where(records.c.id.in_(some)))
        await delete_sandboxes(connection, list(some))
    for some in _split_batches(ids):
        await connection.execute(sa.delete(keys).where(keys.c.kind == "run", keys.c.benchmark_run_id.in_(some)))


async def _list_runs_after(connection: AsyncConnection, last: Row | None, before: str | None, limit: int) -> list[Row]:
    query = sa.select(*_MEMBER).where(records.c.kind == _RUN)
    if before is not None:
        query = query.where(records.c.created_at < before)
    if last is not None:
        query = query.where(sa.tuple_(records.c.created_at, records.c.id) > (last["created_at"], last["id"]))
    query = query.order_by(records.c.created_at, records.c.id).limit(limit)
    # Who changes anything below a run locks the run first.
    return [dict(row) for row in (await connection.execute(query.with_for_update(skip_locked=True))).mappings()]


def _make_family(row: Row) -> Family:
    ended = row["body"].get("status") != "active"
    return Family(id=row["id"], created_at=row["created_at"], touched_at=row["updated_at"], size=row["size"], ended=ended)


async def _walk_members(connection: AsyncConnection, ids: Iterable[str]) -> AsyncIterator[tuple[str, Row]]:
    """Yield every record below some runs, with the run it belongs to, level by level."""
    root_of = {id: id for id in ids}
    level: dict[str, str] = dict(root_of)
    while level:
        found: dict[str, Row] = {}
        roots: dict[str, str] = {}
        for some in _split_batches(list(level)):
            for row in (
                await connection.execute(sa.select(*_MEMBER).where(records.c.parent_id.in_(some), records.c.kind.in_(_BELOW)))
            ).mappings():
                found[row["id"]], roots[row["id"]] = dict(row), level[row["parent_id"]]
        # Found with their level and walked further from there: a playground has sandboxes below it, a branch of a dataset has entities.
        for row in await _list_attached(connection, list(found.values())):
            found[row["id"]], roots[row["id"]] = row, roots[row["of"]]
        for id, row in found.items():
            yield roots[id], row
        level = roots


async def _list_attached(connection: AsyncConnection, members: list[Row]) -> list[Row]:
    """Return records that belong to these under another parent: playgrounds of task runs, branches of sandboxes; `of` is the owner."""
    owner_of = {
        row["body"]["playground_id"]: row["id"] for row in members if row["kind"] == "task_run" and row["body"].get("playground_id")
    }
    found: list[Row] = []
    for some in _split_batches(list(owner_of)):
        query = sa.select(*_MEMBER).where(records.c.kind == "playground", records.c.id.in_(some))
        found += [{**row, "of": owner_of[row["id"]]} for row in (await connection.execute(query)).mappings()]
    for some in _split_batches([row["id"] for row in members if row["kind"] == "sandbox"]):
        query = sa.select(*_MEMBER, links.c.from_id.label("of")).join(links, links.c.to_id == records.c.id)
        query = query.where(links.c.kind == "sandbox_dataset", links.c.from_id.in_(some), records.c.kind == "dataset", ~_is_bound())
        found += [dict(row) for row in (await connection.execute(query)).mappings()]
    return found


def _is_bound() -> sa.ColumnElement[bool]:
    """Return whether a task was given an entity of a dataset: then the dataset is more than what a run left."""
    entity, use = records.alias(), links.alias()
    bound = sa.select(use.c.from_id).join(entity, use.c.to_id == entity.c.id).where(use.c.kind == "task_entity")
    return bound.where(entity.c.parent_id == records.c.id).correlate(records).exists()


def _split_batches(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + _IDS_AT_ONCE] for start in range(0, len(ids), _IDS_AT_ONCE)]
