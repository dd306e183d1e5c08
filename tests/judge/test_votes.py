"""How several ballots are combined into one opinion."""

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


def ballot(vote: Any, threshold: float | None, number: int) -> Ballot:
    if isinstance(vote, str):
        return Ballot(model="m", verdict=Fault(vote, f"why {vote}"))
    passed = vote if isinstance(vote, bool) else vote >= threshold
    return Ballot(model="m", verdict=Item(passed=passed, score=None if isinstance(vote, bool) else float(vote), reason=f"reason {number}"))


@rows("judge/cases/votes.yaml")
def test_ballots_are_combined_as_in_the_table(row: dict[str, Any]) -> None:
    threshold = row.get("threshold")
    ballots = [ballot(vote, threshold, number) for number, vote in enumerate(row["ballots"], 1)]
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
    votes=st.lists(st.booleans() | st.just("judge_timeout"), min_size=1, max_size=9),
    agreement=st.floats(0, 0.99),
    combine=st.sampled_from(["majority", "mean"]),
)
@pytest.mark.timeout(60)
def test_inverting_every_vote_inverts_the_outcome(votes: list[Any], agreement: float, combine: Any) -> None:
    how = JudgeSettings(agreement=agreement, combine=combine)
    one = combine_ballots(question(None), [ballot(vote, None, 1) for vote in votes], how)
    other = combine_ballots(question(None), [ballot(vote if isinstance(vote, str) else not vote, None, 1) for vote in votes], how)
    assert {"pass": "fail", "fail": "pass", "error": "error"}[one.outcome] == other.outcome
    assert one.code == other.code


@settings(max_examples=200, deadline=None)
@given(
    scores=st.lists(st.integers(0, 100).map(lambda n: n / 100), min_size=1, max_size=9),
    threshold=st.integers(0, 100).map(lambda n: n / 100),
)
def test_the_mean_of_equal_scores_decides_like_each(scores: list[float], threshold: float) -> None:
    how = JudgeSettings(combine="mean")
    for score in scores:
        many = combine_ballots(question(threshold), [ballot(score, threshold, 1)] * len(scores), how)
        assert many.outcome == combine_ballots(question(threshold), [ballot(score, threshold, 1)], how).outcome


@pytest.mark.parametrize("combine", ["majority", "mean"])
def test_a_rating_at_the_minimum_passes_on_every_scale(combine: Any) -> None:
    for highest in range(2, 11):
        for least in range(2, highest + 1):
            choices = {str(number): "x" for number in range(1, highest + 1)}
            scale = Question(criterion="c", material=Material(subject="s"), choices=choices, threshold=(least - 1) / (highest - 1))
            for chosen in (least, least - 1):
                score = scale.score_choice(str(chosen))
                vote = Ballot(model="m", verdict=Item(passed=chosen == least, score=score, choice=str(chosen), reason="so"))
                for samples in (1, 2, 3, 5):
                    opinion = combine_ballots(scale, [vote] * samples, JudgeSettings(combine=combine))
                    assert opinion.outcome == ("pass" if chosen == least else "fail")
                    assert opinion.details["choice"] == str(chosen)


def test_known_usage_is_added_up() -> None:
    assert sum_usage([Usage(input_tokens=1), Usage(output_tokens=2, total_tokens=5)]) == Usage(
        input_tokens=1, output_tokens=2, total_tokens=6
    )
    assert sum_usage([Usage()]) == Usage()


def test_a_cost_needs_both_tokens_and_prices() -> None:
    assert compute_cost(Usage(input_tokens=1000, output_tokens=100), (2.0, 10.0)) == pytest.approx(0.003)
    assert compute_cost(Usage(total_tokens=5), (2.0, 10.0)) is None
    assert compute_cost(None, (2.0, 10.0)) is None
    assert compute_cost(Usage(input_tokens=1), None) is None


def test_a_budget_stop_among_choices_is_not_a_failure() -> None:
    scale = Question(criterion="c", material=Material(subject="s"), choices={"a": "1", "b": "2"}, accepted=("a",))
    votes = [Ballot(model="m", verdict=Item(passed=choice == "a", score=None, reason="r", choice=choice)) for choice in "ab"]
    ballots = [*votes, Ballot(model="m", verdict=Fault("judge_budget", "spent"))]
    opinion = combine_ballots(scale, ballots, JudgeSettings(uncertain="fail"))
    assert (opinion.outcome, opinion.code) == ("error", "judge_budget")
