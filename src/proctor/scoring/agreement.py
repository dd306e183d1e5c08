"""How far a judge agrees with people: accuracy, precision, recall, F1 and Cohen's kappa, each with an interval.

Positive is what people call right. A *false pass* is an answer people call wrong and the judge let pass; a *false fail* the reverse.

What cannot be computed is nothing, never 0 or 1:

accuracy   of no item
precision  where the judge passed nothing
recall     where people call nothing right
F1         where neither people nor the judge passed anything
kappa      of no item, and where both people and the judge always say the same one thing: agreement by chance is then certain, and
           nothing is left to be better than chance at

Intervals are a Bayesian bootstrap (Rubin 1981), stratified by label: the author of the set chose how many items are right and wrong, so
these numbers are fixed, and only the judge's decisions are resampled. Half an item is added to each of the four cells
(Jeffreys' prior). A plain bootstrap resamples the disagreements that happened to occur, so a judge without any would get the interval from
1 to 1 after twenty items; this one does not, and is near it elsewhere. The seed is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from proctor.scoring.draws import Draws
from proctor.scoring.intervals import Interval

DRAWS = 2000
"""Tables drawn for an interval."""
SEED = 20_260_101
"""A fixed seed, so that the same answers give the same interval."""
FIGURES = ("accuracy", "precision", "recall", "f1", "kappa")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The confusion table."""

    true_pass: int = 0
    """People call it right, and the judge passes it."""
    false_fail: int = 0
    """People call it right, and the judge fails it."""
    false_pass: int = 0
    """People call it wrong, and the judge passes it."""
    true_fail: int = 0
    """People call it wrong, and the judge fails it."""

    @property
    def total(self) -> int:
        """All items."""
        return self.true_pass + self.false_fail + self.false_pass + self.true_fail

    @property
    def accuracy(self) -> float | None:
        """The share on which judge and people agree."""
        return self.compute_figures()["accuracy"]

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa: 0 is what chance gives, 1 is full agreement."""
        return self.compute_figures()["kappa"]

    def compute_figures(self) -> dict[str, float | None]:
        """Return all figures by name."""
        return _compute_figures(self.true_pass, self.false_fail, self.false_pass, self.true_fail)


class Figure(msgspec.Struct, frozen=True):
    """A figure and its interval; neither where it cannot be computed."""

    value: float | None
    interval: Interval | None


def count_table(pairs: Iterable[tuple[bool, bool]]) -> Table:
    """Return the table of pairs of label and decision."""
    cells = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    for pair in pairs:
        cells[pair] += 1
    return Table(true_pass=cells[True, True], false_fail=cells[True, False], false_pass=cells[False, True], true_fail=cells[False, False])


def with_intervals(table: Table, *, confidence: float = 0.95, draws: int = DRAWS, seed: int = SEED) -> dict[str, Figure]:
    """Return every figure of a table with its interval. The interval always holds the figure."""
    values = table.compute_figures()
    found: dict[str, list[float]] = {name: [] for name, value in values.items() if value is not None}
    stream = Draws(seed)
    for _ in range(draws if found else 0):
        drawn = _draw_figures(table, stream)
        for name, drawn_values in found.items():
            value = drawn[name]
            if value is not None:
                drawn_values.append(value)
    return {name: Figure(value, _find_interval(value, found.get(name, []), confidence)) for name, value in values.items()}


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """How much better one judge agrees with the labels than another, on the same items."""

    before: float | None
    """Kappa."""
    after: float | None
    p_value: float
    """The chance of so great a gain if both judges were equally good: one-sided, by permutation."""


def measure_gain(labels: Sequence[bool], before: Sequence[bool], after: Sequence[bool], *, draws: int = DRAWS, seed: int = SEED) -> Gain:
    """Compare two judges by kappa. Were they equally good, each item might as well have had their decisions swapped."""
    pairs = list(zip(labels, before, after, strict=True))
    right, wrong = sum(labels), len(pairs) - sum(labels)
    both = [sum(first and second and label is kind for label, first, second in pairs) for kind in (True, False)]
    differing = [pair for pair in pairs if pair[1] != pair[2]]
    every = (1 << len(differing)) - 1
    # Items as bits: those that the first judge passes, of each label; the second passes the others.
    kinds = [sum(1 << place for place, pair in enumerate(differing) if pair[0] is kind) for kind in (True, False)]
    passes = sum(1 << place for place, pair in enumerate(differing) if pair[1])

    def compute_kappa(passed: int) -> float | None:
        true_pass, false_pass = (base + (passed & kind).bit_count() for base, kind in zip(both, kinds, strict=True))
        return _compute_figures(true_pass, right - true_pass, false_pass, wrong - false_pass)["kappa"]

    def compute_gain(swaps: int) -> float:
        one = passes ^ swaps
        return (compute_kappa(one ^ every) or 0.0) - (compute_kappa(one) or 0.0)

    observed, stream, reached = compute_gain(0), Draws(seed), 0
    draws = draws if observed > 0 else 0
    for _ in range(draws):
        # A little less counts as much: it is the same gain, rounded otherwise.
        reached += compute_gain(_draw_bits(stream, len(differing))) >= observed - 1e-12
    p_value = (1 + reached) / (1 + draws) if draws else 1.0
    return Gain(before=compute_kappa(passes), after=compute_kappa(passes ^ every), p_value=p_value)


def _draw_bits(stream: Draws, count: int) -> int:
    drawn = 0
    for _ in range(0, count, 32):
        drawn = drawn << 32 | stream.below(1 << 32)
    return drawn & ((1 << count) - 1)


def find_quantile(ordered: Sequence[float], share: float) -> float:
    """Return where a share of sorted values lies below, with straight lines between them."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _compute_figures(true_pass: float, false_fail: float, false_pass: float, true_fail: float) -> dict[str, float | None]:
    right, wrong = true_pass + false_fail, false_pass + true_fail
    passed, total = true_pass + false_pass, right + wrong
    by_chance = right * passed + wrong * (total - passed)
    possible = total * total - by_chance
    return {
        "accuracy": _divide(true_pass + true_fail, total),
        "precision": _divide(true_pass, passed),
        "recall": _divide(true_pass, right),
        "f1": _divide(2 * true_pass, right + passed),
        "kappa": _divide((true_pass + true_fail) * total - by_chance, possible),
    }


def _draw_figures(table: Table, stream: Draws) -> dict[str, float | None]:
    """Return the figures of a table whose rows are resampled."""
    right, wrong = table.true_pass + table.false_fail, table.false_pass + table.true_fail
    # Each row by itself: how many answers are labelled right was chosen by people and is not left to chance.
    passed_right = right * stream.beta(table.true_pass + 0.5, table.false_fail + 0.5) if right else 0.0
    passed_wrong = wrong * stream.beta(table.false_pass + 0.5, table.true_fail + 0.5) if wrong else 0.0
    return _compute_figures(passed_right, right - passed_right, passed_wrong, wrong - passed_wrong)


def _find_interval(value: float | None, drawn: list[float], confidence: float) -> Interval | None:
    if value is None or not drawn:
        return None
    drawn.sort()
    tail = (1 - confidence) / 2
    # At the ends of the scale the draws come near the figure without reaching it.
    return Interval(min(value, find_quantile(drawn, tail)), max(value, find_quantile(drawn, 1 - tail)))


def _divide(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
