"""The scripted judge."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import proctor
from proctor.cassettes.ports import LIVE
from proctor.judge.scripted import ScriptedJudge
from proctor.model.judgement import Opinion, Question
from proctor.runner.ports import Judge
from tests.judge.twins import ask


def test_a_scripted_judge_returns_booleans_scores_and_opinions() -> None:
    decided = Opinion(outcome="error", code="judge_timeout", reason="slow")
    decisions = {"greets": True, "thanks": False, "is kind": 0.8, "is short": 0.79, "is slow": decided}
    judge = ScriptedJudge(lambda question: decisions[question.label])
    fits: Judge = judge
    questions = [*ask("greets", "thanks"), *ask("is kind", "is short", threshold=0.8), *ask("is slow")]
    opinions = asyncio.run(fits.judge(questions, case="c", attempt=0, tape=LIVE))
    assert [(each.outcome, each.score) for each in opinions] == [("pass", 1), ("fail", 0), ("pass", 0.8), ("fail", 0.79), ("error", 0)]
    assert opinions[0].reason == "the judge function decided: yes"
    assert opinions[1].reason == "the judge function decided: no"
    assert opinions[-1] is decided
    assert judge.questions == questions
    asyncio.run(judge.close())
    assert judge.closed


def test_an_async_function_can_decide() -> None:
    async def decide(question: Question) -> bool:
        return question.label == "greets"

    opinions = asyncio.run(ScriptedJudge(decide).judge(ask("greets", "thanks"), case="c", attempt=0, tape=LIVE))
    assert [opinion.outcome for opinion in opinions] == ["pass", "fail"]


def test_a_score_without_a_threshold_passes_from_one_half() -> None:
    for score, outcome in ((0.5, "pass"), (0.49, "fail")):
        (opinion,) = asyncio.run(ScriptedJudge(lambda _, score=score: score).judge(ask("greets"), case="c", attempt=0, tape=LIVE))
        assert opinion.outcome == outcome


@pytest.mark.parametrize("decision", [7, -0.1, float("nan"), None, "yes", (True, "so"), {"pass": True}])
def test_an_invalid_decision_is_an_error_of_the_claim(decision: Any) -> None:
    judge = ScriptedJudge(lambda question: decision if question.label == "greets" else True)
    opinions = asyncio.run(judge.judge(ask("greets", "thanks"), case="c", attempt=0, tape=LIVE))
    assert [(each.outcome, each.code) for each in opinions] == [("error", "judge_error"), ("pass", None)]
    assert "expected true, false, a number from 0 to 1" in opinions[0].reason


def test_a_function_that_raises_is_an_error_of_the_claim() -> None:
    suite = proctor.parse_suite("proctor: 1\ncases:\n  - {id: a, expect: [judged: greets, response_contains: Hello]}\n")
    result = proctor.check(suite, proctor.read_evidence({"text": "Hello"}), judge=lambda question: 1 / 0)
    judged, plain = result.cases[0].verdicts
    assert (judged.outcome, judged.code, plain.outcome) == ("error", "judge_error", "pass")
    assert "ZeroDivisionError: division by zero" in judged.reason


@pytest.mark.parametrize("error", [AssertionError, KeyboardInterrupt, asyncio.CancelledError])
def test_interrupts_are_not_turned_into_opinions(error: type[BaseException]) -> None:
    def decide(question: Question) -> bool:
        raise error

    with pytest.raises(error):
        asyncio.run(ScriptedJudge(decide).judge(ask("greets"), case="c", attempt=0, tape=LIVE))
