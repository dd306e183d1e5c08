"""Scorers in tests and suites: their input, how they run, and the effect of their rows on an iteration."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from proctor.evals.agents.prompt_result import PromptResult
from proctor.evals.agents.test_agent import EvalAgent, MockAgent
from proctor.evals.eval_suite import EvalSuite
from proctor.evals.eval_test import EvalTest
from proctor.evals.grading.results import EvalRunResult, IterationResult
from proctor.evals.grading.score_rows import (
    ScoreResult,
    canonical_digest,
    definition_hash,
    not_applicable,
    scored,
    skipped,
    suite_config_hash,
)
from proctor.evals.grading.scorers import Scorer, ScorerContext, predicate_scorer, scorer
from proctor.model.evidence import ToolCall
from tests.evals.agents import result, saying
from tests.targets.mcp_twins import run

AGENT = saying(result("a", text="Done.", usage={"input_tokens": 8, "output_tokens": 2}))


async def asks(agent: EvalAgent) -> bool:
    return not (await agent.prompt("go")).has_error()


def evaluate(test: EvalTest, agent: EvalAgent = AGENT, **options: Any) -> EvalRunResult:
    return run(test.run(agent, **{"iterations": 1, **options}))


def only(test: EvalTest, agent: EvalAgent = AGENT, **options: Any) -> IterationResult:
    return evaluate(test, agent, **options).iteration_details[0]


def row_named(iteration: IterationResult, id: str) -> ScoreResult:
    (found,) = [row for row in iteration.scores if row.scorer_id == id]
    return found


# --- built-in rows ------------------------------------------------------------------------------------------------------------


def test_every_iteration_has_the_rows_of_built_in_scorers() -> None:
    predicates = [{"type": "noToolErrors"}, {"type": "tool_never_called", "tool_name": "a"}]
    done = evaluate(EvalTest("t", asks, expected_tool_calls=["a"], predicates=predicates), iterations=2)
    assert done.evaluation_config is not None
    ids = ["legacy:test", "tool-match", "predicate:noToolErrors#0", "predicate:toolNeverCalled#1"]
    assert [each.scorer_id for each in done.evaluation_config.definitions] == ids
    assert [each.id_source for each in done.evaluation_config.definitions] == ["explicit", "explicit", "generated", "generated"]
    for iteration in done.iteration_details:
        assert [(row.scorer_id, row.passed) for row in iteration.scores] == list(zip(ids, [True, True, True, False], strict=True))
        assert not iteration.passed
        assert [row.definition_hash for row in iteration.scores] == [definition_hash(each) for each in done.evaluation_config.definitions]


def test_unexpected_calls_are_not_applicable() -> None:
    assert row_named(only(EvalTest("t", asks)), "tool-match").status == "not_applicable"
    assert row_named(only(EvalTest("t", asks, is_negative_test=True)), "tool-match").passed is False
    silent = EvalTest("t", lambda agent: True, is_negative_test=True)
    assert row_named(only(silent), "tool-match").passed is True


def test_a_test_that_raises_or_returns_nothing_is_an_error_row() -> None:
    async def broken(agent: MockAgent) -> bool:
        raise ValueError("no such order")

    row = row_named(only(EvalTest("t", broken)), "legacy:test")
    assert (row.status, row.error, row.passed) == ("error", "no such order", None)
    assert row_named(only(EvalTest("t", lambda agent: None)), "legacy:test").status == "error"
    assert row_named(only(EvalTest("t", lambda agent: False)), "legacy:test").passed is False


def test_the_hash_of_a_test_identifies_its_grading() -> None:
    def snapshot(**options: Any) -> str:
        return EvalTest("t", asks, **options).get_evaluation_config_snapshot().hash

    same = snapshot(expected_tool_calls=["a"])
    assert (
        same == snapshot(expected_tool_calls=[{"toolName": "a", "arguments": {}}]) == snapshot(expected_tool_calls=["a"], match_options={})
    )
    assert same == snapshot(expected_tool_calls=["a"], match_options={"tool_call_order": "ignore"})
    others = [
        snapshot(),
        snapshot(expected_tool_calls=["b"]),
        snapshot(expected_tool_calls=["a"], match_options={"toolCallOrder": "strict"}),
        snapshot(expected_tool_calls=["a"], predicates=[{"type": "noToolErrors"}]),
        snapshot(is_negative_test=True),
        snapshot(expected_tool_calls=["a"], scorers=[scorer("x", lambda context: 1)]),
    ]
    assert len({same, *others}) == 7


# --- custom scorers -----------------------------------------------------------------------------------------------------------


def test_a_scorer_is_shown_the_whole_iteration() -> None:
    seen: list[ScorerContext] = []

    @scorer("look")
    def look(context: ScorerContext) -> bool:
        seen.append(context)
        return True

    async def twice(agent: MockAgent) -> bool:
        await agent.prompt("one")
        await agent.prompt("two")
        return True

    failing = PromptResult(
        prompt="go",
        text="All done.",
        tool_calls=[ToolCall(name="a", arguments={"x": 1}, error="broken", error_kind="protocol-error")],
        usage={"input_tokens": 8, "output_tokens": 2},
    )
    test = EvalTest("Look around", twice, id="look", expected_output="Done", expected_tool_calls=["b"], scorers=[look])
    evaluate(test, saying(failing), iterations=2, concurrency=1)
    first, second = seen
    assert (first.version, first.scenario.title, first.scenario.key, first.scenario.is_negative_test) == (1, "Look around", "look", False)
    assert (first.iteration, second.iteration) == (1, 2)
    assert [call.name for call in first.transcript.tool_calls] == ["a", "a"]
    assert [(each.tool_name, each.kind, each.message) for each in first.transcript.tool_errors] == [("a", "protocol-error", "broken")] * 2
    assert first.transcript.final_assistant_message == "All done." and first.transcript.turn_count == 2
    assert first.usage is not None and first.usage.total() == 20
    assert first.expected_output == "Done" and [call.name for call in first.expected_tool_calls] == ["b"]
    assert len(first.trace.messages) == sum(len(prompt.get_messages()) for prompt in first.prompts) and first.evidence.text == "All done."


@pytest.mark.parametrize("text", ["", "  \n"])
def test_a_last_answer_without_text_is_no_final_message(text: str) -> None:
    seen: list[ScorerContext] = []
    only(EvalTest("t", asks, scorers=[scorer("look", lambda context: seen.append(context) or True)]), saying(result("a", text=text)))
    assert seen[0].transcript.final_assistant_message is None


@pytest.mark.parametrize(
    ("options", "answer", "passed"),
    [
        ({}, 1, True),
        ({}, 0.99, False),
        ({"threshold": 0.5}, 0.5, True),
        ({"threshold": 0.5}, scored(0.4), False),
        ({"role": "advisory"}, 0, True),
        ({}, skipped("no"), False),
        ({"on_skipped": "ignore"}, skipped("no"), True),
        ({}, not_applicable(), True),
        ({}, 2, False),
        ({"on_error": "ignore"}, 2, True),
        ({}, None, False),
    ],
)  # fmt: skip
def test_an_iteration_passes_only_with_its_gating_scorers(options: dict[str, Any], answer: Any, passed: bool) -> None:
    iteration = only(EvalTest("t", asks, scorers=[scorer("own", lambda context: answer, **options)]))
    assert iteration.passed is passed
    done = evaluate(EvalTest("t", asks, scorers=[scorer("own", lambda context: answer, **options)]), iterations=3)
    assert done.successes == (3 if passed else 0)


def test_a_scorer_cannot_save_an_iteration_that_failed() -> None:
    assert not only(EvalTest("t", lambda agent: False, scorers=[scorer("own", lambda context: 1)])).passed


def test_an_exception_of_a_scorer_affects_only_its_row() -> None:
    def broken(context: ScorerContext) -> float:
        raise KeyError("amount")

    async def late(context: ScorerContext) -> float:
        raise RuntimeError("no answer")

    iteration = only(
        EvalTest("t", asks, scorers=[scorer("one", broken), scorer("two", late, role="advisory"), scorer("three", lambda context: 1)])
    )
    assert [(row.status, row.error) for row in iteration.scores[2:]] == [("error", "'amount'"), ("error", "no answer"), ("scored", None)]


def test_a_scorer_may_block_or_be_asynchronous() -> None:
    threads: set[int] = set()

    def blocking(context: ScorerContext) -> float:
        threads.add(threading.get_ident())
        return 1.0

    class Callable_:
        async def __call__(self, context: ScorerContext) -> float:
            return 1.0

    async def waiting(context: ScorerContext) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"kind": "scored", "value": 1, "rationale": "fine"}

    own = [scorer("a", blocking), scorer("b", waiting), scorer("c", Callable_()), scorer("d", lambda context: waiting(context))]
    assert only(EvalTest("t", asks, scorers=own)).passed
    assert threading.get_ident() not in threads


def test_rows_keep_the_order_of_their_scorers_and_four_run_at_once() -> None:
    now = peak = 0

    def made(number: int) -> Scorer:
        @scorer(f"s{number}")
        async def one(context: ScorerContext) -> float:
            nonlocal now, peak
            now += 1
            peak = max(peak, now)
            await asyncio.sleep(0.002 * (9 - number))
            now -= 1
            return 1.0

        return one

    test = EvalTest("t", asks, scorers=[made(number) for number in range(8)])
    assert [row.scorer_id for row in only(test).scores[2:]] == [f"s{number}" for number in range(8)] and peak == 4
    peak = 0
    only(test, scorer_concurrency=2)
    assert peak == 2


def test_a_scorer_that_takes_too_long_is_an_error_and_is_ended() -> None:
    ended = threading.Event()

    @scorer("slow")
    async def slow(context: ScorerContext) -> float:
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()
        return 1.0

    started = time.monotonic()
    row = row_named(only(EvalTest("t", asks, scorers=[slow]), scorer_timeout_ms=20), "slow")
    assert row.error == "Operation timed out after 20ms" and ended.is_set() and time.monotonic() - started < 5


def test_a_scorer_has_its_own_limit_and_not_that_of_the_iteration() -> None:
    async def waits(context: ScorerContext) -> float:
        await asyncio.sleep(0.1)
        return 1.0

    row = row_named(only(EvalTest("t", asks, scorers=[scorer("patient", waits)]), timeout_ms=60), "patient")
    assert row.passed
    row = row_named(only(EvalTest("t", asks, scorers=[scorer("hasty", waits, timeout_ms=10)])), "hasty")
    assert row.status == "error" and "10ms" in (row.error or "")


def test_only_deterministic_scorers_run_after_an_exception() -> None:
    ran: list[str] = []

    async def broken(agent: MockAgent) -> bool:
        await agent.prompt("x")
        raise ValueError("broken")

    def sees(name: str) -> Any:
        return lambda context: ran.append(f"{name} {len(context.prompts)}") or True

    own = [scorer("plain", sees("plain")), scorer("model", sees("model"), deterministic=False, role="advisory")]
    iteration = only(EvalTest("t", broken, scorers=own), retries=1)
    assert ran == ["plain 1"] and [row.status for row in iteration.scores[2:]] == ["scored", "skipped"] and not iteration.passed


def test_scorers_run_once_and_not_for_every_try() -> None:
    ran: list[int] = []
    tries = iter([ValueError("once"), None])

    async def twice(agent: MockAgent) -> bool:
        if (error := next(tries)) is not None:
            raise error
        return True

    assert only(EvalTest("t", twice, scorers=[scorer("own", lambda context: ran.append(1) or True)]), retries=1).passed
    assert ran == [1]


def test_a_function_ends_with_its_run() -> None:
    ended: list[bool] = []

    async def forever(context: ScorerContext) -> float:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(True)
        return 1.0

    async def cancelled() -> None:
        task = asyncio.create_task(EvalTest("t", asks, scorers=[scorer("own", forever)]).run(AGENT, iterations=1))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    assert ended == [True]


def test_a_failure_report_names_the_scorer() -> None:
    def tone(context: ScorerContext) -> Any:
        return scored(0.25, "rude")

    test = EvalTest("t", asks, scorers=[scorer("tone", tone, threshold=0.5), scorer("lost", lambda context: None)])
    evaluate(test)
    report = test.get_failure_report()
    assert "scorer tone: 0.25 is below 0.5: rude" in report and "scorer lost: error: a scorer returns" in report


@pytest.mark.parametrize("id", ["legacy:test", "tool-match", "predicate:noToolErrors#0", "tone"])
def test_an_id_that_is_taken_is_refused(id: str) -> None:
    with pytest.raises(ValueError, match=f"two scorers have the id '{id}'"):
        EvalTest(
            "t", asks, predicates=[{"type": "noToolErrors"}], scorers=[scorer("tone", lambda context: 1), scorer(id, lambda context: 1)]
        )


def test_an_invalid_scorer_is_refused() -> None:
    with pytest.raises(TypeError, match="found function"):
        EvalTest("t", asks, scorers=[lambda context: 1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="found int"):
        scorer("x", 5)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="timeout_ms"):
        scorer("x", lambda context: 1, timeout_ms=0)


@pytest.mark.parametrize(
    "options", [{"scorer_concurrency": 0}, {"scorer_concurrency": True}, {"scorer_timeout_ms": 0}, {"scorer_timeout_ms": float("inf")}]
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        evaluate(EvalTest("t", asks), **options)


# --- predicates as scorers ----------------------------------------------------------------------------------------------------


def test_a_predicate_can_be_a_scorer() -> None:
    advisory = predicate_scorer({"type": "responseContains", "needle": "nowhere"}, id="names-the-place", role="advisory")
    gating = predicate_scorer({"type": "tool_called_at_least_once", "tool_name": "a"})
    iteration = only(EvalTest("t", asks, scorers=[advisory, gating]))
    assert iteration.passed
    assert [(row.value, row.passed) for row in iteration.scores[2:]] == [(0.0, False), (1.0, True)]
    assert "nowhere" in (iteration.scores[2].rationale or "")


def test_a_predicate_without_an_id_is_called_by_its_digest_or_ordinal() -> None:
    predicate = {"type": "noToolErrors"}
    digest = canonical_digest(predicate)
    by_digest, by_place, by_name = (
        predicate_scorer(predicate),
        predicate_scorer(predicate, ordinal=3),
        predicate_scorer(predicate, id="clean"),
    )
    assert (by_digest.definition.scorer_id, by_digest.definition.id_source) == (f"predicate:noToolErrors#{digest[:8]}", "generated")
    assert (by_place.definition.scorer_id, by_place.definition.id_source) == ("predicate:noToolErrors#3", "generated")
    assert (by_name.definition.scorer_id, by_name.definition.id_source) == ("clean", "explicit")
    assert {each.definition.implementation_hash for each in (by_digest, by_place, by_name)} == {digest}
    with pytest.raises(ValueError, match="unknown predicate type"):
        predicate_scorer({"type": "noToolErors"})


# --- suites -------------------------------------------------------------------------------------------------------------------


def test_two_tests_may_share_a_scorer() -> None:
    shared = scorer("tone", lambda context: context.scenario.key == "good")
    suite = EvalSuite("s", tests=[EvalTest(name, asks, scorers=[shared]) for name in ("good", "bad")])
    done = run(suite.run(AGENT, iterations=2, scorer_concurrency=1))
    assert [done.tests[name].successes for name in ("good", "bad")] == [2, 0]
    configs = [each.evaluation_config for each in done.tests.values()]
    assert done.evaluation_config_hash == suite_config_hash(each.hash for each in configs if each is not None)
