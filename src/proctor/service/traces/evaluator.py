"""Passive evaluation: every complete trace against the active cases of its agent.

A worker leases what is due, a batch at a time (`evaluation_leases.py`): one read, one write. Agents have turns, and one whose traces take
long has to wait for the others. Deciding is done in processes of its own (`decisions/trace_process.py`), so that requests are answered
meanwhile. A trace that ends that process is abandoned and tried again with few others, then alone; after `MOST_ATTEMPTS` it has failed.
Cases that need a judge are decided one trace at a time beside that, a few at once; without a judge, or with one that fails, their
assertions are errors, `judge_unavailable`. Results are written with the lease in hand (`evaluation_results.py`). The judge is that of the
workspace; what an uploaded case says about judges does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy.exc import IntegrityError

from proctor.actions.judging.judges import open_home_judge
from proctor.cassettes.ports import LIVE
from proctor.errors import InputError, StoreError
from proctor.model.judgement import Opinion, Question
from proctor.runner.ports import Judge
from proctor.scoring.reduce import reduce_attempts
from proctor.service.access.known_agents import find_agent
from proctor.service.agent import Agent
from proctor.service.decisions.case_selection import ActiveCase
from proctor.service.decisions.messages import TraceWork, pack_plain, unpack_plain
from proctor.service.decisions.pool import Decisions, Who
from proctor.service.decisions.trace_evidence import get_declared, get_response_path
from proctor.service.decisions.trace_process import BatchDecider, CannotStart, ThreadDecider, make_decider
from proctor.service.decisions.trace_verdicts import Batch, CaseKey, CaseText, Decision, Finding, Task, make_failed
from proctor.service.hub import Hub, new_id
from proctor.service.traces.due_signal import get_due_signal, wait_for_either
from proctor.service.traces.evaluation_leases import EvaluationLeases, LeasedBatch
from proctor.store.sql.chunked_queries import clean_text
from proctor.store.sql.compressed_json import pack, to_json
from proctor.store.sql.database import is_gone
from proctor.store.sql.pages import Row
from proctor.store.traces.export_queue import queue_exports
from proctor.store.traces.trace_work import FinishedTrace, finish_traces

JUDGE_S = 300.0
"""How long a judge may take for what it is asked at once."""


def open_workspace_judge(hub: Hub, environment: Mapping[str, str]) -> Judge | None:
    """Return the judge that the workspace of the service names, if it can be used."""
    try:
        opened = open_home_judge(hub.settings.home, environment)
    except InputError as error:
        _LOG.warning("the judge cannot be used; what needs one will be errors", extra={"error": str(error)})
        return None
    if opened is None:
        return None
    if opened.warning is not None:
        _LOG.warning("%s", opened.warning)
    return opened.judge


async def judge_trace(judge: Judge, task: Task, wanted: Sequence[tuple[int, CaseText]], decisions: Decisions, who: Who) -> list[Finding]:
    """Return what a judge decides of one trace: of some cases, by their positions, everything that needs one."""

    async def ask(case: str, questions: Sequence[Question]) -> Sequence[Opinion]:
        try:
            async with asyncio.timeout(JUDGE_S):
                return await judge.judge(questions, case=case, attempt=0, tape=LIVE)
        except TimeoutError:
            told = f"the judge did not answer within {JUDGE_S:g} s"
        except Exception as error:
            _LOG.exception("the judge failed", extra={"trace": task.id})
            # The type alone: what a client raises may quote its request, and by that a key.
            told = f"the judge failed: {type(error).__name__}"
        # An error, not an exception: the other cases of this trace are decided, and whoever reads the result sees why this one was not.
        return [Opinion(outcome="error", code="judge_unavailable", reason=told)] * len(questions)

    found: list[Finding] = []
    for position, text in wanted:
        opinions: dict[str, list[Sequence[Opinion]]] = {}
        while True:
            packed = {case: pack_plain(said) for case, said in opinions.items()}
            # Read again rather than kept: what waits for a judge may wait for long.
            work = TraceWork(
                pieces=task.pieces,
                response_path=task.response_path,
                declared=task.declared,
                clock=task.created_at,
                position=position,
                text=text,
                opinions=packed,
            )
            (answer,) = await decisions.answers(who, [work], {})
            if answer.error is not None:
                found.append(_make_undecided(position, *answer.error))
                break
            asked = {step.id: unpack_plain(step.questions, tuple[Question, ...]) for step in answer.steps if step.questions is not None}
            if not asked:
                found += [step.finding for step in answer.steps if step.finding is not None]
                break
            for case, questions in asked.items():
                opinions.setdefault(case, []).append(await ask(case, questions))
    return found


def _make_undecided(position: int, code: str, reason: str) -> Finding:
    """Return the finding of a document that could not be decided on a trace."""
    told = {"id": None, "outcome": "error", "code": code, "reason": reason, "assertions": []}
    return Finding(case=position, key="", outcome="error", score=None, verdict=None, code=code, body=pack(told))


# --- A queue of traces that wait for the judge: every agent in turn, a few at once, so that a long queue of one does not hold up the

T = TypeVar("T")


class JudgeTurns(Generic[T]):
    """A queue for each agent, and a few tasks that work on all of them in turn. `work` raises nothing."""

    def __init__(self, at_once: int, work: Callable[[T], Awaitable[None]]) -> None:
        self._at_once = max(1, at_once)
        self._work = work
        self._queues: dict[str, deque[T]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, agent_id: str, item: T) -> None:
        """Queue an item of an agent."""
        self._queues.setdefault(agent_id, deque()).append(item)
        # One that has come to its end no longer looks for more.
        if sum(not task.done() for task in self._tasks) < self._at_once:
            task = asyncio.create_task(self._work_in_turn(), name="judge traces")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def list_full_agents(self, most: int) -> frozenset[str]:
        """Return the agents of which this many items wait, or more."""
        return frozenset(agent for agent, queue in self._queues.items() if len(queue) >= most)

    @property
    def waiting(self) -> int:
        """How many items wait, over all agents."""
        return sum(map(len, self._queues.values()))

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._tasks

    async def wait_until_idle(self) -> None:
        """Wait until nothing waits any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def wait_for_progress(self, seconds: float) -> None:
        """Wait until one of the tasks is done, at most so many seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def abandon(self) -> None:
        """Stop at once and drop what waits."""
        self._queues.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work_in_turn(self) -> None:
        while self._queues:
            # A dictionary keeps the order of insertion: its first agent is the one that has waited longest, which costs no search.
            agent, queue = next(iter(self._queues.items()))
            # No `await` from here until the queue is back in its place: several tasks share the queues without a lock.
            item = queue.popleft()
            # To the end of the round, or out of it.
            del self._queues[agent]
            if queue:
                self._queues[agent] = queue
            await self._work(item)


# ---


# --- writes the results of evaluated traces with the lease in hand: one result for each trace, case and version, whoever else tried

# --- makes the rows that are written for an evaluated trace


def make_finished(row: Row, decision: Decision) -> FinishedTrace:
    """Return the end of the work on a trace."""
    if decision.error is not None:
        return FinishedTrace(row=row, status="failed", error=decision.error)
    if decision.no_run is not None:
        return FinishedTrace(row=row, status="evaluated", no_run=decision.no_run, input_text=decision.asked)
    counts: dict[str, int] = {}
    for finding in decision.findings:
        counts[finding.outcome] = counts.get(finding.outcome, 0) + 1
    outcome = reduce_attempts(counts) if counts else None
    return FinishedTrace(row=row, status="evaluated", outcome=outcome, input_text=decision.asked)


def make_result_row(row: Row, case: ActiveCase, finding: Finding, now: str) -> dict[str, Any]:
    """Return the row of one result of the trace in `row`."""
    return {
        "id": new_id("res"),
        "organization_id": row["organization_id"],
        "project_id": row["project_id"],
        "agent_id": row["agent_id"],
        "trace_id": row["id"],
        "case_id": case.id,
        "case_version": case.version,
        "case_key": clean_text(finding.key),
        "trace_revision": row["revision"],
        "outcome": finding.outcome,
        "score": finding.score,
        "verdict": finding.verdict,
        "code": finding.code,
        "body": finding.body,
        "created_at": now,
        "updated_at": now,
    }


_LONGEST_ERROR = 1_000
"""How many characters of the database's complaint a failed trace keeps."""


class TraceJob(msgspec.Struct, kw_only=True):
    """One trace of a batch, and what was decided so far."""

    row: dict[str, Any]
    task: Task
    cases: Sequence[ActiveCase]
    """Those of the whole batch; the task says which of them count."""
    texts: Mapping[CaseKey, CaseText]
    decision: Decision | None = None

    def get_decision(self) -> Decision:
        """Return the decision, which must have been made by now."""
        assert self.decision is not None
        return self.decision


class ResultWriter:
    """Writes what one worker decided."""

    def __init__(self, hub: Hub, leases: EvaluationLeases) -> None:
        self._hub = hub
        self._leases = leases

    async def finish(self, jobs: Sequence[TraceJob], ids: set[str]) -> None:
        """Write results, end the leases, and take what is written out of `ids`. Raises `StoreError` when the database is away."""
        if not jobs:
            return
        now = self._hub.now()
        try:
            await self._write([make_finished(job.row, job.get_decision()) for job in jobs], self._make_rows(jobs, now), ids)
        except (StoreError, IntegrityError) as error:
            # Nothing is wrong with the results then: the traces are given back, and evaluated when the database is there again.
            if is_gone(error):
                raise
            # One of them spoils the whole transaction: written one by one, the others get through.
            for job in jobs:
                await self._finish_alone(job, now, ids)

    async def _finish_alone(self, job: TraceJob, now: str, ids: set[str]) -> None:
        """Write one trace by itself; if the database is there and refuses these results, the trace fails with its reason."""
        try:
            await self._write([make_finished(job.row, job.get_decision())], self._make_rows([job], now), ids)
        except (StoreError, IntegrityError) as error:
            if is_gone(error):
                raise
            # Without its results, which the database refuses: the trace must leave the queue, or it would be evaluated for ever.
            await self._write([make_finished(job.row, make_failed("store_error", str(error)[:_LONGEST_ERROR]))], [], ids)

    def _make_rows(self, jobs: Sequence[TraceJob], now: str) -> list[dict[str, Any]]:
        return [make_result_row(job.row, job.cases[finding.case], finding, now) for job in jobs for finding in job.get_decision().findings]

    async def _write(self, finished: Sequence[FinishedTrace], rows: Sequence[dict[str, Any]], ids: set[str]) -> None:
        written = {one.row["id"] for one in finished}
        try:
            async with self._hub.database.writing() as connection:
                count = await finish_traces(connection, owner=self._leases.owner, done=finished, found=rows)
                # In the same transaction: a result that was written is exported even if this process dies now.
                if self._hub.settings.export_otlp_endpoint is not None:
                    await queue_exports(connection, rows, self._hub.clock())
                # Before the commit: from then on the next batch of this worker may have those that are due again, and passes over what is
                # still held.
                self._leases.held -= written
                ids -= written
        except BaseException:
            # Nothing was written: they are still worked on, or given back with the rest.
            self._leases.held |= written
            ids |= written
            raise
        # After the commit: what was rolled back is evaluated again and would count twice.
        self._hub.counters.add("traces_evaluated", count)
        self._hub.counters.add("evaluations", len(rows))


MOST_ATTEMPTS = 3
"""How often a trace is tried that ended its worker."""
MAX_WAITING_PER_AGENT = 20
"""Stop leasing traces of an agent while this many of it wait for the judge, so that its queue does not hold up the others."""
MAX_WAITING_FOR_JUDGE = 400
"""Stop leasing traces while this many wait for the judge, over all agents: they are held in memory."""
IDLE_S = 0.5
"""How often to look for work when there is none."""
GATHER_S = 0.15
"""How long to wait for more when a batch was not full: a little patience makes fewer and larger batches of a steady stream."""
STOP_S = 5.0
"""How long to wait at the end for what is under way; the rest is given back."""
START_AGAIN_S = 1.0
"""How long to wait when no process could be started."""
_BATCHES_AHEAD = 1
"""Batches that are leased and read while others are decided."""
_LOG = logging.getLogger("proctor.serve")


async def evaluate_traces(hub: Hub, stop: asyncio.Event) -> None:
    """Evaluate what is due until told to stop: a worker of the service."""
    if hub.settings.evaluators == 0:
        await stop.wait()
        return
    due = get_due_signal(hub.database)
    async with Evaluator.open(hub, make_decider()) as evaluator:
        while not stop.is_set():
            # Cleared before looking: what is kept from here on wakes us again.
            due.clear()
            try:
                taken = await evaluator.start_batch()
            except StoreError as error:
                _LOG.warning("traces cannot be evaluated now", extra={"error": str(error)})
                # The worker stays: the database may be back at the next look, and nobody else would start it again.
                taken = 0
            if not taken:
                await wait_for_either(stop, due, await evaluator.get_idle_s())
            elif not evaluator.has_more:
                with contextlib.suppress(TimeoutError):
                    # Not for `due` as well: a steady stream sets it all the time, and each trace would be a batch of its own.
                    await asyncio.wait_for(stop.wait(), GATHER_S)
        # Still inside the block: its end cancels what is under way, and that would be evaluated a second time.
        await evaluator.wait_until_written(STOP_S)


async def evaluate_all(hub: Hub, *, judge: Judge | None = None) -> int:
    """Evaluate everything that is due now and return how many traces that were."""
    count = 0
    async with Evaluator.open(hub, ThreadDecider(), judge=judge) as evaluator:
        while (taken := await evaluator.evaluate_batch()) or not evaluator.turns.is_idle:
            count += taken
            if not taken:
                await evaluator.turns.wait_until_idle()
    return count


class Evaluator:
    """One worker: its leases, the place where it decides, its judge, and its writer."""

    def __init__(self, hub: Hub, decider: BatchDecider, judge: Judge | None) -> None:
        self._hub = hub
        self._decider = decider
        self._judge = judge
        self._was_busy = False
        # A process to decide in takes one batch at a time; the next batch is read meanwhile.
        self._deciding = asyncio.Semaphore(decider.places)
        # Given back as soon as a batch is decided, so that a slow write does not keep the next batch from being leased.
        self._room = asyncio.Semaphore(decider.places + _BATCHES_AHEAD)
        self._under_way: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self.leases = EvaluationLeases(hub)
        self._writer = ResultWriter(hub, self.leases)
        self.turns: JudgeTurns[TraceJob] = JudgeTurns(hub.settings.evaluators, self._judge_trace)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, hub: Hub, decider: BatchDecider, *, judge: Judge | None = None) -> AsyncGenerator[Evaluator]:
        """Yield a worker, and leave none of its leases, tasks and processes behind."""
        # A judge that was handed in belongs to whoever did so, who also closes it.
        own = None if judge is not None else open_workspace_judge(hub, os.environ)
        evaluator = cls(hub, decider, judge or own)
        beat = asyncio.create_task(evaluator.leases.keep_renewing())
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
                # Given back, not abandoned: a service that stops is no fault of the traces, and no attempt is counted.
                await evaluator.leases.give_back(evaluator.leases.held)
            if own is not None:
                await own.close()

    async def evaluate_batch(self) -> int:
        """Lease one batch of what is due, evaluate it, and return how many traces were leased."""
        batch = await self._take_next()
        if batch.rows:
            await self._evaluate(batch)
        return len(batch.rows)

    async def start_batch(self) -> int:
        """Lease one batch, evaluate it in the background, and return how many traces were leased; wait only for room to do so."""
        await self._room.acquire()
        try:
            if self._failures:
                raise self._failures.pop()
            batch = await self._take_next()
        except BaseException:
            self._room.release()
            raise
        if not batch.rows:
            self._room.release()
            return 0
        task = asyncio.create_task(self._evaluate(batch, self._room.release), name="evaluate a batch")
        self._under_way.add(task)
        task.add_done_callback(self._forget_task)
        return len(batch.rows)

    @property
    def has_more(self) -> bool:
        """Whether there is probably more than what was leased last."""
        return self.leases.queue.has_more

    async def wait_until_written(self, seconds: float) -> None:
        """Wait for what is under way, at most so many seconds."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)

    async def get_idle_s(self) -> float:
        """Return for how many seconds there is nothing to do, as far as can be known."""
        # Traces of these agents are due and yet passed over: to wait for what is due next would be to come back at once, again and again.
        if self.turns.list_full_agents(MAX_WAITING_PER_AGENT):
            await self.turns.wait_for_progress(IDLE_S)
            return IDLE_S
        return await self.leases.get_wait_s(IDLE_S)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Raised by the next `start_batch`: whoever drives the worker decides what to do about it.
            self._failures.append(error)

    async def _take_next(self) -> LeasedBatch:
        # After a batch there is probably more, so it is leased at once; otherwise a look, which is cheaper, comes first.
        batch = await self._take_batch() if self._was_busy or await self.leases.has_due() else LeasedBatch(rows=[])
        self._was_busy = len(batch.rows) > 0
        return batch

    async def _take_batch(self) -> LeasedBatch:
        if self.turns.waiting >= MAX_WAITING_FOR_JUDGE:
            return LeasedBatch(rows=[])
        return await self.leases.take_batch(without=self.turns.list_full_agents(MAX_WAITING_PER_AGENT))

    async def _evaluate(self, batch: LeasedBatch, on_decided: Callable[[], None] = lambda: None) -> None:
        """Decide a batch and write its results; give back what is not decided. Calls `on_decided` when only the writing is left."""
        ids = {row["id"] for row in batch.rows}
        try:
            try:
                jobs = await self._make_jobs(batch)
                async with self._deciding:
                    # What was given back may be held by another batch by now: it is none of this one's business any more.
                    await self._decide(batch, [job for job in jobs if job.decision is None], ids)
            finally:
                # Also after a failure: a place that is not given back is lost, and soon nothing would be leased any more.
                on_decided()
            decided = [job for job in jobs if job.decision is not None and not job.decision.undone]
            # Before the judge gets the others: if this fails the whole batch is given back, and the judge must have none of it by then.
            await self._writer.finish([job for job in decided if not job.get_decision().undecided], ids)
            for job in decided:
                if job.get_decision().undecided:
                    # From here on the judge's turn holds the trace, not this batch.
                    ids.discard(job.row["id"])
                    self.turns.add(job.row["agent_id"], job)
        except (StoreError, asyncio.CancelledError):
            with contextlib.suppress(StoreError):
                await self.leases.give_back(ids)
            raise
        except Exception:
            # A bug, or whatever it is, of one of them: they are tried again in small groups, and counted.
            _LOG.exception("a batch of traces could not be evaluated", extra={"traces": len(ids)})
            await self.leases.abandon(ids)

    async def _make_jobs(self, batch: LeasedBatch) -> list[TraceJob]:
        """Return a job for each trace; one that cannot be decided has its decision already, which says why."""
        jobs: list[TraceJob] = []
        # A copy: the next batch may push some of them out while traces of this one still wait for the judge.
        texts = self.leases.texts
        wanted: dict[str, list[int]] = {}
        agents: dict[str, Agent | None] = {}
        for row in batch.rows:
            # A batch has many traces of few agents.
            if row["agent_id"] not in agents:
                agents[row["agent_id"]] = await find_agent(self._hub, row["organization_id"], row["agent_id"])
                wanted[row["agent_id"]] = _list_positions(batch, row)
            agent = agents[row["agent_id"]]
            task = Task(
                id=row["id"],
                agent_id=row["agent_id"],
                created_at=row["created_at"],
                response_path=None if agent is None else get_response_path(agent),
                declared=None if agent is None else get_declared(agent.settings),
                metadata=None if row["metadata"] is None else to_json(row["metadata"]),
                pieces=batch.pieces[row["id"]],
                cases=wanted[row["agent_id"]],
            )
            jobs.append(TraceJob(row=row, task=task, cases=batch.cases, texts=texts, decision=_decide_at_once(row, agent)))
        return jobs

    async def _decide(self, batch: LeasedBatch, jobs: Sequence[TraceJob], ids: set[str]) -> None:
        """Fill in decisions. Abandon what was being decided when the process ended, and give back what was not begun.

        Both are taken out of `ids`, the traces of the batch.
        """
        if not jobs:
            return
        started = self._hub.clock()
        decisions = await self._ask_decider(batch, jobs)
        if decisions is None:
            await self._return_jobs(jobs, ids, self.leases.give_back)
            # With the place of `_evaluate` in hand: another batch would find no process either.
            await asyncio.sleep(START_AGAIN_S)
            return
        # Not strict: a process that ended has left fewer decisions than there are jobs.
        for job, decision in zip(jobs, decisions, strict=False):
            job.decision = decision
        undone = [job for job in jobs if job.decision is None or job.decision.undone]
        if len(decisions) < len(jobs):
            # Decisions come in order: the first trace without one is the one that was being decided when the process ended.
            guilty = undone.pop(len([job for job in undone if job.decision is not None]))
            _LOG.warning("a trace ended the process that decided it", extra={"trace": guilty.row["id"], "agent": guilty.row["agent_id"]})
            await self._return_jobs([guilty], ids, self.leases.abandon)
        await self._return_jobs(undone, ids, self.leases.give_back)
        self._share_turns(jobs, undone, started)

    async def _return_jobs(self, jobs: Sequence[TraceJob], ids: set[str], give: Callable[[Collection[str]], Awaitable[None]]) -> None:
        returned = [job.row["id"] for job in jobs]
        await give(returned)
        # Behind it: where the database is away they are still among those that are given back with the rest of the batch.
        ids.difference_update(returned)

    async def _ask_decider(self, batch: LeasedBatch, jobs: Sequence[TraceJob]) -> list[Decision] | None:
        """Return the decisions, fewer than jobs when the process ended; None when no process can be started now."""
        asked = Batch(cases=to_json(batch.cases), tasks=[job.task for job in jobs], judging=self._judge is not None)
        try:
            return await self._decider.decide(asked, jobs[0].texts)
        except CannotStart as error:
            if getattr(self._decider, "was_ready", False):
                # It has been possible, so it will be again; a thread has none of the limits.
                _LOG.warning("no process can be started to decide traces in now", extra={"error": str(error)})
                return None
            _LOG.warning("no process can be started to decide traces in; a thread does it", extra={"error": str(error)})
            self._decider = ThreadDecider()
            return await self._decider.decide(asked, jobs[0].texts)

    def _share_turns(self, jobs: Sequence[TraceJob], undone: Sequence[TraceJob], started: float) -> None:
        """Let agents that ran out of time wait, and those that had no turn come next."""
        now = self._hub.clock()
        # An agent that ran out of time waits for as long as it has made others wait.
        self.leases.queue.postpone_agents(
            {job.row["agent_id"] for job in undone if job.decision is not None}, now + max(0.0, now - started)
        )
        # Where the batch ran out of time before some agents had their turn, the next one begins with these, and not where leasing left off.
        served = [job.row["agent_id"] for job in jobs if job.decision is not None and not job.decision.undone]
        if served and {job.row["agent_id"] for job in undone} - set(served):
            self.leases.queue.last_agent = served[-1]

    async def _judge_trace(self, job: TraceJob) -> None:
        """Decide what is left of one trace with the judge, and finish it. Raises nothing."""
        id = job.row["id"]
        try:
            assert self._judge is not None
            keys = [(position, (job.cases[position].id, job.cases[position].version)) for position in job.get_decision().undecided]
            who = (job.row["organization_id"], f"agent {job.row['agent_id']}")
            texts = [(position, job.texts[key]) for position, key in keys]
            found = await judge_trace(self._judge, job.task, texts, self._hub.decisions, who)
            job.decision = msgspec.structs.replace(job.get_decision(), findings=[*job.get_decision().findings, *found])
            # Held until it is written: where it is cancelled, which is how a service stops, it is given back with no attempt counted.
            await self._writer.finish([job], {id})
        except StoreError as error:
            _LOG.warning("a judged trace could not be written", extra={"trace": id, "error": str(error)})
            with contextlib.suppress(StoreError):
                # If not even that can be written, the lease runs out, since it is not renewed from here on.
                await self.leases.give_back([id])
        except Exception:
            _LOG.exception("a trace could not be judged", extra={"trace": id})
            # Counted as an attempt: a trace that the judge's way fails on every time has an end.
            await self.leases.abandon([id])


def _list_positions(batch: LeasedBatch, row: dict[str, Any]) -> list[int]:
    """Return the positions of the cases that a trace is evaluated against: those of its agent, and those of its whole project."""
    agents = (None, row["agent_id"])
    return [number for number, case in enumerate(batch.cases) if case.project_id == row["project_id"] and case.agent_id in agents]


def _decide_at_once(row: dict[str, Any], agent: Agent | None) -> Decision | None:
    """Return the failure of a trace that is not decided at all; None for any other."""
    if agent is None:
        return make_failed("agent_gone", "the agent of this trace has been deleted")
    if row["attempts"] >= MOST_ATTEMPTS:
        told = f"its evaluation broke off {row['attempts']} times; it is not tried again until it is asked for"
        return make_failed("evaluation_crashed", told)
    return None
