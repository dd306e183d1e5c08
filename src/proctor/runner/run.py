"""Drives every case of a suite against a target, decides it, and keeps each result as it comes.

An attempt that goes wrong is that attempt's `error`; the others go on. Only faults of the transport are tried again, and only where the
other side cannot have acted on them. A run ends early when it is cancelled or when its budget is spent, and everything that was
finished is kept.

Every attempt is a task of its own. One that is finished starts the next itself, before its result goes to the disk: between an answer and
the next request there is nothing to wait for.
"""

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from proctor.cassettes.ports import LIVE, Tape
from proctor.decide.judging import settle
from proctor.decide.prepare import PreparedCase
from proctor.errors import InputError, TargetError
from proctor.model.attempt import Attempt
from proctor.model.case import MOST_REPEATS
from proctor.model.evidence import Evidence
from proctor.model.judgement import Opinion, Question
from proctor.model.result import CaseResult
from proctor.model.run import RunEntry
from proctor.model.show import exception_text
from proctor.model.verdict import errored
from proctor.runner.events import Event, Listener, ignore_event
from proctor.runner.limits import (
    MOST_AT_ONCE,
    MOST_ATTEMPTS,
    MOST_RETRIES,
    AttemptGate,
    Budget,
    BudgetMeter,
    require_seconds,
    require_whole,
)
from proctor.runner.ports import Decider, Judge, RunLog, Target
from proctor.scoring.completeness import count_planned_attempts

_EVIDENCE = msgspec.json.Decoder(Evidence)
_LONGEST_REASON = 4_000
"""Characters of a fault that a result keeps."""
Ended = Literal["completed", "interrupted", "budget"]
TapeFor = Callable[[str, int], Tape]


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that say how a run is driven."""

    repeat: int = 1
    concurrency: int = 4
    timeout_s: float = 120.0
    retries: int = 2
    """How often a safe fault of the transport is tried again."""
    backoff_s: float = 0.5
    """The wait before the first retry; doubled for each further one, and never shorter than the other side asked for.
    Who asks for a longer wait than `timeout_s` is not asked again."""
    open_s: float | None = None
    """How long the target may take to open; nothing: as long as it likes."""
    adapt: bool = True
    """Whether to slow down when the other side is overloaded."""
    budget: Budget = Budget()
    fail_fast: bool = False
    """Whether a case that has already failed is spared the judge."""

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense, by name; raises `InputError`."""
        require_whole("repeat", self.repeat, 1, MOST_REPEATS)
        require_whole("concurrency", self.concurrency, 1, MOST_AT_ONCE)
        require_whole("retries", self.retries, 0, MOST_RETRIES)
        require_seconds("timeout", self.timeout_s)
        if self.backoff_s:
            require_seconds("backoff", self.backoff_s)
        if self.open_s is not None:
            require_seconds("open_s", self.open_s)


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    ended: Ended
    reason: str = ""


def use_live_tape(case_id: str, attempt: int) -> Tape:
    """Return the tape that records nothing: every attempt really happens."""
    return LIVE


class Runner:
    """One run."""

    def __init__(
        self,
        *,
        cases: Sequence[PreparedCase],
        target: Target,
        log: RunLog,
        run_id: str,
        settings: RunSettings | None = None,
        tape_for: TapeFor = use_live_tape,
        listener: Listener = ignore_event,
        now: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        judge: Judge | None = None,
        decides: Decider | None = None,
    ) -> None:
        self._cases = cases
        self._target = target
        self._log = log
        self._run_id = run_id
        self._settings = settings = settings or RunSettings()
        self._tape_for = tape_for
        self._tell = listener
        self._now = now
        self._clock = clock
        self._judge = judge
        self._decides = decides
        # A judge that is slower than the agent must not pile up answers without bound.
        self._at_the_judge = asyncio.Semaphore(max(16, 4 * settings.concurrency))
        self._gate = AttemptGate(settings.concurrency, adapt=settings.adapt, clock=clock)
        self._spent = BudgetMeter(settings.budget, clock)
        self._stop: str | None = None
        self._waiting: Iterator[tuple[PreparedCase, int]] = iter(())
        self._more = False
        """Whether anything is left to start."""
        self._changed = asyncio.Event()
        self._context = contextvars.copy_context()
        self._writing = 0
        """Attempts that are finished and not yet kept."""
        self._lost = 0
        """Attempts that were cancelled, each by itself or with the run."""

    async def run(self, done: Iterable[tuple[str, int]] = ()) -> RunOutcome:
        """Drive everything that is not in `done`.

        Raises `TargetError` where the target cannot be opened, and `StoreError` where results cannot be kept.
        """
        # What an interrupted run has kept is not driven again.
        finished = set(done)
        planned = sum(self._count_repeats(case) for case in self._cases)
        if planned > MOST_ATTEMPTS:
            raise InputError(f"{len(self._cases):,} cases repeated make {planned:,} attempts; a run has at most {MOST_ATTEMPTS:,}")
        waiting = [(case, number) for case, number in self._plan_attempts() if (case.case.id, number) not in finished]
        if not waiting:
            return RunOutcome(ended="completed")
        self._tell(Event(kind="planned", total=len(waiting)))
        await self._open_target()
        try:
            return await self._drive_attempts(waiting)
        finally:
            await self._target.close()

    async def _open_target(self) -> None:
        bound = asyncio.timeout(self._settings.open_s)
        try:
            async with bound:
                await self._target.open()
        except TimeoutError:
            # A timeout of the target's own is not ours to explain.
            if not bound.expired():
                raise
            raise TargetError(f"the target was not open within {self._settings.open_s:g} s", code="timeout") from None

    def wind_down(self, reason: str) -> None:
        """Start nothing more; finish and keep what is under way, and end the run as one whose budget is spent."""
        self._stop = self._stop or reason
        self._changed.set()

    def _plan_attempts(self) -> Iterable[tuple[PreparedCase, int]]:
        """Yield the attempts repeat by repeat, so that an interrupted run has seen every case about equally often."""
        most = max((self._count_repeats(case) for case in self._cases), default=0)
        for number in range(most):
            for case in self._cases:
                if number < self._count_repeats(case):
                    yield case, number

    def _count_repeats(self, case: PreparedCase) -> int:
        return count_planned_attempts(case.case, self._settings.repeat)

    async def _drive_attempts(self, waiting: Sequence[tuple[PreparedCase, int]]) -> RunOutcome:
        self._waiting, self._more, self._context = iter(waiting), True, contextvars.copy_context()
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    self._start_attempts(group)
                    while self._more:
                        await self._wait_for_change()
                        self._start_attempts(group)
                finally:
                    # Attempts that are being cancelled start no others.
                    self._more = False
        except BaseExceptionGroup as several:
            # Only results that cannot be kept end a run from inside; one of them tells the story.
            first: BaseException = several
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None
        except asyncio.CancelledError:
            # Whoever cancelled wants what is finished, and to go on from here.
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return RunOutcome(ended="interrupted", reason="cancelled")
        if self._stop is not None:
            self._tell(Event(kind="stopping", message=self._stop))
            return RunOutcome(ended="budget", reason=self._stop)
        if self._lost:
            return RunOutcome(ended="interrupted", reason=f"attempts that were cancelled from inside the target: {self._lost}")
        return RunOutcome(ended="completed")

    def _start_attempts(self, group: asyncio.TaskGroup) -> None:
        """Start as many attempts as there are places for."""
        # What is finished and not yet on disk would be driven again after a crash: never more than a handful.
        while self._more and self._writing <= self._settings.concurrency and self._gate.enter():
            self._stop = self._stop or self._spent.explain_exhausted()
            upcoming = next(self._waiting, None) if self._stop is None else None
            if upcoming is None:
                self._gate.leave()
                self._more = False
                self._changed.set()
            else:
                # Not in the context of whoever finished: what one attempt sets there no other may see.
                group.create_task(self._run_attempt(*upcoming, group), context=self._context.copy())

    async def _wait_for_change(self) -> None:
        """Wait until the last attempt has been started, or a pause that the other side asked for is over."""
        self._changed.clear()
        pause = self._gate.get_pause_s()
        try:
            await asyncio.wait_for(self._changed.wait(), pause or None)
        except TimeoutError:
            return

    async def _run_attempt(self, prepared: PreparedCase, number: int, group: asyncio.TaskGroup) -> None:
        started = self._now()
        began = self._clock()
        waits = False
        try:
            self._tell(Event(kind="started", case=prepared.case.id, attempt=number))
            result, evidence = await self._drive_attempt(prepared, number)
            waits = result is None and await self._at_the_judge.acquire()
        except asyncio.CancelledError:
            self._lost += 1
            self._changed.set()
            raise
        finally:
            self._gate.leave()
        if result is not None:
            # Before the next one starts: this may have been the last that the budget allows.
            self._count_spending(result, evidence)
            self._writing += 1
        # The agent is free again; waiting for a judge or for the disk need not hold up the next attempt.
        self._start_attempts(group)
        if result is None:
            assert evidence is not None and waits
            result = await self._ask_judge(prepared, number, evidence)
            self._count_spending(result, evidence)
            self._writing += 1
        try:
            await self._log.append(make_entry(result, evidence, started_at=started, duration_ms=(self._clock() - began) * 1000))
        except BaseException:
            self._more = False
            raise
        finally:
            self._writing -= 1
        self._tell(Event(kind="finished", case=prepared.case.id, attempt=number, result=result))
        # A place may have waited for the disk.
        self._start_attempts(group)

    def _count_spending(self, result: CaseResult, evidence: Evidence | None) -> None:
        usage = evidence.usage.total() if evidence is not None and evidence.usage is not None else None
        self._spent.add(tokens=usage or 0, failed=result.outcome in ("fail", "error"))

    async def _ask_judge(self, prepared: PreparedCase, number: int, evidence: Evidence) -> CaseResult:
        """Decide with the judge; a bug in it is this attempt's error."""
        judge = self._judge
        assert judge is not None
        case = prepared.case.id
        tape = self._tape_for(case, number)

        async def ask(questions: tuple[Question, ...]) -> Sequence[Opinion]:
            return await judge.judge(questions, case=case, attempt=number, tape=tape)

        try:
            if self._decides is not None:
                return await self._decides.decide_one(prepared.case, evidence, attempt=number, clock=self._now(), ask=ask)
            deliberation = prepared.deliberate(evidence, None, number, self._now, fail_fast=self._settings.fail_fast)
            return await settle(deliberation, ask)
        except Exception as error:  # the others go on
            return make_broken_result(
                prepared, number, "internal_error", f"a bug in the judge: {type(error).__name__}: {exception_text(error)}"
            )
        except asyncio.CancelledError:
            self._lost += 1
            self._changed.set()
            raise
        finally:
            self._at_the_judge.release()

    async def _drive_attempt(self, prepared: PreparedCase, number: int) -> tuple[CaseResult | None, Evidence | None]:
        """Drive the agent and return the result with its evidence; no result yet where a judge has to decide."""
        case = prepared.case
        if case.skip is not None:
            return prepared.decide(Evidence(), attempt=number), None
        attempt = Attempt(
            case=case,
            number=number,
            # The same for every retry, so that the other side can tell a retry from a new attempt; bounded to fit a header.
            request_id=f"{self._run_id}:{case.id}:{number}"[-180:],
            session_id=f"{self._run_id}-{case.id}-{number}"[-180:],
            timeout_s=self._settings.timeout_s,
        )
        tape = self._tape_for(case.id, number)
        for tried in range(self._settings.retries + 1):
            try:
                evidence = await self._bound_time(self._target.run(attempt, tape))
            except TargetError as error:
                last = not error.safe or tried == self._settings.retries or self._is_out_of_time()
                if last or self._asks_for_too_long(error.code, error.retry_after_s):
                    seen = error.evidence if error.evidence is None or explain_unusable(error.evidence) is None else None
                    return make_broken_result(prepared, number, error.code, exception_text(error, _LONGEST_REASON)), seen
                await self._wait_before_retry(case.id, number, tried, exception_text(error), error.code, error.retry_after_s)
                continue
            except Exception as error:  # a bug in a target is this attempt's error, not the end of the run
                told = f"a bug in the target: {type(error).__name__}: {exception_text(error)}"
                return make_broken_result(prepared, number, "internal_error", told), None
            wrong = explain_unusable(evidence)
            if wrong is not None:
                return make_broken_result(prepared, number, "bad_answer", f"what the target observed cannot be kept: {wrong}"), None
            retry_after = _get_asked_pause_s(evidence)
            last = tried == self._settings.retries or self._is_out_of_time()
            if retry_after is not None and not last and not self._asks_for_too_long("rate_limited", retry_after):
                await self._wait_before_retry(case.id, number, tried, "the agent answered 429", "rate_limited", retry_after)
                continue
            self._gate.note_success()
            if self._judge is not None and prepared.judged:
                return None, evidence
            return await self._decide(prepared, evidence, number), evidence
        raise AssertionError("every way through the loop returns")

    async def _decide(self, prepared: PreparedCase, evidence: Evidence, number: int) -> CaseResult:
        if self._decides is None:
            return prepared.decide(evidence, attempt=number, clock=self._now)
        return await self._decides.decide_one(prepared.case, evidence, attempt=number, clock=self._now())

    async def _bound_time(self, running: Awaitable[Evidence]) -> Evidence:
        seconds = self._settings.timeout_s
        left = self._spent.get_seconds_left()
        if left is not None:
            seconds = min(seconds, left)
        bound = asyncio.timeout(seconds)
        try:
            async with bound:
                return await running
        except TimeoutError as error:
            why = (
                f"no answer within {seconds:g} s"
                if bound.expired()
                else f"the target gave up waiting: {exception_text(error) or 'TimeoutError'}"
            )
            raise TargetError(why, code="timeout") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this attempt: something inside the target was, and it let that through.
            raise TargetError("the target was cancelled from inside", code="internal_error") from None

    def _asks_for_too_long(self, code: str, retry_after_s: float | None) -> bool:
        """Return whether the other side wants a longer pause than a whole attempt may take: it gets fewer attempts instead."""
        if retry_after_s is None or retry_after_s <= self._settings.timeout_s:
            return False
        if code in ("rate_limited", "overloaded"):
            self._gate.slow_down(None)
        return True

    async def _wait_before_retry(self, case: str, number: int, tried: int, why: str, code: str, retry_after_s: float | None) -> None:
        wait = max(self._settings.backoff_s * 2**tried, retry_after_s or 0.0)
        if code in ("rate_limited", "overloaded"):
            self._gate.slow_down(retry_after_s)
            self._changed.set()
            self._tell(Event(kind="slowed", case=case, attempt=number, message=f"at most {self._gate.limit} at once"))
        self._tell(Event(kind="retrying", case=case, attempt=number, message=f"{why}; again in {wait:g} s"))
        await asyncio.sleep(wait)

    def _is_out_of_time(self) -> bool:
        return self._spent.get_seconds_left() == 0.0


def make_entry(result: CaseResult, evidence: Evidence | None, *, started_at: str, duration_ms: float) -> RunEntry:
    """Return the entry that is kept of a finished attempt."""
    return RunEntry(
        case=result.case.id,
        attempt=result.attempt,
        outcome=result.outcome,
        score=result.score,
        verdict=result.verdict,
        code=result.code,
        reason=result.reason,
        verdicts=tuple(verdict.with_words() for verdict in result.verdicts),
        extracted=result.extracted,
        evidence=evidence,
        started_at=started_at,
        duration_ms=round(duration_ms, 3),
        now=result.now,
    )


def make_broken_result(prepared: PreparedCase, number: int, code: str, reason: str) -> CaseResult:
    """Return the result of an attempt that left nothing to decide on."""
    verdict = errored(code, reason)
    return CaseResult(prepared.case, "error", None, (verdict,) * len(prepared.case.assertions), None, None, None, number, {}, code, reason)


def explain_unusable(evidence: object) -> str | None:
    """Return why evidence of a target cannot be kept and read again, or None."""
    if not isinstance(evidence, Evidence):
        return f"expected evidence, found {type(evidence).__name__}"
    try:
        _EVIDENCE.decode(msgspec.json.encode(evidence))
    except RecursionError:
        return "it is nested too deep, or contains itself"
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        return exception_text(error)
    return None


def _get_asked_pause_s(evidence: Evidence) -> float | None:
    """Return how long an agent that answered 429 wants to be left alone, or None for any other answer."""
    if evidence.http_status != 429:
        return None
    asked = evidence.metadata.get("retry_after_s")
    return float(asked) if isinstance(asked, (int, float)) and not isinstance(asked, bool) else 0.0


def index_finished(entries: Iterable[RunEntry]) -> Mapping[tuple[str, int], RunEntry]:
    """Return the finished attempts of a run by case and number; the last entry of an attempt counts."""
    return {(entry.case, entry.attempt): entry for entry in entries}
