"""Sandboxes in a database, so that several servers serve one, and answers survive a crash.

A request is one row of the log: its event, and its changes. The revision of the sandbox is incremented in the same transaction, on the
condition that it is still the one that the request saw. Rows are cached by their revision; a reader of a newer revision reads the changes
since.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import StoreError
from proctor.model.evidence import Json, StateRequest
from proctor.model.typed import convert_to
from proctor.simulators.rows import Change, Rows, SandboxClosed, SandboxFull, Snapshot, apply_changes, count_rows
from proctor.store.sql.compressed_json import pack, unpack
from proctor.store.sql.database import Database
from proctor.store.sql.pages import Row, fetch_all, fetch_first
from proctor.store.sql.tables import sandbox_events, sandboxes

_HEAD = tuple(column for column in sandboxes.c if column.name != "baseline")
"""Every column except the large one."""
_LARGE = 100_000
"""Larger values are decoded in a thread; smaller ones take about a millisecond."""


class Cache(Protocol):
    """A cache of rows."""

    def get(self, key: str, /) -> Any:
        """Return the cached value, or None."""
        ...

    def put(self, key: str, value: Any, weight: int, /) -> None:
        """Cache a value of this size."""
        ...


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one sandbox."""

    rows: int
    bytes: int
    """Stored bytes of its baseline and its log."""


class NewSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox to be stored."""

    id: str
    organization_id: str
    kind: str
    rows: Rows
    """The baseline."""
    packed: bytes
    """The same in stored form: `pack_rows`."""
    happened: tuple[tuple[dict[str, Json], tuple[Change, ...]], ...] = ()
    """Events before the first request: a note each, and its changes."""
    steps: tuple[dict[str, Json], ...] = ()
    """Scheduled steps: `at`, `step` and `given`, in the order of time."""
    benchmark_run_id: str | None = None
    expires_at: str | None = None


def pack_rows(rows: Rows, limits: SandboxLimits) -> bytes:
    """Return rows in stored form. Slow for many rows. Raises `SandboxFull` above the limit."""
    if count_rows(rows) > limits.rows:
        raise SandboxFull(f"a sandbox holds {limits.rows} rows, and these are {count_rows(rows)}")
    packed = pack(rows)
    if len(packed) > limits.bytes:
        raise SandboxFull(f"a sandbox holds {limits.bytes} bytes, and these are {len(packed)}")
    return packed


async def add_sandbox(connection: AsyncConnection, new: NewSandbox, *, now: str) -> None:
    """Store a new sandbox. Raises `StoreError` if the name exists."""
    log = [
        _make_log_row(new.id, number, note, changes, revision=number, by_itself=True, now=now)
        for number, (note, changes) in enumerate(new.happened, 1)
    ]
    values: dict[str, object] = {
        "id": new.id,
        "organization_id": new.organization_id,
        "kind": new.kind,
        "benchmark_run_id": new.benchmark_run_id,
        "revision": len(log),
        "events": len(log),
        "bytes": len(new.packed) + sum(_count_log_bytes(row) for row in log),
        "steps": list(new.steps) or None,
        "expires_at": new.expires_at,
        "baseline": new.packed,
        "created_at": now,
        "updated_at": now,
    }
    try:
        await connection.execute(sandboxes.insert().values(values))
    except IntegrityError:
        raise StoreError(f"there is a sandbox {new.id!r} already") from None
    if log:
        await connection.execute(sandbox_events.insert(), log)


def _make_log_row(
    sandbox: str, number: int, body: dict[str, Json], changes: tuple[Change, ...], *, revision: int | None, by_itself: bool, now: str
) -> dict[str, Any]:
    return {
        "sandbox_id": sandbox,
        **_name_log_row(sandbox, number),
        "revision": revision,
        "by_itself": by_itself,
        "body": pack(body),
        "changes": pack([[change.collection, change.key, change.row] for change in changes]) if changes else None,
        "created_at": now,
    }


def _name_log_row(sandbox: str, number: int) -> dict[str, Any]:
    # Within a sandbox they sort by number, even in the same millisecond.
    return {"number": number, "id": f"ev_{sandbox.partition('_')[2] or sandbox}_{number:09}"}


def _count_log_bytes(row: dict[str, Any]) -> int:
    return len(row["body"]) + len(row["changes"] or b"")


async def find_heads(connection: AsyncConnection, ids: list[str]) -> dict[str, Row]:
    """Return the rows of sandboxes without their data, by id."""
    if not ids:
        return {}
    rows = await connection.execute(sa.select(*_HEAD).where(sandboxes.c.id.in_(ids)))
    return {row["id"]: dict(row) for row in rows.mappings()}


async def find_open_of_run(connection: AsyncConnection, run_id: str, kind: str) -> Row | None:
    """Return the sandbox of a kind that the started task of a benchmark run uses."""
    query = sa.select(*_HEAD).where(sandboxes.c.benchmark_run_id == run_id, sandboxes.c.kind == kind, sandboxes.c.closed_at.is_(None))
    return await fetch_first(connection, query.order_by(sandboxes.c.created_at, sandboxes.c.id).limit(1))


async def list_open_of_run(connection: AsyncConnection, run_id: str) -> list[Row]:
    """Return the sandboxes that the started task of a benchmark run uses, in order of creation."""
    query = sa.select(*_HEAD).where(sandboxes.c.benchmark_run_id == run_id, sandboxes.c.closed_at.is_(None))
    return await fetch_all(connection, query.order_by(sandboxes.c.created_at, sandboxes.c.id))


async def count_open(connection: AsyncConnection, organization_id: str) -> int:
    """Return the number of open sandboxes of an organization, and block others from opening one until the transaction ends."""
    # Two servers that counted at the same time would both open the last one. SQLite has one writer anyway.
    if connection.dialect.name == "postgresql":
        name = sa.func.hashtextextended(f"sandboxes of {organization_id}", 0)
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(name)))
    query = sa.select(sa.func.count()).where(sandboxes.c.organization_id == organization_id, sandboxes.c.closed_at.is_(None))
    return (await connection.execute(query)).scalar_one()


async def list_overdue(connection: AsyncConnection, organization_id: str, now: str) -> list[str]:
    """Return the ids of an organization's open sandboxes that have expired."""
    query = sa.select(sandboxes.c.id).where(
        sandboxes.c.organization_id == organization_id, sandboxes.c.closed_at.is_(None), sandboxes.c.expires_at <= now
    )
    return list((await connection.execute(query.order_by(sandboxes.c.expires_at))).scalars())


async def close_sandboxes(connection: AsyncConnection, ids: list[str], now: str) -> None:
    """Close sandboxes, after which nothing in them changes."""
    if ids:
        closed = sa.update(sandboxes).where(sandboxes.c.id.in_(ids), sandboxes.c.closed_at.is_(None))
        await connection.execute(closed.values(closed_at=now, updated_at=now))


async def delete_sandboxes(connection: AsyncConnection, ids: list[str]) -> None:
    """Delete sandboxes with all their events."""
    await connection.execute(sa.delete(sandbox_events).where(sandbox_events.c.sandbox_id.in_(ids)))
    await connection.execute(sa.delete(sandboxes).where(sandboxes.c.id.in_(ids)))


async def sum_bytes_of_runs(connection: AsyncConnection, runs: list[str]) -> list[tuple[str, int]]:
    """Return the bytes of the sandboxes of benchmark runs, by run."""
    query = sa.select(sandboxes.c.benchmark_run_id, sa.func.sum(sandboxes.c.bytes)).where(sandboxes.c.benchmark_run_id.in_(runs))
    return [(id, int(size)) for id, size in await connection.execute(query.group_by(sandboxes.c.benchmark_run_id))]


def query_events(sandbox: str) -> sa.Select[Any]:
    """Return a query for the events of a sandbox, for a page."""
    return sa.select(*(column for column in sandbox_events.c if column.name != "changes")).where(sandbox_events.c.sandbox_id == sandbox)


class DatabaseStore:
    """The sandboxes of one organization in a database."""

    def __init__(self, database: Database, cache: Cache, *, organization_id: str, now: Callable[[], str], limits: SandboxLimits) -> None:
        self._database = database
        self._cache = cache
        self._organization_id = organization_id
        self._now = now
        self._limits = limits

    async def create(self, sandbox: str, rows: Rows) -> None:
        """Store a new sandbox with these rows as its baseline."""
        new = NewSandbox(id=sandbox, organization_id=self._organization_id, kind="", rows=rows, packed=pack_rows(rows, self._limits))
        async with self._database.writing() as connection:
            await add_sandbox(connection, new, now=self._now())
        self.remember(new)

    def remember(self, new: NewSandbox) -> None:
        """Cache the rows of a new sandbox, so that the first request need not read them."""
        rows = new.rows
        for _, changes in new.happened:
            rows = apply_changes(rows, changes)
        self._cache.put(new.id, Snapshot(len(new.happened), rows), _estimate_bytes(rows))

    async def load(self, sandbox: str) -> Snapshot:
        """Return the current rows."""
        async with self._database.reading() as connection:
            head = await self._find_head(connection, sandbox)
            known: Snapshot | None = self._cache.get(sandbox)
            if known is not None and known.revision == head["revision"]:
                return known
            # Cached rows from before a reset include changes that it undid: then everything is read from the baseline.
            if known is not None and known.revision >= head["reset_revision"]:
                rows = apply_changes(known.rows, await _read_changes(connection, sandbox, sandbox_events.c.revision > known.revision))
            else:
                # A reset undoes changes of requests; scheduled changes belong to the baseline.
                since = sa.or_(sandbox_events.c.by_itself, sandbox_events.c.revision > head["reset_revision"])
                rows = apply_changes(await _read_baseline(connection, sandbox), await _read_changes(connection, sandbox, since))
        snapshot = Snapshot(head["revision"], rows)
        self._cache.put(sandbox, snapshot, _estimate_bytes(rows))
        return snapshot

    async def load_baseline(self, sandbox: str) -> Rows:
        """Return the initial rows of the sandbox, with the changes of scheduled steps."""
        async with self._database.reading() as connection:
            await self._find_head(connection, sandbox)
            baseline = await _read_baseline(connection, sandbox)
            return apply_changes(baseline, await _read_changes(connection, sandbox, sandbox_events.c.by_itself))

    async def commit(self, sandbox: str, revision: int, changes: tuple[Change, ...], event: StateRequest) -> bool:
        """Store changes and event, both or neither."""
        return await self._append(sandbox, revision, changes, msgspec.to_builtins(event), by_itself=False)

    async def advance(
        self, sandbox: str, revision: int, changes: tuple[Change, ...], note: dict[str, Json], *, step: int | None = None
    ) -> bool:
        """Store changes that no request made, in the rows and in the baseline; `step` is the number of the performed step.

        False also if another server has performed that step.
        """
        return await self._append(sandbox, revision, changes, note, by_itself=True, step=step)

    async def reset(self, sandbox: str) -> None:
        """Reset the rows to the baseline; events stay."""
        next_revision = sandboxes.c.revision + 1
        async with self._database.writing() as connection:
            statement = sa.update(sandboxes).where(sandboxes.c.id == sandbox, sandboxes.c.closed_at.is_(None), self._is_mine())
            statement = statement.values(revision=next_revision, reset_revision=next_revision, updated_at=self._now())
            if (await connection.execute(statement)).rowcount == 0:
                # Raises if the sandbox is missing or not ours; otherwise it is closed.
                await self._find_head(connection, sandbox)
                raise SandboxClosed(f"the sandbox {sandbox!r} is closed")

    async def list_events(self, sandbox: str) -> tuple[StateRequest, ...]:
        """Return the requests, oldest first."""
        async with self._database.reading() as connection:
            await self._find_head(connection, sandbox)
            query = sa.select(sandbox_events.c.body).where(sandbox_events.c.sandbox_id == sandbox, sa.not_(sandbox_events.c.by_itself))
            bodies = list((await connection.execute(query.order_by(sandbox_events.c.number))).scalars())
        return await asyncio.to_thread(lambda: tuple(convert_to(unpack(body), StateRequest) for body in bodies))

    async def list_notes(self, sandbox: str) -> tuple[dict[str, Json], ...]:
        """Return the notes of scheduled steps, oldest first."""
        async with self._database.reading() as connection:
            await self._find_head(connection, sandbox)
            query = sa.select(sandbox_events.c.body).where(sandbox_events.c.sandbox_id == sandbox, sandbox_events.c.by_itself)
            return tuple(unpack(body) for body in (await connection.execute(query.order_by(sandbox_events.c.number))).scalars())

    async def remove(self, sandbox: str) -> None:
        """Delete the sandbox."""
        async with self._database.writing() as connection:
            await self._find_head(connection, sandbox)
            await delete_sandboxes(connection, [sandbox])

    async def _append(
        self,
        sandbox: str,
        revision: int,
        changes: tuple[Change, ...],
        body: dict[str, Json],
        *,
        by_itself: bool,
        step: int | None = None,
    ) -> bool:
        """Add a row to the log; return False if there are changes and the rows no longer have this `revision`."""
        known: Snapshot | None = self._cache.get(sandbox)
        rows = apply_changes(known.rows, changes) if changes and known is not None and known.revision == revision else None
        if rows is not None and count_rows(rows) > self._limits.rows:
            raise SandboxFull(f"the sandbox holds {self._limits.rows} rows, and no more go in")
        # Without changes any revision is valid: a request that only reads is not repeated because of concurrent writes.
        expected_revision = revision if changes else None
        # Built before it has a number, because its size decides whether it gets one.
        log_revision = None if expected_revision is None else expected_revision + 1
        make_row = functools.partial(_make_log_row, sandbox, 0, body, changes, revision=log_revision, by_itself=by_itself, now=self._now())
        row = await asyncio.to_thread(make_row) if changes else make_row()
        async with self._database.writing() as connection:
            number = await self._count_up(connection, sandbox, expected_revision, step, _count_log_bytes(row))
            if number is None:
                return False
            numbered = _name_log_row(sandbox, number)
            await connection.execute(sandbox_events.insert().values({**row, **numbered}))
        if rows is not None:
            # After the transaction: an uncommitted state must not be cached.
            self._cache.put(sandbox, Snapshot(revision + 1, rows), _estimate_bytes(rows))
        return True

    async def _count_up(self, connection: AsyncConnection, sandbox: str, revision: int | None, step: int | None, size: int) -> int | None:
        """Take the next number of the log; None if the revision or the next step differs from the given one."""
        conditions = [sandboxes.c.id == sandbox, self._is_mine(), sandboxes.c.closed_at.is_(None)]
        conditions.append(sandboxes.c.bytes + size <= self._limits.bytes)
        values: dict[str, object] = {"events": sandboxes.c.events + 1, "bytes": sandboxes.c.bytes + size, "updated_at": self._now()}
        if revision is not None:
            conditions.append(sandboxes.c.revision == revision)
            values["revision"] = revision + 1
        if step is not None:
            conditions.append(sandboxes.c.steps_done == step)
            values["steps_done"] = step + 1
        # Condition and change are one statement, because another server could write in between.
        statement = sa.update(sandboxes).where(*conditions).values(values).returning(sandboxes.c.events)
        number = (await connection.execute(statement)).scalar_one_or_none()
        if number is None:
            head = await self._find_head(connection, sandbox)
            if head["closed_at"] is not None:
                raise SandboxClosed(f"the sandbox {sandbox!r} is closed")
            if head["bytes"] + size > self._limits.bytes:
                raise SandboxFull(f"the sandbox holds {self._limits.bytes} bytes, and no more go in")
        return number

    async def _find_head(self, connection: AsyncConnection, sandbox: str) -> Row:
        row = (await connection.execute(sa.select(*_HEAD).where(sandboxes.c.id == sandbox, self._is_mine()))).mappings().first()
        if row is None:
            raise StoreError(f"there is no sandbox {sandbox!r}")
        return dict(row)

    def _is_mine(self) -> sa.ColumnElement[bool]:
        return sandboxes.c.organization_id == self._organization_id


async def _read_baseline(connection: AsyncConnection, sandbox: str) -> Rows:
    blob: bytes = (await connection.execute(sa.select(sandboxes.c.baseline).where(sandboxes.c.id == sandbox))).scalar_one()
    return unpack(blob) if len(blob) < _LARGE else await asyncio.to_thread(unpack, blob)


async def _read_changes(connection: AsyncConnection, sandbox: str, which: sa.ColumnElement[bool]) -> tuple[Change, ...]:
    query = sa.select(sandbox_events.c.changes).where(sandbox_events.c.sandbox_id == sandbox, sandbox_events.c.changes.is_not(None), which)
    blobs = list((await connection.execute(query.order_by(sandbox_events.c.number))).scalars())
    return await asyncio.to_thread(lambda: tuple(Change(*change) for blob in blobs for change in unpack(blob)))


def _estimate_bytes(rows: Rows) -> int:
    return 1 + count_rows(rows)
