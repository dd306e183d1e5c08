"""Decisions in other processes: same answers as in this one, limited, fair, and a crash ends only its own request."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from proctor.errors import EvidenceError
from proctor.evidence.reading import read_document
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.judgement import Opinion, Question
from proctor.model.result import CaseResult
from proctor.service import fair_queue
from proctor.service.decisions import pool as decision_pool
from proctor.service.decisions.messages import Answer, CaseAsk, CaseWork, Job, ReadWork, SuiteSource, pack_plain
from proctor.service.decisions.pool import CLIENT_LEAVES, DecisionPool, Decisions, ThreadDecisions, run_while_client_waits
from proctor.service.decisions.record_verdicts import CaseDecider
from proctor.service.decisions.suite_verdicts import RecordToDecide, SuiteDecisions, read_evidence
from proctor.service.fair_queue import FairQueue
from proctor.service.refusals import Refusal

WHO = ("org", "key")
ODD = """
import os, signal, time, sys
from proctor.service.decisions import process as deciding_process, record_verdicts, trace_verdicts
record_verdicts.CASE_S, record_verdicts.SLICE_S = 0.3, 0.2
decide = record_verdicts.CaseDecider._decide_record
def odd(self, work):
    if b"SEGFAULT" in work.evidence:
        os.kill(os.getpid(), signal.SIGSEGV)
    if b"EXIT" in work.evidence:
        os._exit(7)
    if b"STUCK" in work.evidence:
        time.sleep(60)
    if b"HUNGRY" in work.evidence:
        raise MemoryError
    return decide(self, work)
record_verdicts.CaseDecider._decide_record = odd
deciding_process.main()
"""
COMMAND = (sys.executable, "-c", ODD)


def source(*expect: Any, cases: Sequence[str] = ("a",)) -> SuiteSource:
    document = {"proctor": 1, "cases": [{"id": id, "expect": list(expect)} for id in cases]}
    return SuiteSource(text=msgspec.json.encode(document).decode())


def evidence(text: str, **more: Any) -> Evidence:
    return read_document({"text": text, **more}, format="plain")[0]


def suite_of(decisions: Decisions, suite: SuiteSource, who: tuple[str, str] = WHO) -> SuiteDecisions:
    return SuiteDecisions(decisions, who, suite, suite.read().cases)


def using(doing: Callable[[DecisionPool], Awaitable[None]], **more: Any) -> None:
    async def whole() -> None:
        pool = DecisionPool(**{"processes": 2, "command": COMMAND, "stall_s": 20.0, **more})
        try:
            async with asyncio.timeout(55):
                await doing(pool)
        finally:
            await pool.close()

    asyncio.run(whole())


async def codes(pool: Decisions, suite: SuiteSource, *texts: str) -> list[tuple[str, str | None]]:
    found = await suite_of(pool, suite).decide([RecordToDecide(evidence=evidence(text), positions=(0,)) for text in texts])
    return [(result.outcome, result.code) for (result,) in found]


async def judge(case: Case, questions: tuple[Question, ...]) -> Sequence[Opinion]:
    return [Opinion(outcome="pass", score=0.9, reason=f"{case.id} {question.criterion}") for question in questions]


def test_a_process_decides_as_a_thread_does() -> None:
    suite = source(
        {"response_contains": "Refund"},
        {"judged": {"criteria": "it is polite"}},
        {"json_field": {"field": "id", "value": 2**70}},
        {"response_matches": "(?<=x)y"},
        cases=("a", "b"),
    )
    records = [
        RecordToDecide(evidence=evidence("Refund", body={"id": 2**70}), positions=(0, 1), attempt=3, clock="2031-01-01T00:00:00Z"),
        RecordToDecide(evidence=evidence("half \ud83d", body={"id": 1e400}), positions=(1,)),
        RecordToDecide(evidence=evidence("xy", tool_calls=[]), positions=(0,)),
        RecordToDecide(evidence=evidence("not requested"), positions=()),
    ]

    async def doing(pool: DecisionPool) -> None:
        found: list[list[list[CaseResult]]] = []
        for decisions in (pool, ThreadDecisions()):
            found += [await suite_of(decisions, suite).decide(records), await suite_of(decisions, suite).decide(records, judge)]
        assert found[0] == found[2] and found[1] == found[3]
        assert [[result.case.id for result in results] for results in found[0]] == [["a", "b"], ["b"], ["a"], []]
        assert {result.verdicts[1].code for results in found[0] for result in results} == {"judge_unavailable"}
        assert {result.verdicts[1].reason for results in found[1] for result in results} == {"a it is polite", "b it is polite"}
        assert found[0][0][0].attempt == 3

    using(doing)


def test_a_judge_is_asked_again_if_answers_depend_on_answers() -> None:
    document = {
        "proctor": 1,
        "cases": [
            {
                "id": "a",
                "expect": [
                    {"judged": "first", "id": "one"},
                    {"judged": "second", "id": "two", "depends_on": ["one"]},
                    {"judged": "third", "depends_on": ["two"]},
                ],
            }
        ],
    }
    suite = SuiteSource(text=msgspec.json.encode(document).decode())
    rounds: list[list[str]] = []

    async def ask(case: Case, questions: tuple[Question, ...]) -> Sequence[Opinion]:
        rounds.append([question.criterion for question in questions])
        return [Opinion(outcome="pass" if question.criterion == "first" else "fail", reason="r") for question in questions]

    async def doing(pool: DecisionPool) -> None:
        ((result,),) = await suite_of(pool, suite).decide([RecordToDecide(evidence=evidence("x"), positions=(0,))], ask)
        assert [verdict.outcome for verdict in result.verdicts] == ["pass", "fail", "skip"] and rounds == [["first"], ["second"]]

    using(doing)


def test_evidence_is_read_elsewhere_as_it_is_here() -> None:
    async def doing(pool: DecisionPool) -> None:
        for decisions in (pool, ThreadDecisions()):
            assert [one.text for one in await read_evidence(decisions, WHO, '{"text": "a"}\n{"text": "b"}', None)] == ["a", "b"]
            with pytest.raises(EvidenceError):
                await read_evidence(decisions, WHO, "no evidence", None)

    using(doing)


def test_a_crash_is_an_error_of_its_record_alone() -> None:
    async def doing(pool: DecisionPool) -> None:
        suite = source({"response_contains": "fine"})
        records = suite_of(pool, suite)
        texts = ("fine", "SEGFAULT", "fine", "EXIT", "fine", "HUNGRY", "fine")
        found = [result for (result,) in await records.decide([RecordToDecide(evidence=evidence(text), positions=(0,)) for text in texts])]
        assert [result.code for result in found] == [None, "evaluation_crashed", None, "evaluation_crashed", None, "memory_limit", None]
        assert "SIGSEGV" in (found[1].reason or "") and "exit code 7" in (found[3].reason or "")
        assert {result.verdicts[0].outcome for result in found if result.code} == {"error"}
        assert await codes(pool, suite, "fine") == [("pass", None)], "there is another process"

    using(doing)


async def test_a_thread_that_ran_out_of_memory_decides_the_records_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = CaseDecider._decide_record

    def run_out(self: CaseDecider, work: CaseWork) -> Answer:
        if b"HUNGRY" in work.evidence:
            raise MemoryError
        return decide(self, work)

    monkeypatch.setattr(CaseDecider, "_decide_record", run_out)
    suite = source({"response_contains": "fine"})
    for texts in (("HUNGRY", "fine"), ("fine", "HUNGRY", "HUNGRY", "fine")):
        found = await codes(ThreadDecisions(), suite, *texts)
        assert found == [("pass", None) if text == "fine" else ("error", "memory_limit") for text in texts]


def test_a_request_that_ends_one_process_after_the_other_is_given_up() -> None:
    async def doing(pool: DecisionPool) -> None:
        found = await codes(pool, source({"response_contains": "fine"}), *["EXIT"] * 20)
        assert found == [("error", "evaluation_crashed")] * 20

    using(doing)


@pytest.mark.timeout(60)
def test_a_stalled_process_is_ended() -> None:
    async def doing(pool: DecisionPool) -> None:
        found = await codes(pool, source({"response_contains": "fine"}), "STUCK", "fine")
        assert found == [("error", "evaluation_crashed"), ("pass", None)]

    using(doing, stall_s=2.0)


def test_a_case_that_takes_long_is_an_error_with_the_figure() -> None:
    async def doing(pool: DecisionPool) -> None:
        suite = source(*({"response_matches": f"^(a+)+(b|c{number})$"} for number in range(10)), cases=("a", "b"))
        records = [RecordToDecide(evidence=evidence("a" * 5_000), positions=(0, 1)), RecordToDecide(evidence=evidence("b"), positions=(0,))]
        (first, second), (third,) = await suite_of(pool, suite).decide(records)
        assert (first.code, second.code, third.code) == ("time_limit", "time_limit", None)
        assert first.reason == "the case took more than 0.3 s on this record"
        assert third.outcome == "fail"

    using(doing)


@pytest.mark.in_turn
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not bound the memory of a process this way")
@pytest.mark.timeout(60)
def test_more_memory_than_a_record_may_use_is_an_error() -> None:
    async def doing(pool: DecisionPool) -> None:
        work = ReadWork(sent=pack_plain({"body": [[] for _ in range(3_000_000)]}))
        (answer,) = await pool.answers(WHO, [work], {})
        assert answer.error is not None and answer.error[0] in ("memory_limit", "evaluation_crashed")
        assert await codes(pool, source({"response_contains": "fine"}), "fine") == [("pass", None)]

    using(doing, command=(*decision_pool.COMMAND, "250000000"))


def test_a_suite_that_cannot_be_read_is_an_error_of_its_cases() -> None:
    async def doing(pool: DecisionPool) -> None:
        good = source({"response_contains": "fine"})
        broken = SuiteDecisions(pool, WHO, SuiteSource(text="{}"), good.read().cases)
        other = SuiteDecisions(pool, WHO, source({"response_contains": "fine"}, cases=("z",)), good.read().cases)
        for suite, code in ((broken, "unusable_spec"), (other, "internal_error")):
            ((result,),) = await suite.decide([RecordToDecide(evidence=evidence("fine"), positions=(0,))])
            assert (result.outcome, result.code) == ("error", code)

    using(doing)


def test_the_rest_of_a_request_that_takes_too_long_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_pool, "REQUEST_S", -1.0)
    monkeypatch.setattr(decision_pool, "CHUNK", 1)

    async def doing(pool: DecisionPool) -> None:
        found = await codes(pool, source({"response_contains": "fine"}), "fine", "fine")
        assert found == [("error", "time_limit")] * 2

    using(doing)


def test_nothing_is_decided_for_a_request_that_was_cancelled() -> None:
    async def doing(pool: DecisionPool) -> None:
        suite = source({"response_contains": "fine"})
        assert await codes(pool, suite, "fine") == [("pass", None)]
        request = asyncio.create_task(codes(pool, suite, "STUCK"))
        while not pool._busy:
            await asyncio.sleep(0.01)
        (worker,) = pool._busy
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert worker.process._process is not None
        await worker.process._process.wait()
        assert await codes(pool, suite, "fine") == [("pass", None)]

    using(doing)


@pytest.mark.parametrize(("processes", "started"), [(1, 1), (2, 2), (3, 2)])
def test_a_second_process_starts_while_the_first_one_works(processes: int, started: int) -> None:
    async def doing(pool: DecisionPool) -> None:
        suite = source({"response_contains": "fine"})
        for known in (1, started, started):
            assert await codes(pool, suite, "fine") == [("pass", None)]
            await asyncio.gather(*pool._starts)
            assert len(pool._idle) == known

    using(doing, processes=processes)


def test_a_process_of_a_large_server_is_used_again() -> None:
    ballast = bytearray(500_000_000)
    ballast[::4096] = b"x" * len(ballast[::4096])

    async def doing(pool: DecisionPool) -> None:
        for _ in range(2):
            assert await codes(pool, source({"response_contains": "fine"}), "fine") == [("pass", None)]
            await asyncio.gather(*pool._starts)
        assert len(pool._idle) == 1

    using(doing, processes=1)


def test_a_request_is_refused_if_no_process_can_be_started() -> None:
    async def doing(pool: DecisionPool) -> None:
        with pytest.raises(Refusal) as caught:
            await codes(pool, source({"response_contains": "fine"}), "fine")
        assert caught.value.code == "UNAVAILABLE"

    using(doing, command=("/nowhere/python",))


def test_a_pool_that_was_closed_leaves_no_process_and_decides_nothing() -> None:
    async def doing(pool: DecisionPool) -> None:
        suite = source({"response_contains": "fine"})
        requests = [asyncio.create_task(codes(pool, suite, "STUCK")) for _ in range(3)]
        while not pool._busy:
            await asyncio.sleep(0.01)
        processes = [worker.process._process for worker in (*pool._busy, *pool._idle)]
        await pool.close()
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert all(isinstance(result, Refusal) for result in results), results
        for process in processes:
            assert process is not None
            await process.wait()

    using(doing)


def test_a_pool_that_is_closed_ends_its_idle_processes() -> None:
    async def doing(pool: DecisionPool) -> None:
        assert await codes(pool, source({"response_contains": "fine"}), "fine") == [("pass", None)]
        (worker,) = pool._idle
        await pool.close()
        assert not worker.process.is_running

    using(doing)


# --- fair queue -------------------------------------------------------------------------------------------------------


def order(places: int, arrivals: Sequence[tuple[str, str, float]]) -> list[str]:
    """In which order requests have their turn that all came while everything was taken: tenant, caller, how long each takes."""

    async def whole() -> list[str]:
        turns = FairQueue(places)
        taken = [turns.acquire((f"busy {number}", "")) for number in range(places)]
        waiting = [(f"{tenant}/{caller}", turns.acquire((tenant, caller)), seconds) for tenant, caller, seconds in arrivals]
        served: list[str] = []
        for place in taken:
            turns.release(place, 0.0)
            while any(each.granted.done() for _, each, _ in waiting):
                name, each, seconds = next(entry for entry in waiting if entry[1].granted.done())
                waiting.remove((name, each, seconds))
                served.append(name)
                turns.release(each, seconds)
        assert not waiting and not turns._waiting and not turns._busy and turns._free == places
        return served

    return asyncio.run(whole())


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ([("a", "x", 1.0)] * 3 + [("b", "x", 1.0)] * 2, "a/x b/x a/x b/x a/x"),
        ([("a", "x", 3.0)] * 3 + [("b", "x", 1.0)] * 3, "a/x b/x b/x b/x a/x a/x"),
        ([("a", "x", 1.0)] * 3 + [("a", "y", 1.0)] * 2, "a/x a/y a/x a/y a/x"),
        ([("a", "x", 1.0)] * 4 + [("a", "y", 1.0)] + [("b", "z", 1.0)], "a/x b/z a/y a/x a/x a/x"),
    ],
    ids=["tenants by turns", "by what they use", "callers by turns", "both"],
)
def test_the_tenant_that_used_least_is_next(arrivals: list[tuple[str, str, float]], expected: str) -> None:
    assert order(1, arrivals) == expected.split()


async def test_a_tenant_alone_has_all_processes_and_others_wait_for_none_of_them() -> None:
    turns = FairQueue(4)
    flood = [turns.acquire(("a", "x")) for _ in range(10)]
    assert [place.granted.done() for place in flood] == [True] * 4 + [False] * 6
    assert turns.acquire(("b", "x")).granted.done(), "at once, even during a flood: two of the four are borrowed"
    assert turns.acquire(("c", "x")).granted.done()
    last = turns.acquire(("d", "x"))
    assert not last.granted.done()
    turns.release(flood[0], 5.0)
    assert not last.granted.done(), "what was lent twice is given back first"
    turns.release(flood[1], 5.0)
    turns.release(flood[2], 5.0)
    assert last.granted.done() and not flood[4].granted.done(), "its share is used up while others wait"


async def test_one_that_was_cancelled_and_has_not_left_yet_is_passed_over() -> None:
    turns = FairQueue(1)
    first, gone, next_one = (turns.acquire(("a", caller)) for caller in ("x", "y", "z"))
    # As a task that is cancelled: its future is at once, and the task itself leaves the queue when it runs again.
    gone.granted.cancel()
    turns.release(first, 1.0)
    assert next_one.granted.done() and gone.granted.cancelled()
    turns.release(gone, 0.0)
    turns.release(next_one, 1.0)
    assert not turns._waiting and not turns._busy and turns._free == 1


async def test_several_of_a_tenant_that_are_cancelled_at_once_leave_one_after_the_other() -> None:
    turns = FairQueue(1)
    first = turns.acquire(("a", "x"))
    gone = [turns.acquire(("b", caller)) for caller in ("y", "z")]
    for place in gone:
        place.granted.cancel()
    turns.release(first, 1.0)
    for place in gone:
        turns.release(place, 0.0)
    assert not turns._waiting and not turns._busy and turns._free == 1


async def test_one_that_comes_late_has_saved_nothing_up() -> None:
    turns = FairQueue(1)
    for _ in range(5):
        turns.release(turns.acquire(("old", "x")), 10.0)
    first = turns.acquire(("old", "x"))
    waiting = [turns.acquire(("new", "x")), turns.acquire(("old", "x")), turns.acquire(("new", "x"))]
    turns.release(first, 1.0)
    assert waiting[0].granted.done()
    turns.release(waiting[0], 30.0)
    assert waiting[1].granted.done(), "what it did not use before counts for nothing"
    turns.release(waiting[1], 1.0)
    turns.release(waiting[2], 1.0)


async def test_a_tenant_with_too_many_requests_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "MOST_WAITING", 2)
    turns = FairQueue(1)
    for _ in range(3):
        turns.acquire(("a", "x"))
    with pytest.raises(Refusal, match="2 requests are already waiting"):
        turns.acquire(("a", "y"))
    turns.acquire(("b", "x"))


async def test_a_place_in_the_queue_is_given_back() -> None:
    turns = FairQueue(1)
    first, second, third = (turns.acquire(("a", "x")) for _ in range(3))
    turns.release(second, 0.0)
    turns.release(first, 0.0)
    assert third.granted.done() and second.granted.cancelled()


# --- one slice at a time, and only while a caller waits ---------------------------------------------------------------


def test_a_job_begins_no_further_record_when_its_slice_is_over() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.3
        return now

    suite = source({"response_contains": "fine"})
    works = [CaseWork(suite=suite.make_key, evidence=pack_plain(evidence("fine")), asks=[CaseAsk(position=0, id="a")])] * 5
    answers: list[Answer] = list(CaseDecider(clock=clock).answer_job(Job(works=works, suites={suite.make_key: suite})))
    assert answers[0].steps and answers[-1].undone and not answers[0].undone


async def test_work_is_given_up_when_the_client_leaves() -> None:
    ended = asyncio.Event()

    async def work() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "done"

    async def leaves() -> None:
        await asyncio.sleep(0.01)

    async def quick() -> str:
        return "done"

    assert await run_while_client_waits(quick()) == "done"
    token = CLIENT_LEAVES.set(leaves)
    try:
        assert await run_while_client_waits(quick()) == "done"
        began = time.monotonic()
        with pytest.raises(Refusal, check=lambda error: error.code == "BAD_REQUEST"):
            await run_while_client_waits(work())
    finally:
        CLIENT_LEAVES.reset(token)
    assert ended.is_set() and time.monotonic() - began < 10
