"""The order of evaluation: agents in turn, slow ones last; a trace that kills its worker is retried in a small batch, alone, then never."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from proctor.errors import StoreError
from proctor.judge.scripted import ScriptedJudge
from proctor.service.access import agents
from proctor.service.access.callers import LOCAL
from proctor.service.decisions import child_process, trace_verdicts
from proctor.service.decisions.process import _make_time_limit
from proctor.service.decisions.trace_process import CannotStart, PairDecider, ProcessDecider, ThreadDecider
from proctor.service.decisions.trace_verdicts import Batch, CaseText, Decision, OutOfTime, Task, TraceDecider
from proctor.service.hub import Hub
from proctor.service.traces import cases, evaluation_leases
from proctor.service.traces import evaluator as evaluating
from proctor.service.traces import evaluator as evaluation
from proctor.service.traces.cases import NewCase
from proctor.service.traces.evaluator import Evaluator, JudgeTurns, ResultWriter, evaluate_all
from proctor.service.traces.reevaluation import Reevaluation, request_reevaluation
from proctor.store.sql.compressed_json import pack, unpack
from proctor.store.sql.tables import traces
from proctor.store.traces.trace_work import FinishedTrace, find_next_due, lease_abandoned, lease_batch, list_leased
from tests.databases import TestDatabase
from tests.service.trace_world import SUITE, Clock, post, result_rows, trace_rows, world
from tests.service.traces.test_evaluating import ANSWER, JUDGED, turn

DEADLY = """
import os
from proctor.service.decisions import process as deciding_process, trace_verdicts
read = trace_verdicts.read_evidence
def deadly(pieces, path, declared=None, parts=None):
    evidence = read(pieces, path, declared, parts)
    if "DEADLY" in (evidence.text or ""):
        os._exit(9)
    return evidence
trace_verdicts.read_evidence = deadly
deciding_process.main()
"""
"""A process that decides, and dies of some traces."""


async def another_agent(hub: Hub, project: str, name: str) -> str:
    return str((await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project, name=name)))["id"])


async def traces_of(hub: Hub, agent: str, count: int, text: str = "Refund") -> list[str]:
    body = {"data": {"text": text}, "metadata": {"http_status": 200}, "platformId": agent}
    return [(await post(hub, body)).id for _ in range(count)]


def test_every_agent_has_its_turn_however_much_another_one_has_waiting(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        project, busy = await world(hub)
        await traces_of(hub, busy, 20)
        clock.now += 1
        quiet = await another_agent(hub, project, "quiet")
        await traces_of(hub, quiet, 2)
        async with hub.database.writing() as connection:
            taken = [agent for _, agent in await lease_batch(connection, turn("one", clock, 6))]
        assert len(taken) == 6 and taken.count(quiet) == 2
        assert set(taken[:2]) == {busy, quiet}, "one by one"
        async with hub.database.writing() as connection:
            assert len(await lease_batch(connection, turn("two", clock, 100))) == 16
            assert await lease_batch(connection, turn("two", clock, 100)) == []

    database.run_hub(use, clock=clock)


def test_agents_left_out_of_a_batch_are_next(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        project, first = await world(hub)
        others = [await another_agent(hub, project, str(number)) for number in range(4)]
        for agent in (first, *others):
            await traces_of(hub, agent, 3)
        seen: list[str] = []
        after = ""
        async with hub.database.writing() as connection:
            for _ in range(3):
                seen += [agent for _, agent in await lease_batch(connection, turn("one", clock, 2, after=after))]
                after = seen[-1]
            assert set(seen) == {first, *others}
            left = await lease_batch(connection, turn("one", clock, 100, without=frozenset(others)))
            assert {agent for _, agent in left} == {first}

    database.run_hub(use, clock=clock)


def test_large_traces_of_one_agent_leave_space_for_others(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        project, large = await world(hub)
        small = await another_agent(hub, project, "small")
        await traces_of(hub, large, 10)
        await traces_of(hub, small, 2)
        async with hub.database.writing() as connection:
            await connection.execute(sa.update(traces).where(traces.c.agent_id == large).values(size=1_000_000))
            taken = [agent for _, agent in await lease_batch(connection, turn("one", clock, 100, most_bytes=4_000_000))]
        assert taken.count(small) == 2 and 2 <= taken.count(large) <= 4

    database.run_hub(use, clock=clock)


def test_traces_of_a_dead_worker_are_retried_in_a_small_batch_then_alone_then_abandoned(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        _, agent = await world(hub)
        ids = await traces_of(hub, agent, 10)
        async with hub.database.writing() as connection:
            assert len(await lease_batch(connection, turn("dies", clock, 100))) == 10
        clock.now += 31
        async with hub.database.writing() as connection:
            assert await lease_batch(connection, turn("other", clock, 100)) == [], "traces of a lost batch are not leased at once"
            few = await lease_abandoned(connection, turn("dies too", clock), 4)
            assert [row["attempts"] for row in await list_leased(connection, "dies too", few)] == [1] * 4
        clock.now += 31
        async with hub.database.reading() as connection:
            due = await find_next_due(connection, clock.now)
        assert due is not None and due <= clock.now
        for attempts in (2, 3):
            async with hub.database.writing() as connection:
                await connection.execute(sa.update(traces).where(traces.c.id != few[0]).values(leased_until=None, lease_owner=None))
                alone = await list_leased(connection, "again", await lease_abandoned(connection, turn("again", clock), 4))
            assert [(row["id"], row["attempts"]) for row in alone] == [(few[0], attempts)]
            clock.now += 31
        assert await evaluate_all(hub) == 10
        rows = {row["id"]: row for row in await trace_rows(hub)}
        failed = rows.pop(few[0])
        assert (failed["status"], failed["attempts"], failed["due_at"]) == ("failed", 0, None)
        assert failed["error"].startswith("evaluation_crashed: its evaluation was interrupted 4 times")
        assert set(rows) < set(ids) and {(row["status"], row["attempts"]) for row in rows.values()} == {("evaluated", 0)}
        await request_reevaluation(hub, LOCAL, Reevaluation(trace_ids=[few[0]]))
        assert await evaluate_all(hub) == 1
        assert {row["status"] for row in await trace_rows(hub)} == {"evaluated"}

    database.run_hub(use, clock=clock)


async def test_a_trace_that_ends_its_process_is_given_up_and_takes_no_other_along(hub: Hub) -> None:
    _, agent = await world(hub)
    await traces_of(hub, agent, 5)
    (deadly,) = await traces_of(hub, agent, 1, "DEADLY")
    await traces_of(hub, agent, 30)
    steps = 0
    async with Evaluator.open(hub, ProcessDecider(command=(sys.executable, "-c", DEADLY))) as evaluator:
        while await evaluator.evaluate_batch():
            steps += 1
            assert steps < 20, "without end"
    rows = {row["id"]: row for row in await trace_rows(hub)}
    gone = rows.pop(deadly)
    assert gone["status"] == "failed" and gone["error"].startswith("evaluation_crashed: ") and gone["due_at"] is None
    assert {(row["status"], row["outcome"]) for row in rows.values()} == {("evaluated", "pass")}
    assert len(await result_rows(hub)) == 35


async def test_a_process_decides_as_a_thread_does(hub: Hub) -> None:
    project, agent = await world(hub)
    await cases.create_case(
        hub, LOCAL, NewCase(project_id=project, document=SUITE.replace("refund", "own"), when={"metadata": {"big": 2**70}})
    )
    await traces_of(hub, agent, 3)
    await traces_of(hub, agent, 2, "No \ud83d.")
    await post(hub, {**ANSWER, "metadata": {"big": 2**70}, "platformId": agent})
    found: list[Any] = []
    for decider in (ProcessDecider(), ThreadDecider()):
        await request_reevaluation(hub, LOCAL, Reevaluation())
        async with Evaluator.open(hub, decider) as evaluator:
            while await evaluator.evaluate_batch():
                pass
        rows = sorted(await result_rows(hub), key=lambda row: (row["trace_id"], row["case_key"]))
        found.append([(row["trace_id"], row["case_key"], row["outcome"], row["code"], unpack(row["body"])) for row in rows])
    assert found[0] == found[1] and len(found[0]) == 7


async def test_without_a_process_a_thread_decides(hub: Hub) -> None:
    _, agent = await world(hub)
    await traces_of(hub, agent, 3)
    for command in (("/nowhere/python",), (sys.executable, "-c", "pass"), (sys.executable, "-c", "print('something else')")):
        with pytest.raises(CannotStart):
            await ProcessDecider(command=command).decide(Batch(cases=b"[]", tasks=[]), {})
    async with Evaluator.open(hub, ProcessDecider(command=("/nowhere/python",))) as evaluator:
        assert await evaluator.evaluate_batch() == 3
    assert {row["outcome"] for row in await trace_rows(hub)} == {"pass"}


WAITS = """
import sys, time
from pathlib import Path
from proctor.service.decisions import trace_verdicts
from proctor.service.decisions.process import main

inner = trace_verdicts.TraceDecider._decide_task
def decide(self, task, cases):
    own, other = Path(sys.argv[-1], task.id), Path(sys.argv[-1], {"a": "b", "b": "a"}.get(task.id, task.id))
    own.touch()
    while not other.exists():
        time.sleep(0.01)
    return inner(self, task, cases)
trace_verdicts.TraceDecider._decide_task = decide
main()
"""
"""Decides the traces `a` and `b` only while both are being decided."""


async def test_two_batches_are_decided_at_once_and_an_idle_second_process_ends(tmp_path: Path) -> None:
    deciders = [ProcessDecider(command=(sys.executable, "-c", WAITS, str(tmp_path))) for _ in range(2)]
    pair = PairDecider(*deciders, idle_s=0.05)
    assert not pair.was_ready
    batches = [Batch(cases=b"[]", tasks=[task(id=id)]) for id in "ab"]
    async with asyncio.timeout(30):
        found = await asyncio.gather(*(pair.decide(batch, {}) for batch in batches))
        assert [len(decisions) for decisions in found] == [1, 1] and pair.was_ready
        first, second = (decider._process for decider in deciders)  # pyright: ignore[reportPrivateUsage]
        assert first is not None and second is not None and first is not second
        while second.is_running:
            await asyncio.sleep(0.01)
        # One batch at a time needs no second process.
        assert len(await pair.decide(Batch(cases=b"[]", tasks=[task(id="c")]), {})) == 1
        assert first.is_running and deciders[1]._process is None  # pyright: ignore[reportPrivateUsage]
        await pair.close()
        assert not first.is_running


async def test_a_process_that_dies_takes_nothing_of_the_other_batch_along() -> None:
    pair = PairDecider(*(ProcessDecider(command=(sys.executable, "-c", DEADLY)) for _ in range(2)))
    deadly = task(id="b", pieces=[pack({"data": {"text": "DEADLY"}})])
    batches = [Batch(cases=b"[]", tasks=tasks) for tasks in ([task(id="a"), deadly, task(id="c")], [task(id="d")] * 20)]
    async with asyncio.timeout(30):
        found = await asyncio.gather(*(pair.decide(batch, {}) for batch in batches))
    assert [len(decisions) for decisions in found] == [1, 20]
    await pair.close()


async def test_decisions_of_a_long_batch_are_taken_up_together_and_the_deadly_trace_is_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rests: list[float] = []
    gather = child_process.ChildProcess.wait_for_frames

    async def count_rest(self: child_process.ChildProcess, seconds: float) -> None:
        rests.append(seconds)
        await gather(self, seconds)

    monkeypatch.setattr(child_process.ChildProcess, "wait_for_frames", count_rest)
    decider = ProcessDecider(command=(sys.executable, "-c", DEADLY))
    spans = [{"id": "1", "attributes": {"openinference.span.kind": "AGENT", "input.value": f"question {number}"}} for number in range(120)]
    whole = [task(pieces=[pack([{"resource": {}, "spans": [span]}])]) for span in spans]
    deadly = task(id="b", pieces=[pack({"data": {"text": "DEADLY"}})])
    async with asyncio.timeout(30):
        found = await decider.decide(Batch(cases=b"[]", tasks=whole), {})
        assert [decision.input_text for decision in found] == [f"question {number}" for number in range(120)]
        assert rests
        assert len(await decider.decide(Batch(cases=b"[]", tasks=[*whole[:70], deadly, *whole[70:]]), {})) == 70
        assert [record.__dict__["exit_code"] for record in caplog.records if record.name == "proctor.serve"] == [9]
    await decider.close()


def test_a_stalled_process_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = (sys.executable, "-c", f"import time; time_sleep = time.sleep\n{DEADLY.replace('os._exit(9)', 'time_sleep(60)')}")

    async def use() -> None:
        decider = ProcessDecider(command=stuck, stall_s=1.0)
        tasks = [task(id="a"), task(id="b", pieces=[pack({"data": {"text": "DEADLY"}})]), task(id="c")]
        assert len(await decider.decide(Batch(cases=b"[]", tasks=tasks), {})) == 1
        assert len(await decider.decide(Batch(cases=b"[]", tasks=tasks[:1]), {})) == 1, "a new one"
        await decider.close()

    asyncio.run(asyncio.wait_for(use(), 30))


def test_the_process_sees_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PROCTOR_SECRET_KEY", "secret")
    assert "secret" not in " ".join(child_process.make_child_environment().values())


def task(*, id: str = "t", agent: str = "a", pieces: Sequence[bytes] = (), wanted: Sequence[int] = ()) -> Task:
    found = pieces or [pack({"data": {"text": "a" * 40}})]
    return Task(id=id, agent_id=agent, created_at="2031-01-01T00:00:00Z", response_path=None, metadata=None, pieces=found, cases=wanted)


def test_an_agent_that_used_up_its_time_waits_for_the_next_batch_and_the_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def slow(pieces: Sequence[bytes], path: str | None, declared: Any = None, parts: Any = None) -> Any:
        nonlocal now
        now += 1.5 if pieces == [b"slow"] else 0.001
        return read([pack({"data": {"text": "x"}})], path, declared)

    read = trace_verdicts.read_evidence
    monkeypatch.setattr(trace_verdicts, "read_evidence", slow)
    tasks = [one for _ in range(5) for one in (task(agent="slow", pieces=[b"slow"]), task(agent="quick"))]
    decided = list(TraceDecider(clock=lambda: now).decide(Batch(cases=b"[]", tasks=tasks)))
    assert [one.undone for one in decided[0::2]] == [False, False, True, True, True]
    assert not any(one.undone for one in decided[1::2])
    many = [task(agent=str(number), pieces=[b"slow"]) for number in range(20)]
    done = [not one.undone for one in TraceDecider(clock=lambda: now).decide(Batch(cases=b"[]", tasks=many))]
    assert 1 <= sum(done) <= 8 and done == sorted(done, reverse=True), "the batch has an end, too"


class Tiresome:
    """Hands back everything of some agents, as if they had used up their time, but for the first."""

    places = 1

    def __init__(self, *agents: str) -> None:
        self._agents = agents
        self._inner = ThreadDecider()
        self.batches: list[list[str]] = []

    async def decide(self, batch: Batch, texts: Any) -> list[Decision]:
        self.batches.append([one.agent_id for one in batch.tasks])
        found = await self._inner.decide(batch, texts)
        return [Decision(undone=True) if place and one.agent_id in self._agents else found[place] for place, one in enumerate(batch.tasks)]

    async def close(self) -> None:
        await self._inner.close()


def test_a_slow_agent_rests_while_others_have_work_and_loses_nothing(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_leases, "BATCH_TRACES", 4)
    clock = Clock()

    async def use(hub: Hub) -> None:
        project, slow = await world(hub)
        quick = await another_agent(hub, project, "quick")
        await traces_of(hub, slow, 3)
        await traces_of(hub, quick, 6)
        tiresome = Tiresome(slow)
        inner = tiresome.decide

        async def takes_long(batch: Batch, texts: Any) -> list[Decision]:
            clock.now += 100
            return await inner(batch, texts)

        monkeypatch.setattr(tiresome, "decide", takes_long)
        async with Evaluator.open(hub, tiresome) as evaluator:
            while await evaluator.evaluate_batch():
                pass
        assert set(tiresome.batches[0]) == {slow, quick} and set(tiresome.batches[1]) == {quick}
        assert {(row["status"], row["attempts"]) for row in await trace_rows(hub)} == {("evaluated", 0)}

    database.run_hub(use, clock=clock)


@pytest.fixture
def alarm() -> Iterator[Any]:
    import signal

    before = signal.getsignal(signal.SIGVTALRM)
    yield _make_time_limit()
    signal.signal(signal.SIGVTALRM, before)


def test_an_alarm_ends_what_takes_too_long_and_nothing_else(alarm: Any) -> None:
    with pytest.raises(OutOfTime), alarm(0.05):
        while True:
            pass
    with alarm(0.05):
        time.sleep(0.1)
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass


def test_a_case_of_slow_patterns_is_an_error_and_the_others_are_decided(alarm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_verdicts, "CASE_S", 0.3)
    slow = "proctor: 1\ncases:\n  - id: slow\n    expect:\n" + "".join(f"      - response_matches: '(a+)+{n}$'\n" for n in range(40))
    good = "proctor: 1\ncases:\n  - id: good\n    expect:\n      - response_contains: aaa\n"
    texts = [CaseText(id=name, version=1, name=name, text=text, dialect="native") for name, text in (("slow", slow), ("good", good))]
    known = [{"id": text.id, "version": 1, "project_id": "p", "agent_id": None, "name": "", "when": None, "sample": 1.0} for text in texts]
    import msgspec

    batch = Batch(cases=msgspec.json.encode(known), tasks=[task(wanted=[0, 1])], texts=texts)
    started = time.process_time()
    (decision,) = TraceDecider(limit=alarm).decide(batch)
    assert time.process_time() - started < 4, "forty of them would take ten seconds"
    assert [(one.key, one.outcome, one.code) for one in decision.findings] == [("slow", "error", "time_limit"), ("good", "pass", None)]
    body: Any = unpack(decision.findings[0].body)
    assert body["code"] == "time_limit" and len(body["assertions"]) == 40


async def test_the_judge_is_called_for_every_agent_in_turn() -> None:
    order: list[str] = []

    async def work(name: str) -> None:
        await asyncio.sleep(0)
        order.append(name)

    turns: JudgeTurns[str] = JudgeTurns(1, work)
    for number in range(4):
        turns.add("a", f"a{number}")
    turns.add("b", "b0")
    assert turns.list_full_agents(4) == {"a"} and turns.list_full_agents(5) == frozenset()
    await turns.wait_until_idle()
    assert order == ["a0", "b0", "a1", "a2", "a3"] or order == ["a0", "a1", "b0", "a2", "a3"]
    assert turns.is_idle


async def test_traces_that_wait_for_the_judge_hold_up_no_other_agent(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr(evaluation, "MAX_WAITING_PER_AGENT", 3)
    go_on = asyncio.Event()

    class Slow(ScriptedJudge):
        async def judge(self, *questions: Any, **more: Any) -> Any:
            await go_on.wait()
            return await super().judge(*questions, **more)

    project, judged = await world(hub, suite=None)
    await cases.create_case(hub, LOCAL, NewCase(project_id=project, agent_id=judged, document=JUDGED))
    other = await another_agent(hub, project, "other")
    await cases.create_case(hub, LOCAL, NewCase(project_id=project, agent_id=other, document=SUITE))
    await traces_of(hub, judged, 8)
    async with Evaluator.open(hub, ThreadDecider(), judge=Slow(lambda question: 1.0)) as evaluator:
        assert await evaluator.evaluate_batch() == 8
        await traces_of(hub, judged, 5)
        await traces_of(hub, other, 4)
        assert await evaluator.evaluate_batch() == 4, "no more of the one that waits for the judge"
        states = {(row["agent_id"], row["status"]) for row in await trace_rows(hub)}
        assert states == {(judged, "complete"), (other, "evaluated")}
        go_on.set()
        await evaluator.turns.wait_until_idle()
        while await evaluator.evaluate_batch():
            await evaluator.turns.wait_until_idle()
    assert {row["status"] for row in await trace_rows(hub)} == {"evaluated"}


def test_a_batch_whose_cases_cannot_be_read_is_given_back(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(*arguments: Any) -> Any:
        raise StoreError("the database cannot be used")

    async def use(hub: Hub) -> None:
        _, agent = await world(hub)
        await traces_of(hub, agent, 3)
        async with Evaluator.open(hub, ThreadDecider()) as evaluator:
            with monkeypatch.context() as patch:
                patch.setattr(evaluation_leases, "list_active_cases", gone)
                with pytest.raises(StoreError):
                    await evaluator.evaluate_batch()
            assert not evaluator.leases.held and {row["lease_owner"] for row in await trace_rows(hub)} == {None}
            assert await evaluator.evaluate_batch() == 3

    database.run_hub(use)


GARBAGE = """
import os, sys
from proctor.service.decisions.process import READY, make_frame
os.write(1, make_frame(READY))
sys.stdin.buffer.read(10)
os.write(1, make_frame(b"\\xc1 no message"))
sys.stdin.buffer.read()
"""


async def test_a_process_that_answers_nonsense_counts_as_ended(hub: Hub) -> None:
    _, agent = await world(hub)
    await traces_of(hub, agent, 1)
    async with Evaluator.open(hub, ProcessDecider(command=(sys.executable, "-c", GARBAGE))) as evaluator:
        assert await evaluator.evaluate_batch() == 1
    (row,) = await trace_rows(hub)
    assert (row["status"], row["lease_owner"], row["leased_until"]) == ("complete", None, 0.0), "it is tried again, and counted"


def test_a_bug_while_evaluating_is_counted_and_stops_no_other_trace(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    class Buggy(ThreadDecider):
        async def decide(self, batch: Any, texts: Any) -> list[Decision]:
            raise KeyError("a bug")

    async def use(hub: Hub) -> None:
        _, agent = await world(hub)
        await traces_of(hub, agent, 2)
        async with Evaluator.open(hub, Buggy()) as evaluator:
            for _ in range(10):
                await evaluator.evaluate_batch()
                clock.now += 1
        assert {(row["status"], (row["error"] or "").partition(":")[0]) for row in await trace_rows(hub)} == {
            ("failed", "evaluation_crashed")
        }
        await request_reevaluation(hub, LOCAL, Reevaluation())
        await evaluate_all(hub)
        assert {row["status"] for row in await trace_rows(hub)} == {"evaluated"}

    database.run_hub(use, clock=clock)


async def test_a_lost_process_is_replaced(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr(evaluation, "START_AGAIN_S", 0.01)
    started: list[int] = []

    class Sometimes(ProcessDecider):
        async def _get_process(self) -> Any:
            started.append(1)
            if len(started) == 2:
                raise CannotStart("no capacity now")
            return await super()._get_process()

    _, agent = await world(hub)
    decider = Sometimes()
    async with Evaluator.open(hub, decider) as evaluator:
        for _ in range(3):
            await traces_of(hub, agent, 1)
            await evaluator.evaluate_batch()
        await evaluator.evaluate_batch()
        assert evaluator._decider is decider  # pyright: ignore[reportPrivateUsage]
    assert {row["status"] for row in await trace_rows(hub)} == {"evaluated"}


async def test_a_trace_that_was_with_the_judge_when_the_service_stopped_is_given_back_at_once(hub: Hub) -> None:
    called = asyncio.Event()

    class Silent(ScriptedJudge):
        async def judge(self, *questions: Any, **more: Any) -> Any:
            called.set()
            await asyncio.Event().wait()

    project, agent = await world(hub, suite=None)
    await cases.create_case(hub, LOCAL, NewCase(project_id=project, agent_id=agent, document=JUDGED))
    await traces_of(hub, agent, 1)
    async with Evaluator.open(hub, ThreadDecider(), judge=Silent([])) as evaluator:
        assert await evaluator.evaluate_batch() == 1
        await called.wait()
    [row] = await trace_rows(hub)
    assert (row["leased_until"] or 0.0) == 0.0 and row["attempts"] == 0
    assert await evaluate_all(hub, judge=ScriptedJudge(lambda question: 1.0)) == 1


async def test_a_returned_trace_is_leased_again_while_its_batch_continues(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr(evaluation, "START_AGAIN_S", 0.3)
    calls = 0

    class Once(ThreadDecider):
        was_ready = True
        places = 2

        async def decide(self, batch: Any, texts: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise CannotStart("no capacity now")
            return await super().decide(batch, texts)

    _, agent = await world(hub)
    await traces_of(hub, agent, 1)
    async with Evaluator.open(hub, Once()) as evaluator:
        assert await evaluator.start_batch() == 1
        while not calls or (await trace_rows(hub))[0]["leased_until"]:
            await asyncio.sleep(0.01)
        # The first batch still waits before it tries to start a process again.
        assert evaluator._under_way and await evaluator.start_batch() == 1  # pyright: ignore[reportPrivateUsage]
        await evaluator.wait_until_written(5.0)
        assert not evaluator.leases.held
    assert [(row["status"], row["attempts"]) for row in await trace_rows(hub)] == [("evaluated", 0)]


@pytest.mark.parametrize("document", [SUITE, JUDGED], ids=["decided", "judged"])
async def test_a_trace_due_again_right_after_its_result_is_leased_at_once(monkeypatch: pytest.MonkeyPatch, hub: Hub, document: str) -> None:
    finish = ResultWriter.finish
    taken: list[int] = []

    async def finish_and_ask_again(self: ResultWriter, *jobs: Any) -> None:
        await finish(self, *jobs)
        if jobs[0] and not taken:
            # Its batch, or its judge, has not continued yet.
            await request_reevaluation(hub, LOCAL, Reevaluation())
            taken.append(await evaluator.start_batch())

    monkeypatch.setattr(ResultWriter, "finish", finish_and_ask_again)
    project, agent = await world(hub, suite=None)
    await cases.create_case(hub, LOCAL, NewCase(project_id=project, document=document))
    await traces_of(hub, agent, 1)
    async with Evaluator.open(hub, ThreadDecider(), judge=ScriptedJudge(lambda question: 1.0)) as evaluator:
        assert await evaluator.start_batch() == 1
        for _ in range(2):
            await evaluator.wait_until_written(5.0)
            await evaluator.turns.wait_until_idle()
        assert taken == [1] and not evaluator.leases.held
    assert [(row["status"], row["attempts"], row["due_at"]) for row in await trace_rows(hub)] == [("evaluated", 0, None)]


async def test_a_trace_written_before_the_database_went_away_is_left_to_its_new_lease(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    finish_traces = evaluating.finish_traces
    written: list[str] = []

    async def refuse_some(connection: Any, *, owner: str, done: Sequence[FinishedTrace], found: Any) -> int:
        if len(done) > 1:
            raise IntegrityError("INSERT", {}, Exception("one of them is refused"))
        if written:
            raise StoreError("the database is away")
        written.append(done[0].row["id"])
        return await finish_traces(connection, owner=owner, done=done, found=found)

    monkeypatch.setattr(evaluating, "finish_traces", refuse_some)
    _, agent = await world(hub)
    await traces_of(hub, agent, 2)
    given: list[Sequence[str]] = []
    async with Evaluator.open(hub, ThreadDecider()) as evaluator:
        give_back = evaluator.leases.give_back
        monkeypatch.setattr(evaluator.leases, "give_back", lambda ids: given.append(sorted(ids)) or give_back(ids))
        with pytest.raises(StoreError):
            await evaluator.evaluate_batch()
        assert given[-1] == [row["id"] for row in await trace_rows(hub) if row["id"] not in written]
        assert not evaluator.leases.held


async def test_a_turn_that_is_just_ending_leaves_nothing_waiting() -> None:
    done: list[int] = []

    async def work(item: int) -> None:
        done.append(item)
        if item < 3:
            # Added by a callback in the same loop iteration in which the worker finds no more work.
            asyncio.get_running_loop().call_soon(turns.add, "a", item + 1)

    turns: JudgeTurns[int] = JudgeTurns(1, work)
    turns.add("a", 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert done == [1, 2, 3] and turns.is_idle
