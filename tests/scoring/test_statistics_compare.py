"""Two runs compared: the verdict, its reasons, its cases, and its error rate."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from benchmarks.statistics_power import simulate
from hypothesis import given, settings
from scipy import stats

from proctor.scoring.intervals import Counts
from proctor.scoring.paired import compare_cases, compare_runs, detectable_drop, fisher, repeats_needed
from tests.scoring.references import compute_power, mcnemar, newcombe_paired
from tests.scoring.test_statistics_intervals import some_counts


def run(*groups: tuple[int, int, int]) -> dict[str, Counts]:
    """Groups of (number of cases, attempts, passes), named in order."""
    counts = [Counts(runs, passes) for number, runs, passes in groups for _ in range(number)]
    return {f"case-{index:03}": one for index, one in enumerate(counts)}


def test_a_broken_suite_regressed_and_the_reverse_improved() -> None:
    good, bad = run((30, 3, 3)), run((20, 3, 3), (10, 3, 1))
    down, up = compare_runs(good, bad), compare_runs(bad, good)
    assert (down.verdict, up.verdict) == ("regressed", "improved")
    assert down.effect == pytest.approx(-20 / 90) and up.effect == pytest.approx(20 / 90)
    assert down.interval.high < 0 < up.interval.low
    assert (down.p_value, down.p_regressed) == (up.p_value, up.p_improved)
    assert down.newly_failing == up.newly_passing == tuple(f"case-{index:03}" for index in range(20, 30))
    assert down.newly_passing == () == down.base.flaky
    assert down.candidate.flaky == down.newly_failing
    assert "fell over 30 cases: -22.2 points, 95% interval" in down.reason
    assert "rose over 30 cases: +22.2 points" in up.reason


def test_the_same_run_twice_is_unchanged_when_there_is_enough_of_it() -> None:
    same = compare_runs(run((40, 3, 3)), run((40, 3, 3)))
    assert (same.verdict, same.effect, same.p_value, same.informative) == ("unchanged", 0.0, 1.0, 0)
    assert -0.2 < same.interval.low < 0 < same.interval.high < 0.2
    assert "none of 20 points or more is likely" in same.reason
    few = compare_runs(run((4, 1, 1)), run((4, 1, 1)))
    assert few.verdict == "too_little_data"
    assert "cannot be ruled out" in few.reason
    assert compare_runs(run((4, 1, 1)), run((4, 1, 1)), resolution=0.5).verdict == "unchanged"


def test_four_broken_cases_of_four_are_too_little_data_and_six_of_six_are_not() -> None:
    assert compare_runs(run((4, 1, 1)), run((4, 1, 0))).verdict == "too_little_data"
    assert compare_runs(run((4, 1, 1)), run((4, 1, 0))).newly_failing == ("case-000", "case-001", "case-002", "case-003")
    assert compare_runs(run((6, 1, 1)), run((6, 1, 0))).verdict == "regressed"


def test_the_interval_never_rules_out_what_the_test_does_not() -> None:
    five, six = (compare_runs(run((20, 1, 1)), run((broken, 1, 0), (20 - broken, 1, 1))) for broken in (5, 6))
    assert newcombe_paired(15, 5, 0, 0).high < 0
    assert five.p_value > 0.05 and five.interval.high == 0.0 and five.verdict == "too_little_data"
    assert six.p_value <= 0.05 and six.interval.high < 0.0 and six.verdict == "regressed"


def test_a_test_that_the_interval_does_not_bear_out_is_not_enough() -> None:
    lopsided = {"a": Counts(5, 5), "b": Counts(2, 0), "c": Counts(1, 1)}, {"a": Counts(2, 0), "b": Counts(4, 0), "c": Counts(2, 2)}
    found = compare_runs(*lopsided)
    assert found.p_value <= 0.05 and 0 in found.interval and found.verdict == "too_little_data"


def test_runs_without_a_common_case_are_too_little_data() -> None:
    found = compare_runs({"a": Counts(3, 3), "skipped": Counts(0, 0)}, {"b": Counts(3, 0), "skipped": Counts(2, 2)})
    assert (found.verdict, found.cases, found.reason) == ("too_little_data", 0, "no case has results in both runs")
    assert (found.only_in_base, found.only_in_candidate) == (("a",), ("b", "skipped"))
    assert (found.detectable_drop, found.repeats_needed, found.changes) == (None, (), ())


def test_an_effect_below_the_minimum_is_no_regression() -> None:
    base, candidate = run((200, 5, 5)), run((170, 5, 5), (30, 5, 4))
    assert compare_runs(base, candidate).verdict == "regressed"
    assert compare_runs(base, candidate, min_effect=0.05).verdict == "unchanged"


def test_alpha_moves_the_verdict_and_the_interval_together() -> None:
    base, candidate = run((25, 2, 2)), run((21, 2, 2), (4, 2, 1), (0, 2, 0))
    strict, loose = compare_runs(base, candidate), compare_runs(base, candidate, alpha=0.2)
    assert strict.p_value == loose.p_value == mcnemar(4, 0) == 0.125
    assert (strict.verdict, loose.verdict) == ("unchanged", "regressed")
    assert loose.interval.high < strict.interval.high


def test_a_pass_threshold_decides_what_counts_as_failing() -> None:
    base, candidate = {"a": Counts(4, 4), "b": Counts(4, 4)}, {"a": Counts(4, 3), "b": Counts(4, 3)}
    assert compare_runs(base, candidate, pass_thresholds={"b": 0.75}).newly_failing == ("a",)


@pytest.mark.parametrize(
    ("base", "candidate", "newly_failing"),
    (((5, 4), (5, 0), True), ((5, 1), (5, 0), True), ((5, 4), (5, 1), False), ((5, 0), (5, 0), False), ((5, 0), (5, 3), False)),
)
def test_a_case_that_lost_its_last_pass_is_newly_failing(base: tuple[int, int], candidate: tuple[int, int], newly_failing: bool) -> None:
    found = compare_runs({"a": Counts(*base)}, {"a": Counts(*candidate)})
    assert found.newly_failing == (("a",) if newly_failing else ()) and found.newly_passing == ()


def test_one_attempt_per_case_is_the_paired_table() -> None:
    base = run((50, 1, 1), (12, 1, 1), (3, 1, 0), (10, 1, 0))
    candidate = run((50, 1, 1), (12, 1, 0), (3, 1, 1), (10, 1, 0))
    found = compare_runs(base, candidate)
    assert found.p_value == pytest.approx(stats.binomtest(3, 15).pvalue, abs=1e-9)
    paired = newcombe_paired(50, 12, 3, 10)
    assert (found.interval.low, found.interval.high) == pytest.approx((paired.low, paired.high), abs=1e-12)
    assert (found.base_rate, found.candidate_rate) == pytest.approx((62 / 75, 53 / 75))


@given(st.lists(st.tuples(some_counts(), some_counts()), max_size=15))
@settings(max_examples=60, deadline=None)
def test_turning_the_sides_turns_the_verdict(pairs: list[tuple[Counts, Counts]]) -> None:
    base = {str(index): one for index, (one, _) in enumerate(pairs)}
    candidate = {str(index): other for index, (_, other) in enumerate(pairs)}
    there, back = compare_runs(base, candidate), compare_runs(candidate, base)
    turned = {"regressed": "improved", "improved": "regressed"}
    assert back.verdict == turned.get(there.verdict, there.verdict)
    assert set(back.newly_passing) <= set(there.newly_failing)
    assert all(back_case.base.passes == 0 for back_case in back.changes if back_case.case in {*there.newly_failing} - {*back.newly_passing})
    if there.verdict == "regressed":
        assert there.effect < 0 and there.p_value <= 0.05 and there.interval.high < 0
    elif there.verdict != "improved":
        assert 0 in there.interval
    assert [change.p_value for change in there.changes] == [change.p_value for change in back.changes]


def test_cases_are_called_on_their_own_after_adjustment() -> None:
    base = {"broken": Counts(10, 10), "shaky": Counts(10, 8), "few": Counts(2, 2), "fixed": Counts(10, 0), "sure": Counts(10, 10)}
    candidate = {"broken": Counts(10, 1), "shaky": Counts(10, 6), "few": Counts(2, 0), "fixed": Counts(10, 9), "sure": Counts(10, 10)}
    changes = {change.case: change for change in compare_cases(base, candidate)}
    assert {case: change.verdict for case, change in changes.items()} == {
        "broken": "regressed",
        "shaky": "unchanged",
        "few": "too_little_data",
        "fixed": "improved",
        "sure": "unchanged",
    }
    # Only the cases that could be significant are counted: not `few` with its two attempts, nor `sure`, which never failed.
    family = ["broken", "shaky", "fixed"]
    wanted = stats.false_discovery_control([fisher(base[case], candidate[case]) for case in family])
    assert [changes[case].adjusted_p for case in family] == pytest.approx(list(wanted), abs=1e-12)
    assert changes["sure"].adjusted_p == changes["few"].adjusted_p == 1.0


# --- power --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("cases", [1, 20, 100])
@pytest.mark.parametrize("base_rate", [1.0, 0.85, 0.5])
def test_the_repeats_needed_are_the_fewest_with_the_power(drop: float, cases: int, base_rate: float) -> None:
    repeats = repeats_needed(cases, base_rate, drop)
    assert repeats is not None
    assert compute_power(cases, repeats, base_rate, drop) >= 0.8 - 1e-9
    assert repeats == 1 or compute_power(cases, repeats - 1, base_rate, drop) < 0.8


def test_the_sample_size_is_the_one_of_the_tables() -> None:
    # Fleiss, Statistical Methods for Rates and Proportions, table A.3: two-sided 0.05, power 0.80, continuity corrected.
    assert repeats_needed(1, 0.95, 0.1) == 160
    assert repeats_needed(1, 0.6, 0.1) == 408


def test_a_rate_that_cannot_drop_so_far_needs_no_repeats() -> None:
    assert repeats_needed(20, 0.05, 0.1) is None
    assert repeats_needed(0, 0.9, 0.1) is None
    assert repeats_needed(20, 0.9, 0.0) is None
    assert compute_power(20, 3, 0.05, 0.1) == compute_power(0, 3, 0.9, 0.1) == compute_power(20, 3, 0.9, 0.0) == 0.0
    assert compute_power(50, 5, 1.0, 1.0) == 1.0 and compute_power(1, 1, 1.0, 1.0) == 0.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        repeats_needed(20, 1.5, 0.1)


def test_more_repeats_see_smaller_drops() -> None:
    drops = [detectable_drop(50, repeats, 0.85) for repeats in (1, 3, 10)]
    assert drops == sorted(drops, reverse=True, key=lambda drop: drop or 1)  # type: ignore[type-var]
    assert detectable_drop(3, 1, 0.5) is None
    for repeats, drop in zip((1, 3, 10), drops, strict=True):
        assert drop is not None
        assert compute_power(50, repeats, 0.85, drop) >= 0.8 > compute_power(50, repeats, 0.85, drop - 0.002)


def test_a_comparison_reports_the_effect_it_could_detect() -> None:
    found = compare_runs(run((42, 2, 2), (8, 2, 0)), run((42, 2, 2), (8, 2, 0)))
    assert found.detectable_drop == detectable_drop(50, 2, 0.84)
    assert [(need.drop, need.repeats) for need in found.repeats_needed] == [
        (drop, repeats_needed(50, 0.84, drop)) for drop in (0.05, 0.1, 0.2)
    ]


# --- how often it is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", ["alike", "mixed"])
@pytest.mark.timeout(60)
def test_the_gate_stays_silent_where_nothing_changed(suite: str) -> None:
    designs = [(20, 1), (20, 5), (40, 2), (50, 3), (100, 1), (100, 4), (200, 1)]
    found = [simulate(suite, cases, repeats, 0.0, 60) for cases, repeats in designs]
    total = sum(one.comparisons for one in found)
    assert sum(one.share("regressed", "improved") * one.comparisons for one in found) <= 0.05 * total
    assert sum(one.share("regressed") * one.comparisons for one in found) <= 0.025 * total
    assert sum(one.covered for one in found) / total >= 0.93


@pytest.mark.parametrize("suite", ["alike", "mixed"])
@pytest.mark.timeout(60)
def test_real_drops_are_detected_at_least_as_often_as_the_formula_predicts(suite: str) -> None:
    comparisons = 100
    for drop in (0.05, 0.1, 0.2):
        found = simulate(suite, 60, 3, drop, comparisons)
        promised = compute_power(60, 3, 0.85, drop)
        # Three standard errors of a simulation of this size.
        assert found.share("regressed") >= promised - 3 * (promised * (1 - promised) / comparisons) ** 0.5
    assert found.share("regressed") >= 0.95


@pytest.mark.parametrize(
    ("before", "after", "runs", "least", "verdict", "reason"),
    [
        (3, 1, 3, 0.0, "too_little_data", "too little data over 1 case to distinguish a change from chance"),
        (90, 70, 100, 0.5, "too_little_data", "the pass rate fell over 1 case, less than the minimum of 50 points"),
        (900, 899, 1000, 0.0, "unchanged", "no change beyond chance over 1 case"),
    ],
)
def test_a_reason_names_why_a_change_is_not_called(before: int, after: int, runs: int, least: float, verdict: str, reason: str) -> None:
    found = compare_runs({"a": Counts(runs, before)}, {"a": Counts(runs, after)}, min_effect=least)
    assert found.verdict == verdict and found.reason.startswith(reason)
    assert "no change" not in found.reason or found.p_value > found.alpha


def test_no_comparison_with_a_small_p_value_reports_no_change() -> None:
    for cases, runs, lost in itertools.product((1, 2, 3, 6), (2, 3, 5, 8), (1, 2, 3)):
        base = {f"c{number}": Counts(runs, runs) for number in range(cases)} | {"dead": Counts(runs, 0)}
        found = compare_runs(base, {case: Counts(runs, max(0, seen.passes - lost)) for case, seen in base.items()})
        assert "no change" not in found.reason or (found.p_value > found.alpha and found.verdict == "unchanged"), found.reason
