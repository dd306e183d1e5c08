"""The leases of one evaluation worker: it takes a batch, renews its leases, and returns what it does not finish.

Only the holder of the lease works on a trace. Leases are renewed during the work and expire if the worker dies. Unfinished traces are
returned unchanged; a trace that may be the cause is abandoned instead, which counts as an attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import StoreError
from proctor.service.decisions.trace_verdicts import ActiveCase, CaseKey, CaseText
from proctor.service.hub import Hub, new_id
from proctor.store.sql.tables import cases
from proctor.store.traces.trace_work import (
    MOST_AGENTS,
    BatchRequest,
    abandon_leases,
    choose_batch,
    find_next_due,
    has_abandoned,
    lease_abandoned,
    lease_batch,
    lease_chosen,
    list_leased,
    renew_leases,
    return_leases,
)
from proctor.store.traces.traces import list_pieces

# --- chooses the next traces: agents in turn, slow agents after the others, and sometimes abandoned traces

FEW_TRACES = 25
"""Abandoned traces that are leased at once: one of them may end the worker again, together with the others."""


class EvaluationQueue:
    """Chooses and leases the batches of one worker."""

    def __init__(self, hub: Hub, owner: str) -> None:
        self._hub = hub
        self._owner = owner
        self._try_abandoned = False
        self._resting: dict[str, float] = {}
        self.last_agent = ""
        self.has_more = False
        """Whether there is probably more to lease."""

    def make_request(self, limit: int, most_bytes: int, *, without: frozenset[str]) -> BatchRequest:
        """Return the request for the next batch, without some agents."""
        now = self._hub.clock()
        until = now + self._hub.settings.lease_s
        return BatchRequest(
            owner=self._owner, now=now, until=until, limit=limit, most_bytes=most_bytes, after=self.last_agent, without=without
        )

    def postpone_agents(self, agents: Iterable[str], until: float) -> None:
        """Postpone agents until a time, as long as other agents have traces."""
        self._resting |= dict.fromkeys(agents, until)

    async def lease_next(self, turn: BatchRequest) -> list[str]:
        """Lease due traces, and sometimes abandoned ones, and return their ids."""
        self._resting = {agent: until for agent, until in self._resting.items() if until > turn.now}
        # Every second time: abandoned traces may end the worker again, so they come neither before nor after all healthy ones.
        self._try_abandoned = not self._try_abandoned
        if self._try_abandoned and (ids := await self._lease_abandoned(turn)):
            return ids
        chosen: list[tuple[str, str]] = []
        if self._resting:
            chosen = await self._lease_due(msgspec.structs.replace(turn, without=turn.without | frozenset(self._resting)))
        # Postponed agents are served if there are no others.
        chosen = chosen or await self._lease_due(turn)
        if not chosen:
            # Nothing is due, and abandoned traces have not been tried yet.
            return [] if self._try_abandoned else await self._lease_abandoned(turn)
        self.has_more = len(chosen) >= turn.limit
        # If all agents were served, the next round starts one agent later, so that no agent is always first. Otherwise it continues after
        # the last agent.
        first_round = list(dict.fromkeys(agent for _, agent in chosen))
        self.last_agent = first_round[0 if len(first_round) < MOST_AGENTS else -1]
        return [id for id, _ in chosen]

    async def _lease_due(self, turn: BatchRequest) -> list[tuple[str, str]]:
        database = self._hub.database
        if database.dialect == "postgresql":
            # Chosen and locked in one statement, skipping locked rows.
            async with database.writing() as connection:
                return await lease_batch(connection, turn)
        # SQLite has one writer: keep the write transaction short.
        async with database.reading() as connection:
            chosen = await choose_batch(connection, turn)
        if chosen:
            async with database.writing() as connection:
                await lease_chosen(connection, turn, chosen)
        return chosen

    async def _lease_abandoned(self, turn: BatchRequest) -> list[str]:
        async with self._hub.database.reading() as connection:
            # A read first, which blocks no writer: nearly always there is nothing.
            if not await has_abandoned(connection, turn.now):
                return []
        async with self._hub.database.writing() as connection:
            ids = await lease_abandoned(connection, turn, FEW_TRACES)
        # Only a few were taken on purpose; check for more at once.
        self.has_more = True
        return ids


# --- reads the active cases


async def list_active_cases(connection: AsyncConnection, project_ids: Sequence[str]) -> dict[str, list[ActiveCase]]:
    """Return the active cases of some projects, oldest first, by project."""
    columns = (cases.c.id, cases.c.version, cases.c.project_id, cases.c.agent_id, cases.c.name, cases.c.when_matches, cases.c.sample)
    query = sa.select(*columns).where(cases.c.project_id.in_(project_ids), cases.c.active).order_by(cases.c.created_at, cases.c.id)
    cases_by_project: dict[str, list[ActiveCase]] = {}
    for id, version, project_id, agent_id, name, when, sample in (await connection.execute(query)).all():
        case = ActiveCase(id=id, version=version, project_id=project_id, agent_id=agent_id, name=name, when=when, sample=sample)
        cases_by_project.setdefault(project_id, []).append(case)
    return cases_by_project


async def read_case_texts(connection: AsyncConnection, versions: Sequence[ActiveCase]) -> dict[CaseKey, CaseText]:
    """Return the documents of some cases, read in the transaction that found them."""
    if not versions:
        return {}
    query = sa.select(cases.c.id, cases.c.version, cases.c.name, cases.c.document, cases.c.dialect)
    rows = (await connection.execute(query.where(cases.c.id.in_([case.id for case in versions])))).all()
    return {
        (id, version): CaseText(id=id, version=version, name=name, text=text, dialect=dialect) for id, version, name, text, dialect in rows
    }


BATCH_TRACES = 500
"""Traces leased at once: many share one read and one write."""
BATCH_BYTES = 16_000_000
"""Bytes of traces leased at once, which bounds memory."""
_MOST_TEXTS = 500
"""Documents of cases that are cached between batches."""
# A very short lease setting must not make the heartbeat spin.
_SHORTEST_BEAT_S = 0.05


class LeasedBatch(msgspec.Struct, kw_only=True):
    """A batch of leased traces with the data to decide it."""

    rows: list[dict[str, Any]]
    pieces: dict[str, list[bytes]] = {}
    cases: list[ActiveCase] = []


class EvaluationLeases:
    """The leases of one worker, and the documents of the cases it has read."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        # By version: a changed document is a new version, so that entries never become stale.
        self._texts: OrderedDict[CaseKey, CaseText] = OrderedDict()
        # Unique per worker, so that leases of an earlier one are never mistaken for its own.
        self.owner = new_id("wrk")
        self.queue = EvaluationQueue(hub, self.owner)
        self.held: set[str] = set()
        """The ids of the traces in progress."""

    @property
    def texts(self) -> dict[CaseKey, CaseText]:
        """A copy of the cached documents."""
        return dict(self._texts)

    async def has_due(self) -> bool:
        """Return whether a trace is due and not leased."""
        # Reading blocks no writer; leasing does.
        async with self._hub.database.reading() as connection:
            due = await find_next_due(connection, self._hub.clock())
        return due is not None and due <= self._hub.clock()

    async def get_wait_s(self, at_most_s: float) -> float:
        """Return the seconds until the next trace is due, at most `at_most_s`."""
        try:
            async with self._hub.database.reading() as connection:
                due = await find_next_due(connection, self._hub.clock())
        except StoreError:
            # `start_batch` reports the same error; here it means that there is nothing to do yet.
            return at_most_s
        # Never zero: a due trace that cannot be leased must not make the worker spin.
        return at_most_s if due is None else min(at_most_s, max(0.01, due - self._hub.clock()))

    async def take_batch(self, *, without: frozenset[str]) -> LeasedBatch:
        """Lease a batch without the agents in `without`, and read its data."""
        turn = self.queue.make_request(BATCH_TRACES, BATCH_BYTES, without=without)
        # A lease may expire during a database outage. Traces in progress are not started a second time.
        ids = [id for id in await self.queue.lease_next(turn) if id not in self.held]
        if not ids:
            return LeasedBatch(rows=[])
        # Before reading, which may take long: only held leases are renewed.
        self.held |= set(ids)
        try:
            batch = await self._read_batch(ids)
        # Also when cancelled: otherwise the traces are blocked until the leases expire.
        except BaseException:
            # The first error is raised. A lease that cannot be returned expires.
            with contextlib.suppress(StoreError):
                await self.give_back(ids)
            raise
        # Another worker may have taken some of them.
        self.held -= set(ids) - {row["id"] for row in batch.rows}
        return batch

    async def _read_batch(self, ids: list[str]) -> LeasedBatch:
        # A read transaction blocks no writer. A trace that changes from here on stays due.
        async with self._hub.database.reading() as connection:
            rows = await list_leased(connection, self.owner, ids)
            pieces = await list_pieces(connection, rows)
            active = await list_active_cases(connection, sorted({row["project_id"] for row in rows}))
            all_cases = [case for of_one in active.values() for case in of_one]
            missing = [case for case in all_cases if (case.id, case.version) not in self._texts]
            # In the same transaction, so that every text has the version that was just listed.
            self._texts |= await read_case_texts(connection, missing)
        for case in all_cases:
            if (case.id, case.version) in self._texts:
                self._texts.move_to_end((case.id, case.version))
        # Evicts the least recently used, but never those of this batch.
        while len(self._texts) > max(_MOST_TEXTS, len(all_cases)):
            self._texts.popitem(last=False)
        return LeasedBatch(rows=rows, pieces=pieces, cases=all_cases)

    async def give_back(self, ids: Collection[str]) -> None:
        """Return traces to the queue unchanged."""
        released = self._let_go(ids)
        if released:
            async with self._hub.database.writing() as connection:
                await return_leases(connection, owner=self.owner, ids=released)

    async def abandon(self, ids: Collection[str]) -> None:
        """Return traces to the queue and count the failed attempt; if that cannot be written, their leases expire."""
        released = self._let_go(ids)
        with contextlib.suppress(StoreError):
            async with self._hub.database.writing() as connection:
                await abandon_leases(connection, owner=self.owner, ids=released)

    def _let_go(self, ids: Collection[str]) -> list[str]:
        # Before they are due again: the next batch of this worker may include them, and skips those still held.
        released = sorted(ids)
        self.held -= set(released)
        return released

    async def keep_renewing(self) -> None:
        """Renew held leases until cancelled."""
        while True:
            # Three times per lease: two renewals may fail before another worker takes over.
            await asyncio.sleep(max(_SHORTEST_BEAT_S, self._hub.settings.lease_s / 3))
            with contextlib.suppress(StoreError):
                # A failed renewal is retried at the next beat; results are written only for leases still held.
                if self.held:
                    async with self._hub.database.writing() as connection:
                        until = self._hub.clock() + self._hub.settings.lease_s
                        await renew_leases(connection, owner=self.owner, ids=sorted(self.held), until=until)
