"""Runs in the database: a queue with leases, results that are stored once, events that can be read again.

A queued run is taken by one statement, so that of two servers one gets it. The holder renews its lease; when the lease expires, because the
holder died or lost the database, any server can take the run. Every write for a run is in a transaction that first checks, on the row of
the run, that the writer still has the lease: a server that lost the lease without noticing can no longer write. An attempt is stored once,
under its case and number.

Events are numbered within their run, from 1, without gaps. The row of the run is locked before a number is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import StoreError
from proctor.model.evidence import Json
from proctor.model.run import RunEntry
from proctor.model.typed import make_json_decoder
from proctor.store.accounts.judged_claims import note_due_claims
from proctor.store.runs.entry_digests import make_digest
from proctor.store.runs.entry_previews import LONG_TEXT, Ranges, make_search_text, make_shown
from proctor.store.sql.compressed_json import compress_bytes, expand_bytes
from proctor.store.sql.database import Database
from proctor.store.sql.pages import Row, fetch_all, fetch_first
from proctor.store.sql.queries import insert_or_ignore
from proctor.store.sql.settle_futures import settle_waiters
from proctor.store.sql.tables import alert_deliveries, projects, run_entries, run_events, run_snapshots, runs, schedules, traces

UNFINISHED = ("queued", "running")
_ENTRY = make_json_decoder(RunEntry)
_STEP = 200
"""Rows per query, so that a long run is not completely in memory."""
_UNPACKED = 20
"""Entries decompressed at once in a thread: evidence may be large."""

Event = tuple[str, dict[str, Json]]
"""A kind, and the data of the event."""


class EntryCleaner(Protocol):
    """Removes secrets."""

    def clean_entry(self, entry: RunEntry) -> bytes:
        """Return an entry as JSON."""
        ...

    def clean_text(self, text: str) -> str:
        """Return a text."""
        ...


class LeaseLost(StoreError):
    """Raised if another server has taken over the run, or it was deleted."""


class RunLease(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a run, and the time after which another server may take it over."""

    run_id: str
    owner: str
    lasts_s: float
    """Seconds for which each write extends the lease."""


class WaitingProject(msgspec.Struct, frozen=True):
    """A project that has waiting runs."""

    organization_id: str
    project_id: str
    since: str
    """When the oldest of them was queued."""


async def list_waiting_projects(connection: AsyncConnection, *, now: float) -> list[WaitingProject]:
    """Return every project from which `claim_run` could take a run."""
    columns = (runs.c.organization_id, runs.c.project_id, sa.func.min(runs.c.created_at))
    query = sa.select(*columns).where(_is_free(now), _is_active()).group_by(runs.c.organization_id, runs.c.project_id)
    return [WaitingProject(*row) for row in await connection.execute(query)]


def _is_free(now: float) -> sa.ColumnElement[bool]:
    return sa.or_(runs.c.status == "queued", sa.and_(runs.c.status == "running", runs.c.leased_until < now))


def _is_active() -> sa.ColumnElement[bool]:
    return sa.select(projects.c.id).where(projects.c.id == runs.c.project_id, projects.c.paused.is_(False)).exists()


async def claim_run(
    connection: AsyncConnection, *, owner: str, now: float, lease_s: float, at: str, project_id: str | None = None
) -> Row | None:
    """Lease the longest waiting run, or one whose holder is gone, and return its new row. Runs of paused projects wait.

    With `project_id` only runs of that project are looked at.
    """
    # `skip_locked`: two workers take two runs without waiting for each other.
    free = _is_free(now)
    conditions = [free, _is_active(), *([runs.c.project_id == project_id] if project_id is not None else [])]
    first = sa.select(runs.c.id).where(*conditions).order_by(runs.c.created_at, runs.c.id).limit(1).with_for_update(skip_locked=True)
    statement = (
        sa.update(runs)
        .where(runs.c.id == first.scalar_subquery(), free)
        .values(
            status="running",
            lease_owner=owner,
            leased_until=now + lease_s,
            claims=runs.c.claims + 1,
            # A resumed run started when it was first taken.
            started_at=sa.func.coalesce(runs.c.started_at, at),
            updated_at=at,
        )
        .returning(*runs.c)
    )
    return await fetch_first(connection, statement)


async def renew_lease(connection: AsyncConnection, run_id: str, owner: str, until: float) -> bool:
    """Extend the lease of a run and return whether its cancellation was requested. Raises `LeaseLost`."""
    return bool((await _change_held(connection, run_id, owner, {"leased_until": until}))["cancel_requested"])


async def keep_snapshots(connection: AsyncConnection, run_id: str, owner: str, until: float, snapshots: Mapping[str, bytes]) -> None:
    """Store what the servers of a leased run offered, instead of earlier ones. Raises `LeaseLost`."""
    await renew_lease(connection, run_id, owner, until)
    await connection.execute(sa.delete(run_snapshots).where(run_snapshots.c.run_id == run_id))
    rows = [{"run_id": run_id, "kind": kind, "body": compress_bytes(body)} for kind, body in snapshots.items()]
    await connection.execute(sa.insert(run_snapshots), rows)


async def read_snapshots(connection: AsyncConnection, run_ids: Sequence[str], kind: str) -> dict[str, bytes]:
    """Return the snapshots of runs that have one, by run."""
    query = sa.select(run_snapshots.c.run_id, run_snapshots.c.body).where(run_snapshots.c.run_id.in_(run_ids), run_snapshots.c.kind == kind)
    return {id: expand_bytes(body) for id, body in await connection.execute(query)}


async def is_cancel_requested(connection: AsyncConnection, run_id: str, owner: str) -> bool:
    """Return whether the cancellation of a run was requested. Raises `LeaseLost`."""
    query = sa.select(runs.c.cancel_requested).where(*_match_lease(run_id, owner))
    row = (await connection.execute(query)).first()
    if row is None:
        raise LeaseLost(f"run {run_id!r} was taken over by another server")
    return bool(row[0])


async def keep_settings(connection: AsyncConnection, run_id: str, owner: str, settings: dict[str, Json]) -> None:
    """Store the settings and the progress of a run, which resets the count of futile leases. Raises `LeaseLost`."""
    await _change_held(connection, run_id, owner, {"settings": settings, "claims": 0})


async def requeue_run(connection: AsyncConnection, run_id: str, owner: str, at: str, reason: str) -> None:
    """Return a run to the queue; the reason is stored as an event. Raises `LeaseLost`."""
    values = {"status": "queued", "lease_owner": None, "leased_until": None, "claims": 0, "updated_at": at}
    await _change_held(connection, run_id, owner, values)
    await add_events(connection, run_id, [("waiting", {"reason": reason})], at)


async def end_run(connection: AsyncConnection, run_id: str, owner: str, at: str, values: Mapping[str, object], event: Event) -> None:
    """Store how the run ended, from `values`. Raises `LeaseLost`."""
    over = {"lease_owner": None, "leased_until": None, "completed_at": at, "updated_at": at}
    await _change_held(connection, run_id, owner, {**over, **values})
    await add_events(connection, run_id, [event], at)


async def add_events(connection: AsyncConnection, run_id: str, events: Sequence[Event], at: str) -> None:
    """Number events and store them. The caller's transaction has already changed the row of the run."""
    if not events:
        return
    # Safe without a sequence: the row of the run is locked.
    number = await get_last_number(connection, run_id)
    values = [
        {"run_id": run_id, "number": number + place, "kind": kind, "body": body, "at": at} for place, (kind, body) in enumerate(events, 1)
    ]
    await connection.execute(sa.insert(run_events), values)


async def get_last_number(connection: AsyncConnection, run_id: str) -> int:
    """Return the number of the last event of a run; 0 if there is none."""
    last = sa.select(sa.func.coalesce(sa.func.max(run_events.c.number), 0)).where(run_events.c.run_id == run_id)
    return int((await connection.execute(last)).scalar_one())


async def get_status(connection: AsyncConnection, run_id: str) -> str | None:
    """Return the status of a run; None if it was deleted."""
    return (await connection.execute(sa.select(runs.c.status).where(runs.c.id == run_id))).scalar_one_or_none()


async def list_events_after(connection: AsyncConnection, run_id: str, number: int, *, limit: int = _STEP) -> list[Row]:
    """Return the events of a run after a number, oldest first."""
    query = sa.select(run_events).where(run_events.c.run_id == run_id, run_events.c.number > number).order_by(run_events.c.number)
    return await fetch_all(connection, query.limit(limit))


async def list_done_attempts(connection: AsyncConnection, run_id: str) -> list[tuple[str, int]]:
    """Return case and number of every stored attempt."""
    query = sa.select(run_entries.c.case_id, run_entries.c.attempt).where(run_entries.c.run_id == run_id)
    return [(case, int(attempt)) for case, attempt in await connection.execute(query)]


async def iterate_entries(
    connection: AsyncConnection, run_id: str, *, evidence: bool = True, trim: Callable[[RunEntry], RunEntry] | None = None
) -> AsyncIterator[RunEntry]:
    """Yield the stored attempts of a run, in order; without `evidence` only the decisions, or each after `trim`."""
    edge: tuple[str, str] | None = None
    columns = (run_entries.c.created_at, run_entries.c.id, run_entries.c.body)
    while True:
        query = sa.select(*columns).where(run_entries.c.run_id == run_id)
        if edge is not None:
            query = query.where(sa.tuple_(run_entries.c.created_at, run_entries.c.id) > sa.tuple_(*map(sa.literal, edge)))
        rows = (await connection.execute(query.order_by(run_entries.c.created_at, run_entries.c.id).limit(_STEP))).all()
        for first in range(0, len(rows), _UNPACKED):
            # Evidence may be large: it is unpacked in a thread, and only a little is in memory at once.
            bodies = [body for _, _, body in rows[first : first + _UNPACKED]]
            for entry in await asyncio.to_thread(_unpack_entries, bodies, evidence, trim):
                yield entry
        if len(rows) < _STEP:
            return
        edge = (rows[-1][0], rows[-1][1])


def _unpack_entries(bodies: Sequence[bytes], evidence: bool, trim: Callable[[RunEntry], RunEntry] | None) -> list[RunEntry]:
    # One by one: trimmed data is not held until the last one is unpacked.
    entries = map(read_entry, bodies) if evidence else (msgspec.structs.replace(read_entry(body), evidence=None) for body in bodies)
    return list(entries if trim is None else map(trim, entries))


def read_entry(body: bytes) -> RunEntry:
    """Return a stored attempt. Raises `StoreError`."""
    return _decode_entry(expand_bytes(body))


def _decode_entry(data: bytes) -> RunEntry:
    try:
        return _ENTRY.decode(data)
    except msgspec.MsgspecError as error:
        raise StoreError(f"a stored result cannot be read: {error}") from error


def _match_lease(run_id: str, owner: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (runs.c.id == run_id, runs.c.lease_owner == owner, runs.c.status == "running")


async def _change_held(connection: AsyncConnection, run_id: str, owner: str, values: Mapping[str, object]) -> Row:
    """Change the row of a leased run, which stays locked until the end of the transaction."""
    changed = sa.update(runs).where(*_match_lease(run_id, owner)).values(values).returning(runs.c.cancel_requested, runs.c.counts)
    row = (await connection.execute(changed)).mappings().first()
    if row is None:
        raise LeaseLost(f"run {run_id!r} was taken over by another server")
    return dict(row)


class RunRows:
    """The log of a running run; implements `runner.ports.RunLog`.

    Attempts that end while others are being written are written together. If a caller is cancelled while its attempt is written, the write
    continues: `wait_until_written` waits for every write that was started.
    """

    def __init__(
        self,
        database: Database,
        lease: RunLease,
        *,
        clock: Callable[[], float],
        now: Callable[[], str],
        new_id: Callable[[str], str],
        clean: EntryCleaner,
        on_written: Callable[[], None],
        find_ranges: Callable[[RunEntry], Ranges],
    ) -> None:
        """`on_written` is called after every write, `find_ranges` for attempts with very long texts."""
        self._database = database
        self._lease = lease
        self._run_id = lease.run_id
        self._clock = clock
        self._now = now
        self._new_id = new_id
        self._clean = clean
        self._on_written = on_written
        self._find_ranges = find_ranges
        self._entries: list[tuple[dict[str, Any], dict[str, Json], asyncio.Future[None], bool]] = []
        self._events: list[Event] = []
        self._writer: asyncio.Task[None] | None = None
        self._appending: set[asyncio.Task[None]] = set()

    async def append(self, entry: RunEntry) -> None:
        """Store one finished attempt durably. Raises `StoreError`, including `LeaseLost`."""
        task = asyncio.create_task(self._append_entry(entry))
        self._appending.add(task)
        task.add_done_callback(self._forget_task)
        # A finished attempt is written even if the run is cancelled during the write.
        await asyncio.shield(task)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._appending.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, even if its waiter was cancelled

    def add_event(self, kind: str, body: dict[str, Json]) -> None:
        """Queue an event to be written soon."""
        self._events.append((kind, body))
        self._wake_writer()

    async def wait_until_written(self) -> None:
        """Wait until everything is written or has failed. Does not raise for failed writes: their callers got the error."""
        # In a loop: an attempt that was packed in the meantime restarts the writer.
        while self._appending or (self._writer is not None and not self._writer.done()):
            waiting = [*self._appending, *([self._writer] if self._writer is not None else [])]
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _append_entry(self, entry: RunEntry) -> None:
        # Evidence may be large: cleaning and packing it must not block other runs.
        packed = await asyncio.to_thread(self._pack_entry, entry)
        row = {"run_id": self._run_id, "case_id": entry.case, "attempt": entry.attempt, "outcome": entry.outcome, **packed}
        event_body: dict[str, Json] = {"case": entry.case, "attempt": entry.attempt, "outcome": entry.outcome, "score": entry.score}
        reason = self._clean.clean_text(entry.reason)[:500] if entry.reason else None
        event_body |= {"code": entry.code, "reason": reason, "duration_ms": entry.duration_ms}
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        is_judged = any("judge" in (verdict.details or {}) for verdict in entry.verdicts)
        self._entries.append((row, event_body, written, is_judged))
        self._wake_writer()
        await written

    def _pack_entry(self, entry: RunEntry) -> dict[str, bytes | str | None]:
        clean = self._clean.clean_entry(entry)
        # From the redacted entry: no secret can be searched for.
        stored = _decode_entry(clean)
        preview = make_shown(stored, self._find_ranges) if len(clean) > LONG_TEXT else None
        return {"digest": make_digest(clean), "search_text": make_search_text(stored), "shown": preview, "body": compress_bytes(clean)}

    def _wake_writer(self) -> None:
        # One writer at a time: entries that arrive during a write form the next batch, so a fast run makes few transactions.
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())

    async def _write_all(self) -> None:
        while self._entries or self._events:
            entries, self._entries = self._entries, []
            events, self._events = self._events, []
            try:
                async with self._database.writing() as connection:
                    await self._write_batch(connection, entries, events)
            except BaseException as error:
                # Also when cancelled: callers must not wait forever.
                fault = error if isinstance(error, Exception) else StoreError("the results could not be written: interrupted")
                settle_waiters([written for _, _, written, _ in entries], fault)
                if not isinstance(error, Exception):
                    raise
                continue
            settle_waiters([written for _, _, written, _ in entries], None)
            self._on_written()

    async def _write_batch(
        self,
        connection: AsyncConnection,
        entries: Sequence[tuple[dict[str, Any], dict[str, Json], asyncio.Future[None], bool]],
        events: Sequence[Event],
    ) -> None:
        at = self._now()
        run_id = self._run_id
        values: dict[str, object] = {"leased_until": self._clock() + self._lease.lasts_s, "updated_at": at}
        # First: a holder that lost the lease raises here and writes nothing. Progress resets the count of futile leases.
        run_row = await _change_held(connection, run_id, self._lease.owner, {**values, "claims": 0} if entries else values)
        # From the locked row: an earlier holder of the run has counted there.
        counts: dict[str, int] = dict(run_row["counts"] or {})
        added = list(events)
        for row, about, _, is_judged in entries:
            new = {**row, "id": self._new_id("att"), "created_at": at}
            adding = insert_or_ignore(connection, run_entries, new, key=("run_id", "case_id", "attempt")).returning(run_entries.c.id)
            # An earlier holder may have stored this attempt already: then it counts once, without a second event.
            id = (await connection.execute(adding)).scalar()
            if id is not None:
                if is_judged:
                    await note_due_claims(connection, "attempt", [id], at)
                counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
                added.append(("finished", about))
        if entries:
            await connection.execute(sa.update(runs).where(runs.c.id == run_id).values(counts=counts))
        await add_events(connection, run_id, added, at)


MOST_COUNTED = 100_000
"""Maximum counted rows: the figure is read every few seconds."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The lengths of the queues."""

    traces: int
    """Traces to evaluate; up to `MOST_COUNTED`."""
    first_due: float | None
    """When the longest waiting trace was due, in Unix seconds."""
    runs_queued: int
    runs_running: int
    first_queued: str | None
    """When the longest waiting run was queued."""
    deliveries: int
    """Alert messages to send; up to `MOST_COUNTED`."""

    def measure_trace_wait(self, now: float) -> float:
        """Return the seconds since the longest waiting trace was due."""
        return 0.0 if self.first_due is None else max(0.0, now - self.first_due)

    def measure_run_wait(self, now: float) -> float:
        """Return the seconds since the longest waiting run was queued."""
        return max(0.0, now - datetime.fromisoformat(self.first_queued).timestamp()) if self.first_queued else 0.0


async def count_queue(connection: AsyncConnection) -> Queue:
    """Return the lengths of the queues, over all organizations."""
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


async def list_due_schedules(connection: AsyncConnection, now: str, limit: int) -> list[Row]:
    """Return due schedules of all organizations with `paused` of their projects, the longest waiting first; without those that queue."""
    going = sa.exists().where(runs.c.schedule_id == schedules.c.id, runs.c.status.in_(UNFINISHED))
    query = sa.select(schedules, projects.c.paused).join(projects, projects.c.id == schedules.c.project_id)
    query = query.where(schedules.c.next_at <= now, schedules.c.active, ~sa.and_(schedules.c.overlap == "queue", going))
    return await fetch_all(connection, query.order_by(schedules.c.next_at).limit(limit))


async def advance_schedule(connection: AsyncConnection, row: Row, values: Mapping[str, object]) -> bool:
    """Change a schedule; return False if another server advanced it, or it was changed."""
    same = (schedules.c[name] == row[name] for name in ("id", "next_at", "updated_at"))
    return (await connection.execute(sa.update(schedules).where(*same, schedules.c.active).values(values))).rowcount == 1


async def set_last_run(connection: AsyncConnection, schedule_id: str, run_id: str) -> None:
    """Record the newest run of a schedule."""
    await connection.execute(sa.update(schedules).where(schedules.c.id == schedule_id).values(last_run_id=run_id))


async def find_unfinished_run(connection: AsyncConnection, schedule_id: str) -> str | None:
    """Return a queued or running run of a schedule."""
    query = sa.select(runs.c.id).where(runs.c.schedule_id == schedule_id, runs.c.status.in_(UNFINISHED))
    return (await connection.execute(query.limit(1))).scalar_one_or_none()


async def list_started_times(connection: AsyncConnection, schedule_id: str, since: str, until: str) -> set[str]:
    """Return the due times from `since` to `until` that have a run."""
    query = sa.select(runs.c.due_at).where(runs.c.schedule_id == schedule_id, runs.c.due_at >= since, runs.c.due_at <= until)
    return {at for at in (await connection.execute(query)).scalars() if at is not None}


async def list_runs_by_id(connection: AsyncConnection, columns: Collection[str], ids: Collection[str]) -> dict[str, Row]:
    """Return these columns of these runs, by id."""
    query = sa.select(*(runs.c[name] for name in columns)).where(runs.c.id.in_(ids))
    return {row["id"]: dict(row) for row in (await connection.execute(query)).mappings()}
