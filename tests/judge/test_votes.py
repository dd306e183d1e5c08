"""How several answers become one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.judge.reply import Fault, Item
from proctor.judge.settings import JudgeSettings
from proctor.judge.votes import Ballot, combine_ballots, compute_cost, sum_usage
from proctor.model.evidence import Usage
from proctor.model.judgement import Material, Question
from tests.tables import rows


def question(threshold: float | None) -> Question:
    return Question(criterion="c", material=Material(subject="s"), threshold=threshold)


def ballot(said: Any, threshold: float | None, number: int) -> Ballot:
    if isinstance(said, str):
        return Ballot(model="m", verdict=Fault(said, f"why {said}"))
    passed = said if isinstance(said, bool) else said >= threshold
    return Ballot(model="m", verdict=Item(passed=passed, score=None if isinstance(said, bool) else float(said), reason=f"reason {number}"))


@rows("judge/cases/votes.yaml")
def test_ballots_make_the_opinion_of_the_table(row: dict[str, Any]) -> None:
    threshold = row.get("threshold")
    ballots = [ballot(said, threshold, number) for number, said in enumerate(row["ballots"], 1)]
    opinion = combine_ballots(question(threshold), ballots, JudgeSettings(**row.get("settings", {})))
    expect = row["expect"]
    assert opinion.outcome == expect["outcome"]
    assert opinion.score == pytest.approx(expect.get("score", 0.0), abs=1e-5)
    assert opinion.code == expect.get("code")
    assert expect["reason"] in opinion.reason
    assert len(opinion.details["samples"]) == len(ballots)
    for key in ("agreement", "spread"):
        if key in expect:
            assert opinion.details[key] == pytest.approx(expect[key], abs=1e-5)


@settings(max_examples=200, deadline=None)
@given(
    said=st.lists(st.booleans() | st.just("judge_timeout"), min_size=1, max_size=9),
    agreement=st.floats(0, 0.99),
    combine=st.sampled_from(["majority", "mean"]),
)
@pytest.mark.timeout(60)
def test_turning_every_vote_around_turns_the_outcome_around(said: list[Any], agreement: float, combine: Any) -> None:
    how = JudgeSettings(agreement=agreement, combine=combine)
    one = combine_ballots(question(None), [ballot(vote, None, 1) for vote in said], how)
    other = combine_ballots(question(None), [ballot(vote if isinstance(vote, str) else not vote, None, 1) for vote in said], how)
    assert {"pass": "fail", "fail": "pass", "error": "error"}[one.outcome] == other.outcome
    assert one.code == other.code


@settings(max_examples=200, deadline=None)
@given(
    scores=st.lists(st.integers(0, 100).map(lambda n: n / 100), min_size=1, max_size=9),
    threshold=st.integers(0, 100).map(lambda n: n / 100),
)
def test_the_mean_of_equal_scores_decides_as_each_of_them(scores: list[float], threshold: float) -> None:
    how = JudgeSettings(combine="mean")
    for score in scores:
        many = combine_ballots(question(threshold), [ballot(score, threshold, 1)] * len(scores), how)
        assert many.outcome == combine_ballots(question(threshold), [ballot(score, threshold, 1)], how).outcome


@pytest.mark.parametrize("combine", ["majority", "mean"])
def test_a_rating_at_the_least_number_passes_on_every_scale(combine: Any) -> None:
    for highest in range(2, 11):
        for least in range(2, highest + 1):
            choices = {str(number): "x" for number in range(1, highest + 1)}
            asked = Question(criterion="c", material=Material(subject="s"), choices=choices, threshold=(least - 1) / (highest - 1))
            for chosen in (least, least - 1):
                score = asked.score_choice(str(chosen))
                vote = Ballot(model="m", verdict=Item(passed=chosen == least, score=score, choice=str(chosen), reason="so"))
                for samples in (1, 2, 3, 5):
                    opinion = combine_ballots(asked, [vote] * samples, JudgeSettings(combine=combine))
                    assert opinion.outcome == ("pass" if chosen == least else "fail")
                    assert opinion.details["choice"] == str(chosen)


def test_usage_is_added_up_as_far_as_it_is_known() -> None:
    assert sum_usage([Usage(input_tokens=1), Usage(output_tokens=2, total_tokens=5)]) == Usage(
        input_tokens=1, output_tokens=2, total_tokens=6
    )
    assert sum_usage([Usage()]) == Usage()


def test_a_cost_needs_both_tokens_and_prices() -> None:
    assert compute_cost(Usage(input_tokens=1000, output_tokens=100), (2.0, 10.0)) == pytest.approx(0.003)
    assert compute_cost(Usage(total_tokens=5), (2.0, 10.0)) is None
    assert compute_cost(None, (2.0, 10.0)) is None
    assert compute_cost(Usage(input_tokens=1), None) is None


def test_a_budget_stop_among_choices_is_no_fail() -> None:
    asked = Question(criterion="c", material=Material(subject="s"), choices={"a": "1", "b": "2"}, accepted=("a",))
    votes = [Ballot(model="m", verdict=Item(passed=choice == "a", score=None, reason="r", choice=choice)) for choice in "ab"]
    ballots = [*votes, Ballot(model="m", verdict=Fault("judge_budget", "spent"))]
    opinion = combine_ballots(asked, ballots, JudgeSettings(uncertain="fail"))
    assert (opinion.outcome, opinion.code) == ("error", "judge_budget")
