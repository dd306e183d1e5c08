"""Drive every case of a suite against a target, decide, and keep each result as it comes.

An attempt that goes wrong is that attempt's `error`; the others go on. Only faults of the transport are tried again, and only where the
other side cannot have acted on them. A run ends early when it is cancelled or when its budget is spent, and everything that was
finished is kept.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from proctor.cassettes.ports import LIVE, Tape
from proctor.decide.prepare import PreparedCase
from proctor.errors import TargetError
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence
from proctor.model.result import CaseResult
from proctor.model.run import RunEntry
from proctor.model.verdict import Outcome, errored
from proctor.runner.events import Event, Listener, silent
from proctor.runner.limits import Budget, Gate, Spent
from proctor.runner.ports import RunLog, Target

Ended = Literal["completed", "interrupted", "budget"]
TapeFor = Callable[[str, int], Tape]


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is to be driven."""

    repeat: int = 1
    concurrency: int = 4
    timeout_s: float = 120.0
    retries: int = 2
    """How often a safe fault of the transport is tried again."""
    backoff_s: float = 0.5
    """The wait before the first retry; doubled for each further one, and never shorter than the other side asked for."""
    adapt: bool = True
    """Whether to slow down when the other side is overloaded."""
    budget: Budget = Budget()


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    ended: Ended
    reason: str = ""


def live(case_id: str, attempt: int) -> Tape:
    """No tape: every attempt really happens."""
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
        tape_for: TapeFor = live,
        listener: Listener = silent,
        now: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
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
        self._gate = Gate(settings.concurrency, adapt=settings.adapt, clock=clock)
        self._spent = Spent(settings.budget, clock)
        self._stop: str | None = None

    async def run(self, done: Iterable[tuple[str, int]] = ()) -> RunOutcome:
        """Drive everything that is not in `done`.

        Raises `TargetError` where the target cannot be opened, and `StoreError` where results cannot be kept.
        """
        finished = set(done)
        waiting = [(case, number) for case, number in self._plan() if (case.case.id, number) not in finished]
        if not waiting:
            return RunOutcome(ended="completed")
        await self._target.open()
        try:
            return await self._drive(waiting)
        finally:
            await self._target.close()

    def _plan(self) -> Iterable[tuple[PreparedCase, int]]:
        """Repeat by repeat, so that an interrupted run has seen every case about equally often."""
        most = max((self._repeats(case) for case in self._cases), default=0)
        for number in range(most):
            for case in self._cases:
                if number < self._repeats(case):
                    yield case, number

    def _repeats(self, case: PreparedCase) -> int:
        return max(self._settings.repeat, case.case.repetitions or 1)

    async def _drive(self, waiting: Sequence[tuple[PreparedCase, int]]) -> RunOutcome:
        try:
            async with asyncio.TaskGroup() as group:
                for case, number in waiting:
                    await self._gate.enter()
                    self._stop = self._stop or self._spent.exhausted()
                    if self._stop is not None:
                        await self._gate.leave()
                        break
                    group.create_task(self._one(case, number))
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
        return RunOutcome(ended="completed")

    async def _one(self, prepared: PreparedCase, number: int) -> None:
        try:
            started = self._now()
            began = self._clock()
            self._tell(Event(kind="started", case=prepared.case.id, attempt=number))
            result, evidence = await self._attempt(prepared, number)
            entry = entry_of(result, evidence, started_at=started, duration_ms=(self._clock() - began) * 1000)
            usage = evidence.usage.total() if evidence is not None and evidence.usage is not None else None
            self._spent.add(tokens=usage or 0, failed=result.outcome in ("fail", "error"))
        finally:
            # The agent is free again; waiting for the disk need not hold up the next attempt.
            await asyncio.shield(self._gate.leave())
        await self._log.append(entry)
        self._tell(Event(kind="finished", case=prepared.case.id, attempt=number, result=result))

    async def _attempt(self, prepared: PreparedCase, number: int) -> tuple[CaseResult, Evidence | None]:
        case = prepared.case
        if case.skip is not None:
            return prepared.decide(Evidence(), attempt=number), None
        attempt = Attempt(
            case=case,
            number=number,
            request_id=f"{self._run_id}:{case.id}:{number}"[-180:],
            session_id=f"{self._run_id}-{case.id}-{number}"[-180:],
            timeout_s=self._settings.timeout_s,
        )
        tape = self._tape_for(case.id, number)
        for tried in range(self._settings.retries + 1):
            try:
                evidence = await self._within(self._target.run(attempt, tape))
            except TargetError as error:
                if not error.safe or tried == self._settings.retries or self._out_of_time():
                    return broken(prepared, number, error.code, error.message), error.evidence
                await self._before_retry(case.id, number, tried, error.message, error.code, error.retry_after_s)
                continue
            except Exception as error:  # a bug in a target is this attempt's error, not the end of the run
                return broken(prepared, number, "internal_error", f"a bug in the target: {type(error).__name__}: {error}"), None
            retry_after = _asked_to_wait(evidence)
            if retry_after is not None and tried < self._settings.retries and not self._out_of_time():
                await self._before_retry(case.id, number, tried, "the agent answered 429", "rate_limited", retry_after)
                continue
            await self._gate.succeeded()
            return cut_short(prepared.decide(evidence, attempt=number, clock=self._now), evidence), evidence
        raise AssertionError("every way through the loop returns")

    async def _within(self, running: Awaitable[Evidence]) -> Evidence:
        seconds = self._settings.timeout_s
        left = self._spent.seconds_left()
        if left is not None:
            seconds = min(seconds, left)
        try:
            return await asyncio.wait_for(running, seconds)
        except TimeoutError:
            raise TargetError(f"no answer within {seconds:g} s", code="timeout") from None

    async def _before_retry(self, case: str, number: int, tried: int, why: str, code: str, retry_after_s: float | None) -> None:
        wait = max(self._settings.backoff_s * 2**tried, retry_after_s or 0.0)
        if code in ("rate_limited", "overloaded"):
            await self._gate.too_much(retry_after_s)
            self._tell(Event(kind="slowed", case=case, attempt=number, message=f"at most {self._gate.limit} at once"))
        self._tell(Event(kind="retrying", case=case, attempt=number, message=f"{why}; again in {wait:g} s"))
        await asyncio.sleep(wait)

    def _out_of_time(self) -> bool:
        return self._spent.seconds_left() == 0.0


def entry_of(result: CaseResult, evidence: Evidence | None, *, started_at: str, duration_ms: float) -> RunEntry:
    """What is kept of a finished attempt."""
    return RunEntry(
        case=result.case.id,
        attempt=result.attempt,
        outcome=result.outcome,
        score=result.score,
        verdict=result.verdict,
        code=result.code,
        reason=result.reason,
        verdicts=tuple(verdict.told() for verdict in result.verdicts),
        extracted=result.extracted,
        evidence=evidence,
        started_at=started_at,
        duration_ms=round(duration_ms, 3),
        now=result.now,
    )


def broken(prepared: PreparedCase, number: int, code: str, reason: str) -> CaseResult:
    """The result of an attempt that left nothing to decide on."""
    verdict = errored(code, reason)
    return CaseResult(prepared.case, "error", None, (verdict,) * len(prepared.case.assertions), None, None, None, number, {}, code, reason)


def cut_short(result: CaseResult, evidence: Evidence) -> CaseResult:
    """A run that broke off (the turn limit, a model or server that went away) has not passed, whatever holds of what it did until then."""
    code = evidence.metadata.get("code")
    if evidence.error is None or not isinstance(code, str) or result.outcome != "pass":
        return result
    outcome: Outcome = "error"
    return msgspec.structs.replace(result, outcome=outcome, verdict=None, code=code, reason=evidence.error)


def _asked_to_wait(evidence: Evidence) -> float | None:
    """How long an agent that answered 429 wants to be left alone; nothing for any other answer."""
    if evidence.http_status != 429:
        return None
    asked = evidence.metadata.get("retry_after_s")
    return float(asked) if isinstance(asked, (int, float)) and not isinstance(asked, bool) else 0.0


def finished_attempts(entries: Iterable[RunEntry]) -> Mapping[tuple[str, int], RunEntry]:
    """What a run has behind it, by case and attempt; the last entry of an attempt counts."""
    return {(entry.case, entry.attempt): entry for entry in entries}
