"""The threshold of a judge: the effect of each, and the one that cross-validation chooses."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.scoring.cutting import choose_cut, count_at_threshold, measure_chance_of_gains, sweep_thresholds

ITEMS = st.lists(st.tuples(st.integers(0, 20).map(lambda n: n / 20), st.booleans()), max_size=40)


def drawn(seed: int, count: int, right: float, wrong: float, spread: float = 0.15) -> list[tuple[float, bool]]:
    """Scores that lie around one value for right answers and around another for wrong ones."""
    dice = random.Random(seed)
    items = [(dice.gauss(right if index % 2 else wrong, spread), bool(index % 2)) for index in range(count)]
    return [(min(1.0, max(0.0, round(score, 2))), label) for score, label in items]


@given(ITEMS)
@settings(max_examples=100, deadline=None)
def test_every_row_of_the_sweep_is_what_its_threshold_gives(items: list[tuple[float, bool]]) -> None:
    rows = sweep_thresholds(items)
    assert [row.threshold for row in rows] == sorted({score for score, _ in items})
    for row in rows:
        assert row.table == count_at_threshold(items, row.threshold)


def test_a_long_sweep_keeps_both_ends() -> None:
    items = [(number / 1000, number % 2 == 0) for number in range(1000)]
    rows = sweep_thresholds(items, most=50)
    assert len(rows) == 50
    assert (rows[0].threshold, rows[-1].threshold) == (0.0, 0.999)


def test_a_score_that_equals_the_threshold_passes() -> None:
    table = count_at_threshold([(0.8, True), (0.79, True)], 0.8)
    assert (table.true_pass, table.false_fail) == (1, 1)


def test_a_misplaced_threshold_is_moved_between_the_two_kinds() -> None:
    cut = choose_cut(drawn(1, 200, 0.6, 0.2, 0.08), 0.8)
    assert cut is not None and cut.advice == "move"
    assert 0.3 < cut.threshold < 0.5
    assert cut.p_value < 0.001
    assert cut.held_out_kappa is not None and cut.present_kappa is not None
    assert cut.held_out_kappa > 0.9 > 0.2 > cut.present_kappa


def test_a_threshold_that_is_right_already_stays_as_it_is_written() -> None:
    cut = choose_cut(drawn(2, 200, 0.95, 0.2, 0.05), 0.55)
    assert cut is not None
    assert (cut.threshold, cut.advice, cut.p_value) == (0.55, "keep", 1.0)


def test_a_gain_that_chance_explains_is_not_followed() -> None:
    cut = choose_cut([*drawn(3, 40, 0.9, 0.3, 0.05), (0.6, True), (0.62, True)], 0.7)
    assert cut is not None
    assert cut.advice in ("cannot_tell", "keep")
    assert cut.p_value > 0.05


def test_on_scores_that_mean_nothing_the_held_out_figure_is_chance_and_the_fitted_one_flatters() -> None:
    fitted, held_out = [], []
    for seed in range(12):
        dice = random.Random(seed)
        cut = choose_cut([(round(dice.random(), 2), bool(index % 2)) for index in range(60)], 0.5, repeats=5)
        assert cut is not None and cut.held_out_kappa is not None and cut.fitted_kappa is not None
        assert cut.advice != "move"
        fitted.append(cut.fitted_kappa)
        held_out.append(cut.held_out_kappa)
    assert abs(sum(held_out) / 12) < 0.1
    assert all(flattering >= honest for flattering, honest in zip(fitted, held_out, strict=True))
    assert sum(fitted) / 12 > sum(held_out) / 12 + 0.05


def test_the_held_out_figure_predicts_new_answers() -> None:
    gaps = []
    for seed in range(10):
        cut = choose_cut(drawn(seed, 80, 0.6, 0.4), 0.8, repeats=5)
        assert cut is not None
        fresh = count_at_threshold(drawn(1000 + seed, 2000, 0.6, 0.4), cut.threshold)
        assert fresh.accuracy is not None
        gaps.append(cut.held_out_accuracy - fresh.accuracy)
    assert abs(sum(gaps) / 10) < 0.03


def test_the_choice_is_the_same_every_time() -> None:
    items = drawn(5, 100, 0.6, 0.4)
    assert choose_cut(items, 0.7) == choose_cut(items, 0.7)


@pytest.mark.parametrize(
    "items",
    [[], [(0.5, True)] * 20, [(0.1, False), (0.9, True)] * 4, [(0.5, True), (0.5, False)] * 20],
    ids=["nothing", "one label", "fewer than folds", "one score"],
)
def test_no_threshold_is_chosen_without_enough_labels(items: list[tuple[float, bool]]) -> None:
    assert choose_cut(items, 0.8) is None


def test_yes_and_no_as_scores_leave_the_threshold_alone() -> None:
    cut = choose_cut([(1.0, True), (0.0, False)] * 10, 0.8)
    assert cut is not None
    assert (cut.threshold, cut.advice, cut.held_out_accuracy) == (0.8, "keep", 1.0)


def test_the_paired_test_on_whole_gains_is_mcnemars() -> None:
    from statistics import NormalDist

    z = (14 - 5) / (14 + 5) ** 0.5
    assert measure_chance_of_gains([1.0] * 14 + [-1.0] * 5 + [0.0] * 30) == pytest.approx(2 * (1 - NormalDist().cdf(z)), abs=1e-12)
    assert measure_chance_of_gains([]) == measure_chance_of_gains([0.0, 0.0]) == 1.0
