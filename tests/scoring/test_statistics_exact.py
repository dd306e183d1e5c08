"""Exact tests, adjustment and rank intervals against scipy."""

from __future__ import annotations

import itertools
import math

import hypothesis.strategies as st
import numpy
import pytest
from hypothesis import given, settings
from scipy import stats

from proctor.scoring import amounts, paired
from proctor.scoring.amounts import compare_amounts, find_median
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import benjamini_hochberg, find_least_p_value, find_least_p_value_of, fisher, stratified_test
from tests.scoring.references import mcnemar
from tests.scoring.test_statistics_intervals import some_counts


@pytest.mark.parametrize(("base_runs", "candidate_runs"), [(1, 1), (3, 3), (5, 5), (4, 9), (20, 20), (60, 45)])
def test_fisher_agrees_with_scipy(base_runs: int, candidate_runs: int) -> None:
    step = max(1, base_runs // 6)
    for x, y in itertools.product(range(0, base_runs + 1, step), range(0, candidate_runs + 1, step)):
        wanted = stats.fisher_exact([[x, base_runs - x], [y, candidate_runs - y]])[1]
        assert fisher(Counts(base_runs, x), Counts(candidate_runs, y)) == pytest.approx(wanted, abs=1e-9, rel=0)


@pytest.mark.parametrize("changed", [0, 1, 2, 5, 6, 11, 40, 301])
def test_mcnemar_agrees_with_the_sign_test_of_scipy(changed: int) -> None:
    for one in sorted({0, 1, changed // 3, changed // 2, changed} & set(range(changed + 1))):
        wanted = stats.binomtest(one, changed).pvalue if changed else 1.0
        assert mcnemar(one, changed - one) == pytest.approx(wanted, abs=1e-9, rel=0)


@given(st.lists(st.tuples(some_counts(), some_counts()), min_size=1, max_size=15))
@settings(max_examples=80, deadline=None)
def test_the_suite_test_agrees_with_hypergeometric_distributions_of_scipy_folded(pairs: list[tuple[Counts, Counts]]) -> None:
    distribution, observed = numpy.ones(1), 0
    for base, candidate in pairs:
        passes = base.passes + candidate.passes
        split = stats.hypergeom.pmf(range(candidate.runs + 1), base.runs + candidate.runs, passes, candidate.runs)
        distribution = numpy.convolve(distribution, split)
        observed += candidate.passes
    found = stratified_test(pairs)
    assert found.exact
    assert found.p_regressed == pytest.approx(distribution[: observed + 1].sum(), abs=1e-9, rel=0)
    assert found.p_improved == pytest.approx(distribution[observed:].sum(), abs=1e-9, rel=0)
    # Ties in likelihood are exact in integers and blurred in floats.
    likely = distribution <= distribution[observed] * (1 + 1e-9)
    assert found.p_value == pytest.approx(distribution[likely].sum(), abs=1e-9, rel=0)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=60))
@settings(max_examples=100, deadline=None)
def test_one_attempt_per_case_makes_the_suite_test_the_one_of_mcnemar(cases: list[tuple[int, int]]) -> None:
    found = stratified_test((Counts(1, base), Counts(1, candidate)) for base, candidate in cases)
    assert found.p_value == mcnemar(cases.count((1, 0)), cases.count((0, 1)))
    assert found.informative == cases.count((1, 0)) + cases.count((0, 1))


def test_uninformative_cases_change_nothing() -> None:
    informative = [(Counts(5, 5), Counts(5, 1)), (Counts(3, 3), Counts(3, 2))]
    silent = [(Counts(5, 5), Counts(5, 5)), (Counts(2, 0), Counts(9, 0)), (Counts(0, 0), Counts(4, 2)), (Counts(4, 2), Counts(0, 0))]
    assert stratified_test(informative + silent) == stratified_test(informative)
    nothing = stratified_test(silent)
    assert (nothing.p_value, nothing.p_regressed, nothing.p_improved, nothing.informative) == (1.0, 1.0, 1.0, 0)


def test_the_normal_curve_takes_over_smoothly_where_the_exact_distribution_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(Counts(3, 2 + (i % 3 == 0)), Counts(3, 2 - (i % 4 == 0))) for i in range(300)]
    written_out = stratified_test(pairs)
    monkeypatch.setattr(paired, "LARGEST_EXACT_BITS", 0)
    approximated = stratified_test(pairs)
    assert written_out.exact and not approximated.exact
    assert approximated.informative == written_out.informative
    found = (approximated.p_value, approximated.p_regressed, approximated.p_improved)
    assert found == pytest.approx((written_out.p_value, written_out.p_regressed, written_out.p_improved), rel=0.1, abs=1e-9)


def test_absurd_numbers_of_attempts_are_decided_without_delay() -> None:
    found = stratified_test([(Counts(10**9, 5 * 10**8), Counts(10**9, 5 * 10**8 - 10**5))])
    assert not found.exact and found.p_regressed == pytest.approx(stats.norm.cdf(-math.sqrt(20)), rel=1e-3)


@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_the_adjustment_agrees_with_scipy(size: int) -> None:
    generator = numpy.random.default_rng(size)
    for p_values in (generator.random(size), generator.random(size) ** 4, numpy.full(size, 0.04), numpy.round(generator.random(size), 1)):
        assert benjamini_hochberg(list(p_values)) == pytest.approx(list(stats.false_discovery_control(p_values)), abs=1e-12)
    assert benjamini_hochberg([]) == []


def test_the_least_p_value_is_the_least_that_occurs() -> None:
    for base_runs, candidate_runs in ((1, 1), (3, 3), (4, 4), (2, 7), (5, 3)):
        every = [
            (Counts(base_runs, x), Counts(candidate_runs, y)) for x, y in itertools.product(range(base_runs + 1), range(candidate_runs + 1))
        ]
        assert find_least_p_value(base_runs, candidate_runs) == pytest.approx(min(fisher(*pair) for pair in every))
        for base, candidate in every:
            same = [fisher(b, c) for b, c in every if b.passes + c.passes == base.passes + candidate.passes]
            assert find_least_p_value_of(base, candidate) == pytest.approx(min(same))
    assert find_least_p_value(0, 3) == 1.0


# --- amounts ------------------------------------------------------------------------------------------------------------------


def _one_each(values: list[float]) -> dict[str, list[float]]:
    return {str(index): [value] for index, value in enumerate(values)}


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=25))
@settings(max_examples=100, deadline=None)
def test_the_ratio_is_the_median_of_pairwise_means(logs: list[float]) -> None:
    found = compare_amounts(_one_each([1.0] * len(logs)), _one_each([math.exp(value) for value in logs]))
    walsh = [(a + b) / 2 for index, a in enumerate(logs) for b in logs[index:]]
    assert found.ratio == pytest.approx(math.exp(numpy.median(walsh)), rel=1e-9)
    assert found.cases == len(logs)


@pytest.mark.parametrize("cases", [6, 9, 10, 25, 40, 60])
def test_the_interval_holds_exactly_the_shifts_that_wilcoxon_does_not_reject(cases: int) -> None:
    generator = numpy.random.default_rng(cases)
    logs = generator.normal(0.1, 0.5, cases)
    interval = compare_amounts(_one_each([1.0] * cases), _one_each(list(numpy.exp(logs)))).interval
    assert interval is not None
    for bound, outward in ((math.log(interval.low), -1e-9), (math.log(interval.high), 1e-9)):
        assert stats.wilcoxon(logs - bound - outward, method="exact").pvalue <= 0.05
        assert stats.wilcoxon(logs - bound + outward, method="exact").pvalue > 0.05


def test_many_cases_use_the_normal_curve_and_agree_with_the_exact_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    approximated = amounts._find_critical_rank(120, 0.05)
    monkeypatch.setattr(amounts, "LARGEST_EXACT", 500)
    written_out = amounts._find_critical_rank.__wrapped__(120, 0.05)
    assert abs(approximated - written_out) <= 3


@pytest.mark.parametrize(
    ("factor", "verdict"), [([1.3, 1.5, 1.4, 1.2, 1.6, 1.45], "higher"), ([0.5, 0.7] * 4, "lower"), ([0.9, 1.1] * 4, "unchanged")]
)
def test_amounts_are_called_higher_lower_or_unchanged(factor: list[float], verdict: str) -> None:
    base = [100.0 * (index + 1) for index in range(len(factor))]
    found = compare_amounts(_one_each(base), _one_each([b * f for b, f in zip(base, factor, strict=True)]))
    assert found.verdict == verdict
    assert found.base_median == find_median(base)


def test_five_cases_have_no_interval_at_this_level() -> None:
    found = compare_amounts(_one_each([1.0] * 5), _one_each([9.0] * 5))
    assert (found.verdict, found.interval, found.ratio) == ("too_little_data", None, pytest.approx(9.0))


def test_attempts_count_by_their_median_and_cases_without_amounts_are_left_out() -> None:
    base = {"a": [10.0, 1000.0, 12.0], "b": [], "c": [0.0], "d": [5.0], "e": [math.inf]}
    candidate = {"a": [24.0], "b": [3.0], "c": [4.0], "e": [5.0]}
    found = compare_amounts(base, candidate)
    assert (found.cases, found.base_median, found.candidate_median, found.ratio) == (1, 12.0, 24.0, pytest.approx(2.0))
    assert compare_amounts({}, candidate).verdict == "too_little_data"
    with pytest.raises(ValueError, match="at least one"):
        find_median([])


@pytest.mark.parametrize(("factor", "verdict"), [(1.2, "unchanged"), (100_000.0, "higher")])
def test_a_change_below_what_counts_is_none(factor: float, verdict: str) -> None:
    base = [0.02 + 0.001 * number for number in range(20)]
    found = compare_amounts(_one_each(base), _one_each([value * factor for value in base]), least_change=5.0)
    assert found.verdict == verdict and found.interval is not None and (1.0 in found.interval) == (verdict == "unchanged")
