from __future__ import annotations

import asyncio
import contextvars
from itertools import count
from typing import Any

import pytest

import proctor
from proctor.actions.checking.check_stream import prepare_once
from proctor.errors import StoreError, TargetError
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence, Usage
from proctor.model.run import RunEntry
from proctor.runner.limits import Budget, RunSettings
from proctor.runner.ports import Event, RunPorts
from proctor.runner.run import Runner, RunOutcome
from tests.runner.twins import Answer, MemoryLog, StubTarget

SUITE = "{proctor: 1, cases: [%s]}"
QUICK = {"backoff_s": 0.0}


def cases(count: int) -> str:
    return SUITE % ", ".join(f"{{id: c{number}, expect: [response_contains: hi]}}" for number in range(count))


async def answer_hi(attempt: Attempt) -> Evidence:
    return Evidence(text="hi", tool_calls=(), usage=Usage(total_tokens=10))


def drive(
    suite: str, answer: Answer, *, done: Any = (), log: Any = None, **settings: Any
) -> tuple[RunOutcome, MemoryLog, StubTarget, list[Event]]:
    log = log or MemoryLog()
    target = StubTarget(answer)
    events: list[Event] = []
    runner = Runner(
        prepare_once(proctor.parse_suite(suite)).cases,
        RunPorts(target=target, log=log, listener=events.append, now=lambda: "2026-11-15T09:00:00Z"),
        run_id="r1",
        settings=RunSettings(**{**QUICK, **settings}),
    )
    return asyncio.run(runner.run(done)), log, target, events


def test_every_case_is_driven_decided_and_stored() -> None:
    outcome, log, target, events = drive(cases(5), answer_hi, repeat=2)
    assert outcome.ended == "completed"
    assert sorted((entry.case, entry.attempt, entry.outcome) for entry in log.entries) == sorted(
        (f"c{number}", attempt, "pass") for number in range(5) for attempt in range(2)
    )
    assert (target.opened, target.closed) == (1, 1)
    assert [event.kind for event in events].count("finished") == 10


def test_concurrency_is_never_exceeded() -> None:
    async def slow(attempt: Attempt) -> Evidence:
        await asyncio.sleep(0.001)
        return Evidence(text="hi")

    _, _, target, _ = drive(cases(30), slow, concurrency=3)
    assert target.most_busy == 3


def test_finished_attempts_are_not_repeated() -> None:
    _, log, target, _ = drive(cases(3), answer_hi, done=[("c0", 0), ("c2", 0)])
    assert target.attempts == [("c1", 0)]
    assert [entry.case for entry in log.entries] == ["c1"]


def test_a_fault_fails_one_attempt_and_the_others_continue() -> None:
    async def answer(attempt: Attempt) -> Evidence:
        if attempt.case.id == "c1":
            raise TargetError("the server exited", code="server_exited")
        if attempt.case.id == "c2":
            raise ZeroDivisionError("a bug")
        return Evidence(text="hi")

    _, log, _, _ = drive(cases(4), answer)
    outcomes = {entry.case: (entry.outcome, entry.code) for entry in log.entries}
    assert outcomes == {"c0": ("pass", None), "c1": ("error", "server_exited"), "c2": ("error", "internal_error"), "c3": ("pass", None)}
    assert all(verdict.code == "server_exited" for entry in log.entries if entry.case == "c1" for verdict in entry.verdicts)


def test_a_hung_target_is_a_timeout() -> None:
    async def hangs(attempt: Attempt) -> Evidence:
        await asyncio.Event().wait()
        raise AssertionError

    _, log, target, _ = drive(cases(1), hangs, timeout_s=0.01)
    assert (log.entries[0].outcome, log.entries[0].code, target.busy) == ("error", "timeout", 0)


def test_only_safe_faults_are_retried() -> None:
    seen: dict[str, int] = {}

    async def answer(attempt: Attempt) -> Evidence:
        seen[attempt.case.id] = seen.get(attempt.case.id, 0) + 1
        if attempt.case.id == "c0" and seen["c0"] < 3:
            raise TargetError("reset", code="transport", safe=True)
        if attempt.case.id == "c1":
            raise TargetError("refused", code="bad_request")
        return Evidence(text="hi")

    _, log, _, events = drive(cases(2), answer, retries=2)
    assert seen == {"c0": 3, "c1": 1}
    assert {entry.case: entry.outcome for entry in log.entries} == {"c0": "pass", "c1": "error"}
    assert [event.kind for event in events].count("retrying") == 2


def test_too_many_requests_slow_the_run_down() -> None:
    refused: list[int] = []

    async def answer(attempt: Attempt) -> Evidence:
        if len(refused) < 2:
            refused.append(1)
            raise TargetError("429", code="rate_limited", safe=True, retry_after_s=0.0)
        return Evidence(text="hi")

    _, log, _, events = drive(cases(12), answer, concurrency=8)
    assert all(entry.outcome == "pass" for entry in log.entries)
    assert [event.message for event in events if event.kind == "slowed"] == ["at most 4 at once", "at most 2 at once"]


def test_an_agent_that_answers_429_is_retried() -> None:
    answers = iter([429, 429, 200])

    async def answer(attempt: Attempt) -> Evidence:
        return Evidence(text="hi", http_status=next(answers))

    _, log, _, _ = drive(cases(1), answer)
    assert log.entries[0].evidence is not None and log.entries[0].evidence.http_status == 200


@pytest.mark.parametrize(("budget", "most"), [({"max_failures": 2}, 3), ({"max_tokens": 25}, 4), ({"max_seconds": 1e-9}, 0)])
def test_a_budget_ends_the_run_and_keeps_finished_attempts(budget: dict[str, Any], most: int) -> None:
    async def answer(attempt: Attempt) -> Evidence:
        return Evidence(text="no", usage=Usage(total_tokens=10))

    outcome, log, _, events = drive(cases(20), answer, concurrency=1, budget=Budget(**budget))
    assert outcome.ended == "budget" and outcome.reason
    assert len(log.entries) <= most
    assert events[-1].kind == "stopping"


def test_a_run_cut_at_the_turn_limit_never_passes() -> None:
    async def answer(attempt: Attempt) -> Evidence:
        return Evidence(text="hi", error="max_turns reached", metadata={"code": "max_turns"})

    _, log, _, _ = drive(cases(1), answer)
    assert (log.entries[0].outcome, log.entries[0].code) == ("error", "max_turns")


def test_results_that_cannot_be_stored_end_the_run() -> None:
    class FullLog(MemoryLog):
        async def append(self, entry: RunEntry) -> None:
            if len(self.entries) == 2:
                raise StoreError("no space left")
            self.entries.append(entry)

    with pytest.raises(StoreError, match="no space left"):
        drive(cases(10), answer_hi, log=FullLog(), concurrency=1)


def test_an_error_while_closing_the_target_does_not_hide_why_the_run_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(self: StubTarget) -> None:
        raise ConnectionError("the server does not answer")

    class FullLog(MemoryLog):
        async def append(self, entry: RunEntry) -> None:
            raise StoreError("no space left")

    monkeypatch.setattr(StubTarget, "close", fails)
    with pytest.raises(StoreError, match="no space left"):
        drive(cases(1), answer_hi, log=FullLog())
    with pytest.raises(ConnectionError):
        drive(cases(1), answer_hi)


def test_an_attempt_that_cannot_be_recorded_ends_the_run() -> None:
    async def answer(attempt: Attempt) -> Evidence:
        if attempt.case.id == "c2":
            raise StoreError("the cassette c.jsonl cannot be written: no space left")
        return Evidence(text="hi")

    log = MemoryLog()
    with pytest.raises(StoreError, match=r"cassette .* cannot be written"):
        drive(cases(10), answer, log=log, concurrency=1)
    assert [(entry.case, entry.outcome) for entry in log.entries] == [("c0", "pass"), ("c1", "pass")]


def test_a_judge_reply_that_cannot_be_recorded_ends_the_run() -> None:
    class Unrecorded:
        async def judge(self, questions: Any, *, case: str, attempt: int, tape: Any) -> Any:
            raise StoreError("the cassette c.jsonl cannot be written: no space left")

        async def close(self) -> None: ...

    prepared = prepare_once(proctor.parse_suite(SUITE % "{id: a, expect: [judged: it is polite]}")).cases
    log, target = MemoryLog(), StubTarget(answer_hi)
    ports = RunPorts(target=target, log=log, judge=Unrecorded(), now=lambda: "2026-11-15T09:00:00Z")
    with pytest.raises(StoreError, match=r"cassette .* cannot be written"):
        asyncio.run(Runner(prepared, ports, run_id="r1").run())
    assert (log.entries, target.closed) == ([], 1)


def test_cancelling_keeps_finished_attempts_and_closes_the_target() -> None:
    async def interrupted() -> tuple[RunOutcome, MemoryLog, StubTarget]:
        log = MemoryLog()

        async def answer(attempt: Attempt) -> Evidence:
            if attempt.case.id != "c0":
                await asyncio.Event().wait()
            return Evidence(text="hi")

        target = StubTarget(answer)
        runner = Runner(
            prepare_once(proctor.parse_suite(cases(5))).cases,
            RunPorts(target=target, log=log, now=lambda: "2026-11-15T09:00:00Z"),
            run_id="r",
        )
        task = asyncio.create_task(runner.run())
        while not log.entries:
            await asyncio.sleep(0)
        task.cancel()
        return await task, log, target

    outcome, log, target = asyncio.run(interrupted())
    assert (outcome.ended, [entry.case for entry in log.entries], target.closed, target.busy) == ("interrupted", ["c0"], 1, 0)


def test_a_skipped_case_is_stored_without_calling_the_target() -> None:
    _, log, target, _ = drive(SUITE % "{id: c0, skip: not yet, expect: [response_contains: hi]}", answer_hi)
    assert (log.entries[0].outcome, target.attempts) == ("skip", [])


def test_a_limit_reached_by_the_last_attempt_is_reported() -> None:
    async def answer(attempt: Attempt) -> Evidence:
        return Evidence(text="x", usage=Usage(total_tokens=10))

    for concurrency in (3, 4):
        outcome, _, target, _ = drive(cases(3), answer, concurrency=concurrency, budget=Budget(max_tokens=5))
        assert len(target.attempts) == 3 and outcome.ended == "completed"
        assert outcome.reason == "30 tokens spent, the limit is 5"
    assert drive(cases(3), answer, concurrency=3, budget=Budget(max_tokens=50))[0].reason == ""


def test_the_budget_counts_an_attempt_before_the_next_starts() -> None:
    async def fails(attempt: Attempt) -> Evidence:
        return Evidence(text="no")

    _, _, target, _ = drive(cases(9), fails, concurrency=1, budget=Budget(max_failures=2))
    assert target.attempts == [("c0", 0), ("c1", 0)]


def test_the_next_attempt_does_not_wait_for_the_disk() -> None:
    order: list[str] = []

    async def answer(attempt: Attempt) -> Evidence:
        order.append(f"run {attempt.case.id}")
        return Evidence(text="hi")

    class SlowLog(MemoryLog):
        async def append(self, entry: RunEntry) -> None:
            await asyncio.sleep(0.01)
            self.entries.append(entry)
            order.append(f"stored {entry.case}")

    _, log, _, events = drive(cases(2), answer, log=SlowLog(), concurrency=1)
    assert order == ["run c0", "run c1", "stored c0", "stored c1"]
    assert [event.case for event in events if event.kind == "finished"] == [entry.case for entry in log.entries]


def test_a_stalled_disk_pauses_the_agent_before_many_results_are_unsaved() -> None:
    unsaved = 0
    most = 0

    async def answer(attempt: Attempt) -> Evidence:
        nonlocal unsaved, most
        unsaved += 1
        most = max(most, unsaved)
        return Evidence(text="hi")

    class SlowLog(MemoryLog):
        async def append(self, entry: RunEntry) -> None:
            nonlocal unsaved
            await asyncio.sleep(0.01)
            self.entries.append(entry)
            unsaved -= 1

    _, log, _, _ = drive(cases(40), answer, log=SlowLog(), concurrency=4)
    assert len(log.entries) == 40
    assert most <= 2 * 4 + 1


def test_an_attempt_is_finished_only_after_it_is_stored() -> None:
    stored: list[str] = []
    early: list[str] = []

    class SlowLog(MemoryLog):
        async def append(self, entry: RunEntry) -> None:
            await asyncio.sleep(0)
            stored.append(entry.case)

    runner = Runner(
        prepare_once(proctor.parse_suite(cases(20))).cases,
        RunPorts(
            target=StubTarget(answer_hi),
            log=SlowLog(),
            listener=lambda event: early.append(event.case) if event.kind == "finished" and event.case not in stored else None,
            now=lambda: "2026-11-15T09:00:00Z",
        ),
        run_id="r",
    )
    asyncio.run(runner.run())
    assert (len(stored), early) == (20, [])


def test_requests_wait_during_a_pause_and_resume_after_it() -> None:
    times: list[float] = []
    refused: list[int] = []

    async def answer(attempt: Attempt) -> Evidence:
        times.append(asyncio.get_running_loop().time())
        if not refused:
            refused.append(1)
            raise TargetError("429", code="rate_limited", retry_after_s=0.05, safe=True)
        return Evidence(text="hi")

    outcome, log, _, _ = drive(cases(6), answer, concurrency=2)
    assert (outcome.ended, len(log.entries)) == ("completed", 6)
    # The two requests under way when the pause began, then none until it ends.
    assert times[2] - times[0] >= 0.045


@pytest.mark.parametrize("answered", [False, True])
def test_a_pause_longer_than_the_attempt_limit_is_not_granted(answered: bool) -> None:
    async def answer(attempt: Attempt) -> Evidence:
        if attempt.case.id != "c0":
            return Evidence(text="hi")
        if answered:
            return Evidence(text="later", http_status=429, metadata={"retry_after_s": 999_999.0})
        raise TargetError("429", code="rate_limited", retry_after_s=999_999.0, safe=True)

    outcome, log, target, events = drive(cases(4), answer, concurrency=2, timeout_s=5.0)
    assert outcome.ended == "completed"
    found = {entry.case: (entry.outcome, entry.code) for entry in log.entries}
    assert found == {
        "c0": ("fail", None) if answered else ("error", "rate_limited"),
        **{f"c{number}": ("pass", None) for number in range(1, 4)},
    }
    assert target.attempts.count(("c0", 0)) == 1 and "retrying" not in [event.kind for event in events]


def test_a_target_that_does_not_open_in_time_ends_the_run() -> None:
    class Shut(StubTarget):
        async def open(self) -> None:
            await asyncio.sleep(60)

    runner = Runner(
        prepare_once(proctor.parse_suite(cases(1))).cases,
        RunPorts(target=Shut(answer_hi), log=MemoryLog(), now=lambda: "2026-11-15T09:00:00Z"),
        run_id="r1",
        settings=RunSettings(open_s=0.05),
    )
    with pytest.raises(TargetError, match=r"0\.05 s") as raised:
        asyncio.run(runner.run())
    assert raised.value.code == "timeout"


def test_a_target_cancelled_from_inside_fails_one_attempt() -> None:
    async def answer(attempt: Attempt) -> Evidence:
        if attempt.case.id == "c1":
            inner = asyncio.ensure_future(asyncio.sleep(10))
            inner.cancel()
            await inner
        return Evidence(text="hi")

    outcome, log, _, _ = drive(cases(4), answer, concurrency=1)
    assert outcome.ended == "completed"
    assert {entry.case: entry.code for entry in log.entries} == {"c0": None, "c1": "internal_error", "c2": None, "c3": None}


def test_a_target_that_cancels_the_attempt_itself_leaves_a_run_to_be_resumed() -> None:
    async def answer(attempt: Attempt) -> Evidence:
        if attempt.case.id == "c1":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)
        return Evidence(text="hi")

    outcome, log, _, _ = drive(cases(4), answer, concurrency=1)
    assert (outcome.ended, sorted(entry.case for entry in log.entries)) == ("interrupted", ["c0", "c2", "c3"])


def test_a_target_that_gives_up_waiting_is_a_timeout_with_its_message() -> None:
    async def answer(attempt: Attempt) -> Evidence:
        raise TimeoutError("the queue stayed empty")

    _, log, _, _ = drive(cases(1), answer)
    assert (log.entries[0].code, log.entries[0].reason) == ("timeout", "the target gave up waiting: the queue stayed empty")


def test_context_variables_are_separate_for_each_attempt() -> None:
    mine: contextvars.ContextVar[str] = contextvars.ContextVar("mine", default="nobody")
    seen: list[str] = []

    async def answer(attempt: Attempt) -> Evidence:
        seen.append(mine.get())
        mine.set(attempt.case.id)
        return Evidence(text="hi")

    drive(cases(5), answer, concurrency=1)
    assert set(seen) == {"nobody"}


def test_a_target_that_swallows_cancellation_starts_no_further_attempt() -> None:
    async def interrupted() -> tuple[RunOutcome, StubTarget]:
        async def answer(attempt: Attempt) -> Evidence:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                pass
            return Evidence(text="hi")

        target = StubTarget(answer)
        suite = prepare_once(proctor.parse_suite(cases(9))).cases
        runner = Runner(suite, RunPorts(target=target, log=MemoryLog(), now=lambda: "2026-11-15T09:00:00Z"), run_id="r")
        task = asyncio.create_task(runner.run())
        while target.busy < 4:
            await asyncio.sleep(0)
        task.cancel()
        return await task, target

    outcome, target = asyncio.run(interrupted())
    assert (outcome.ended, len(target.attempts)) == ("interrupted", 4)


async def answers_at_once(attempt: Attempt) -> Evidence:
    return Evidence(text="hi")


async def never_ends(attempt: Attempt) -> Evidence:
    await asyncio.sleep(600)
    return Evidence(text="hi")


async def answers_429(attempt: Attempt) -> Evidence:
    return Evidence(text="later", http_status=429, metadata={"retry_after_s": 0.08})


async def asks_for_a_pause(attempt: Attempt) -> Evidence:
    raise TargetError("429", code="rate_limited", retry_after_s=20.0, safe=True)


def test_attempts_cut_off_by_the_run_time_limit_are_driven_again() -> None:
    numbers = count()

    async def hangs_at_the_fifth(attempt: Attempt) -> Evidence:
        return await (never_ends if next(numbers) >= 4 else answers_at_once)(attempt)

    outcome, log, _, events = drive(cases(20), hangs_at_the_fifth, concurrency=4, budget=Budget(max_seconds=1))
    assert (outcome.ended, [entry.outcome for entry in log.entries]) == ("budget", ["pass"] * 4)
    assert events[-1].kind == "stopping"
    done = [(entry.case, entry.attempt) for entry in log.entries]
    outcome, log, _, _ = drive(cases(20), answers_at_once, done=done, concurrency=20)
    assert (outcome.ended, len(log.entries)) == ("completed", 16)


def test_a_run_whose_last_attempts_are_cut_off_is_incomplete() -> None:
    outcome, log, target, _ = drive(cases(2), never_ends, budget=Budget(max_seconds=0.03))
    assert (outcome.ended, outcome.reason, log.entries, target.closed) == ("budget", "0.03 seconds are over", [], 1)


@pytest.mark.parametrize("answer", [answers_429, asks_for_a_pause])
def test_one_deadline_covers_all_retries_and_waits_of_an_attempt(answer: Answer) -> None:
    outcome, log, target, _ = drive(cases(1), answer, timeout_s=0.2, retries=10)
    assert outcome.ended == "completed" and (log.entries[0].duration_ms or 0) < 250
    assert log.entries[0].outcome in ("fail", "error") and len(target.attempts) == (3 if answer is answers_429 else 1)


def test_a_retry_gets_the_remaining_time_of_its_attempt() -> None:
    given: list[float] = []

    async def answer(attempt: Attempt) -> Evidence:
        given.append(attempt.timeout_s)
        await asyncio.sleep(0.02 if len(given) == 1 else 5)
        raise TargetError("reset", code="transport", safe=True)

    _, log, _, _ = drive(cases(1), answer, timeout_s=0.1)
    assert (log.entries[0].code, (log.entries[0].duration_ms or 0) < 200) == ("timeout", True)
    assert given[0] == 0.1 and given[1] <= 0.08


def test_a_pause_longer_than_the_run_ends_it_at_once_and_is_named() -> None:
    async def answer(attempt: Attempt) -> Evidence:
        return await (asks_for_a_pause if attempt.case.id == "c0" else answer_hi)(attempt)

    outcome, log, _, _ = drive(cases(9), answer, concurrency=1, budget=Budget(max_seconds=3))
    assert (outcome.ended, log.entries, "rate_limited" in outcome.reason) == ("budget", [], True)


def test_the_time_limit_of_a_run_covers_the_judge_and_the_opening_of_its_target() -> None:
    class Slow:
        async def judge(self, questions: Any, *, case: str, attempt: int, tape: Any) -> Any:
            await asyncio.sleep(60)

        async def close(self) -> None: ...

    class Shut(StubTarget):
        async def open(self) -> None:
            await asyncio.sleep(60)

    judged = SUITE % "{id: c0, expect: [judged: it is polite]}"
    for suite, target, judge in ((judged, StubTarget(answer_hi), Slow()), (cases(1), Shut(answer_hi), None)):
        log = MemoryLog()
        runner = Runner(
            prepare_once(proctor.parse_suite(suite)).cases,
            RunPorts(target=target, log=log, now=lambda: "2026-11-15T09:00:00Z", judge=judge),
            run_id="r1",
            settings=RunSettings(budget=Budget(max_seconds=0.05)),
        )
        outcome = asyncio.run(runner.run())
        assert (outcome.ended, log.entries) == ("budget", []), outcome
