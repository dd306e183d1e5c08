"""Drives the agent through one attempt: asks, tries again where that is safe, and decides.

Whatever goes wrong is the result of this attempt. Only faults of the transport are tried again, and only where the other side cannot have
acted on them: a second refund would be worse than a failed test.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from proctor.cassettes.ports import Tape
from proctor.decide.prepare import PreparedCase
from proctor.errors import StoreError, TargetError
from proctor.model.attempt import Attempt, Speaker
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.json_values import is_number
from proctor.model.result import CaseResult
from proctor.model.show import exception_text
from proctor.model.typed import make_json_decoder
from proctor.runner.budgeted_speaker import AttemptStopped, BudgetedSpeaker, measure_answer
from proctor.runner.events import Event
from proctor.runner.limits import AttemptGate, BudgetMeter
from proctor.runner.ports import RunPorts
from proctor.runner.settings import RunSettings

_EVIDENCE = make_json_decoder(Evidence)
_LONGEST_REASON = 4_000
"""Characters of a fault that a result keeps."""


class AttemptDriver:
    """Drives the attempts of one run, each by itself.

    `on_slowdown` is called when the other side asked for a pause, which the starting of attempts has to respect.
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
        """Drive the agent and return the result with its evidence; no result yet where a judge has to decide.

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
            spoken = attempt
            try:
                spoken = self._give_speaker(prepared, attempt, tape)
                evidence = await self._bound_time(self._ports.target.run(spoken, tape), attempt.timeout_s)
            except TargetError as error:
                if isinstance(spoken.speaker, BudgetedSpeaker) and spoken.speaker.stopped is not None:
                    why = f"{spoken.speaker.stopped}; the conversation of {case.id!r} was left in its middle"
                    raise AttemptStopped(why) from None
                wait = self._choose_wait(tried, error.code, error.retry_after_s, deadline) if error.safe else None
                if wait is None:
                    seen = error.evidence if error.evidence is None or explain_unusable(error.evidence) is None else None
                    return prepared.decide_unanswered(seen, number, error.code, exception_text(error, _LONGEST_REASON)), seen
                self._count_try(prepared, number, error.evidence)
                await self._wait_before_retry(case.id, number, wait, exception_text(error), error.code, error.retry_after_s)
                continue
            except StoreError:
                # No fault of the target: what cannot be recorded must not be driven, and the others could not be recorded either.
                raise
            except Exception as error:  # a bug in a target is this attempt's error, not the end of the run
                told = f"a bug in the target: {type(error).__name__}: {exception_text(error)}"
                return prepared.decide_unanswered(None, number, "internal_error", told), None
            wrong = explain_unusable(evidence)
            if wrong is not None:
                return prepared.decide_unanswered(None, number, "bad_answer", f"what the target observed cannot be kept: {wrong}"), None
            # Who answers 429 has not worked on the request, so it may be asked again. Its last answer is evidence like any other.
            retry_after = _get_asked_pause_s(evidence)
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
            # The same for every retry, so that the other side can tell a retry from a new attempt; bounded to fit a header.
            request_id=f"{self._run_id}:{case.id}:{number}"[-180:],
            session_id=f"{self._run_id}-{case.id}-{number}"[-180:],
            timeout_s=self._settings.timeout_s,
        )

    def _give_speaker(self, prepared: PreparedCase, attempt: Attempt, tape: Tape) -> Attempt:
        """Return the attempt with its simulated user, who knows nothing of tries before this one and stops when the budget is spent."""
        if attempt.case.user is None:
            return attempt
        if self._ports.speaker_for is None:
            raise TargetError(f"nobody plays the simulated user of case {attempt.case.id!r} in this run", code="user_unavailable")
        speaker: Speaker = self._ports.speaker_for(attempt.case, tape)
        # Where nothing bounds the spending no turn has to be measured and priced.
        if self._spent.bounds_spending:
            speaker = BudgetedSpeaker(speaker, self._spent, prepared.prices, (attempt.case.id, attempt.number))
        return msgspec.structs.replace(attempt, speaker=speaker)

    def _count_try(self, prepared: PreparedCase, number: int, seen: Evidence | None) -> None:
        """Count what a try took that is made again: only the last one leaves evidence by which an attempt is counted."""
        held = self._spent.release((prepared.case.id, number))
        # What a conversation took is held while it is under way, that of its user included.
        if held is None and seen is not None and explain_unusable(seen) is None:
            held = measure_answer(seen, prepared.prices)
        if held is not None:
            self._spent.add_spending(held)

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
            # A target may raise `TimeoutError` on its own: it is our time-out only where the bound has expired.
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
            # Nobody cancelled this attempt: something inside the target was, and it let that through.
            raise TargetError("the target was cancelled from inside", code="internal_error") from None

    def _choose_wait(self, tried: int, code: str, retry_after_s: float | None, deadline: float) -> float | None:
        """Return the seconds before the next try, or None where there is none: no retries left, or no time left in the attempt."""
        if tried == self._settings.retries:
            return None
        wait = max(self._settings.backoff_s * 2**tried, retry_after_s or 0.0)
        if self._ports.clock() + wait < deadline:
            return wait
        if code in ("rate_limited", "overloaded"):
            # Without the pause: it would close the gate for all other attempts, longer than any of them may take.
            self._gate.slow_down(None)
        return None

    async def _wait_before_retry(self, case: str, number: int, wait: float, why: str, code: str, retry_after_s: float | None) -> None:
        left = self._spent.get_seconds_left()
        if left is not None and wait >= left:
            raise AttemptStopped(f"{self._spent.explain_time()} before the next try of {case!r}, in {wait:g} s ({code}: {why})")
        if code in ("rate_limited", "overloaded"):
            self._gate.slow_down(retry_after_s)
            # The run may be waiting without a time limit, and has to learn of the pause to wake up at its end.
            self._on_slowdown()
            self._ports.listener(Event(kind="slowed", case=case, attempt=number, message=f"at most {self._gate.limit} at once"))
        self._ports.listener(Event(kind="retrying", case=case, attempt=number, message=f"{why}; again in {wait:g} s"))
        # The place at the gate is kept meanwhile: a retry must not make room for more requests to a side that is overloaded.
        await asyncio.sleep(wait)


def explain_unusable(evidence: object) -> str | None:
    """Return why evidence of a target cannot be kept and read again, or None."""
    if not isinstance(evidence, Evidence):
        return f"expected evidence, found {type(evidence).__name__}"
    try:
        # msgspec checks no types when a struct is made, so a target may have put anything into it.
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
    # A 429 that names no pause is still one: 0.0, and not None.
    return float(asked) if is_number(asked) else 0.0
