"""Passive evaluation: every complete trace against the active cases of its agent.

A worker leases what is due, a batch at a time: one read, one write. Agents have turns, and one whose traces take long has to wait for the
others. Deciding is done in a process of its own (`decisions/trace_process.py`), so that requests are answered meanwhile. A trace that ends
it is left behind and tried again with few others, then alone; after `MOST_ATTEMPTS` it has failed. Cases that need a judge are decided one
trace at a time beside that, a few at once; without a judge, or with one that fails, their assertions are errors, `judge_unavailable`.
Results are written with the lease in hand, one for each trace, case and version, whoever else tried. The judge is that of the workspace;
what an uploaded case says about judges does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy.exc import IntegrityError

from proctor.errors import StoreError
from proctor.runner.ports import Judge
from proctor.service.access.agent_directory import find_agent
from proctor.service.agent import Agent
from proctor.service.decisions.case_selection import ActiveCase
from proctor.service.decisions.trace_evidence import response_path_of
from proctor.service.decisions.trace_process import CannotStart, Deciding, InProcess, InThread
from proctor.service.decisions.trace_verdicts import Batch, CaseKey, CaseText, Decision, Task, failed
from proctor.service.hub import Hub, new_id
from proctor.service.traces.active_cases import active_cases, texts_of
from proctor.service.traces.due_signal import due_signal, either
from proctor.service.traces.evaluation_queue import Taking
from proctor.service.traces.judge_turns import JudgeTurns
from proctor.service.traces.judging import judge_of_workspace, judgements
from proctor.service.traces.results import done_with, result_row
from proctor.store.bodies import to_json
from proctor.store.database import is_gone
from proctor.store.exports import queue_exports
from proctor.store.trace_work import Done, finish, give_back, leave_behind, next_due, renew, taken_by
from proctor.store.traces import pieces_of

BATCH = 500
"""Traces that are taken at once."""
BATCH_BYTES = 16_000_000
MOST_ATTEMPTS = 3
"""How often is tried what ended its worker."""
JUDGED_AHEAD = 20
"""From how many traces on that wait for the judge no more of an agent are taken."""
JUDGED_ALTOGETHER = 400
"""From how many on, of all agents, nothing more is taken at all."""
IDLE_S = 0.5
"""How often is looked for work when there is none."""
GATHER_S = 0.15
"""How long is waited for more when a batch was not full."""
STOP_S = 5.0
"""How long is waited at the end for what is under way; the rest is given back."""
START_AGAIN_S = 1.0
"""How long is waited when no process could be started."""
_MOST_TEXTS = 500
_LOG = logging.getLogger("proctor.serve")


async def evaluate_traces(hub: Hub, stop: asyncio.Event) -> None:
    """Evaluate what is due until told to stop: a worker of the service."""
    if hub.settings.evaluators == 0:
        await stop.wait()
        return
    due = due_signal(hub.database)
    async with Evaluator.opened(hub, InProcess()) as evaluator:
        while not stop.is_set():
            due.clear()
            try:
                busy = await evaluator.step_ahead()
            except StoreError as error:
                _LOG.warning("traces cannot be evaluated now", extra={"error": str(error)})
                busy = 0
            if not busy:
                await either(stop, due, await evaluator.idle_s())
            elif not evaluator.more:
                # A little patience makes fewer and larger batches of a steady stream.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), GATHER_S)
        await evaluator.written(STOP_S)


async def evaluate_all(hub: Hub, *, judge: Judge | None = None) -> int:
    """Evaluate everything that is due now, and come back; how many traces that were."""
    count = 0
    async with Evaluator.opened(hub, InThread(), judge=judge) as evaluator:
        while (taken := await evaluator.step()) or not evaluator.turns.idle:
            count += taken
            if not taken:
                await evaluator.turns.settled()
    return count


class _Taken(msgspec.Struct, kw_only=True):
    """A batch that was leased, and what is needed to decide it."""

    rows: list[dict[str, Any]]
    pieces: dict[str, list[bytes]] = {}
    cases: list[ActiveCase] = []


class _Work(msgspec.Struct, kw_only=True):
    """One trace of a batch, and what came of it so far."""

    row: dict[str, Any]
    task: Task
    cases: Sequence[ActiveCase]
    """Those of the whole batch; the task says which of them count."""
    texts: Mapping[CaseKey, CaseText]
    decision: Decision | None = None


class Evaluator:
    """One worker: its lease, where it decides, its judge, and the cases it knows."""

    def __init__(self, hub: Hub, decider: Deciding, judge: Judge | None) -> None:
        self._hub = hub
        self._decider = decider
        self._judge = judge
        self._owner = new_id("wrk")
        self._texts: OrderedDict[CaseKey, CaseText] = OrderedDict()
        self._busy = False
        self._held: set[str] = set()
        self._taking = Taking(hub, self._owner)
        self._deciding = asyncio.Lock()
        self._room = asyncio.Semaphore(2)
        self._under_way: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self.turns: JudgeTurns[_Work] = JudgeTurns(hub.settings.evaluators, self._judge_one)

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, hub: Hub, decider: Deciding, *, judge: Judge | None = None) -> AsyncGenerator[Evaluator]:
        """A worker, and nothing of it left behind."""
        own = None if judge is not None else judge_of_workspace(hub, os.environ)
        evaluator = cls(hub, decider, judge or own)
        beat = asyncio.create_task(evaluator._renew())
        try:
            yield evaluator
        finally:
            # What is under way may still hand something to the judge: it ends first.
            tasks = [beat, *evaluator._under_way]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await evaluator.turns.abandon()
            await evaluator._decider.close()
            with contextlib.suppress(StoreError):
                await evaluator._give_back(evaluator._held)
            if own is not None:
                await own.close()

    async def step(self) -> int:
        """Take one batch of what is due and evaluate it; how many traces were taken."""
        taken = await self._next()
        if taken.rows:
            await self._evaluate(taken)
        return len(taken.rows)

    async def step_ahead(self) -> int:
        """The same, without waiting for the end: while one batch is decided, the one before is written and the next one is taken."""
        await self._room.acquire()
        try:
            if self._failures:
                raise self._failures.pop()
            taken = await self._next()
        except BaseException:
            self._room.release()
            raise
        if not taken.rows:
            self._room.release()
            return 0
        task = asyncio.create_task(self._evaluate(taken, self._room.release), name="evaluate a batch")
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return len(taken.rows)

    @property
    def more(self) -> bool:
        """Whether there is probably more than what was taken last."""
        return self._taking.more

    async def written(self, seconds: float) -> None:
        """Wait for what is under way, but not for long."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failures.append(error)

    async def _next(self) -> _Taken:
        taken = await self._take() if self._busy or await self._anything_due() else _Taken(rows=[])
        self._busy = len(taken.rows) > 0
        return taken

    async def idle_s(self) -> float:
        """How long there is nothing to do, as far as can be known."""
        if self.turns.full(JUDGED_AHEAD):
            await self.turns.some_progress(IDLE_S)
            return IDLE_S
        try:
            async with self._hub.database.reading() as connection:
                due = await next_due(connection, self._hub.clock())
        except StoreError:
            return IDLE_S
        return IDLE_S if due is None else min(IDLE_S, max(0.01, due - self._hub.clock()))

    async def _anything_due(self) -> bool:
        # Looking does not hold up whoever writes; taking does.
        async with self._hub.database.reading() as connection:
            due = await next_due(connection, self._hub.clock())
        return due is not None and due <= self._hub.clock()

    async def _take(self) -> _Taken:
        """Lease a batch, and read all that is needed to decide it."""
        if self.turns.waiting >= JUDGED_ALTOGETHER:
            return _Taken(rows=[])
        turn = self._taking.turn(BATCH, BATCH_BYTES, without=self.turns.full(JUDGED_AHEAD))
        # What this worker still works on is not begun again, although its lease ran out while the database was away.
        ids = [id for id in await self._taking.leased(turn) if id not in self._held]
        if not ids:
            return _Taken(rows=[])
        self._held |= set(ids)
        try:
            taken = await self._read(ids)
        except BaseException:
            self._held -= set(ids)
            with contextlib.suppress(StoreError):
                await self._give_back(ids)
            raise
        # Somebody else may have been quicker with some of them.
        self._held -= set(ids) - {row["id"] for row in taken.rows}
        return taken

    async def _read(self, ids: list[str]) -> _Taken:
        # Whoever wants to write is not held up by this. What comes from here on is not missed: a trace that has changed since stays due.
        async with self._hub.database.reading() as connection:
            rows = await taken_by(connection, self._owner, ids)
            pieces = await pieces_of(connection, rows)
            active = await active_cases(connection, sorted({row["project_id"] for row in rows}))
            wanted = [case for of_one in active.values() for case in of_one]
            missing = [case for case in wanted if (case.id, case.version) not in self._texts]
            self._texts |= await texts_of(connection, missing)
        for case in wanted:
            if (case.id, case.version) in self._texts:
                self._texts.move_to_end((case.id, case.version))
        while len(self._texts) > max(_MOST_TEXTS, len(wanted)):
            self._texts.popitem(last=False)
        return _Taken(rows=rows, pieces=pieces, cases=wanted)

    async def _evaluate(self, taken: _Taken, decided_on: Callable[[], None] = lambda: None) -> None:
        """Decide a batch and write what came of it; what is not decided is given back. Tells when there is only writing left to do."""
        ids = {row["id"] for row in taken.rows}
        try:
            try:
                works = await self._works(taken)
                async with self._deciding:
                    await self._decide(taken, [work for work in works if work.decision is None])
            finally:
                decided_on()
            decided = [work for work in works if work.decision is not None and not work.decision.undone]
            await self._finish([work for work in decided if not _decision(work).undecided])
            for work in decided:
                if _decision(work).undecided:
                    ids.discard(work.row["id"])
                    self.turns.add(work.row["agent_id"], work)
        except (StoreError, asyncio.CancelledError):
            with contextlib.suppress(StoreError):
                await self._give_back(ids)
            raise
        except Exception:
            # A bug, or whatever it is, of one of them: they are tried again in small groups, and counted.
            _LOG.exception("a batch of traces could not be evaluated", extra={"traces": len(ids)})
            await self._leave_behind(ids)
        finally:
            self._held -= ids

    async def _works(self, taken: _Taken) -> list[_Work]:
        """What is to be decided; of what cannot be, why not."""
        works: list[_Work] = []
        texts = dict(self._texts)
        wanted: dict[str, list[int]] = {}
        agents: dict[str, Agent | None] = {}
        for row in taken.rows:
            if row["agent_id"] not in agents:
                agents[row["agent_id"]] = await find_agent(self._hub, row["organization_id"], row["agent_id"])
            agent = agents[row["agent_id"]]
            if row["agent_id"] not in wanted:
                place = (row["project_id"], (None, row["agent_id"]))
                wanted[row["agent_id"]] = [
                    number for number, case in enumerate(taken.cases) if case.project_id == place[0] and case.agent_id in place[1]
                ]
            task = Task(
                id=row["id"],
                agent_id=row["agent_id"],
                created_at=row["created_at"],
                response_path=None if agent is None else response_path_of(agent),
                metadata=None if row["metadata"] is None else to_json(row["metadata"]),
                pieces=taken.pieces[row["id"]],
                cases=wanted[row["agent_id"]],
            )
            decision: Decision | None = None
            if agent is None:
                decision = failed("agent_gone", "the agent of this trace has been deleted")
            elif row["attempts"] >= MOST_ATTEMPTS:
                told = f"its evaluation broke off {row['attempts']} times; it is not tried again until it is asked for"
                decision = failed("evaluation_crashed", told)
            works.append(_Work(row=row, task=task, cases=taken.cases, texts=texts, decision=decision))
        return works

    async def _decide(self, taken: _Taken, works: Sequence[_Work]) -> None:
        """Fill in decisions. What was being decided when the process ended is left behind, and what was not begun is given back."""
        if not works:
            return
        started = self._hub.clock()
        batch = Batch(cases=to_json(taken.cases), tasks=[work.task for work in works], judging=self._judge is not None)
        try:
            decisions = await self._decider.decide(batch, works[0].texts)
        except CannotStart as error:
            if getattr(self._decider, "was_ready", False):
                # It has been possible, so it will be again; a thread has none of the limits.
                _LOG.warning("no process can be started to decide traces in now", extra={"error": str(error)})
                await self._give_back([work.row["id"] for work in works])
                await asyncio.sleep(START_AGAIN_S)
                return
            _LOG.warning("no process can be started to decide traces in; a thread does it", extra={"error": str(error)})
            self._decider = InThread()
            decisions = await self._decider.decide(batch, works[0].texts)
        for work, decision in zip(works, decisions, strict=False):
            work.decision = decision
        undone = [work for work in works if work.decision is None or work.decision.undone]
        if len(decisions) < len(works):
            guilty = undone.pop(len([work for work in undone if work.decision is not None]))
            _LOG.warning("a trace ended the process that decided it", extra={"trace": guilty.row["id"], "agent": guilty.row["agent_id"]})
            await self._leave_behind([guilty.row["id"]])
        await self._give_back([work.row["id"] for work in undone])
        now = self._hub.clock()
        # Whoever had no time left waits for as long as it has made others wait.
        self._taking.rest({work.row["agent_id"] for work in undone if work.decision is not None}, now + max(0.0, now - started))
        served = [work.row["agent_id"] for work in works if work.decision is not None and not work.decision.undone]
        if served and {work.row["agent_id"] for work in undone} - set(served):
            # Some had no turn: they are next.
            self._taking.after = served[-1]

    async def _judge_one(self, work: _Work) -> None:
        """Decide what is left of one trace with the judge, and finish it."""
        id = work.row["id"]
        try:
            assert self._judge is not None
            keys = [(position, (work.cases[position].id, work.cases[position].version)) for position in _decision(work).undecided]
            who = (work.row["organization_id"], f"agent {work.row['agent_id']}")
            texts = [(position, work.texts[key]) for position, key in keys]
            found = await judgements(self._judge, work.task, texts, self._hub.decisions, who)
            work.decision = msgspec.structs.replace(_decision(work), findings=[*_decision(work).findings, *found])
            await self._finish([work])
        except StoreError as error:
            _LOG.warning("a judged trace could not be written", extra={"trace": id, "error": str(error)})
            with contextlib.suppress(StoreError):
                await self._give_back([id])
        except Exception:
            _LOG.exception("a trace could not be judged", extra={"trace": id})
            await self._leave_behind([id])
        finally:
            self._held.discard(id)

    async def _finish(self, works: Sequence[_Work]) -> None:
        if not works:
            return
        now = self._hub.now()
        rows = [result_row(work.row, work.cases[one.case], one, now) for work in works for one in _decision(work).findings]
        try:
            await self._write([done_with(work.row, _decision(work)) for work in works], rows)
        except (StoreError, IntegrityError) as error:
            if is_gone(error):
                raise
            for work in works:
                await self._finish_alone(work, now)

    async def _finish_alone(self, work: _Work, now: str) -> None:
        """Once more, by itself. If the database is there and does not take these results, they are to blame."""
        rows = [result_row(work.row, work.cases[one.case], one, now) for one in _decision(work).findings]
        try:
            await self._write([done_with(work.row, _decision(work))], rows)
        except (StoreError, IntegrityError) as error:
            if is_gone(error):
                raise
            await self._write([done_with(work.row, failed("store_error", str(error)[:1_000]))], [])

    async def _write(self, done: Sequence[Done], found: Sequence[dict[str, Any]]) -> None:
        async with self._hub.database.writing() as connection:
            count = await finish(connection, owner=self._owner, done=done, found=found)
            if self._hub.settings.export_otlp_endpoint is not None:
                await queue_exports(connection, found, self._hub.clock())
        self._hub.counters.add("traces_evaluated", count)
        self._hub.counters.add("evaluations", len(found))

    async def _give_back(self, ids: Collection[str]) -> None:
        if ids:
            async with self._hub.database.writing() as connection:
                await give_back(connection, owner=self._owner, ids=sorted(ids))

    async def _leave_behind(self, ids: Collection[str]) -> None:
        """Let somebody try again, and count that this was tried; if not even that can be written, the lease runs out."""
        with contextlib.suppress(StoreError):
            async with self._hub.database.writing() as connection:
                await leave_behind(connection, owner=self._owner, ids=sorted(ids))

    async def _renew(self) -> None:
        """Keep what is held, for as long as it takes."""
        while True:
            await asyncio.sleep(max(0.05, self._hub.settings.lease_s / 3))
            with contextlib.suppress(StoreError):
                if self._held:
                    async with self._hub.database.writing() as connection:
                        until = self._hub.clock() + self._hub.settings.lease_s
                        await renew(connection, owner=self._owner, ids=sorted(self._held), until=until)


def _decision(work: _Work) -> Decision:
    assert work.decision is not None
    return work.decision
