"""Intervals and repeat estimates against published values and scipy."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from scipy import stats

from proctor.scoring.intervals import (
    Z95,
    Counts,
    find_normal_quantile,
    find_two_sided_z,
    newcombe,
    stratified_difference,
    wilson,
)
from proctor.scoring.statistics import count_outcomes, pass_at_k, pass_hat_k, summarize, summarize_suite
from tests.scoring.references import newcombe_paired
from tests.tables import rows

SIZES = (1, 2, 3, 5, 10, 37, 200, 5000)


@st.composite
def some_counts(draw: st.DrawFn, most: int = 12) -> Counts:
    runs = draw(st.integers(1, most))
    return Counts(runs, draw(st.integers(0, runs)))


@rows("scoring/cases/intervals.yaml")
def test_intervals_are_the_published_ones(row: dict[str, Any]) -> None:
    ((function, numbers),) = row["given"].items()
    if function == "wilson":
        found = wilson(Counts(*numbers))
    elif function == "newcombe":
        found = newcombe(Counts(*numbers[:2]), Counts(*numbers[2:]))
    else:
        found = newcombe_paired(*numbers)
    bounds = [found.low, found.high]
    # Published figures are sometimes cut and not rounded: one unit in the last place.
    assert bounds == pytest.approx(row["expect"], abs=10.0 ** -row["places"], rel=0)


@pytest.mark.parametrize("runs", SIZES)
@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99])
def test_wilson_agrees_with_scipy(runs: int, confidence: float) -> None:
    for passes in sorted({0, 1, runs // 3, runs // 2, runs - 1, runs}):
        wanted = stats.binomtest(passes, runs).proportion_ci(confidence, method="wilson")
        found = wilson(Counts(runs, passes), confidence=confidence)
        assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-9, rel=0)


def test_quantiles_agree_with_scipy() -> None:
    for probability in (0.001, 0.025, 0.2, 0.5, 0.8, 0.95, 0.975, 0.9999):
        assert find_normal_quantile(probability) == pytest.approx(stats.norm.ppf(probability), abs=1e-12)
    assert find_two_sided_z(0.95) == Z95 == pytest.approx(stats.norm.ppf(0.975), abs=1e-12)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, math.nan])
def test_a_confidence_that_is_none_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        wilson(Counts(3, 2), confidence=confidence)


def _by_hand(base: Counts, candidate: Counts) -> tuple[float, float]:
    (low1, high1), (low2, high2) = (stats.binomtest(c.passes, c.runs).proportion_ci(method="wilson") for c in (base, candidate))
    difference = candidate.rate - base.rate
    return (
        difference - math.hypot(candidate.rate - low2, high1 - base.rate),
        difference + math.hypot(high2 - candidate.rate, base.rate - low1),
    )


@pytest.mark.parametrize(("base_runs", "candidate_runs"), list(itertools.product((1, 4, 10, 80), repeat=2)))
def test_newcombe_agrees_with_intervals_of_scipy_squared_and_added(base_runs: int, candidate_runs: int) -> None:
    for base, candidate in itertools.product(
        range(0, base_runs + 1, 1 + base_runs // 8), range(0, candidate_runs + 1, 1 + candidate_runs // 8)
    ):
        counts = Counts(base_runs, base), Counts(candidate_runs, candidate)
        found = newcombe(*counts)
        assert (found.low, found.high) == pytest.approx(_by_hand(*counts), abs=1e-9, rel=0)


@given(st.tuples(*[st.integers(0, 30)] * 4))
@settings(max_examples=200, deadline=None)
def test_the_paired_interval_follows_the_published_formula_and_turns_with_the_sides(table: tuple[int, int, int, int]) -> None:
    both, only_base, only_candidate, neither = table
    pairs = sum(table)
    if not pairs:
        return
    # Newcombe 1998, paired, method 10, written as in the paper: e f g h are the cells, phi is corrected when e h > f g.
    base, candidate = both + only_base, both + only_candidate
    product = base * (only_candidate + neither) * candidate * (only_base + neither)
    cross = both * neither - only_base * only_candidate
    corrected = cross - pairs / 2 if cross > pairs / 2 else 0 if cross >= 0 else cross
    phi = corrected / math.sqrt(product) if product else 0.0
    (l1, u1), (l2, u2) = (stats.binomtest(x, pairs).proportion_ci(method="wilson") for x in (base, candidate))
    p1, p2 = base / pairs, candidate / pairs
    low = p2 - p1 - math.sqrt((p2 - l2) ** 2 - 2 * phi * (p2 - l2) * (u1 - p1) + (u1 - p1) ** 2)
    high = p2 - p1 + math.sqrt((u2 - p2) ** 2 - 2 * phi * (u2 - p2) * (p1 - l1) + (p1 - l1) ** 2)
    found = newcombe_paired(*table)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9, rel=0)
    turned = newcombe_paired(both, only_candidate, only_base, neither)
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low), abs=1e-12, rel=0)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60))
@settings(max_examples=200, deadline=None)
def test_one_attempt_per_case_makes_the_stratified_interval_the_paired_one(cases: list[tuple[int, int]]) -> None:
    found = stratified_difference([(Counts(1, base), Counts(1, candidate)) for base, candidate in cases]).interval
    paired = newcombe_paired(cases.count((1, 1)), cases.count((1, 0)), cases.count((0, 1)), cases.count((0, 0)))
    assert (found.low, found.high) == pytest.approx((paired.low, paired.high), abs=1e-9, rel=0)


@given(some_counts(), some_counts())
@settings(max_examples=200, deadline=None)
def test_a_single_case_makes_the_stratified_interval_the_independent_one(base: Counts, candidate: Counts) -> None:
    found = stratified_difference([(base, candidate)])
    apart = newcombe(base, candidate)
    assert (found.interval.low, found.interval.high) == pytest.approx((apart.low, apart.high), abs=1e-9, rel=0)
    assert found.difference == pytest.approx(candidate.rate - base.rate, abs=1e-12)


@given(st.lists(st.tuples(some_counts(), some_counts()), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_the_stratified_difference_lies_in_its_interval_and_turns_with_the_sides(pairs: list[tuple[Counts, Counts]]) -> None:
    found = stratified_difference(pairs)
    assert -1 <= found.interval.low <= found.difference + 1e-12
    assert found.difference - 1e-12 <= found.interval.high <= 1
    turned = stratified_difference([(candidate, base) for base, candidate in pairs])
    assert (turned.difference, turned.interval.low) == pytest.approx((-found.difference, -found.interval.high), abs=1e-9)


def test_equal_repeats_make_the_difference_the_plain_mean_over_cases() -> None:
    pairs = [(Counts(4, 4), Counts(4, 1)), (Counts(4, 2), Counts(4, 3)), (Counts(4, 0), Counts(4, 0))]
    found = stratified_difference(pairs)
    assert found.difference == pytest.approx((-0.75 + 0.25 + 0) / 3)
    assert (found.base_rate, found.candidate_rate) == pytest.approx((0.5, 1 / 3))


@pytest.mark.parametrize("runs", [1, 2, 3, 5, 10, 25])
def test_pass_at_k_and_pass_hat_k_agree_with_drawing_without_putting_back(runs: int) -> None:
    ks = list(range(1, runs + 1))
    for passes in range(runs + 1):
        counts = Counts(runs, passes)
        assert [pass_at_k(counts, k) for k in ks] == pytest.approx(stats.hypergeom.sf(0, runs, passes, ks), abs=1e-9, rel=0)
        assert [pass_hat_k(counts, k) for k in ks] == pytest.approx(stats.hypergeom.pmf(ks, runs, passes, ks), abs=1e-9, rel=0)


@pytest.mark.parametrize("k", [0, 4, -1])
def test_k_beyond_the_attempts_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="number of attempts, 3"):
        pass_hat_k(Counts(3, 3), k)
    with pytest.raises(ValueError, match="number of attempts, 3"):
        pass_at_k(Counts(3, 3), k)


@pytest.mark.parametrize(("runs", "passes"), [(3, 4), (3, -1), (-1, 0)])
def test_counts_that_cannot_be_are_refused(runs: int, passes: int) -> None:
    with pytest.raises(ValueError, match="0 <= passes <= runs"):
        Counts(runs, passes)


def test_an_error_is_an_attempt_that_did_not_pass_and_a_skip_is_none() -> None:
    assert count_outcomes({"pass": 3, "fail": 1, "error": 2, "skip": 7}) == Counts(6, 3)
    assert count_outcomes({"skip": 1}) == Counts(0, 0)


def test_one_case_is_summarized() -> None:
    found = summarize(Counts(4, 3))
    assert (found.runs, found.passes, found.rate, found.flaky) == (4, 3, 0.75, True)
    assert found.interval == wilson(Counts(4, 3))
    assert found.pass_at == {1: 0.75, 2: 1.0, 3: 1.0, 4: 1.0}
    assert found.pass_hat == {1: 0.75, 2: 0.5, 3: 0.25, 4: 0.0}
    assert list(summarize(Counts(7, 7)).pass_hat) == [1, 2, 3, 4, 5, 7]
    nothing = summarize(Counts(0, 0))
    assert (nothing.rate, nothing.pass_at, nothing.flaky) == (0.0, {}, False)


def test_a_suite_is_summarized_over_the_cases_that_were_decided() -> None:
    found = summarize_suite({"b": Counts(4, 2), "a": Counts(3, 1), "sure": Counts(3, 3), "skipped": Counts(0, 0)})
    assert (found.cases, found.runs, found.passes) == (3, 10, 6)
    assert found.interval == wilson(Counts(10, 6))
    assert found.flaky == ("a", "b")
    assert found.pass_hat == pytest.approx({1: (1 / 2 + 1 / 3 + 1) / 3, 2: (1 / 6 + 0 + 1) / 3, 3: 1 / 3})
    assert found.pass_at == pytest.approx({1: (1 / 2 + 1 / 3 + 1) / 3, 2: (5 / 6 + 2 / 3 + 1) / 3, 3: 1.0})
    empty = summarize_suite({})
    assert (empty.cases, empty.rate, empty.pass_at, empty.flaky) == (0, 0.0, {}, ())


@pytest.mark.parametrize("passes", [0, 5])
def test_cases_that_never_vary_do_not_narrow_the_interval_of_the_others(passes: int) -> None:
    others = [(Counts(runs=5, passes=5 - passes), Counts(runs=5, passes=abs(5 - passes - lost))) for lost in (0, 0, 1, 0)]
    alone = stratified_difference(others).interval
    joined = stratified_difference([*others, *[(Counts(runs=5, passes=passes), Counts(runs=5, passes=passes))] * 4]).interval
    # Twice as many cases: each of the others counts half.
    assert joined.low <= alone.low / 2 + 1e-12 and joined.high >= alone.high / 2 - 1e-12


@pytest.mark.parametrize(("live", "before", "after", "runs"), [(2, 1.0, 0.9, 10), (5, 0.98, 0.9, 5), (5, 0.99, 0.95, 10)])
def test_the_interval_covers_the_change_of_a_suite_of_which_half_always_fails(live: int, before: float, after: float, runs: int) -> None:
    draw = random.Random(7)

    def count(rate: float) -> Counts:
        return Counts(runs=runs, passes=sum(draw.random() < rate for _ in range(runs)))

    dead = [(Counts(runs=runs, passes=0), Counts(runs=runs, passes=0))] * live
    covered = 0
    for _ in range(400):
        found = stratified_difference([*dead, *((count(before), count(after)) for _ in range(live))]).interval
        covered += (after - before) / 2 in found
    assert covered >= 0.95 * 400
