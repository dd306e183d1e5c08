"""Passive evaluation: every complete trace against the active cases of its agent.

A worker leases what is due, a batch at a time: one read, one write. Deciding is done in a thread of its own, so that requests are answered
meanwhile. Cases that need a judge are decided one trace at a time beside that, a few at once; without a judge their assertions are
errors, `judge_unavailable`. Results are written with the lease in hand, one for each trace, case and version, whoever else tried. The judge
is that of the workspace; what an uploaded case says about judges does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.judged_check import judged
from proctor.actions.judges import open_judge
from proctor.actions.settings import workspace_file
from proctor.errors import InputError, StoreError
from proctor.formats.workspace import References
from proctor.model.evidence import Json
from proctor.runner.ports import Judge
from proctor.service.access import require_writer
from proctor.service.applicable import ActiveCase, active_cases
from proctor.service.audit import note
from proctor.service.callers import Caller
from proctor.service.deciding import Decided, PreparedCache, PreparedDocument, Work, decide_all, result_row
from proctor.service.hub import Hub, new_id
from proctor.service.recent import recent_spans
from proctor.service.refusals import not_found
from proctor.service.routing import agent_of
from proctor.service.searching import read_moment
from proctor.store.exports import queue_exports
from proctor.store.tables import agents, cases, projects, traces
from proctor.store.tenants import find
from proctor.store.trace_work import Done, finish, give_back, lease, next_due, renew
from proctor.store.traces import pieces_of

BATCH = 500
"""Traces that are taken at once."""
BATCH_BYTES = 16_000_000
IDLE_S = 0.5
"""How often is looked for work when there is none."""
GATHER_S = 0.15
"""How long is waited for more when a batch was not full."""
JUDGE_S = 300.0
"""How long judging one trace may take."""
_LOG = logging.getLogger("proctor.serve")


async def evaluate_traces(hub: Hub, stop: asyncio.Event) -> None:
    """Evaluate what is due until told to stop: a worker of the service."""
    if hub.settings.evaluators == 0:
        await stop.wait()
        return
    async with Evaluator.opened(hub) as evaluator:
        while not stop.is_set():
            try:
                busy = await evaluator.step()
            except StoreError as error:
                _LOG.warning("traces cannot be evaluated now", extra={"error": str(error)})
                busy = 0
            if busy < BATCH:
                # A little patience makes fewer and larger batches of a steady stream.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), GATHER_S if busy else await evaluator.idle_s())


async def evaluate_all(hub: Hub, *, judge: Judge | None = None) -> int:
    """Evaluate everything that is due now, and come back; how many traces that were."""
    count = 0
    async with Evaluator.opened(hub, judge=judge) as evaluator:
        while taken := await evaluator.step():
            count += taken
        await evaluator.judged()
    return count


class _Taken(msgspec.Struct, kw_only=True):
    """A batch that was leased, and what is needed to decide it."""

    rows: list[dict[str, Any]]
    pieces: dict[str, list[bytes]]
    active: dict[str, list[ActiveCase]]
    missing: list[ActiveCase]
    """Cases that are not prepared yet."""
    texts: dict[str, tuple[str, str]]


class Evaluator:
    """One worker: its lease, its thread, its judge, and the cases it has prepared."""

    def __init__(self, hub: Hub, pool: ThreadPoolExecutor, judge: Judge | None) -> None:
        self._hub = hub
        self._pool = pool
        self._judge = judge
        self._owner = new_id("wrk")
        self._cache = PreparedCache()
        self._busy = False
        self._judging: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(max(1, hub.settings.evaluators))

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, hub: Hub, *, judge: Judge | None = None) -> AsyncGenerator[Evaluator]:
        """A worker, and nothing of it left behind."""
        own = None if judge is not None else _judge_of_workspace(hub, os.environ)
        with ThreadPoolExecutor(1, thread_name_prefix="evaluate") as pool:
            evaluator = cls(hub, pool, judge or own)
            try:
                yield evaluator
            finally:
                await evaluator.abandon()
                if own is not None:
                    await own.close()

    async def step(self) -> int:
        """Take one batch of what is due and evaluate it; how many traces were taken."""
        while len(self._judging) >= self._hub.settings.evaluators:
            await asyncio.wait(self._judging, return_when=asyncio.FIRST_COMPLETED)
        if not self._busy and not await self._anything_due():
            return 0
        taken = await self._take()
        self._busy = len(taken.rows) > 0
        if taken.rows:
            async with self._held([row["id"] for row in taken.rows]):
                await self._evaluate(taken)
        return len(taken.rows)

    async def _anything_due(self) -> bool:
        # Looking does not hold up whoever writes; taking does.
        async with self._hub.database.reading() as connection:
            due = await next_due(connection, self._hub.clock())
        return due is not None and due <= self._hub.clock()

    async def _take(self) -> _Taken:
        """Lease a batch, and read all that is needed to decide it, in one go."""
        now = self._hub.clock()
        async with self._hub.database.writing() as connection:
            until = now + self._hub.settings.lease_s
            rows = await lease(connection, owner=self._owner, now=now, until=until, limit=BATCH, most_bytes=BATCH_BYTES)
            if not rows:
                return _Taken(rows=[], pieces={}, active={}, missing=[], texts={})
            pieces = await pieces_of(connection, rows)
            active = await active_cases(connection, sorted({row["project_id"] for row in rows}))
            missing = [case for of_one in active.values() for case in of_one if self._cache.get(case) is None]
            texts = await _documents(connection, missing)
        return _Taken(rows=rows, pieces=pieces, active=active, missing=missing, texts=texts)

    async def idle_s(self) -> float:
        """How long there is nothing to do, as far as can be known."""
        try:
            async with self._hub.database.reading() as connection:
                due = await next_due(connection, self._hub.clock())
        except StoreError:
            return IDLE_S
        return IDLE_S if due is None else min(IDLE_S, max(0.01, due - self._hub.clock()))

    async def judged(self) -> None:
        """Wait for everything that is being judged."""
        while self._judging:
            await asyncio.wait(self._judging)

    async def abandon(self) -> None:
        """Leave what is being judged to whoever comes next."""
        for task in self._judging:
            task.cancel()
        await asyncio.gather(*self._judging, return_exceptions=True)

    async def _evaluate(self, taken: _Taken) -> None:
        works = await self._works(taken)
        loop = asyncio.get_running_loop()
        decided = await loop.run_in_executor(self._pool, _decide, works, self._hub.now(), self._judge is not None)
        await self._finish([one for one in decided if not one.undecided])
        for one in decided:
            if one.undecided:
                task = asyncio.create_task(self._judge_one(one), name=f"judge {one.work.row['id']}")
                self._judging.add(task)
                task.add_done_callback(self._judging.discard)

    async def _works(self, taken: _Taken) -> list[Work]:
        if taken.missing:
            await asyncio.get_running_loop().run_in_executor(self._pool, _prepare, self._cache, taken.missing, taken.texts)
        works: list[Work] = []
        recent = recent_spans(self._hub.database)
        for row in taken.rows:
            agent = await agent_of(self._hub, row["organization_id"], row["agent_id"])
            wanted = [case for case in taken.active.get(row["project_id"], ()) if case.agent_id in (None, row["agent_id"])]
            documents = [found for case in wanted if (found := self._cache.get(case)) is not None]
            # Taken in any case, so that what has grown old does not stay.
            spans = recent.take(row["id"])
            known = spans if row["revision"] == 1 else None
            works.append(Work(row=row, pieces=taken.pieces[row["id"]], agent=agent, documents=documents, known=known))
        return works

    async def _judge_one(self, decided: Decided) -> None:
        """Decide what is left of one trace with the judge, and finish it."""
        row = decided.work.row
        assert self._judge is not None and decided.evidence is not None
        async with self._held([row["id"]]):
            try:
                async with self._slots, asyncio.timeout(JUDGE_S * len(decided.undecided)):
                    for document, prepared in decided.undecided:
                        result = await judged(prepared, decided.evidence, self._judge, clock=row["created_at"])
                        decided.results.append(result_row(decided.work, document, result, self._hub.now()))
            except TimeoutError:
                decided = Decided(work=decided.work, error="judge_unavailable: the judge did not answer in time")
            except Exception as error:
                _LOG.exception("a trace could not be judged", extra={"trace": row["id"]})
                decided = Decided(work=decided.work, error=f"internal_error: {type(error).__name__}")
            try:
                await self._finish([decided])
            except StoreError as error:
                # The lease runs out, and the trace is evaluated again.
                _LOG.warning("a judged trace could not be written", extra={"trace": row["id"], "error": str(error)})

    async def _finish(self, decided: Sequence[Decided]) -> None:
        if not decided:
            return
        try:
            await self._write([one.done() for one in decided], [row for one in decided for row in one.results])
        except (StoreError, IntegrityError) as error:
            if len(decided) == 1:
                # The database does not take its results, for whatever reason. If it takes nothing at all, this fails too.
                failed = Done(row=decided[0].work.row, status="failed", error=f"store_error: {error}"[:1_000])
                await self._write([failed], [])
                return
            for one in decided:
                await self._finish([one])

    async def _write(self, done: Sequence[Done], found: Sequence[dict[str, Any]]) -> None:
        async with self._hub.database.writing() as connection:
            count = await finish(connection, owner=self._owner, done=done, found=found)
            if self._hub.settings.export_otlp_endpoint is not None:
                await queue_exports(connection, found, self._hub.clock())
        self._hub.counters.add("traces_evaluated", count)
        self._hub.counters.add("evaluations", len(found))

    @contextlib.asynccontextmanager
    async def _held(self, ids: list[str]) -> AsyncGenerator[None]:
        """The lease of these traces, renewed for as long as it takes; given back at once when it goes wrong."""
        beat = asyncio.create_task(self._renew(ids))
        try:
            yield
        except BaseException:
            with contextlib.suppress(StoreError):
                async with self._hub.database.writing() as connection:
                    await give_back(connection, owner=self._owner, ids=ids)
            raise
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)

    async def _renew(self, ids: list[str]) -> None:
        while True:
            await asyncio.sleep(max(0.05, self._hub.settings.lease_s / 3))
            with contextlib.suppress(StoreError):
                async with self._hub.database.writing() as connection:
                    await renew(connection, owner=self._owner, ids=ids, until=self._hub.clock() + self._hub.settings.lease_s)


def _decide(works: list[Work], now: str, judging: bool) -> list[Decided]:
    return decide_all(works, now, judging=judging)


def _prepare(cache: PreparedCache, missing: Sequence[ActiveCase], texts: Mapping[str, tuple[str, str]]) -> None:
    for case in missing:
        if case.id in texts:
            document, dialect = texts[case.id]
            cache.put(case, PreparedDocument(case, document, dialect))


async def _documents(connection: AsyncConnection, wanted: Sequence[ActiveCase]) -> dict[str, tuple[str, str]]:
    if not wanted:
        return {}
    query = sa.select(cases.c.id, cases.c.document, cases.c.dialect).where(cases.c.id.in_([case.id for case in wanted]))
    return {id: (document, dialect) for id, document, dialect in (await connection.execute(query)).all()}


def _judge_of_workspace(hub: Hub, environment: Mapping[str, str]) -> Judge | None:
    home = hub.settings.home
    try:
        opened = open_judge(None, workspace_file(home), References(dict(environment)), environment, home=home)
    except InputError as error:
        _LOG.warning("the judge cannot be used; what needs one will be errors", extra={"error": str(error)})
        return None
    return None if opened is None else opened.judge


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """Which traces are to be evaluated again; what is None does not count."""

    project_id: str | None = None
    agent_id: str | None = None
    case_id: str | None = None
    """Those of the agent, or of the project, that this case is for."""
    trace_ids: tuple[str, ...] | None = None
    since: str | None = None
    until: str | None = None


async def reevaluate(hub: Hub, caller: Caller, wanted: Again) -> dict[str, Json]:
    """Have traces evaluated again, against the cases as they are now. A changed case by itself only counts for new traces."""
    require_writer(caller, "traces are evaluated again")
    async with hub.database.writing() as connection:
        query = sa.update(traces).where(traces.c.organization_id == caller.organization_id, traces.c.status != "open")
        query = query.where(*await _places(connection, caller, wanted))
        if wanted.trace_ids is not None:
            query = query.where(traces.c.id.in_(wanted.trace_ids))
        if wanted.since is not None:
            query = query.where(traces.c.created_at >= read_moment(wanted.since, "since"))
        if wanted.until is not None:
            query = query.where(traces.c.created_at < read_moment(wanted.until, "until"))
        done = await connection.execute(query.values(due_at=hub.clock()))
        details: dict[str, Json] = {"traces": done.rowcount, "case_id": wanted.case_id, "agent_id": wanted.agent_id}
        await note(connection, hub, caller, "reevaluate", "traces", wanted.case_id or wanted.agent_id or "all", details)
    return {"traces": done.rowcount}


async def _places(connection: AsyncConnection, caller: Caller, wanted: Again) -> list[sa.ColumnElement[bool]]:
    places: list[sa.ColumnElement[bool]] = []
    if wanted.project_id is not None:
        if await find(connection, projects, caller.organization_id, wanted.project_id) is None:
            raise not_found("project", wanted.project_id)
        places.append(traces.c.project_id == wanted.project_id)
    if wanted.agent_id is not None:
        if await find(connection, agents, caller.organization_id, wanted.agent_id) is None:
            raise not_found("agent", wanted.agent_id)
        places.append(traces.c.agent_id == wanted.agent_id)
    if wanted.case_id is not None:
        case = await find(connection, cases, caller.organization_id, wanted.case_id)
        if case is None:
            raise not_found("case", wanted.case_id)
        places.append(traces.c.project_id == case["project_id"])
        if case["agent_id"] is not None:
            places.append(traces.c.agent_id == case["agent_id"])
    return places
