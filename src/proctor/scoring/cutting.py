"""Chooses the passing score of a judge, and shows what every threshold would have given.

A threshold that is chosen and measured on the same answers looks better than it is, so it is chosen by repeated cross-validation: the best
threshold for all folds but one is measured on the remaining fold. The reported figures are those of held-out answers, and the threshold is
the median of all chosen ones.

The best threshold has the greatest kappa, then the greatest accuracy, then the smallest distance from the present threshold. All
thresholds between two adjacent scores give the same decisions: the middle is used, or the present threshold if it lies between them. A
paired test over the items decides whether the new threshold is better than the present one beyond chance: it compares how often each item
is decided correctly while held out with whether the present threshold decides it correctly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from proctor.scoring.agreement import SEED, Draws, Table, count_table, find_quantile

FOLDS = 5
"""The number of folds: each is decided by a threshold that was chosen on the others."""
REPEATS = 20
"""The number of repeated splits; the mean over them is stable."""
ALPHA = 0.05
"""The maximum p-value at which a new threshold is advised."""

Advice = Literal["keep", "move", "cannot_tell"]

Scored = tuple[float, bool]
"""A score and its label."""


class SweepRow(msgspec.Struct, frozen=True):
    """The result of a threshold: this score and higher ones pass."""

    threshold: float
    table: Table


class Gap(msgspec.Struct, frozen=True):
    """Thresholds above `low`, up to and including `high`, which all give the same table."""

    low: float
    high: float
    table: Table

    def place(self, present: float) -> float:
        """Return the threshold to use: the present one if it is in the gap, else the middle."""
        return present if self.low < present <= self.high else (self.low + self.high) / 2

    def measure_distance(self, present: float) -> float:
        """Return how far the present threshold would have to move."""
        return abs(self.place(present) - present)


class ChosenCut(msgspec.Struct, frozen=True, kw_only=True):
    """The cut that cross-validation chose, and the present threshold."""

    threshold: float
    present: float
    advice: Advice
    """`move` if the cut is better than the present threshold on held-out items beyond chance; `cannot_tell` if the difference may be
    chance; `keep` if it is not better, or decides every item alike."""
    folds: int
    repeats: int
    held_out_accuracy: float
    """The mean over the repeats, on answers that were not used to choose the cut."""
    held_out_kappa: float | None
    present_accuracy: float
    present_kappa: float | None
    fitted_accuracy: float
    """The figure on the answers that were used to choose the cut, which is too optimistic."""
    fitted_kappa: float | None
    spread: tuple[float, float]
    """The range of the middle nine tenths of the chosen cuts; wide if the choice depends on single items."""
    p_value: float
    """The p-value of the difference from the present threshold."""


def count_at_threshold(items: Sequence[Scored], threshold: float) -> Table:
    """Return the table if scores from `threshold` on pass."""
    return count_table((label, score >= threshold) for score, label in items)


def sweep_thresholds(items: Sequence[Scored], *, most: int | None = None) -> list[SweepRow]:
    """Return one row for each distinct score, lowest first; with `most`, evenly spaced ones."""
    rows = [SweepRow(gap.high, gap.table) for gap in _list_gaps(items)]
    if most is None or len(rows) <= most:
        return rows
    return [rows[round(index * (len(rows) - 1) / (most - 1))] for index in range(most)]


def choose_cut(
    items: Sequence[Scored], present: float, *, folds: int = FOLDS, repeats: int = REPEATS, seed: int = SEED
) -> ChosenCut | None:
    """Return the best cut for these items, or None if a label has fewer items than folds, or all scores are the same."""
    by_label = [[index for index, (_, label) in enumerate(items) if label is is_right] for is_right in (True, False)]
    # Every fold needs both labels, and a cut needs two distinct scores.
    if min(len(indices) for indices in by_label) < folds or len({score for score, _ in items}) < 2:
        return None
    stream = Draws(seed)
    cuts: list[float] = []
    tables: list[Table] = []
    right = [0] * len(items)
    for _ in range(repeats):
        passed = [False] * len(items)
        for fold in deal_folds(by_label, folds, stream):
            cut = _choose_best(_list_gaps([item for index, item in enumerate(items) if index not in fold]), present).place(present)
            cuts.append(cut)
            for index in fold:
                passed[index] = items[index][0] >= cut
        tables.append(count_table((label, passed[index]) for index, (_, label) in enumerate(items)))
        for index, (_, label) in enumerate(items):
            right[index] += passed[index] == label
    gains = [count / repeats - ((score >= present) == label) for count, (score, label) in zip(right, items, strict=True)]
    cuts.sort()
    threshold = _round_cut(items, find_quantile(cuts, 0.5), present)
    present_table, fitted = count_at_threshold(items, present), _choose_best(_list_gaps(items), present).table
    accuracy, kappa = _find_mean(tables, lambda table: table.accuracy) or 0.0, _find_mean(tables, lambda table: table.kappa)
    p_value = measure_chance_of_gains(gains)
    advice: Advice = "cannot_tell"
    if threshold == present or (kappa or 0.0) <= (present_table.kappa or 0.0):
        advice = "keep"
    elif p_value <= ALPHA and math.fsum(gains) > 0:
        advice = "move"
    return ChosenCut(
        threshold=threshold,
        present=present,
        advice=advice,
        folds=folds,
        repeats=repeats,
        held_out_accuracy=accuracy,
        held_out_kappa=kappa,
        present_accuracy=present_table.accuracy or 0.0,
        present_kappa=present_table.kappa,
        fitted_accuracy=fitted.accuracy or 0.0,
        fitted_kappa=fitted.kappa,
        spread=(find_quantile(cuts, 0.05), find_quantile(cuts, 0.95)),
        p_value=p_value,
    )


def measure_chance_of_gains(gains: Sequence[float]) -> float:
    """Return the two-sided p-value of a sum of gains if each could as well be a loss; McNemar's test for whole gains."""
    spread = math.sqrt(math.fsum(gain * gain for gain in gains))
    return math.erfc(abs(math.fsum(gains)) / spread / math.sqrt(2)) if spread else 1.0


def _list_gaps(items: Sequence[Scored]) -> list[Gap]:
    """Return the distinct thresholds, lowest first, in one pass over the sorted scores."""
    right = sum(label for _, label in items)
    wrong = len(items) - right
    failed_right = failed_wrong = 0
    gaps: list[Gap] = []
    # Everything passes at the lowest score, as with a threshold of 0, so nothing lower is tried.
    low = 0.0
    ordered = sorted(items)
    at = 0
    while at < len(ordered):
        score = ordered[at][0]
        table = Table(true_pass=right - failed_right, false_fail=failed_right, false_pass=wrong - failed_wrong, true_fail=failed_wrong)
        gaps.append(Gap(min(low, score), score, table))
        while at < len(ordered) and ordered[at][0] == score:
            failed_right += ordered[at][1]
            failed_wrong += not ordered[at][1]
            at += 1
        low = score
    return gaps


def _choose_best(gaps: Sequence[Gap], present: float) -> Gap:
    def worth(gap: Gap) -> tuple[float, float, float]:
        kappa = gap.table.kappa
        # Rounded, so that rounding errors do not outweigh staying near the present threshold.
        return (round(kappa if kappa is not None else 0.0, 12), round(gap.table.accuracy or 0.0, 12), -gap.measure_distance(present))

    return max(gaps, key=worth)


def deal_folds(by_label: Sequence[list[int]], folds: int, stream: Draws) -> Iterator[set[int]]:
    """Yield the items split into folds, each label separately, so that every fold has both."""
    dealt: list[set[int]] = [set() for _ in range(folds)]
    for indices in by_label:
        for place, index in enumerate(stream.shuffled(indices)):
            dealt[place % folds].add(index)
    return iter(dealt)


def _round_cut(items: Sequence[Scored], cut: float, present: float) -> float:
    """Return an equivalent cut: the present threshold if it decides every item alike, else one with as few decimals as possible."""
    decided = [score >= cut for score, _ in items]
    for short in (present, round(cut, 1), round(cut, 2), round(cut, 3)):
        if [score >= short for score, _ in items] == decided:
            return short
    return cut


def _find_mean(tables: Sequence[Table], figure: Callable[[Table], float | None]) -> float | None:
    values = [value for value in map(figure, tables) if value is not None]
    return math.fsum(values) / len(values) if values else None
