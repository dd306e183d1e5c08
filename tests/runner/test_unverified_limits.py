"""A spending limit that could not be checked is reported at the end."""

from __future__ import annotations

import asyncio

import proctor
from proctor.actions.checking.check_stream import prepare_once
from proctor.errors import TargetError
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence, Usage, UserEnding
from proctor.runner.limits import Budget, RunSettings
from proctor.runner.ports import RunPorts
from proctor.runner.run import Runner
from tests.runner.test_run import SUITE, cases, drive
from tests.runner.twins import MemoryLog, StubTarget


def test_an_unverifiable_limit_is_reported() -> None:
    async def answer(attempt: Attempt) -> Evidence:
        return Evidence(text="hi")

    async def fails(attempt: Attempt) -> Evidence:
        raise TargetError("down", code="unreachable")

    assert drive(cases(3), answer, concurrency=3, budget=Budget(max_tokens=5))[0].unverified_limit == (
        "the tokens of 3 attempts are unknown, so the limit of 5 could not be checked"
    )
    assert drive(cases(1), answer, budget=Budget(max_cost=2))[0].unverified_limit == (
        "the cost of an attempt is unknown (there are no prices), so the limit of 2 could not be checked"
    )
    # No attempt was answered, so nothing was spent; and without a limit there is nothing to report.
    assert drive(cases(1), fails, budget=Budget(max_tokens=5))[0].unverified_limit == ""
    assert drive(cases(1), answer, budget=Budget(max_seconds=5))[0].unverified_limit == ""


def test_the_usage_of_a_retried_try_counts() -> None:
    async def breaks_off_once(attempt: Attempt) -> Evidence:
        tried.append(attempt.case.id)
        if len(tried) == 1:
            fault = TargetError("turn 2: too many requests", code="rate_limited", safe=True)
            fault.evidence = Evidence(text="half", usage=Usage(total_tokens=40))
            raise fault
        return Evidence(text="hi", usage=Usage(total_tokens=10))

    tried: list[str] = []
    outcome, log, _, _ = drive(cases(4), breaks_off_once, concurrency=1, retries=1, budget=Budget(max_tokens=60))
    assert (outcome.ended, outcome.reason) == ("budget", "60 tokens spent, the limit is 60")
    assert [entry.case for entry in log.entries] == ["c0", "c1"]


class Chatty:
    """A user whose messages cost ten tokens each."""

    messages = 0

    async def say_next(self, answer: Evidence | None) -> str:
        self.messages += 1
        return "hello"

    def describe_ending(self) -> UserEnding:
        return UserEnding(played_by="m", ended="done", model_calls=self.messages, usage=Usage(total_tokens=10 * self.messages))


def test_a_failed_conversation_counts_its_usage() -> None:
    async def talks_and_fails(attempt: Attempt) -> Evidence:
        assert attempt.speaker is not None
        await attempt.speaker.say_next(None)
        await attempt.speaker.say_next(Evidence(text="yes?", usage=Usage(total_tokens=5)))
        raise TargetError("too many requests", code="rate_limited", safe=True)

    prepared = prepare_once(proctor.parse_suite(SUITE % ", ".join(f"{{id: c{n}, user: {{goal: g, script: [x]}}}}" for n in range(4)))).cases
    log = MemoryLog()
    ports = RunPorts(
        target=StubTarget(talks_and_fails), log=log, now=lambda: "2026-11-15T09:00:00Z", speaker_for=lambda case, tape: Chatty()
    )
    settings = RunSettings(concurrency=1, retries=1, backoff_s=0.0, budget=Budget(max_tokens=100))
    runner = Runner(prepared, ports, run_id="r1", settings=settings)
    outcome = asyncio.run(runner.run())
    assert runner._tapes == {}, "a run that goes on for long must not hold the tapes of what it left"  # pyright: ignore[reportPrivateUsage]
    # Each case has two conversations of 25 tokens; the fourth reaches the limit.
    reason = "100 tokens spent (80 of them by simulated users), the limit is 100; the conversation of 'c1' was ended early"
    assert (outcome.ended, outcome.reason) == ("budget", reason)
    assert [(entry.case, entry.outcome) for entry in log.entries] == [("c0", "error")]
