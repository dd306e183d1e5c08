"""Drives every case of a suite against a target, decides it, and stores each result.

A fault is retried if nothing reached the agent (`safe`), and so is an answer 429. A failed attempt is an `error` of that attempt; the
others continue. A run ends early if it is cancelled or its budget is spent; finished results stay stored.

Every attempt is a task. A finished one starts the next itself, before its result is written: between an answer and the next request there
is nothing to wait for.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from proctor.cassettes.ports import Tape
from proctor.decide.cost import find_agent_cost, find_user_cost
from proctor.decide.judging import settle
from proctor.decide.prepare import PreparedCase
from proctor.errors import InputError, StoreError, TargetError
from proctor.model.attempt import Attempt, Speaker
from proctor.model.case import Case
from proctor.model.cost import PriceList, add_costs
from proctor.model.evidence import Cost, Evidence, UserEnding
from proctor.model.json_values import is_number
from proctor.model.judgement import Opinion, Question
from proctor.model.lazy_cases import is_lazy
from proctor.model.result import CaseResult
from proctor.model.run import RunEntry
from proctor.model.show import exception_text
from proctor.model.typed import make_json_decoder
from proctor.model.verdict import Verdict
from proctor.runner.limits import MOST_ATTEMPTS, AttemptGate, BudgetMeter, RunSettings, Spending
from proctor.runner.ports import Event, RunPorts
from proctor.scoring.statistics import count_planned_attempts

BUDGET = "budget"


class BudgetedSpeaker:
    """Speaks for the user of one attempt until the run's budget is spent; implements `proctor.model.attempt.Speaker`."""

    def __init__(self, inner: Speaker, meter: BudgetMeter, prices: PriceList | None, attempt: tuple[str, int]) -> None:
        self._inner = inner
        self._meter = meter
        self._prices = prices
        self._attempt = attempt
        self._agent = Spending()
        self.stopped: str | None = None
        """The limit that ended the conversation, as text."""

    async def say_next(self, answer: Evidence | None) -> str | None:
        """Return the user's next message. Raises `TargetError` if the budget is spent."""
        if answer is not None:
            self._agent = self._agent.add(measure_answer(answer, self._prices))
        text = await self._inner.say_next(answer)
        # After the user has spoken: its model spends tokens on that message, too.
        self._meter.hold(self._attempt, self._agent.add(self._measure_user()))
        why = self._meter.explain_overspent() if text is not None else None
        if why is not None:
            # Also stored here, because targets raise their own error instead of this one.
            self.stopped = why
            raise TargetError(f"the conversation was ended early: {why}", code=BUDGET)
        return text

    def describe_ending(self) -> UserEnding | None:
        """Return the speaker and why the conversation ended."""
        return self._inner.describe_ending()

    def _measure_user(self) -> Spending:
        ending = self._inner.describe_ending()
        usage = ending.usage if ending is not None else None
        cost = find_user_cost(ending, self._prices)[0] if self._prices is not None else None
        return Spending(user_tokens=(usage.total() if usage is not None else None) or 0, cost=cost or 0.0)


def measure_answer(answer: Evidence, prices: PriceList | None) -> Spending:
    """Return the usage of an answer; an unknown cost is reported when the attempt is over."""
    tokens = answer.usage.total() if answer.usage is not None else None
    cost = find_agent_cost(answer, prices).agent if prices is not None else None
    return Spending(tokens=tokens or 0, cost=cost or 0.0)


class AttemptStopped(Exception):
    """A limit of the run ended an attempt early: it has no result, and a resumed run repeats it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


_EVIDENCE = make_json_decoder(Evidence)
_LONGEST_REASON = 4_000


class AttemptDriver:
    """Drives the attempts of one run.

    `on_slowdown` is called when the target requested a pause, which delays further attempts.
    """

    def __init__(
        self,
        ports: RunPorts,
        run_id: str,
        settings: RunSettings,
        *,
        gate: AttemptGate,
        spent: BudgetMeter,
        on_slowdown: Callable[[], None],
    ) -> None:
        self._ports = ports
        self._run_id = run_id
        self._settings = settings
        self._gate = gate
        self._spent = spent
        self._on_slowdown = on_slowdown

    async def drive(self, prepared: PreparedCase, number: int) -> tuple[CaseResult | None, Evidence | None]:
        """Drive the agent and return the result with its evidence; the result is missing if a judge must decide.

        Raises `AttemptStopped` where a limit of the run ended it before its end, and `StoreError` where it cannot be recorded.
        """
        case = prepared.case
        if case.skip is not None:
            return prepared.decide(Evidence(), attempt=number), None
        attempt = self._make_attempt(case, number)
        tape = self._ports.tape_for(case.id, number)
        # One deadline for all tries and the waits between them.
        deadline = self._ports.clock() + attempt.timeout_s
        for tried in range(self._settings.retries + 1):
            if tried:
                attempt = msgspec.structs.replace(attempt, timeout_s=round(max(0.001, deadline - self._ports.clock()), 3))
            attempt_with_user = attempt
            try:
                attempt_with_user = self._add_speaker(prepared, attempt, tape)
                evidence = await self._bound_time(self._ports.target.run(attempt_with_user, tape), attempt.timeout_s)
            except TargetError as error:
                if isinstance(attempt_with_user.speaker, BudgetedSpeaker) and attempt_with_user.speaker.stopped is not None:
                    why = f"{attempt_with_user.speaker.stopped}; the conversation of {case.id!r} was ended early"
                    raise AttemptStopped(why) from None
                wait = self._choose_wait(tried, error.code, error.retry_after_s, deadline) if error.safe else None
                if wait is None:
                    observed = error.evidence if error.evidence is None or explain_unusable(error.evidence) is None else None
                    return prepared.decide_unanswered(observed, number, error.code, exception_text(error, _LONGEST_REASON)), observed
                self._count_try(prepared, number, error.evidence)
                await self._wait_before_retry(case.id, number, wait, exception_text(error), error.code, error.retry_after_s)
                continue
            except StoreError:
                # Not the target's fault: an attempt that cannot be recorded must not run, and the others could not be recorded either.
                raise
            except Exception as error:  # a bug in a target is this attempt's error, not the end of the run
                reason = f"a bug in the target: {type(error).__name__}: {exception_text(error)}"
                return prepared.decide_unanswered(None, number, "internal_error", reason), None
            wrong = explain_unusable(evidence)
            if wrong is not None:
                reason = f"the target returned evidence that cannot be stored: {wrong}"
                return prepared.decide_unanswered(None, number, "bad_answer", reason), None
            # A request answered with 429 was not processed and may be retried. The last answer is evidence like any other.
            retry_after = _read_retry_after_s(evidence)
            wait = self._choose_wait(tried, "rate_limited", retry_after, deadline) if retry_after is not None else None
            if wait is not None:
                self._count_try(prepared, number, evidence)
                await self._wait_before_retry(case.id, number, wait, "the agent answered 429", "rate_limited", retry_after)
                continue
            self._gate.note_success()
            if self._ports.judge is not None and prepared.judged:
                return None, evidence
            return await self._decide(prepared, evidence, number), evidence
        raise AssertionError("every way through the loop returns")

    def _make_attempt(self, case: Case, number: int) -> Attempt:
        return Attempt(
            case=case,
            number=number,
            # The same for every retry, so that the server can recognise retries; bounded to fit a header.
            request_id=f"{self._run_id}:{case.id}:{number}"[-180:],
            session_id=f"{self._run_id}-{case.id}-{number}"[-180:],
            timeout_s=self._settings.timeout_s,
        )

    def _add_speaker(self, prepared: PreparedCase, attempt: Attempt, tape: Tape) -> Attempt:
        """Return the attempt with a new simulated user, which has no memory of earlier tries and stops when the budget is spent."""
        if attempt.case.user is None:
            return attempt
        if self._ports.speaker_for is None:
            raise TargetError(f"this run has no simulated user for case {attempt.case.id!r}", code="user_unavailable")
        speaker: Speaker = self._ports.speaker_for(attempt.case, tape)
        # Without a limit on spending, turns need no measuring or pricing.
        if self._spent.bounds_spending:
            speaker = BudgetedSpeaker(speaker, self._spent, prepared.prices, (attempt.case.id, attempt.number))
        return msgspec.structs.replace(attempt, speaker=speaker)

    def _count_try(self, prepared: PreparedCase, number: int, seen: Evidence | None) -> None:
        """Count the usage of a try that will be repeated; the usage of the last try is counted with the attempt."""
        spent = self._spent.release((prepared.case.id, number))
        # The usage of a running conversation, including its user, is held in the meter.
        if spent is None and seen is not None and explain_unusable(seen) is None:
            spent = measure_answer(seen, prepared.prices)
        if spent is not None:
            self._spent.add_spending(spent)

    async def _decide(self, prepared: PreparedCase, evidence: Evidence, number: int) -> CaseResult:
        if self._ports.decides is None:
            return prepared.decide(evidence, attempt=number, clock=self._ports.now)
        return await self._ports.decides.decide_one(prepared.case, evidence, attempt=number, clock=self._ports.now())

    async def _bound_time(self, running: Awaitable[Evidence], seconds: float) -> Evidence:
        bound = asyncio.timeout(seconds)
        try:
            async with bound:
                return await running
        except TimeoutError as error:
            # A target may raise its own `TimeoutError`: it is our timeout only if the deadline has expired.
            why = (
                f"no answer within {self._settings.timeout_s:g} s"
                if bound.expired()
                else f"the target gave up waiting: {exception_text(error) or 'TimeoutError'}"
            )
            raise TargetError(why, code="timeout") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The attempt itself was not cancelled: something inside the target was.
            raise TargetError("the target was cancelled from inside", code="internal_error") from None

    def _choose_wait(self, tried: int, code: str, retry_after_s: float | None, deadline: float) -> float | None:
        """Return the seconds before the next try, or None if no retries or no time are left in the attempt."""
        if tried == self._settings.retries:
            return None
        wait = max(self._settings.backoff_s * 2**tried, retry_after_s or 0.0)
        if self._ports.clock() + wait < deadline:
            return wait
        if code in ("rate_limited", "overloaded"):
            # Without the pause, which would close the gate for all other attempts for longer than any of them may take.
            self._gate.slow_down(None)
        return None

    async def _wait_before_retry(self, case: str, number: int, wait: float, why: str, code: str, retry_after_s: float | None) -> None:
        seconds_left = self._spent.get_seconds_left()
        if seconds_left is not None and wait >= seconds_left:
            raise AttemptStopped(f"{self._spent.explain_time()} before the next try of {case!r}, in {wait:g} s ({code}: {why})")
        if code in ("rate_limited", "overloaded"):
            self._gate.slow_down(retry_after_s)
            # The run may be waiting without a timeout, and must be notified of the pause to wake up when it ends.
            self._on_slowdown()
            self._ports.listener(Event(kind="slowed", case=case, attempt=number, message=f"at most {self._gate.limit} at once"))
        self._ports.listener(Event(kind="retrying", case=case, attempt=number, message=f"{why}; again in {wait:g} s"))
        # The slot at the gate stays taken: a retry must not send more requests to an overloaded server.
        await asyncio.sleep(wait)


def explain_unusable(evidence: object) -> str | None:
    """Return why evidence of a target cannot be stored and read again, or None."""
    if not isinstance(evidence, Evidence):
        return f"expected evidence, found {type(evidence).__name__}"
    try:
        # msgspec does not check types when a struct is created, so a target may have put anything into it.
        _EVIDENCE.decode(msgspec.json.encode(evidence))
    except RecursionError:
        return "it is nested too deep, or contains itself"
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        return exception_text(error)
    return None


def _read_retry_after_s(evidence: Evidence) -> float | None:
    """Return the pause that an agent with status 429 requested, or None for any other answer."""
    if evidence.http_status != 429:
        return None
    retry_after = evidence.metadata.get("retry_after_s")
    # A 429 without a pause is 0.0, not None.
    return float(retry_after) if is_number(retry_after) else 0.0


Ended = Literal["completed", "interrupted", "budget"]


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    ended: Ended
    reason: str = ""
    """Why it ended early; for a completed run, the limit reached when nothing was left to start."""
    unverified_limit: str = ""
    """The limit that could not be checked because usage is unknown."""


class Runner:
    """One run."""

    def __init__(
        self,
        cases: Sequence[PreparedCase],
        ports: RunPorts,
        *,
        run_id: str,
        settings: RunSettings | None = None,
        planned: int | None = None,
    ) -> None:
        """`planned` is the number of attempts, if known: counting requires preparing every case, which is slow."""
        self._cases = cases
        self._planned = planned
        self._tapes: dict[tuple[str, int], Tape] = {}
        """The tapes of running attempts."""
        self._new_tape = ports.tape_for
        # Driver and judge get the tape that is open for their attempt from these ports.
        self._ports = ports = msgspec.structs.replace(ports, tape_for=self._open_tape)
        self._settings = settings = settings or RunSettings()
        self._notify = ports.listener
        # A judge that is slower than the agent must not accumulate answers without limit. Answers that are waiting when a cost limit is
        # reached are still judged, so only a few may wait if there is such a limit.
        bounded = settings.budget.max_cost is not None
        self._judge_slots = asyncio.Semaphore(settings.concurrency if bounded else max(16, 4 * settings.concurrency))
        self._gate = AttemptGate(settings.concurrency, adapt=settings.adapt, clock=ports.clock)
        self._spent = BudgetMeter(settings.budget, ports.clock, ports.judge_cost)
        self.explain_cost = self._spent.explain_cost
        self._earlier_costs: Mapping[tuple[str, int], Cost | None] = {}
        self._stop: str | None = None
        self._waiting: Iterator[tuple[PreparedCase, int]] = iter(())
        self._has_more = False
        """Whether anything is left to start."""
        self._changed = asyncio.Event()
        self._driver = AttemptDriver(ports, run_id, settings, gate=self._gate, spent=self._spent, on_slowdown=self._changed.set)
        self._context = contextvars.copy_context()
        self._writing = 0
        """Finished attempts that are not yet stored."""
        self._lost = 0
        """Attempts that were cancelled, singly or with the run."""

    async def run(self, done: Iterable[tuple[str, int]] = (), paid_before: Mapping[tuple[str, int], Cost | None] = {}) -> RunOutcome:
        """Drive everything that is not in `done`; `paid_before` is the cost of attempts that a limit cut and that are repeated.

        Raises `TargetError` if the target cannot be opened, and `StoreError` if results or recordings cannot be stored.
        """
        self._earlier_costs = paid_before
        # Attempts that an interrupted run has stored are not repeated.
        finished = set(done)
        planned = sum(self._count_repeats(case) for case in self._cases) if self._planned is None else self._planned
        if planned > MOST_ATTEMPTS:
            raise InputError(f"{len(self._cases):,} cases repeated make {planned:,} attempts; a run has at most {MOST_ATTEMPTS:,}")
        remaining = ((case, number) for case, number in self._plan_attempts() if (case.case.id, number) not in finished)
        # Lazy cases are not all built here.
        waiting = remaining if is_lazy(self._cases) else list(remaining)
        total = planned - len(finished) if is_lazy(self._cases) else sum(1 for _ in waiting)
        if not total:
            return RunOutcome(ended="completed")
        self._notify(Event(kind="planned", total=total))
        # Outside of the `try`: a target that could not be opened has cleaned up itself.
        try:
            async with self._bound_by_run():
                await self._open_target()
        except AttemptStopped as stopped:
            self._notify(Event(kind="stopping", message=stopped.why))
            return RunOutcome(ended="budget", reason=f"{stopped.why}; the target was not open by then")
        try:
            outcome = await self._drive_attempts(waiting)
        except BaseException:
            # The reason why the run ended wins over an error while closing.
            with contextlib.suppress(Exception):
                await self._ports.target.close()
            raise
        await self._ports.target.close()
        return outcome

    async def _open_target(self) -> None:
        bound = asyncio.timeout(self._settings.open_s)
        try:
            async with bound:
                await self._ports.target.open()
        except TimeoutError:
            # Only our own timeout is explained here, not one of the target.
            if not bound.expired():
                raise
            raise TargetError(f"the target was not open within {self._settings.open_s:g} s", code="timeout") from None

    @contextlib.asynccontextmanager
    async def _bound_by_run(self) -> AsyncGenerator[None]:
        """Stop when the run's time is over; raises `AttemptStopped`."""
        bound = asyncio.timeout(self._spent.get_seconds_left())
        try:
            async with bound:
                yield
        except Exception as error:
            if isinstance(error, StoreError) or not bound.expired():
                raise
        if bound.expired():
            raise AttemptStopped(self._spent.explain_time())

    def _open_tape(self, case: str, attempt: int) -> Tape:
        """Return the tape of an attempt, shared by its agent, user and judge: opening it again would start a new recording."""
        tape = self._tapes.get((case, attempt))
        if tape is None:
            tape = self._tapes[case, attempt] = self._new_tape(case, attempt)
        return tape

    def wind_down(self, reason: str) -> None:
        """Start nothing more, finish and store running attempts, and end the run as if its budget were spent."""
        self._stop = self._stop or reason
        self._changed.set()

    def _plan_attempts(self) -> Iterable[tuple[PreparedCase, int]]:
        """Yield the attempts repeat by repeat, so that an interrupted run has tried every case about equally often."""
        number, has_more = 0, True
        while has_more:
            has_more = False
            for case in self._cases:
                repeats = self._count_repeats(case)
                if number < repeats:
                    yield case, number
                has_more = has_more or number + 1 < repeats
            number += 1

    def _count_repeats(self, case: PreparedCase) -> int:
        return count_planned_attempts(case.case, self._settings.repeat)

    async def _drive_attempts(self, waiting: Iterable[tuple[PreparedCase, int]]) -> RunOutcome:
        self._waiting, self._has_more, self._context = iter(waiting), True, contextvars.copy_context()
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    self._start_attempts(group)
                    while self._has_more:
                        await self._wait_for_change()
                        self._start_attempts(group)
                finally:
                    # Attempts that are being cancelled start no others.
                    self._has_more = False
        except BaseExceptionGroup as several:
            # Only storage errors end a run from inside; the first one is raised.
            first: BaseException = several
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None
        except asyncio.CancelledError:
            # A cancelled run returns finished results, and can be resumed.
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return RunOutcome(ended="interrupted", reason="cancelled")
        if self._stop is not None:
            self._notify(Event(kind="stopping", message=self._stop))
            return RunOutcome(ended="budget", reason=self._stop)
        if self._lost:
            return RunOutcome(ended="interrupted", reason=f"attempts that were cancelled from inside the target: {self._lost}")
        return RunOutcome(
            ended="completed", reason=self._spent.explain_exceeded() or "", unverified_limit=self._spent.explain_unverifiable_limit()
        )

    def _start_attempts(self, group: asyncio.TaskGroup) -> None:
        # Finished attempts that are not yet on disk would be repeated after a crash, so only a few may wait.
        while self._has_more and self._writing <= self._settings.concurrency and self._gate.enter():
            # The slot comes first: an attempt taken from the iterator cannot be put back.
            upcoming = next(self._waiting, None) if self._stop is None else None
            if upcoming is not None:
                # A limit stops a run only if something is left to start.
                self._stop = self._spent.explain_exhausted()
            if upcoming is None or self._stop is not None:
                self._gate.leave()
                self._has_more = False
                self._changed.set()
            else:
                # Not in the context of the finished attempt: its context variables must not be visible to the next.
                group.create_task(self._run_attempt(*upcoming, group), context=self._context.copy())

    async def _wait_for_change(self) -> None:
        """Wait until the last attempt has been started, or a pause is over."""
        # There is no await between the last check of the gate and this, so no change is lost.
        self._changed.clear()
        pause = self._gate.get_pause_s()
        try:
            # An attempt that ends during a pause starts no other one, so the caller must start the next ones after the pause.
            await asyncio.wait_for(self._changed.wait(), pause or None)
        except TimeoutError:
            return

    async def _run_attempt(self, prepared: PreparedCase, number: int, group: asyncio.TaskGroup) -> None:
        try:
            await self._run_to_end(prepared, number, group)
        except AttemptStopped as stopped:
            # Nothing is stored: a resumed run repeats it from the start.
            self._tapes.pop((prepared.case.id, number), None)
            self.wind_down(stopped.why)

    async def _run_to_end(self, prepared: PreparedCase, number: int, group: asyncio.TaskGroup) -> None:
        started = self._ports.now()
        began = self._ports.clock()
        waits = False
        key = (prepared.case.id, number)
        try:
            self._notify(Event(kind="started", case=prepared.case.id, attempt=number))
            async with self._bound_by_run():
                result, evidence = await self._driver.drive(prepared, number)
                # A finished attempt is counted by its evidence; one without evidence has also used tokens.
                if evidence is None:
                    self._count_held(key)
                # Wait for a slot at the judge while holding the slot at the agent, so that a slow judge slows down the agent.
                waits = result is None and await self._judge_slots.acquire()
        except asyncio.CancelledError:
            self._lost += 1
            self._tapes.pop(key, None)
            self._changed.set()
            raise
        except AttemptStopped:
            self._count_held(key)
            raise
        finally:
            self._spent.release(key)
            self._gate.leave()
        # Before the next one starts: this may be the last one that the budget allows.
        self._count_tokens(evidence)
        if result is not None:
            self._count_result(result, evidence)
            self._writing += 1
        # The agent is free again; the next attempt need not wait for the judge or the disk.
        self._start_attempts(group)
        if result is None:
            assert evidence is not None and waits
            result = await self._ask_judge(prepared, number, evidence)
            why = self._spent.explain_cost() if is_cut_by_budget(result.verdicts) else None
            if why is not None:
                # Stored for its cost; a resumed run repeats it.
                self.wind_down(why)
            self._count_result(result, evidence)
            self._writing += 1
        if (paid := self._earlier_costs.get(key)) is not None:
            result = msgspec.structs.replace(result, cost=paid if result.cost is None else add_costs(paid, result.cost))
        # A long run must not hold the tapes of all its attempts.
        self._tapes.pop((prepared.case.id, number), None)
        try:
            await self._ports.log.append(make_entry(result, evidence, started_at=started, duration_ms=(self._ports.clock() - began) * 1000))
        except BaseException:
            # A result that cannot be stored ends the run.
            self._has_more = False
            raise
        finally:
            self._writing -= 1
        self._notify(Event(kind="finished", case=prepared.case.id, attempt=number, result=result))
        # An attempt may be waiting for the disk.
        self._start_attempts(group)

    def _count_held(self, key: tuple[str, int]) -> None:
        spent = self._spent.release(key)
        if spent is not None:
            self._spent.add_spending(spent)

    def _count_tokens(self, evidence: Evidence | None) -> None:
        usage = evidence.usage.total() if evidence is not None and evidence.usage is not None else None
        user = evidence.simulated_user.usage if evidence is not None and evidence.simulated_user is not None else None
        self._spent.add(tokens=usage or 0, user_tokens=(user and user.total()) or 0)
        # An agent that reports no tokens still uses some: a limit on tokens cannot be checked.
        self._spent.tokens_unknown += evidence is not None and usage is None

    def _count_result(self, result: CaseResult, evidence: Evidence | None) -> None:
        self._spent.add(failed=result.outcome in ("fail", "error"))
        # An agent without an answer has no cost.
        if result.outcome != "skip" and evidence is not None:
            self._spent.add_cost(result.cost)

    async def _ask_judge(self, prepared: PreparedCase, number: int, evidence: Evidence) -> CaseResult:
        """Decide with the judge; a bug in it is this attempt's error."""
        judge = self._ports.judge
        assert judge is not None
        case = prepared.case.id
        tape = self._ports.tape_for(case, number)

        async def ask(questions: tuple[Question, ...]) -> Sequence[Opinion]:
            return await judge.judge(questions, case=case, attempt=number, tape=tape)

        try:
            async with self._bound_by_run():
                if self._ports.decides is not None:
                    return await self._ports.decides.decide_one(prepared.case, evidence, attempt=number, clock=self._ports.now(), ask=ask)
                deliberation = prepared.deliberate(evidence, None, number, self._ports.now, fail_fast=self._settings.fail_fast)
                return await settle(deliberation, ask)
        except (StoreError, AttemptStopped):
            raise  # a recording error, or the end of the run, is not a bug of the judge
        except Exception as error:  # other attempts continue
            why = f"a bug in the judge: {type(error).__name__}: {exception_text(error)}"
            return prepared.decide_unanswered(None, number, "internal_error", why)
        except asyncio.CancelledError:
            self._lost += 1
            self._changed.set()
            raise
        finally:
            # Acquired in `_run_attempt`, while the agent's slot was still held.
            self._judge_slots.release()


def is_cut_by_budget(verdicts: Iterable[Verdict]) -> bool:
    """Return whether a limit prevented the judge from deciding a claim."""
    return any(verdict.code == "judge_budget" for verdict in verdicts)


def make_entry(result: CaseResult, evidence: Evidence | None, *, started_at: str, duration_ms: float) -> RunEntry:
    """Return the entry that is stored for a finished attempt."""
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
        cost=result.cost,
    )
