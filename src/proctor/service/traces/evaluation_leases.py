"""The leases of one worker that evaluates traces: takes a batch, renews what it holds, gives back what it does not finish.

A trace is worked on by whoever holds its lease. Leases are renewed while the work lasts, so that a worker may take as long as it needs,
and run out by themselves when it dies. What cannot be finished is given back as it was; a trace that may be to blame for that is
abandoned instead, which counts as one more attempt.
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
from proctor.service.decisions.case_selection import ActiveCase
from proctor.service.decisions.trace_verdicts import CaseKey, CaseText
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

# --- chooses whose traces are evaluated next: agents in turn, those that took long behind the others, and now and then abandoned traces

FEW_TRACES = 25
"""How many abandoned traces are leased at once: one of them may end the worker again, and takes the others along."""


class EvaluationQueue:
    """Chooses and leases what one worker evaluates, batch by batch."""

    def __init__(self, hub: Hub, owner: str) -> None:
        self._hub = hub
        self._owner = owner
        self._look_behind = False
        self._resting: dict[str, float] = {}
        self.last_agent = ""
        """The agent whose turn was last."""
        self.has_more = False
        """Whether there is probably more than what was taken last."""

    def make_request(self, limit: int, most_bytes: int, *, without: frozenset[str]) -> BatchRequest:
        """Return the request for the next batch, in which some agents have no part."""
        now = self._hub.clock()
        until = now + self._hub.settings.lease_s
        return BatchRequest(
            owner=self._owner, now=now, until=until, limit=limit, most_bytes=most_bytes, after=self.last_agent, without=without
        )

    def postpone_agents(self, agents: Iterable[str], until: float) -> None:
        """Let agents wait until then, as long as others want something."""
        self._resting |= dict.fromkeys(agents, until)

    async def lease_next(self, turn: BatchRequest) -> list[str]:
        """Lease what is due, and now and then abandoned traces, and return the ids."""
        self._resting = {agent: until for agent, until in self._resting.items() if until > turn.now}
        # Every second time: abandoned traces may end the worker again, so they must neither come before all healthy
        # work nor wait until there is none.
        self._look_behind = not self._look_behind
        if self._look_behind and (ids := await self._lease_abandoned(turn)):
            return ids
        chosen: list[tuple[str, str]] = []
        if self._resting:
            chosen = await self._lease_due(msgspec.structs.replace(turn, without=turn.without | frozenset(self._resting)))
        # Those who rest have their turn all the same when nobody else wants anything.
        chosen = chosen or await self._lease_due(turn)
        if not chosen:
            # Nothing is due, and in this turn nobody has looked for abandoned traces yet.
            return [] if self._look_behind else await self._lease_abandoned(turn)
        self.has_more = len(chosen) >= turn.limit
        # Where all agents had a turn the next round begins one agent later, so that nobody is always first. Where there were more agents
        # than fit, it goes on behind the last of them.
        first_round = list(dict.fromkeys(agent for _, agent in chosen))
        self.last_agent = first_round[0 if len(first_round) < MOST_AGENTS else -1]
        return [id for id, _ in chosen]

    async def _lease_due(self, turn: BatchRequest) -> list[tuple[str, str]]:
        database = self._hub.database
        if database.dialect == "postgresql":
            # Chosen and locked at once, and what others have locked is passed over.
            async with database.writing() as connection:
                return await lease_batch(connection, turn)
        # There is one writer, and nobody to be passed over: it is kept waiting for as short as possible.
        async with database.reading() as connection:
            chosen = await choose_batch(connection, turn)
        if chosen:
            async with database.writing() as connection:
                await lease_chosen(connection, turn, chosen)
        return chosen

    async def _lease_abandoned(self, turn: BatchRequest) -> list[str]:
        async with self._hub.database.reading() as connection:
            # A look first, which holds up no writer: nearly always there is nothing.
            if not await has_abandoned(connection, turn.now):
                return []
        async with self._hub.database.writing() as connection:
            ids = await lease_abandoned(connection, turn, FEW_TRACES)
        # Only a few were taken, on purpose; whether there are more is found out at once.
        self.has_more = True
        return ids


# ---


# --- reads the cases that traces are evaluated against


async def list_active_cases(connection: AsyncConnection, project_ids: Sequence[str]) -> dict[str, list[ActiveCase]]:
    """Return the active cases of some projects, oldest first, by project."""
    columns = (cases.c.id, cases.c.version, cases.c.project_id, cases.c.agent_id, cases.c.name, cases.c.when_matches, cases.c.sample)
    query = sa.select(*columns).where(cases.c.project_id.in_(project_ids), cases.c.active).order_by(cases.c.created_at, cases.c.id)
    found: dict[str, list[ActiveCase]] = {}
    for id, version, project_id, agent_id, name, when, sample in (await connection.execute(query)).all():
        case = ActiveCase(id=id, version=version, project_id=project_id, agent_id=agent_id, name=name, when=when, sample=sample)
        found.setdefault(project_id, []).append(case)
    return found


async def read_case_texts(connection: AsyncConnection, wanted: Sequence[ActiveCase]) -> dict[CaseKey, CaseText]:
    """Return the documents of some cases, read in the transaction that found them."""
    if not wanted:
        return {}
    query = sa.select(cases.c.id, cases.c.version, cases.c.name, cases.c.document, cases.c.dialect)
    rows = (await connection.execute(query.where(cases.c.id.in_([case.id for case in wanted])))).all()
    return {
        (id, version): CaseText(id=id, version=version, name=name, text=text, dialect=dialect) for id, version, name, text, dialect in rows
    }


BATCH_TRACES = 500
"""How many traces are leased at once: enough that one read and one write serve many of them."""
BATCH_BYTES = 16_000_000
"""How many bytes of traces are leased at once, so that a batch of large ones does not fill the memory."""
_MOST_TEXTS = 500
"""How many documents of cases are remembered between batches."""
# A lease of next to nothing, as a setting may say, must not make the beat spin.
_SHORTEST_BEAT_S = 0.05


class LeasedBatch(msgspec.Struct, kw_only=True):
    """A batch of leased traces, and what is needed to decide it."""

    rows: list[dict[str, Any]]
    pieces: dict[str, list[bytes]] = {}
    cases: list[ActiveCase] = []


class EvaluationLeases:
    """The leases of one worker, and the documents of the cases it has read."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        # By version: a changed document is a new version, so a text that is remembered needs no look whether it still holds.
        self._texts: OrderedDict[CaseKey, CaseText] = OrderedDict()
        # A new name for every worker: leases that an earlier one left behind are never taken for its own.
        self.owner = new_id("wrk")
        """The name under which this worker holds leases."""
        self.queue = EvaluationQueue(hub, self.owner)
        self.held: set[str] = set()
        """The ids of the traces that this worker is still working on."""

    @property
    def texts(self) -> dict[CaseKey, CaseText]:
        """A copy of the documents of the cases that were read."""
        return dict(self._texts)

    async def has_due(self) -> bool:
        """Return whether a trace is due that nobody holds."""
        # Looking does not hold up whoever writes; leasing does.
        async with self._hub.database.reading() as connection:
            due = await find_next_due(connection, self._hub.clock())
        return due is not None and due <= self._hub.clock()

    async def get_wait_s(self, at_most_s: float) -> float:
        """Return how many seconds to wait before looking again: until the next trace is due, but not longer than `at_most_s`."""
        try:
            async with self._hub.database.reading() as connection:
                due = await find_next_due(connection, self._hub.clock())
        except StoreError:
            # `start_batch` meets the same database in a moment and tells of it; here it only means that there is nothing to do yet.
            return at_most_s
        # Never zero: a trace that is due and cannot be taken at this moment must not make the worker spin.
        return at_most_s if due is None else min(at_most_s, max(0.01, due - self._hub.clock()))

    async def take_batch(self, *, without: frozenset[str]) -> LeasedBatch:
        """Lease a batch, except traces of the agents in `without`, and read all that is needed to decide it."""
        turn = self.queue.make_request(BATCH_TRACES, BATCH_BYTES, without=without)
        # A lease may run out while the database is away. What this worker still works on is not begun a second time then.
        ids = [id for id in await self.queue.lease_next(turn) if id not in self.held]
        if not ids:
            return LeasedBatch(rows=[])
        # Before anything is read: reading may take long, and only what is held is renewed meanwhile.
        self.held |= set(ids)
        try:
            batch = await self._read_batch(ids)
        # Also when cancelled: nobody else knows of these leases, and until they run out nobody else gets the traces.
        except BaseException:
            # The first error is the one to tell. A lease that cannot be given back runs out.
            with contextlib.suppress(StoreError):
                await self.give_back(ids)
            raise
        # Somebody else may have been quicker with some of them.
        self.held -= set(ids) - {row["id"] for row in batch.rows}
        return batch

    async def _read_batch(self, ids: list[str]) -> LeasedBatch:
        # A read transaction holds up no writer. What arrives from here on is not missed: a trace that has changed since stays due.
        async with self._hub.database.reading() as connection:
            rows = await list_leased(connection, self.owner, ids)
            pieces = await list_pieces(connection, rows)
            active = await list_active_cases(connection, sorted({row["project_id"] for row in rows}))
            wanted = [case for of_one in active.values() for case in of_one]
            missing = [case for case in wanted if (case.id, case.version) not in self._texts]
            # In the same transaction, which sees one moment: every text has the version that was just listed.
            self._texts |= await read_case_texts(connection, missing)
        for case in wanted:
            if (case.id, case.version) in self._texts:
                self._texts.move_to_end((case.id, case.version))
        # The least recently used go first, but never those of this batch.
        while len(self._texts) > max(_MOST_TEXTS, len(wanted)):
            self._texts.popitem(last=False)
        return LeasedBatch(rows=rows, pieces=pieces, cases=wanted)

    async def give_back(self, ids: Collection[str]) -> None:
        """Return traces to the queue as they were; they are held no longer."""
        given = self._let_go(ids)
        if given:
            async with self._hub.database.writing() as connection:
                await return_leases(connection, owner=self.owner, ids=given)

    async def abandon(self, ids: Collection[str]) -> None:
        """Return traces to the queue and count the failed attempt; if not even that can be written, their leases run out."""
        given = self._let_go(ids)
        with contextlib.suppress(StoreError):
            async with self._hub.database.writing() as connection:
                await abandon_leases(connection, owner=self.owner, ids=given)

    def _let_go(self, ids: Collection[str]) -> list[str]:
        # Before they are due again: the next batch of this worker may have them at once, and passes over what is still held.
        given = sorted(ids)
        self.held -= set(given)
        return given

    async def keep_renewing(self) -> None:
        """Renew the leases of what is held, until cancelled."""
        while True:
            # Three times within a lease: two renewals may fail before others take the traces over.
            await asyncio.sleep(max(_SHORTEST_BEAT_S, self._hub.settings.lease_s / 3))
            with contextlib.suppress(StoreError):
                # A renewal that fails is no reason to stop: the next beat tries again, and whoever finishes writes only what is still ours.
                if self.held:
                    async with self._hub.database.writing() as connection:
                        until = self._hub.clock() + self._hub.settings.lease_s
                        await renew_leases(connection, owner=self.owner, ids=sorted(self.held), until=until)
