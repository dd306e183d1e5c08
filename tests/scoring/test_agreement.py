"""Agreement of a judge with labels: equal to scikit-learn's figures, with correct intervals."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.scoring.agreement import FIGURES, Draws, Table, count_table, with_intervals

metrics = pytest.importorskip("sklearn.metrics", reason="the oracle of these figures")

LABELS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60)


def oracle(pairs: list[tuple[bool, bool]]) -> dict[str, float]:
    """The figures of scikit-learn, `nan` if a figure has no value."""
    truth, decided = [label for label, _ in pairs], [decision for _, decision in pairs]
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        truth, decided, average="binary", pos_label=True, zero_division=math.nan
    )
    constant = len({*truth, *decided}) == 1
    return {
        "accuracy": float(metrics.accuracy_score(truth, decided)),
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(f1),
        # scikit-learn divides 0 by 0 here, with a warning.
        "kappa": math.nan if constant else float(metrics.cohen_kappa_score(truth, decided)),
    }


def same(ours: float | None, theirs: float) -> bool:
    return math.isnan(theirs) if ours is None else abs(ours - theirs) <= 1e-9


@given(LABELS.filter(bool))
@settings(max_examples=60, deadline=None)
def test_every_figure_is_the_one_of_scikit_learn(pairs: list[tuple[bool, bool]]) -> None:
    theirs = oracle(pairs)
    for name, value in count_table(pairs).compute_figures().items():
        assert same(value, theirs[name]), (name, value, theirs[name])


def test_large_random_tables_are_those_of_scikit_learn_too() -> None:
    dice = random.Random(4)
    for _ in range(40):
        right, bias = dice.random(), dice.random()
        pairs = [(dice.random() < right, dice.random() < bias) for _ in range(dice.randrange(100, 3000))]
        theirs = oracle(pairs)
        table = count_table(pairs)
        assert all(same(value, theirs[name]) for name, value in table.compute_figures().items())
        cells = metrics.confusion_matrix([label for label, _ in pairs], [decided for _, decided in pairs], labels=[True, False])
        assert [[table.true_pass, table.false_fail], [table.false_pass, table.true_fail]] == cells.tolist()


@pytest.mark.parametrize(
    ("table", "missing"),
    [
        (Table(), {*FIGURES}),
        (Table(true_pass=5), {"kappa"}),
        (Table(true_fail=5), {"precision", "recall", "f1", "kappa"}),
        (Table(false_fail=5), {"precision"}),
        (Table(false_pass=5), {"recall"}),
        (Table(false_fail=3, true_fail=4), {"precision"}),
        (Table(false_pass=3, true_fail=4), {"recall"}),
        (Table(true_pass=3, true_fail=4), set()),
    ],
    ids=lambda value: "" if isinstance(value, set) else f"{value.true_pass}-{value.false_fail}-{value.false_pass}-{value.true_fail}",
)
def test_undefined_figures_are_none_and_have_no_interval(table: Table, missing: set[str]) -> None:
    figures = with_intervals(table, draws=200)
    assert {name for name, figure in figures.items() if figure.value is None} == missing
    has_both = table.true_pass + table.false_fail and table.false_pass + table.true_fail
    without_interval = missing if has_both else {*missing, "precision", "kappa"}
    assert {name for name, figure in figures.items() if figure.interval is None} == without_interval


def test_a_judge_opposite_to_the_labels_has_a_kappa_below_chance() -> None:
    assert Table(false_fail=10, false_pass=10).kappa == -1
    assert Table(false_fail=5).kappa == 0


@given(LABELS.filter(bool))
@settings(max_examples=40, deadline=None)
def test_an_interval_holds_its_figure_and_stays_on_the_scale(pairs: list[tuple[bool, bool]]) -> None:
    for name, figure in with_intervals(count_table(pairs), draws=100).items():
        if figure.value is not None and figure.interval is not None:
            assert figure.value in figure.interval
            assert (-1 if name == "kappa" else 0) <= figure.interval.low <= figure.interval.high <= 1


def test_intervals_are_the_same_every_time_and_differ_with_the_seed() -> None:
    table = Table(true_pass=40, false_fail=6, false_pass=9, true_fail=45)
    assert with_intervals(table) == with_intervals(table)
    assert with_intervals(table) != with_intervals(table, seed=1)


def test_intervals_are_those_of_a_plain_stratified_bootstrap_where_there_are_disagreements() -> None:
    table = Table(true_pass=80, false_fail=20, false_pass=25, true_fail=75)
    dice = random.Random(9)
    plain: dict[str, list[float]] = {name: [] for name in FIGURES}
    for _ in range(3000):
        passed_right = sum(dice.random() < 0.8 for _ in range(100))
        passed_wrong = sum(dice.random() < 0.25 for _ in range(100))
        drawn = Table(true_pass=passed_right, false_fail=100 - passed_right, false_pass=passed_wrong, true_fail=100 - passed_wrong)
        for name, value in drawn.compute_figures().items():
            plain[name].append(value or 0.0)
    for name, figure in with_intervals(table).items():
        values = sorted(plain[name])
        assert figure.interval is not None
        assert abs(figure.interval.low - values[75]) < 0.02, name
        assert abs(figure.interval.high - values[-76]) < 0.02, name


def test_a_judge_without_a_single_disagreement_does_not_get_an_interval_of_no_width() -> None:
    few = with_intervals(Table(true_pass=10, true_fail=10))["kappa"]
    many = with_intervals(Table(true_pass=500, true_fail=500))["kappa"]
    assert few.interval is not None and many.interval is not None
    assert few.value == few.interval.high == 1
    assert few.interval.low < 0.9 < 0.98 < many.interval.low < 1


def rows(passed_right: int, passed_wrong: int, each: int) -> Table:
    return Table(true_pass=passed_right, false_fail=each - passed_right, false_pass=passed_wrong, true_fail=each - passed_wrong)


@pytest.mark.parametrize(("sensitivity", "specificity"), [(0.97, 0.95), (0.99, 0.99)])
def test_nineteen_of_twenty_intervals_hold_the_truth_also_for_a_nearly_perfect_judge(sensitivity: float, specificity: float) -> None:
    # Over every table that 40 right and 40 wrong items can give, weighted by its chance: no dice. In 45 of 100
    # such sets the second judge has no disagreement, and a plain bootstrap would give an interval of no width, from 1 to 1.
    truth = sensitivity + specificity - 1
    held = total = 0.0
    for one in range(41):
        for other in range(41):
            chance = math.comb(40, one) * sensitivity**one * (1 - sensitivity) ** (40 - one)
            chance *= math.comb(40, other) * (1 - specificity) ** other * specificity ** (40 - other)
            if chance < 1e-3:
                continue
            interval = with_intervals(rows(one, other, 40), draws=1000)["kappa"].interval
            assert interval is not None
            total += chance
            held += chance * (truth in interval)
    assert total > 0.97
    assert 0.92 <= held / total <= 0.99


def test_draws_are_uniform_repeatable_and_beta_has_its_mean_and_spread() -> None:
    assert [Draws(7).below(1000) for _ in range(3)] == [Draws(7).below(1000)] * 3
    stream = Draws(1)
    counts = [0] * 10
    for _ in range(10_000):
        counts[stream.below(10)] += 1
    assert all(850 < count < 1150 for count in counts)
    for one, other in ((0.5, 0.5), (0.5, 20.5), (3.0, 7.0), (80.5, 4.5)):
        drawn = [stream.beta(one, other) for _ in range(6000)]
        mean = one / (one + other)
        variance = mean * (1 - mean) / (one + other + 1)
        found = sum(drawn) / len(drawn)
        assert all(0 <= share <= 1 for share in drawn)
        assert abs(found - mean) < 5 * math.sqrt(variance / 6000)
        assert abs(sum((share - found) ** 2 for share in drawn) / 6000 - variance) < 0.12 * variance


def test_the_first_numbers_are_those_of_splitmix64() -> None:
    # Published with the generator: the first outputs for the seed 1234567.
    stream = Draws(1234567)
    assert [stream._bits() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]  # pyright: ignore[reportPrivateUsage]


def test_shuffling_keeps_every_item() -> None:
    items = list(range(50))
    mixed = Draws(3).shuffled(items)
    assert sorted(mixed) == items != mixed
    assert Draws(3).shuffled(items) == mixed
