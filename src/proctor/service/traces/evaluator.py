"""Evaluates every complete trace against the active cases of its agent.

A worker leases due traces in batches (`evaluation_leases.py`). Agents take turns, and slow agents wait for the others. Separate processes
decide (`decisions/trace_process.py`). A trace that ends its process is retried with few others, then alone, and fails after
`MOST_ATTEMPTS`. Cases with a judge are decided per trace, a few at a time; without a working judge their assertions are errors,
`judge_unavailable`. The judge is that of the project or of the workspace (`trace_judges.py`), not one that an uploaded case declares.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy.exc import IntegrityError

from proctor.cassettes.ports import LIVE
from proctor.errors import StoreError
from proctor.model.judgement import Opinion, Question
from proctor.runner.ports import Judge
from proctor.scoring.score import reduce_attempts
from proctor.service.access.agents import find_agent
from proctor.service.caches import Agent
from proctor.service.decisions.messages import TraceWork, pack_plain, unpack_plain
from proctor.service.decisions.pool import Decisions, Requester
from proctor.service.decisions.trace_evidence import get_declared, get_response_path
from proctor.service.decisions.trace_process import BatchDecider, CannotStart, ThreadDecider, make_decider
from proctor.service.decisions.trace_verdicts import (
    ActiveCase,
    Batch,
    CaseKey,
    CaseText,
    Decision,
    Finding,
    Task,
    make_failed,
    make_undecided_finding,
)
from proctor.service.hub import Hub, new_id
from proctor.service.traces.evaluation_leases import EvaluationLeases, LeasedBatch
from proctor.service.traces.trace_judges import TraceJudges
from proctor.service.waiting import wait_for_first
from proctor.store.accounts.judged_claims import delete_claims_of, note_due_claims
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.database import is_gone
from proctor.store.sql.pages import Row
from proctor.store.sql.queries import clean_text
from proctor.store.traces.trace_work import FinishedTrace, finish_traces
from proctor.store.traces.traces import queue_exports

JUDGE_S = 300.0
"""Seconds that a judge may take for one group of questions."""


async def judge_trace(
    judge: Judge, task: Task, undecided: Sequence[tuple[int, CaseText]], decisions: Decisions, who: Requester
) -> list[Finding]:
    """Return the findings of a judge for some cases of a trace, by position."""

    async def ask(case: str, questions: Sequence[Question]) -> Sequence[Opinion]:
        try:
            async with asyncio.timeout(JUDGE_S):
                return await judge.judge(questions, case=case, attempt=0, tape=LIVE)
        except TimeoutError:
            reason = f"the judge did not answer within {JUDGE_S:g} s"
        except Exception as error:
            _LOG.exception("the judge failed", extra={"trace": task.id})
            # Only the type: the error of a client may quote its request and so a key.
            reason = f"the judge failed: {type(error).__name__}"
        # An error, not an exception: the other cases of this trace are decided, and the result shows the reason.
        return [Opinion(outcome="error", code="judge_unavailable", reason=reason)] * len(questions)

    findings: list[Finding] = []
    for position, text in undecided:
        opinions: dict[str, list[Sequence[Opinion]]] = {}
        while True:
            packed = {case: pack_plain(opinions_of_case) for case, opinions_of_case in opinions.items()}
            # Decoded again rather than held in memory, since judging may take long.
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
                findings.append(make_undecided_finding(position, *answer.error))
                break
            questions_of = {
                step.id: unpack_plain(step.questions, tuple[Question, ...]) for step in answer.steps if step.questions is not None
            }
            if not questions_of:
                findings += [step.finding for step in answer.steps if step.finding is not None]
                break
            for case, questions in questions_of.items():
                opinions.setdefault(case, []).append(await ask(case, questions))
    return findings


# --- traces that wait for the judge: agents in turn, a few traces at a time

T = TypeVar("T")


class JudgeTurns(Generic[T]):
    """A queue per agent, and a few tasks that serve the agents in turn. `work` must not raise."""

    def __init__(self, at_once: int, work: Callable[[T], Awaitable[None]]) -> None:
        self._at_once = max(1, at_once)
        self._work = work
        self._queues: dict[str, deque[T]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, agent_id: str, item: T) -> None:
        """Queue an item of an agent."""
        self._queues.setdefault(agent_id, deque()).append(item)
        # A task that is done takes no more items.
        if sum(not task.done() for task in self._tasks) < self._at_once:
            task = asyncio.create_task(self._work_in_turn(), name="judge traces")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def list_full_agents(self, most: int) -> frozenset[str]:
        """Return the agents with at least `most` waiting items."""
        return frozenset(agent for agent, queue in self._queues.items() if len(queue) >= most)

    @property
    def waiting(self) -> int:
        """The number of waiting items of all agents."""
        return sum(map(len, self._queues.values()))

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._tasks

    async def wait_until_idle(self) -> None:
        """Wait until the queues are empty."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def wait_for_progress(self, seconds: float) -> None:
        """Wait until one of the tasks is done, at most `seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def abandon(self) -> None:
        """Stop at once and drop waiting items."""
        self._queues.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work_in_turn(self) -> None:
        while self._queues:
            # A dict preserves insertion order: its first agent has waited longest.
            agent, queue = next(iter(self._queues.items()))
            # No `await` until the queue is back in its place: several tasks share the queues without a lock.
            item = queue.popleft()
            # To the end of the round, or removed.
            del self._queues[agent]
            if queue:
                self._queues[agent] = queue
            await self._work(item)


# --- writes the results of evaluated traces while the lease is held


def make_finished(row: Row, decision: Decision) -> FinishedTrace:
    """Return the final state of a trace."""
    if decision.error is not None:
        return FinishedTrace(row=row, status="failed", error=decision.error)
    if decision.no_run is not None:
        return FinishedTrace(row=row, status="evaluated", no_run=decision.no_run, input_text=decision.input_text, digest=decision.digest)
    counts: dict[str, int] = {}
    for finding in decision.findings:
        counts[finding.outcome] = counts.get(finding.outcome, 0) + 1
    outcome = reduce_attempts(counts) if counts else None
    return FinishedTrace(row=row, status="evaluated", outcome=outcome, input_text=decision.input_text, digest=decision.digest)


def make_result_row(row: Row, case: ActiveCase, finding: Finding, now: str) -> dict[str, Any]:
    """Return the row of one result."""
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
"""Characters of the database error that a failed trace stores."""


class TraceJob(msgspec.Struct, kw_only=True):
    """One trace of a batch, and its decision so far."""

    row: dict[str, Any]
    task: Task
    cases: Sequence[ActiveCase]
    """Those of the whole batch; the task has the positions that count."""
    texts: Mapping[CaseKey, CaseText]
    decision: Decision | None = None
    judge: Judge | None = None

    def get_decision(self) -> Decision:
        """Return the decision, which must exist."""
        assert self.decision is not None
        return self.decision


class ResultWriter:
    """Writes the decisions of one worker."""

    def __init__(self, hub: Hub, leases: EvaluationLeases) -> None:
        self._hub = hub
        self._leases = leases

    async def finish(self, jobs: Sequence[TraceJob], ids: set[str]) -> None:
        """Write results, end the leases, and remove written traces from `ids`. Raises `StoreError` if the database is unavailable."""
        if not jobs:
            return
        now = self._hub.now()
        judged = {job.row["id"] for job in jobs if job.get_decision().undecided}
        try:
            await self._write([make_finished(job.row, job.get_decision()) for job in jobs], self._make_rows(jobs, now), ids, judged)
        except (StoreError, IntegrityError) as error:
            # The results are fine: the traces are returned and evaluated later.
            if is_gone(error):
                raise
            # One of them fails the whole transaction: write each separately.
            for job in jobs:
                await self._finish_alone(job, now, ids)

    async def _finish_alone(self, job: TraceJob, now: str, ids: set[str]) -> None:
        """Write one trace separately; if the database rejects its results, the trace fails with that reason."""
        try:
            judged = {job.row["id"]} if job.get_decision().undecided else frozenset[str]()
            await self._write([make_finished(job.row, job.get_decision())], self._make_rows([job], now), ids, judged)
        except (StoreError, IntegrityError) as error:
            if is_gone(error):
                raise
            # Without the rejected results: the trace must leave the queue, or it would be evaluated forever.
            await self._write([make_finished(job.row, make_failed("store_error", str(error)[:_LONGEST_ERROR]))], [], ids)

    def _make_rows(self, jobs: Sequence[TraceJob], now: str) -> list[dict[str, Any]]:
        return [make_result_row(job.row, job.cases[finding.case], finding, now) for job in jobs for finding in job.get_decision().findings]

    async def _write(
        self, finished: Sequence[FinishedTrace], rows: Sequence[dict[str, Any]], ids: set[str], judged: AbstractSet[str] = frozenset()
    ) -> None:
        written = {job.row["id"] for job in finished}
        try:
            async with self._hub.database.writing() as connection:
                count = await finish_traces(connection, owner=self._leases.owner, done=finished, found=rows)
                # Results of an earlier revision are gone; claims that still apply are indexed again.
                await delete_claims_of(connection, [job.row["id"] for job in finished if job.row["revision"] > 1 or job.no_run is not None])
                await note_due_claims(connection, "trace", judged & written, self._hub.now())
                # In the same transaction: a result that was written is exported even if this process dies now.
                if self._hub.settings.export_otlp_endpoint is not None:
                    await queue_exports(connection, rows, self._hub.clock())
                # Before the commit: the next batch of this worker may then include traces that are due again, and skips those still held.
                self._leases.held -= written
                ids -= written
        except BaseException:
            # Nothing was written: they are still in progress, or returned with the rest.
            self._leases.held |= written
            ids |= written
            raise
        # After the commit, so that a rolled-back evaluation is not counted twice.
        self._hub.counters.add("traces_evaluated", count)
        self._hub.counters.add("evaluations", len(rows))


MOST_ATTEMPTS = 3
"""Attempts for a trace that ends its worker."""
MAX_WAITING_PER_AGENT = 20
"""Stop leasing traces of an agent while this many wait for the judge, so that other agents are not delayed."""
MAX_WAITING_FOR_JUDGE = 400
"""Stop leasing traces while this many of all agents wait for the judge, since they are in memory."""
IDLE_S = 0.5
"""Seconds between checks for work."""
GATHER_S = 0.15
"""Seconds to wait for more traces after a partial batch, which makes larger batches."""
STOP_S = 5.0
"""Seconds to wait at the end for work in progress; the rest is returned."""
START_AGAIN_S = 1.0
"""Seconds to wait if no process could be started."""
_BATCHES_AHEAD = 1
"""Batches that are leased and read while others are decided."""
_LOG = logging.getLogger("proctor.serve")


async def evaluate_traces(hub: Hub, stop: asyncio.Event) -> None:
    """Evaluate due traces until `stop` is set: a worker of the service."""
    if hub.settings.evaluators == 0:
        await stop.wait()
        return
    due = hub.due_signal
    async with Evaluator.open(hub, make_decider()) as evaluator:
        while not stop.is_set():
            # Cleared before the check: traces stored from here on wake us again.
            due.clear()
            try:
                leased = await evaluator.start_batch()
            except StoreError as error:
                _LOG.warning("traces cannot be evaluated now", extra={"error": str(error)})
                # The worker continues: the database may be back at the next check.
                leased = 0
            if not leased:
                await wait_for_first(stop.wait(), due.wait(), timeout_s=await evaluator.get_idle_s())
            elif not evaluator.has_more:
                with contextlib.suppress(TimeoutError):
                    # Not for `due` as well: a steady stream sets it all the time, and each trace would be a batch.
                    await asyncio.wait_for(stop.wait(), GATHER_S)
        # Inside the block, whose end cancels work in progress.
        await evaluator.wait_until_written(STOP_S)


async def evaluate_all(hub: Hub, *, judge: Judge | None = None) -> int:
    """Evaluate everything that is due and return the number of traces."""
    count = 0
    async with Evaluator.open(hub, ThreadDecider(), judge=judge) as evaluator:
        while (leased := await evaluator.evaluate_batch()) or not evaluator.turns.is_idle:
            count += leased
            if not leased:
                await evaluator.turns.wait_until_idle()
    return count


class Evaluator:
    """One worker: its leases, decider, judge and writer."""

    def __init__(self, hub: Hub, decider: BatchDecider, judges: TraceJudges) -> None:
        self._hub = hub
        self._decider = decider
        self._judges = judges
        self._was_busy = False
        # A process decides one batch at a time, while the next batch is read.
        self._deciding = asyncio.Semaphore(decider.places)
        # Released when a batch is decided, so that a slow write does not delay the next lease.
        self._slots = asyncio.Semaphore(decider.places + _BATCHES_AHEAD)
        self._under_way: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self.leases = EvaluationLeases(hub)
        self._writer = ResultWriter(hub, self.leases)
        self.turns: JudgeTurns[TraceJob] = JudgeTurns(hub.settings.evaluators, self._judge_trace)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, hub: Hub, decider: BatchDecider, *, judge: Judge | None = None) -> AsyncGenerator[Evaluator]:
        """Yield a worker, and clean up its leases, tasks and processes."""
        judges = TraceJudges(hub, judge)
        evaluator = cls(hub, decider, judges)
        beat = asyncio.create_task(evaluator.leases.keep_renewing())
        try:
            yield evaluator
        finally:
            # Work in progress may still pass something to the judge: it ends first.
            tasks = [beat, *evaluator._under_way]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await evaluator.turns.abandon()
            await evaluator._decider.close()
            with contextlib.suppress(StoreError):
                # Returned, not abandoned: stopping a service is not an attempt.
                await evaluator.leases.give_back(evaluator.leases.held)
            await judges.close()

    async def evaluate_batch(self) -> int:
        """Lease and evaluate one batch, and return the number of leased traces."""
        batch = await self._take_next()
        if batch.rows:
            await self._evaluate(batch)
        return len(batch.rows)

    async def start_batch(self) -> int:
        """Lease one batch, evaluate it in the background, and return the number of leased traces; wait only for a free slot."""
        await self._slots.acquire()
        try:
            if self._failures:
                raise self._failures.pop()
            batch = await self._take_next()
        except BaseException:
            self._slots.release()
            raise
        if not batch.rows:
            self._slots.release()
            return 0
        task = asyncio.create_task(self._evaluate(batch, self._slots.release), name="evaluate a batch")
        self._under_way.add(task)
        task.add_done_callback(self._forget_task)
        return len(batch.rows)

    @property
    def has_more(self) -> bool:
        """Whether there is probably more to lease."""
        return self.leases.queue.has_more

    async def wait_until_written(self, seconds: float) -> None:
        """Wait for work in progress, at most `seconds`."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)

    async def get_idle_s(self) -> float:
        """Return for how many seconds there is nothing to do, as far as known."""
        # Traces of these agents are due and skipped: waiting for the next due time would return at once, again and again.
        if self.turns.list_full_agents(MAX_WAITING_PER_AGENT):
            await self.turns.wait_for_progress(IDLE_S)
            return IDLE_S
        return await self.leases.get_wait_s(IDLE_S)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Raised by the next `start_batch`.
            self._failures.append(error)

    async def _take_next(self) -> LeasedBatch:
        # After a batch there is probably more, so lease at once; otherwise check first, which is cheaper.
        batch = await self._take_batch() if self._was_busy or await self.leases.has_due() else LeasedBatch(rows=[])
        self._was_busy = len(batch.rows) > 0
        return batch

    async def _take_batch(self) -> LeasedBatch:
        if self.turns.waiting >= MAX_WAITING_FOR_JUDGE:
            return LeasedBatch(rows=[])
        return await self.leases.take_batch(without=self.turns.list_full_agents(MAX_WAITING_PER_AGENT))

    async def _evaluate(self, batch: LeasedBatch, on_decided: Callable[[], None] = lambda: None) -> None:
        """Decide a batch and write its results; return undecided traces. Calls `on_decided` when only the writing is left."""
        ids = {row["id"] for row in batch.rows}
        try:
            try:
                jobs = await self._make_jobs(batch)
                async with self._deciding:
                    # Returned traces may be held by another batch by now.
                    await self._decide(batch, [job for job in jobs if job.decision is None], ids)
            finally:
                # Also after a failure, since a slot that is not released is lost.
                on_decided()
            decided = [job for job in jobs if job.decision is not None and not job.decision.undone]
            # Before the judge gets the others: if this fails the whole batch is returned, and the judge must have none of it.
            await self._writer.finish([job for job in decided if not job.get_decision().undecided], ids)
            for job in decided:
                if job.get_decision().undecided:
                    # From here on the judge's queue holds the trace, not this batch.
                    ids.discard(job.row["id"])
                    self.turns.add(job.row["agent_id"], job)
        except (StoreError, asyncio.CancelledError):
            with contextlib.suppress(StoreError):
                await self.leases.give_back(ids)
            raise
        except Exception:
            # Probably a bug with one of them: they are retried in small groups, and counted.
            _LOG.exception("a batch of traces could not be evaluated", extra={"traces": len(ids)})
            await self.leases.abandon(ids)

    async def _make_jobs(self, batch: LeasedBatch) -> list[TraceJob]:
        """Return a job per trace; a trace that cannot be decided already has its decision, with the reason."""
        jobs: list[TraceJob] = []
        # A copy: the next batch may evict some of them while traces of this one wait for the judge.
        texts = self.leases.texts
        case_versions: dict[str, list[int]] = {}
        agents: dict[str, Agent | None] = {}
        for row in batch.rows:
            # A batch has many traces of few agents.
            if row["agent_id"] not in agents:
                agents[row["agent_id"]] = await find_agent(self._hub, row["organization_id"], row["agent_id"])
                case_versions[row["agent_id"]] = _list_positions(batch, row)
            agent = agents[row["agent_id"]]
            judge = await self._judges.find(row["organization_id"], row["project_id"])
            task = Task(
                id=row["id"],
                agent_id=row["agent_id"],
                created_at=row["created_at"],
                response_path=None if agent is None else get_response_path(agent),
                declared=None if agent is None else get_declared(agent.settings),
                metadata=None if row["metadata"] is None else to_json(row["metadata"]),
                pieces=batch.pieces[row["id"]],
                cases=case_versions[row["agent_id"]],
                judging=judge is not None,
            )
            at_once = _find_early_failure(row, agent)
            jobs.append(TraceJob(row=row, task=task, cases=batch.cases, texts=texts, decision=at_once, judge=judge))
        return jobs

    async def _decide(self, batch: LeasedBatch, jobs: Sequence[TraceJob], ids: set[str]) -> None:
        """Add decisions to `jobs`. Abandon the trace that ended the process, and return those that were not started.

        Both are removed from `ids`, the traces of the batch.
        """
        if not jobs:
            return
        started = self._hub.clock()
        decisions = await self._call_decider(batch, jobs)
        if decisions is None:
            await self._return_jobs(jobs, ids, self.leases.give_back)
            # While holding the slot of `_evaluate`: another batch would find no process either.
            await asyncio.sleep(START_AGAIN_S)
            return
        # Not strict: a process that ended has returned fewer decisions than jobs.
        for job, decision in zip(jobs, decisions, strict=False):
            job.decision = decision
        undone = [job for job in jobs if job.decision is None or job.decision.undone]
        if len(decisions) < len(jobs):
            # Decisions are in order: the first trace without one was being decided when the process ended.
            guilty = undone.pop(len([job for job in undone if job.decision is not None]))
            _LOG.warning("a trace ended the process that decided it", extra={"trace": guilty.row["id"], "agent": guilty.row["agent_id"]})
            await self._return_jobs([guilty], ids, self.leases.abandon)
        await self._return_jobs(undone, ids, self.leases.give_back)
        self._share_turns(jobs, undone, started)

    async def _return_jobs(self, jobs: Sequence[TraceJob], ids: set[str], give: Callable[[Collection[str]], Awaitable[None]]) -> None:
        returned = [job.row["id"] for job in jobs]
        await give(returned)
        # Afterwards: if the database is unavailable they are returned with the rest of the batch.
        ids.difference_update(returned)

    async def _call_decider(self, batch: LeasedBatch, jobs: Sequence[TraceJob]) -> list[Decision] | None:
        """Return the decisions, fewer than jobs if the process ended; None if no process can be started now."""
        request = Batch(cases=to_json(batch.cases), tasks=[job.task for job in jobs])
        try:
            return await self._decider.decide(request, jobs[0].texts)
        except CannotStart as error:
            if getattr(self._decider, "was_ready", False):
                # It was possible before, so it will be again; a thread has none of the limits.
                _LOG.warning("no process can be started to decide traces in now", extra={"error": str(error)})
                return None
            _LOG.warning("no process can be started to decide traces in; a thread does it", extra={"error": str(error)})
            self._decider = ThreadDecider()
            return await self._decider.decide(request, jobs[0].texts)

    def _share_turns(self, jobs: Sequence[TraceJob], undone: Sequence[TraceJob], started: float) -> None:
        """Postpone agents that ran out of time, and serve those that had no turn next."""
        now = self._hub.clock()
        # An agent that ran out of time waits for as long as it delayed others.
        self.leases.queue.postpone_agents(
            {job.row["agent_id"] for job in undone if job.decision is not None}, now + max(0.0, now - started)
        )
        # If the batch ran out of time before some agents had a turn, the next one starts with them.
        served = [job.row["agent_id"] for job in jobs if job.decision is not None and not job.decision.undone]
        if served and {job.row["agent_id"] for job in undone} - set(served):
            self.leases.queue.last_agent = served[-1]

    async def _judge_trace(self, job: TraceJob) -> None:
        """Decide the rest of one trace with the judge, and finish it. Raises nothing."""
        id = job.row["id"]
        try:
            assert job.judge is not None
            keys = [(position, (job.cases[position].id, job.cases[position].version)) for position in job.get_decision().undecided]
            who = (job.row["organization_id"], f"agent {job.row['agent_id']}")
            texts = [(position, job.texts[key]) for position, key in keys]
            findings = await judge_trace(job.judge, job.task, texts, self._hub.decisions, who)
            job.decision = msgspec.structs.replace(job.get_decision(), findings=[*job.get_decision().findings, *findings])
            # Held until it is written: if cancelled, as when a service stops, it is returned without counting an attempt.
            await self._writer.finish([job], {id})
        except StoreError as error:
            _LOG.warning("a judged trace could not be written", extra={"trace": id, "error": str(error)})
            with contextlib.suppress(StoreError):
                # If that cannot be written either, the lease expires, since it is no longer renewed.
                await self.leases.give_back([id])
        except Exception:
            _LOG.exception("a trace could not be judged", extra={"trace": id})
            # Counted as an attempt, so that a trace that always fails here is not retried forever.
            await self.leases.abandon([id])


def _list_positions(batch: LeasedBatch, row: dict[str, Any]) -> list[int]:
    """Return the positions of the cases for a trace: those of its agent, and those of its whole project."""
    agents = (None, row["agent_id"])
    return [number for number, case in enumerate(batch.cases) if case.project_id == row["project_id"] and case.agent_id in agents]


def _find_early_failure(row: dict[str, Any], agent: Agent | None) -> Decision | None:
    """Return the failure of a trace that cannot be evaluated, or None."""
    if agent is None:
        return make_failed("agent_gone", "the agent of this trace has been deleted")
    if row["attempts"] >= MOST_ATTEMPTS:
        return make_failed(
            "evaluation_crashed", f"its evaluation was interrupted {row['attempts']} times; request a re-evaluation to retry"
        )
    return None
