"""The judge that decides as it was told."""

from __future__ import annotations

import asyncio

import pytest

from proctor.cassettes.ports import LIVE
from proctor.judge.scripted import ScriptedJudge
from proctor.model.judgement import Opinion
from proctor.runner.ports import Judge
from tests.judge.twins import ask


def test_it_says_yes_no_scores_and_whole_opinions() -> None:
    told = Opinion(outcome="error", code="judge_timeout", reason="slow")
    decisions = {"greets": True, "thanks": False, "is kind": 0.8, "is short": 0.79, "is slow": told}
    judge = ScriptedJudge(lambda question: decisions[question.label])
    fits: Judge = judge
    questions = [*ask("greets", "thanks"), *ask("is kind", "is short", threshold=0.8), *ask("is slow")]
    opinions = asyncio.run(fits.judge(questions, case="c", attempt=0, tape=LIVE))
    assert [(each.outcome, each.score) for each in opinions] == [("pass", 1), ("fail", 0), ("pass", 0.8), ("fail", 0.79), ("error", 0)]
    assert opinions[0].reason == "Agent check passed: greets"
    assert opinions[1].reason == "Agent check failed: thanks"
    assert opinions[-1] is told
    assert judge.asked == questions
    asyncio.run(judge.close())
    assert judge.closed


def test_a_score_without_a_threshold_is_a_yes_from_the_middle_on() -> None:
    for score, outcome in ((0.5, "pass"), (0.49, "fail")):
        (opinion,) = asyncio.run(ScriptedJudge(lambda _, score=score: score).judge(ask("greets"), case="c", attempt=0, tape=LIVE))
        assert opinion.outcome == outcome


@pytest.mark.parametrize("score", [7, -0.1, float("nan")])
def test_a_script_that_says_something_else_is_a_mistake_of_its_author(score: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        asyncio.run(ScriptedJudge(lambda _: score).judge(ask("greets"), case="c", attempt=0, tape=LIVE))
