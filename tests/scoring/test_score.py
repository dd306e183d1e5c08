from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from proctor.checks.run.unsupported import Unsupported
from proctor.model.case import Assertion, Scoring
from proctor.model.result import AxisScore
from proctor.model.verdict import Verdict
from proctor.scoring.score import find_weighted_mean, reduce_attempts, score_case
from tests.tables import rows


def assertion(weight: float = 1.0, *flags: str, axis: str | None = None) -> Assertion:
    return Assertion(
        check="unsupported",
        spec=Unsupported(reason="-"),
        weight=weight,
        axis=axis,
        required="required" in flags,
        advisory="advisory" in flags,
    )


@rows("scoring/cases/score.yaml")
def test_case_score(row: dict[str, Any]) -> None:
    table = row["given"].pop("verdicts")
    assertions = [assertion(float(weight), *flags) for _, _, weight, *flags in table]
    verdicts = [Verdict(outcome, float(score), "-") for outcome, score, *_ in table]
    score = score_case(assertions, verdicts, Scoring(**row["given"]))
    assert [score.outcome, score.score, score.verdict] == row["expect"]


def test_axes_carry_their_own_mean_and_weight() -> None:
    assertions = [assertion(2, axis="correctness"), assertion(1, axis="safety"), assertion(0.5)]
    verdicts = [Verdict("pass", 1.0, "-"), Verdict("fail", 0.0, "-"), Verdict("fail", 0.5, "-")]
    axes = score_case(assertions, verdicts, Scoring(mode="weighted")).axes
    assert axes == {"correctness": AxisScore(1.0, 2.0), "safety": AxisScore(0.0, 1.0), "__default__": AxisScore(0.5, 0.5)}


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 1000)), min_size=1, max_size=20))
def test_a_weighted_mean_stays_between_the_extremes(pairs: list[tuple[float, float]]) -> None:
    mean = find_weighted_mean(pairs)
    assert mean is not None
    scores = [score for score, _ in pairs]
    assert min(scores) - 1e-9 <= mean <= max(scores) + 1e-9


@pytest.mark.parametrize(
    ("counts", "threshold", "outcome"),
    [
        ({"pass": 3}, None, "pass"),
        ({"pass": 3, "fail": 1}, None, "fail"),
        ({"pass": 3, "error": 1}, None, "error"),
        ({"skip": 2}, None, "skip"),
        ({"pass": 1, "skip": 2}, None, "pass"),
        ({"pass": 3, "fail": 1}, 0.75, "pass"),
        ({"pass": 2, "fail": 2}, 0.75, "fail"),
        ({"pass": 2, "error": 2}, 0.75, "error"),
        ({"fail": 1}, 0.0, "fail"),
    ],
)
def test_attempts_reduce_to_one_outcome(counts: dict[str, int], threshold: float | None, outcome: str) -> None:
    assert reduce_attempts(counts, threshold) == outcome
