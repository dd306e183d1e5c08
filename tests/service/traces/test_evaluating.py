"""Passive evaluation: which traces against which cases, once each, whatever happens."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from proctor.errors import StoreError
from proctor.judge.scripted import ScriptedJudge
from proctor.service.access import agents
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.decisions import trace_evidence
from proctor.service.decisions.trace_process import ThreadDecider
from proctor.service.decisions.trace_verdicts import ActiveCase, is_selected
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.traces import cases, evaluation_leases, evaluator
from proctor.service.traces import evaluator as evaluation
from proctor.service.traces.cases import NewCase
from proctor.service.traces.evaluator import Evaluator, evaluate_all, evaluate_traces
from proctor.service.traces.reevaluation import Reevaluation, request_reevaluation
from proctor.service.traces.search import get_trace
from proctor.store.sql.compressed_json import pack, unpack
from proctor.store.sql.database import open_database
from proctor.store.sql.tables import cases as case_table
from proctor.store.sql.tables import traces
from proctor.store.traces.trace_work import BatchRequest, finish_traces, lease_batch
from tests.builders import evidence
from tests.databases import TestDatabase
from tests.service.trace_world import SUITE, Clock, new_trace, post, request, result_rows, root, send, span, trace_rows, world

ANSWER = {
    "spans": [{"span_id": "a", "name": "flow", "attributes": {"gen_ai.response.text": "Refund done", "http.response.status_code": 200}}]
}
JUDGED = """\
proctor: 1
cases:
  - id: polite
    expect:
      - judged: the answer is polite
"""


def turn(owner: str, clock: Clock, limit: int = 10, **more: Any) -> BatchRequest:
    return BatchRequest(owner=owner, now=clock.now, until=clock.now + 30, limit=limit, **{"most_bytes": 10**9, **more})


async def test_a_complete_trace_is_evaluated_against_every_active_case_of_its_agent(hub: Hub) -> None:
    project, agent = await world(hub)
    other = (await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project, name="other")))["id"]
    own = await cases.create_case(hub, LOCAL, NewCase(project_id=project, agent_id=agent, document=SUITE.replace("refund", "own")))
    await cases.create_case(hub, LOCAL, NewCase(project_id=project, agent_id=other, document=SUITE.replace("refund", "theirs")))
    await cases.create_case(hub, LOCAL, NewCase(project_id=project, document=SUITE.replace("refund", "paused"), active=False))
    good = await post(hub, {**ANSWER, "platformId": agent})
    bad = await post(hub, {"data": {"text": "No."}, "metadata": {"http_status": 500}, "platformId": agent})
    assert await evaluate_all(hub) == 2
    rows = {row["id"]: row for row in await trace_rows(hub)}
    assert (rows[good.id]["status"], rows[good.id]["outcome"], rows[good.id]["due_at"]) == ("evaluated", "pass", None)
    assert (rows[bad.id]["status"], rows[bad.id]["outcome"]) == ("evaluated", "fail")
    found = await result_rows(hub)
    assert sorted((row["trace_id"] == good.id, row["case_key"], row["outcome"]) for row in found) == [
        (False, "own", "fail"), (False, "refund", "fail"), (True, "own", "pass"), (True, "refund", "pass"),
    ]  # fmt: skip
    body: Any = unpack(next(row["body"] for row in found if row["case_id"] == own["id"] and row["outcome"] == "fail"))
    assert [entry["outcome"] for entry in body["assertions"]] == ["fail", "fail"]
    assert await evaluate_all(hub) == 0


def test_late_spans_are_evaluated_again_and_replace_the_result(database: TestDatabase) -> None:
    clock, trace = Clock(), new_trace()

    async def use(hub: Hub) -> None:
        await world(hub)
        await send(hub, request(root(trace, text="No.")))
        assert await evaluate_all(hub) == 0, "the quiet period is not over"
        clock.now += 10
        assert await evaluate_all(hub) == 1
        (first,) = await result_rows(hub)
        assert (first["outcome"], first["trace_revision"]) == ("fail", 1)
        await send(hub, request(root(trace, text="Refund.")))
        clock.now += 10
        assert await evaluate_all(hub) == 1
        (second,) = await result_rows(hub)
        assert (second["id"], second["outcome"], second["trace_revision"]) == (first["id"], "pass", 2)

    database.run_hub(use, clock=clock)


def test_a_trace_whose_root_never_came_passes_no_claim_that_nothing_happened(database: TestDatabase) -> None:
    clock, suite = (
        Clock(),
        "proctor: 1\ncases:\n  - {id: silent, expect: [no_tools_called]}\n  - {id: says, expect: [response_contains: Done]}\n",
    )
    messages = '[{"role": "assistant", "parts": [{"type": "text", "content": "Done"}], "finish_reason": "stop"}]'
    chat = {"name": "chat m", "gen_ai__operation__name": "chat", "gen_ai__output__messages": messages}

    async def use(hub: Hub) -> None:
        await world(hub, suite=suite)
        await send(hub, request(span(new_trace(), "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa", **chat)))
        clock.now += 301
        assert await evaluate_all(hub) == 1
        found = {row["case_key"]: row for row in await result_rows(hub)}
        assert {key: row["outcome"] for key, row in found.items()} == {"silent": "error", "says": "pass"}
        body: Any = unpack(found["silent"]["body"])
        assert body["assertions"][0]["code"] == "missing_evidence"

    database.run_hub(use, clock=clock)


async def test_results_that_no_longer_apply_to_a_changed_trace_are_deleted(hub: Hub) -> None:
    project, agent = await world(hub, suite=None)
    await cases.create_case(hub, LOCAL, NewCase(project_id=project, document=SUITE, when={"metadata": {"env": "live"}}))
    await post(hub, {**ANSWER, "platformId": agent, "metadata": {"env": "live"}}, request_id="r")
    await evaluate_all(hub)
    assert len(await result_rows(hub)) == 1
    await post(hub, {**ANSWER, "platformId": agent, "metadata": {"env": "test"}}, request_id="r")
    await evaluate_all(hub)
    assert await result_rows(hub) == [] and (await trace_rows(hub))[0]["outcome"] is None


async def test_a_changed_case_applies_to_new_traces_and_on_request_to_old_ones(hub: Hub) -> None:
    project, agent = await world(hub, suite=None)
    case = await cases.create_case(hub, LOCAL, NewCase(project_id=project, document=SUITE))
    await post(hub, {**ANSWER, "platformId": agent})
    await evaluate_all(hub)
    await cases.update_case(hub, LOCAL, case["id"], {"document": SUITE.replace("Refund", "Sorry")})
    await evaluate_all(hub)
    assert [(row["case_version"], row["outcome"]) for row in await result_rows(hub)] == [(1, "pass")]
    assert await request_reevaluation(hub, LOCAL, Reevaluation(case_id=case["id"])) == {"traces": 1}
    await evaluate_all(hub)
    assert [(row["case_version"], row["outcome"]) for row in await result_rows(hub)] == [(1, "pass"), (2, "fail")]
    await request_reevaluation(hub, LOCAL, Reevaluation(agent_id=agent))
    await evaluate_all(hub)
    assert len(await result_rows(hub)) == 2, "again, and still one for each version"
    assert await request_reevaluation(hub, LOCAL, Reevaluation(until="2001-01-01T00:00:00Z")) == {"traces": 0}
    for caller, wanted, status in (
        (LOCAL, Reevaluation(case_id="case_nobody"), 404),
        (LOCAL, Reevaluation(agent_id="agent_nobody"), 404),
        (LOCAL, Reevaluation(project_id="proj_nobody"), 404),
        (Caller(organization_id="org_other"), Reevaluation(project_id=project), 404),
        (Caller(organization_id="org_other"), Reevaluation(agent_id=agent), 404),
        (Caller(organization_id=LOCAL.organization_id, kind="project", project_id=project), Reevaluation(), 403),
    ):
        with pytest.raises(Refusal) as caught:
            await request_reevaluation(hub, caller, wanted)
        assert caught.value.status == status
    assert await request_reevaluation(hub, Caller(organization_id="org_other"), Reevaluation()) == {"traces": 0}


async def test_a_narrowed_filter_of_a_case_applies_at_once(hub: Hub) -> None:
    project, agent = await world(hub, suite=None)
    case = await cases.create_case(hub, LOCAL, NewCase(project_id=project, document=SUITE, when={"metadata": {"env": "live"}}))

    async with Evaluator.open(hub, ThreadDecider()) as evaluator:

        async def evaluated(env: str) -> int:
            before = len(await result_rows(hub))
            await post(hub, {**ANSWER, "platformId": agent, "metadata": {"env": env}})
            await evaluator.evaluate_batch()
            return len(await result_rows(hub)) - before

        assert [await evaluated("live"), await evaluated("test")] == [1, 0]
        await cases.update_case(hub, LOCAL, case["id"], {"when": {"metadata": {"env": "test"}}})
        assert [await evaluated("live"), await evaluated("test")] == [0, 1]
        await cases.update_case(hub, LOCAL, case["id"], {"when": None, "sample": 0.0})
        assert [await evaluated("live"), await evaluated("test")] == [0, 0]


def test_traces_leased_by_another_worker_are_skipped(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        _, agent = await world(hub)
        await post(hub, {**ANSWER, "platformId": agent}, request_id="r")
        async with hub.database.writing() as connection:
            assert await lease_batch(connection, turn("other", clock, 5))
        async with Evaluator.open(hub, ThreadDecider()) as evaluator:
            assert not await evaluator.leases.has_due()
            assert await evaluator.get_idle_s() == evaluation.IDLE_S, "looks again later, not all the time"
            clock.now += 31
            assert await evaluator.leases.has_due()

    database.run_hub(use, clock=clock)


async def test_a_trace_that_is_large_once_it_is_opened_fails_and_the_others_are_evaluated(
    monkeypatch: pytest.MonkeyPatch, hub: Hub
) -> None:
    monkeypatch.setattr(trace_evidence, "LARGEST_EVIDENCE", 20_000)
    trace, other = new_trace(), new_trace()
    await world(hub)
    for number in range(5):
        padding = span(trace, f"{number + 1:016x}", "aaaaaaaaaaaaaaaa", text="x" * 5_000)
        (stored,) = await send(hub, request(root(trace), padding), flush=True)
    await send(hub, request(root(other)), flush=True)
    await evaluate_all(hub)
    rows = {row["external_id"]: row for row in await trace_rows(hub)}
    assert rows[trace]["size"] < 5_000, "the stored body is small"
    assert rows[trace]["status"] == "failed" and rows[trace]["error"].startswith("too_large: ")
    assert rows[other]["status"] == "evaluated"
    shown = await get_trace(hub, LOCAL, stored.id)
    assert shown["received"] is None and shown["evidence"] is None


def test_asking_for_an_evaluation_while_one_is_under_way_is_not_lost(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        _, agent = await world(hub)
        await post(hub, {**ANSWER, "platformId": agent}, request_id="r")
        async with Evaluator.open(hub, ThreadDecider()) as evaluator:
            taken = await evaluator._take_batch()
            clock.now += 1
            await request_reevaluation(hub, LOCAL, Reevaluation())
            await evaluator._evaluate(taken)
        assert (await trace_rows(hub))[0]["due_at"] == clock.now
        assert await evaluate_all(hub) == 1

    database.run_hub(use, clock=clock)


async def test_spans_received_during_an_evaluation_are_evaluated_too(hub: Hub) -> None:
    _, agent = await world(hub)
    await post(hub, {**ANSWER, "platformId": agent}, request_id="r")
    async with Evaluator.open(hub, ThreadDecider()) as evaluator:
        taken = await evaluator._take_batch()
        await post(hub, {"data": {"text": "No."}, "platformId": agent}, request_id="r")
        await evaluator._evaluate(taken)
    assert await evaluate_all(hub) == 1
    (row,) = await result_rows(hub)
    assert (row["outcome"], row["trace_revision"]) == ("fail", 2)


def test_a_lease_keeps_others_away_until_it_runs_out(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        _, agent = await world(hub)
        for number in range(5):
            await post(hub, {**ANSWER, "platformId": agent}, request_id=f"r{number}")
        async with hub.database.writing() as connection:
            mine = await lease_batch(connection, turn("one", clock, 3))
        async with hub.database.writing() as connection:
            theirs = await lease_batch(connection, turn("two", clock, 10))
        assert len(mine) == 3 and len(theirs) == 2 and not set(mine) & set(theirs)
        assert await evaluate_all(hub) == 0
        clock.now += 31
        assert await evaluate_all(hub) == 5
        assert len(await result_rows(hub)) == 5

    database.run_hub(use, clock=clock)


async def test_two_workers_share_the_work_and_nothing_is_done_twice(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr(evaluation_leases, "BATCH_TRACES", 5)
    _, agent = await world(hub)
    for number in range(40):
        await post(hub, {**ANSWER, "platformId": agent}, request_id=f"r{number}")
    counts = await asyncio.gather(evaluate_all(hub), evaluate_all(hub))
    assert sum(counts) == 40
    assert len(await result_rows(hub)) == 40 and {row["outcome"] for row in await trace_rows(hub)} == {"pass"}


async def test_a_worker_that_lost_its_lease_writes_nothing(hub: Hub) -> None:
    _, agent = await world(hub)
    await post(hub, {**ANSWER, "platformId": agent})
    async with Evaluator.open(hub, ThreadDecider()) as evaluator:
        taken = await evaluator._take_batch()
        async with hub.database.writing() as connection:
            await connection.execute(sa.update(traces).values(lease_owner="another worker"))
        await evaluator._evaluate(taken)
    assert await result_rows(hub) == []


async def test_a_trace_that_cannot_be_read_fails_with_its_code_and_the_others_are_evaluated(hub: Hub) -> None:
    _, agent = await world(hub)
    ids = [(await post(hub, {**ANSWER, "platformId": agent}, request_id=f"r{number}")).id for number in range(4)]
    broken = [b"not compressed", pack([{"no": "span"}]), pack({"data": {"tool_calls": [3]}})]
    async with hub.database.writing() as connection:
        for id, body in zip(ids, broken, strict=False):
            await connection.execute(sa.update(traces).where(traces.c.id == id).values(body=body))
    assert await evaluate_all(hub) == 4
    rows = {row["id"]: row for row in await trace_rows(hub)}
    assert [rows[id]["status"] for id in ids] == ["failed", "failed", "failed", "evaluated"]
    assert all(rows[id]["error"].startswith("unreadable_evidence: ") and rows[id]["due_at"] is None for id in ids[:3])
    assert len(await result_rows(hub)) == 1


async def test_a_case_that_can_no_longer_be_read_is_an_error_and_the_others_are_decided(hub: Hub) -> None:
    project, agent = await world(hub)
    bad = await cases.create_case(hub, LOCAL, NewCase(project_id=project, document=SUITE))
    async with hub.database.writing() as connection:
        await connection.execute(sa.update(case_table).where(case_table.c.id == bad["id"]).values(document="proctor: ["))
    await post(hub, {**ANSWER, "platformId": agent})
    await evaluate_all(hub)
    assert sorted((row["outcome"], row["code"]) for row in await result_rows(hub)) == [("error", "unusable_spec"), ("pass", None)]


async def test_missing_instrumentation_is_the_code_of_the_result(hub: Hub) -> None:
    _, agent = await world(hub)
    await post(hub, {"data": {"text": "Refund"}, "platformId": agent})
    await evaluate_all(hub)
    assert [(row["outcome"], row["code"]) for row in await result_rows(hub)] == [("fail", "missing_evidence")]


async def test_judged_cases_are_decided_by_the_judge_and_are_errors_without(hub: Hub) -> None:
    _, agent = await world(hub, suite=JUDGED)
    await post(hub, {**ANSWER, "platformId": agent}, request_id="a")
    await evaluate_all(hub)
    assert [(row["outcome"], row["code"]) for row in await result_rows(hub)] == [("error", "judge_unavailable")]
    await request_reevaluation(hub, LOCAL, Reevaluation())
    await evaluate_all(hub, judge=ScriptedJudge(lambda question: 1.0))
    assert [(row["outcome"], row["code"]) for row in await result_rows(hub)] == [("pass", None)]


async def test_a_judge_that_breaks_or_never_answers_spoils_its_own_assertions_only(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr(evaluator, "JUDGE_S", 0.05)

    class Broken:
        def __init__(self) -> None:
            self.calls = 0

        async def judge(self, *questions: Any, **more: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise RuntimeError("gone")
            await asyncio.sleep(60)

        async def close(self) -> None: ...

    project, agent = await world(hub, suite=JUDGED + "      - response_contains: Refund\n")
    await cases.create_case(hub, LOCAL, NewCase(project_id=project, document=SUITE))
    for name in ("a", "b"):
        await post(hub, {**ANSWER, "platformId": agent}, request_id=name)
    await evaluate_all(hub, judge=Broken())  # type: ignore[arg-type]
    assert {row["status"] for row in await trace_rows(hub)} == {"evaluated"}
    found = [(row["outcome"], row["code"]) for row in await result_rows(hub)]
    assert sorted(found, key=str) == [("error", "judge_unavailable")] * 2 + [("pass", None)] * 2
    bodies = [unpack(row["body"]) for row in await result_rows(hub) if row["outcome"] == "error"]
    reasons = [[entry["outcome"] for entry in body["assertions"]] for body in bodies]  # type: ignore[index,call-overload]
    assert reasons == [["error", "pass"]] * 2, "what needs no judge is decided"


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_slow_patterns_of_a_judged_case_delay_no_one(database: TestDatabase) -> None:
    slow = "".join(f"      - response_matches: '(a|aa)+{number}$'\n" for number in range(3))

    async def use(hub: Hub) -> None:
        _, agent = await world(hub, suite=JUDGED + slow)
        body = {"data": {"text": "a" * 5_000}, "metadata": {"http_status": 200}, "platformId": agent}
        await post(hub, body, request_id="a")
        turns = 0

        async def beat() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(beat())
        await evaluate_all(hub, judge=ScriptedJudge(lambda question: 1.0))
        beating.cancel()
        (row,) = await result_rows(hub)
        assert row["outcome"] == "error" and turns > 10, turns

    database.run_hub(use)


def test_an_agent_that_another_server_has_just_made_is_not_gone(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        project, agent = await world(hub)
        other_database = await open_database(database.url)
        other = Hub(database=other_database, settings=hub.settings, clock=clock)
        try:
            await post(hub, {**ANSWER, "platformId": agent})
            assert await evaluate_all(other) == 1, "the other server knows the agents now"
            new = (await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project, name="new")))["id"]
            made = await post(hub, {**ANSWER, "platformId": new})
            assert await evaluate_all(other) == 1
            rows = {row["id"]: row for row in await trace_rows(hub)}
            assert (rows[made.id]["status"], rows[made.id]["error"]) == ("evaluated", None)
        finally:
            await other_database.close()

    database.run_hub(use, clock=clock)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "refused"])
def test_a_result_that_could_not_be_written_is_not_lost(database: TestDatabase, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """One trace in a batch, and one failure of the database: an outage or another error."""
    failures = [StoreError("the database cannot be used: it is locked")]
    if not gone:
        failures[0].__cause__ = DBAPIError("INSERT", None, Exception("deadlock detected"))
    write = finish_traces

    async def once(*arguments: Any, **more: Any) -> int:
        if failures:
            raise failures.pop()
        return await write(*arguments, **more)

    monkeypatch.setattr(evaluator, "finish_traces", once)

    async def use(hub: Hub) -> None:
        _, agent = await world(hub)
        await post(hub, {**ANSWER, "platformId": agent})
        if gone:
            with pytest.raises(StoreError):
                await evaluate_all(hub)
            (row,) = await trace_rows(hub)
            assert row["due_at"] is not None and row["lease_owner"] is None and row["attempts"] == 0, "it was given back as it was"
            await evaluate_all(hub)
        else:
            await evaluate_all(hub)
        (row,) = await trace_rows(hub)
        assert (row["status"], row["outcome"]) == ("evaluated", "pass")
        assert len(await result_rows(hub)) == 1

    database.run_hub(use)


async def test_the_worker_evaluates_until_it_is_stopped(hub: Hub) -> None:
    _, agent = await world(hub)
    stop = asyncio.Event()
    task = asyncio.create_task(evaluate_traces(hub, stop))
    await post(hub, {**ANSWER, "platformId": agent})
    async with asyncio.timeout(20):
        while (await trace_rows(hub))[0]["status"] != "evaluated":
            await asyncio.sleep(0.02)
    stop.set()
    await asyncio.wait_for(task, 10)
    assert hub.counters.read()["traces_evaluated"] == 1


async def test_a_response_path_locates_the_text_of_an_agent(hub: Hub) -> None:
    _, agent = await world(hub, kind="http", settings={"response_path": "answer.words"})
    await post(hub, {"data": {"answer": {"words": "Refund"}, "text": "no"}, "metadata": {"http_status": 200}, "platformId": agent})
    await evaluate_all(hub)
    assert (await trace_rows(hub))[0]["outcome"] == "pass"


MAPPED = """\
proctor: 1
cases: [{id: a, expect: [response_contains: Refund, tool_not_called: refund]}]
"""


async def test_an_agent_declares_where_its_evidence_is_and_what_is_complete(hub: Hub) -> None:
    declared: dict[str, Any] = {"map": {"text": "$.reply.words", "tool_calls": {"each": "$.acts[*]", "name": "$.fn"}}}
    _, agent = await world(hub, suite=MAPPED, kind="http", settings={"evidence": declared})
    await post(hub, {"data": {"reply": {"words": "Refund"}, "acts": [{"fn": "look"}]}, "platformId": agent})
    await post(hub, {"data": {"reply": {"words": "Refund"}, "acts": [{"fn": "refund"}]}, "platformId": agent})
    await post(hub, {"data": {"reply": {"words": "Refund"}}, "platformId": agent})
    await evaluate_all(hub)
    assert [row["outcome"] for row in await trace_rows(hub)] == ["pass", "fail", "error"]
    await agents.update_agent(hub, LOCAL, agent, {"settings": {"evidence": {**declared, "complete": ["tool_calls"]}}})
    await post(hub, {"data": {"reply": {"words": "Refund"}}, "platformId": agent})
    await evaluate_all(hub)
    assert [row["outcome"] for row in await trace_rows(hub)][-1] == "pass"


@pytest.mark.parametrize(
    "declared", [{"map": {"text": "$.a["}}, {"map": {"txt": "$.a"}}, {"complete": ["calls"]}, "x", {"mapp": {}}], ids=str
)
async def test_evidence_that_an_agent_cannot_declare_is_refused(hub: Hub, declared: Any) -> None:
    with pytest.raises(Refusal) as caught:
        await world(hub, kind="http", settings={"evidence": declared})
    assert caught.value.code == "VALIDATION_ERROR"
    assert list(caught.value.fields or {}) == ["settings"]


async def test_a_clock_in_the_future_and_one_that_runs_backwards_change_nothing(hub: Hub) -> None:
    await world(hub)
    late = {**root(new_trace()), "startTimeUnixNano": str(2**63), "endTimeUnixNano": str(2**64 - 1)}
    back = {**root(new_trace()), "startTimeUnixNano": "2000000000000000000", "endTimeUnixNano": "1000000000000000000"}
    await send(hub, request(late), flush=True)
    await send(hub, request(back), flush=True)
    assert await evaluate_all(hub) == 2
    assert {row["outcome"] for row in await trace_rows(hub)} == {"pass"}


def active(**more: Any) -> ActiveCase:
    values: dict[str, Any] = {"id": "case_1", "version": 1, "project_id": "p", "agent_id": None, "name": "", "when": None, "sample": 1.0}
    return ActiveCase(**{**values, **more})


WHEN = [
    ({"input": "refund|charged"}, "I was charged twice", {}, True),
    ({"input": "^refund"}, "I was charged twice", {}, False),
    ({"input": "x"}, None, {}, False),
    ({"metadata": {"env": "live"}}, None, {"env": "live"}, True),
    ({"metadata": {"env": "live"}}, None, {"env": "test"}, False),
    ({"metadata": {"env": "live"}}, None, {}, False),
    ({"metadata": {"user.plan": "pro"}}, None, {"user": {"plan": "pro"}}, True),
    ({"metadata": {"a": 1, "b": 2}}, None, {"a": 1, "b": 3}, False),
    ({"metadata": {"a": None}}, None, {}, False),
    ({"tags": ["a", "b"]}, None, {"tags": ["b", "a", "c"]}, True),
    ({"tags": ["a", "b"]}, None, {"tags": "a, b"}, True),
    ({"tags": ["a"]}, None, {"tags": {"a": 1}}, True),
    ({"tags": ["a"]}, None, {}, False),
    ({"input": None, "metadata": None, "tags": None}, None, {}, True),
    ({"input": "refund", "metadata": {"env": "live"}}, "refund", {"env": "test"}, False),
]


@pytest.mark.parametrize(("when", "question", "metadata", "expect"), WHEN, ids=[json.dumps(row[0])[:40] + str(row[3]) for row in WHEN])
def test_when_narrows_a_case_by_everything_it_names(when: Any, question: Any, metadata: Any, expect: bool) -> None:
    assert is_selected(active(when=when), "trc_1", evidence(input=question), metadata) is expect


def test_a_sample_takes_its_share_and_always_the_same_traces() -> None:
    seen = evidence()
    chosen = [is_selected(active(sample=0.25), f"trc_{number}", seen, {}) for number in range(4000)]
    assert 0.2 < sum(chosen) / 4000 < 0.3
    assert chosen == [is_selected(active(sample=0.25), f"trc_{number}", seen, {}) for number in range(4000)]
    others = [is_selected(active(id="case_2", sample=0.25), f"trc_{number}", seen, {}) for number in range(4000)]
    assert chosen != others
    assert not any(is_selected(active(sample=0.0), f"trc_{number}", seen, {}) for number in range(100))
