"""Retention: deletes the oldest rows, by the limits of each project and of the service, and all rows of a deleted project or agent.

Benchmark runs go with everything below them, over all organizations. Below a benchmark run are its task runs, their criterion runs,
uploaded states of either, its tokens, its share links, and the playground of each task run with its sandboxes, their events and their
branches of datasets. Authored records (benchmarks, tasks, the datasets themselves) are not below a run and stay.

Whether a run has ended is in its body, which only Python looks into: PostgreSQL refuses some of the JSON that SQLite takes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.accounts.judged_claims import delete_annotations_of, delete_claims_of
from proctor.store.accounts.sandboxes import delete_sandboxes, sum_bytes_of_runs
from proctor.store.sql.pages import Row, fetch_all
from proctor.store.sql.tables import (
    agents,
    alert_deliveries,
    alert_rules,
    case_versions,
    cases,
    keys,
    links,
    projects,
    proposals,
    records,
    results,
    run_entries,
    run_events,
    run_figures,
    run_snapshots,
    runs,
    sandboxes,
    schedules,
    secrets,
    trace_parts,
    traces,
)

UNFINISHED = ("queued", "running")
"""Runs that must not be deleted yet."""


Kind = Literal["trace", "run", "benchmark_run"]


class Deletable(msgspec.Struct, frozen=True, kw_only=True):
    """A trace or run that may be deleted."""

    kind: Kind
    id: str
    created_at: str
    size: int


async def list_oldest(connection: AsyncConnection, *, limit: int, now: float, idle: str, before: str | None = None) -> list[Deletable]:
    """Return the oldest traces and runs before a time, at most `limit`. A benchmark run unchanged since `idle` counts as abandoned."""
    of_results = _sum_bytes(results.c.body).where(results.c.trace_id == traces.c.id).scalar_subquery()
    of_entries = _sum_bytes(run_entries.c.body).where(run_entries.c.run_id == runs.c.id).scalar_subquery()
    older = {kind: [] if before is None else [table.c.created_at < before] for kind, table in _TABLES.items()}
    items = [
        *await _list_by_age(connection, "trace", _is_unleased(now), *older["trace"], limit=limit, size=traces.c.size + of_results),
        *await _list_by_age(connection, "run", _HAS_ENDED, *older["run"], limit=limit, size=of_entries),
        *await _list_oldest_families(connection, limit=limit, before=before, idle=idle),
    ]
    return sorted(items, key=lambda item: (item.created_at, item.id))[:limit]


_TABLES: dict[Kind, sa.Table] = {"trace": traces, "run": runs}
_HAS_ENDED = runs.c.status.not_in(UNFINISHED)


def _is_unleased(now: float) -> sa.ColumnElement[bool]:
    return sa.or_(traces.c.leased_until.is_(None), traces.c.leased_until < now)


async def _list_by_age(
    connection: AsyncConnection, kind: Kind, *where: sa.ColumnElement[bool], limit: int, size: sa.ColumnElement[int] | None = None
) -> list[Deletable]:
    """Return traces or runs that match, oldest first."""
    table = _TABLES[kind]
    query = sa.select(table.c.id, table.c.created_at, sa.literal(0) if size is None else size).where(*where)
    rows = await connection.execute(query.order_by(table.c.created_at, table.c.id).limit(limit))
    return [Deletable(kind=kind, id=id, created_at=at, size=int(bytes_)) for id, at, bytes_ in rows]


async def sum_stored_bytes(connection: AsyncConnection) -> int:
    """Return the bytes of traces with their results and of both kinds of runs."""
    sums = (
        sa.select(sa.func.coalesce(sa.func.sum(traces.c.size), 0)),
        _sum_bytes(results.c.body),
        _sum_bytes(run_entries.c.body),
        _query_family_sizes(),
    )
    return sum([int((await connection.execute(query)).scalar_one()) for query in sums])


def _sum_bytes(column: sa.Column[bytes]) -> sa.Select[int]:
    return sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(column)), 0))


async def delete_listed(connection: AsyncConnection, listed: list[Deletable]) -> None:
    """Delete traces and runs with all their rows."""
    trace_ids = [item.id for item in listed if item.kind == "trace"]
    run_ids = [item.id for item in listed if item.kind == "run"]
    # The row first: a worker writes under its lock, and finds it deleted instead of leaving rows.
    await connection.execute(sa.delete(traces).where(traces.c.id.in_(trace_ids)))
    for table in (trace_parts, results):
        await connection.execute(sa.delete(table).where(table.c.trace_id.in_(trace_ids)))
    await connection.execute(sa.delete(runs).where(runs.c.id.in_(run_ids)))
    for table in (run_entries, run_events, run_figures, run_snapshots):
        await connection.execute(sa.delete(table).where(table.c.run_id.in_(run_ids)))
    await delete_annotations_of(connection, [*trace_ids, *run_ids])
    await delete_claims_of(connection, [*trace_ids, *run_ids])
    await _delete_families(connection, [item.id for item in listed if item.kind == "benchmark_run"])


async def delete_remains(connection: AsyncConnection, before: str) -> int:
    """Delete expired rows: delivered or abandoned alerts, expired run tokens."""
    over = sa.delete(alert_deliveries).where(alert_deliveries.c.next_at.is_(None), alert_deliveries.c.updated_at < before)
    expired = sa.delete(keys).where(keys.c.kind == "run", keys.c.expires_at.is_not(None), keys.c.expires_at < before)
    return sum([(await connection.execute(statement)).rowcount for statement in (over, expired)])


class ProjectBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Days that a project retains traces and runs; None for the setting of the service."""

    id: str
    trace_days: int | None
    run_days: int | None


async def list_project_bounds(connection: AsyncConnection) -> list[ProjectBounds]:
    """Return every project with its own retention, over all organizations."""
    query = sa.select(projects.c.id, projects.c.trace_days, projects.c.run_days)
    query = query.where(sa.or_(projects.c.trace_days.is_not(None), projects.c.run_days.is_not(None)))
    return [ProjectBounds(id=row[0], trace_days=row[1], run_days=row[2]) for row in await connection.execute(query.order_by(projects.c.id))]


async def list_older(connection: AsyncConnection, kind: Kind, project_id: str, before: str, *, now: float, limit: int) -> list[Deletable]:
    """Return unleased traces or ended runs of a project from before a time, oldest first."""
    unleased = [_is_unleased(now)] if kind == "trace" else []
    return await _list_by_age(connection, kind, *_match_older(kind, project_id, before), *unleased, limit=limit)


async def count_older(connection: AsyncConnection, kind: Kind, project_id: str, before: str, *, most: int) -> int:
    """Return the number of traces or ended runs of a project from before a time, counted up to `most`."""
    query = sa.select(_TABLES[kind].c.id).where(*_match_older(kind, project_id, before)).limit(most)
    return int((await connection.execute(sa.select(sa.func.count()).select_from(query.subquery()))).scalar_one())


def _match_older(kind: Kind, project_id: str, before: str) -> list[sa.ColumnElement[bool]]:
    table = _TABLES[kind]
    return [table.c.project_id == project_id, table.c.created_at < before, *([_HAS_ENDED] if kind == "run" else [])]


_STEP = 200
"""Rows deleted in one transaction, so that others can write in between."""


async def delete_some_of(
    connection: AsyncConnection, kind: Kind, organization_id: str, *, project_id: str | None = None, agent_id: str | None = None
) -> int:
    """Delete some traces or runs with their results and return their number; 0 if none is left."""
    table = _TABLES[kind]
    where = (table.c.organization_id == organization_id, _match_place(table, project_id, agent_id))
    deletable = await _list_by_age(connection, kind, *where, limit=_STEP)
    await delete_listed(connection, deletable)
    return len(deletable)


async def delete_agents_of(
    connection: AsyncConnection, organization_id: str, *, project_id: str | None = None, agent_id: str | None = None
) -> int:
    """Delete agents with their cases and alerts, and the last of their traces; return the number of agents."""
    while await delete_some_of(connection, "trace", organization_id, project_id=project_id, agent_id=agent_id):
        # The service has already deleted most traces, in separate transactions. This deletes the rest.
        pass
    await delete_cases(connection, organization_id, _match_place(cases, project_id, agent_id))
    where = (alert_rules.c.organization_id == organization_id, _match_place(alert_rules, project_id, agent_id))
    rules = sa.select(alert_rules.c.id).where(*where)
    await connection.execute(sa.delete(alert_deliveries).where(alert_deliveries.c.rule_id.in_(rules)))
    await connection.execute(sa.delete(alert_rules).where(alert_rules.c.id.in_(rules)))
    mine = agents.c.project_id == project_id if agent_id is None else agents.c.id == agent_id
    done = await connection.execute(sa.delete(agents).where(agents.c.organization_id == organization_id, mine))
    return done.rowcount


async def delete_cases(connection: AsyncConnection, organization_id: str, *which: sa.ColumnElement[bool]) -> int:
    """Delete cases with their versions and return their number. Results stay: they belong to traces."""
    mine = sa.select(cases.c.id).where(cases.c.organization_id == organization_id, *which)
    await connection.execute(sa.delete(case_versions).where(case_versions.c.case_id.in_(mine)))
    done = await connection.execute(sa.delete(cases).where(cases.c.organization_id == organization_id, *which))
    return done.rowcount


async def delete_project_rows(connection: AsyncConnection, organization_id: str, id: str, now: str) -> list[str] | None:
    """Delete a project with all that belongs to it and revoke its keys; return the hashes of these, or None if it does not exist."""
    while await delete_some_of(connection, "run", organization_id, project_id=id):
        pass
    for table in (secrets, schedules, proposals):
        await connection.execute(sa.delete(table).where(table.c.organization_id == organization_id, table.c.project_id == id))
    revoked = sa.update(keys).where(keys.c.organization_id == organization_id, keys.c.project_id == id, keys.c.revoked_at.is_(None))
    hashes = [row[0] for row in await connection.execute(revoked.values(revoked_at=now).returning(keys.c.hash))]
    done = await connection.execute(sa.delete(projects).where(projects.c.organization_id == organization_id, projects.c.id == id))
    return hashes if done.rowcount else None


def _match_place(table: sa.Table, project_id: str | None, agent_id: str | None) -> sa.ColumnElement[bool]:
    return table.c.project_id == project_id if agent_id is None else table.c.agent_id == agent_id


_RUN: Kind = "benchmark_run"
_COUNTED = (_RUN, "task_run", "criterion_run", "state", "sealed_state")
"""Records of a run other than its sandboxes: playgrounds and similar also exist without a run, and are small."""
_BELOW = ("run_share", "task_run", "criterion_run", "state", "sealed_state", "sandbox", "event", "entity")
_IDS_AT_ONCE = 500
"""Ids per statement: SQLite limits the number of parameters."""
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


async def _list_oldest_families(connection: AsyncConnection, *, limit: int, before: str | None, idle: str) -> list[Deletable]:
    """Return the oldest benchmark runs that have ended or are unchanged since `idle`, locked, except those locked by others."""
    found: list[Deletable] = []
    last: Row | None = None
    while len(found) < limit:
        query = sa.select(*_MEMBER).where(records.c.kind == _RUN)
        if before is not None:
            query = query.where(records.c.created_at < before)
        if last is not None:
            query = query.where(sa.tuple_(records.c.created_at, records.c.id) > (last["created_at"], last["id"]))
        query = query.order_by(records.c.created_at, records.c.id).limit(limit)
        # A writer of anything below a run locks the run first.
        some = await fetch_all(connection, query.with_for_update(skip_locked=True))
        sizes = {row["id"]: row["size"] for row in some}
        touched_at = {row["id"]: row["updated_at"] for row in some}
        async for root, row in _walk_members(connection, sizes):
            sizes[root] += row["size"] if row["kind"] in _COUNTED else 0
            touched_at[root] = max(touched_at[root], row["updated_at"])
        for id, size in await sum_bytes_of_runs(connection, list(sizes)):
            sizes[id] += size
        # Continue until there are enough: many unfinished old runs must not hide finished ones after them.
        over = [row for row in some if row["body"].get("status") != "active" or touched_at[row["id"]] < idle]
        found += [Deletable(kind=_RUN, id=row["id"], created_at=row["created_at"], size=sizes[row["id"]]) for row in over]
        if len(some) < limit:
            break
        last = some[-1]
    return found[:limit]


def _query_family_sizes() -> sa.Select[Any]:
    """Return a query for the size of all benchmark runs."""
    of_records = sa.select(sa.func.coalesce(sa.func.sum(_SIZE), 0)).where(records.c.kind.in_(_COUNTED))
    of_sandboxes = sa.select(sa.func.coalesce(sa.func.sum(sandboxes.c.bytes), 0)).where(sandboxes.c.benchmark_run_id.is_not(None))
    return sa.select(of_records.scalar_subquery() + of_sandboxes.scalar_subquery())


async def _delete_families(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete benchmark runs and everything below them."""
    deleted = [*ids, *[row["id"] async for _, row in _walk_members(connection, ids)]]
    for some in _split_batches(deleted):
        await connection.execute(sa.delete(links).where(sa.or_(links.c.from_id.in_(some), links.c.to_id.in_(some))))
        await connection.execute(sa.delete(records).where(records.c.id.in_(some)))
        await delete_sandboxes(connection, list(some))
    for some in _split_batches(ids):
        await connection.execute(sa.delete(keys).where(keys.c.kind == "run", keys.c.benchmark_run_id.in_(some)))


async def _walk_members(connection: AsyncConnection, ids: Iterable[str]) -> AsyncIterator[tuple[str, Row]]:
    """Yield every record below these runs, with its run, level by level."""
    root_of = {id: id for id in ids}
    level: dict[str, str] = dict(root_of)
    while level:
        rows_by_id: dict[str, Row] = {}
        roots: dict[str, str] = {}
        for some in _split_batches(list(level)):
            for row in (
                await connection.execute(sa.select(*_MEMBER).where(records.c.parent_id.in_(some), records.c.kind.in_(_BELOW)))
            ).mappings():
                rows_by_id[row["id"]], roots[row["id"]] = dict(row), level[row["parent_id"]]
        # Found on each level and followed from there: a playground has sandboxes below it, a branch of a dataset has entities.
        for row in await _list_attached(connection, list(rows_by_id.values())):
            rows_by_id[row["id"]], roots[row["id"]] = row, roots[row["of"]]
        for id, row in rows_by_id.items():
            yield roots[id], row
        level = roots


async def _list_attached(connection: AsyncConnection, members: list[Row]) -> list[Row]:
    """Return records that belong to these under another parent: playgrounds of task runs, branches of sandboxes; `of` is the owner."""
    owner_of = {
        row["body"]["playground_id"]: row["id"] for row in members if row["kind"] == "task_run" and row["body"].get("playground_id")
    }
    rows: list[Row] = []
    for some in _split_batches(list(owner_of)):
        query = sa.select(*_MEMBER).where(records.c.kind == "playground", records.c.id.in_(some))
        rows += [{**row, "of": owner_of[row["id"]]} for row in (await connection.execute(query)).mappings()]
    for some in _split_batches([row["id"] for row in members if row["kind"] == "sandbox"]):
        query = sa.select(*_MEMBER, links.c.from_id.label("of")).join(links, links.c.to_id == records.c.id)
        query = query.where(links.c.kind == "sandbox_dataset", links.c.from_id.in_(some), records.c.kind == "dataset", ~_is_bound())
        rows += await fetch_all(connection, query)
    return rows


def _is_bound() -> sa.ColumnElement[bool]:
    """Return whether a task uses an entity of a dataset: then the dataset does not belong to the run alone."""
    entity, use = records.alias(), links.alias()
    bound = sa.select(use.c.from_id).join(entity, use.c.to_id == entity.c.id).where(use.c.kind == "task_entity")
    return bound.where(entity.c.parent_id == records.c.id).correlate(records).exists()


def _split_batches(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + _IDS_AT_ONCE] for start in range(0, len(ids), _IDS_AT_ONCE)]
