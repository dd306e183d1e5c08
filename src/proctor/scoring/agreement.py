"""How well a judge agrees with people: accuracy, precision, recall, F1 and Cohen's kappa, each with an interval.

Positive means that people label the answer right. A *false pass* is labelled wrong and passed by the judge; a *false fail* the reverse.

A figure that cannot be computed is None, never 0 or 1:

accuracy   without items
precision  if the judge passed nothing
recall     if people labelled nothing right
F1         if neither people nor the judge passed anything
kappa      without items, and if people and the judge always give the same single answer: chance alone explains the agreement then

Intervals are a Bayesian bootstrap (Rubin 1981), stratified by label: the author of the set chose the number of right and wrong items, so
these numbers are fixed, and only the judge's decisions are resampled. Half an item is added to each of the four cells
(Jeffreys' prior). A plain bootstrap resamples the disagreements that happened to occur, so a judge without any would get the interval from
1 to 1 after twenty items; this one does not, and is near it elsewhere. The seed is fixed.

Random numbers are the same on every machine and in every version of Python. The generator is SplitMix64 (Steele, Lea and Flood 2014). It is
implemented here because a report must not change when the standard library changes how it shuffles; it is good enough for intervals and
folds, but not for secrets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import msgspec

from proctor.scoring.intervals import Interval

DRAWS = 2000
"""The number of tables drawn for an interval."""
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
        """Cohen's kappa: 0 is chance level, 1 is full agreement."""
        return self.compute_figures()["kappa"]

    def compute_figures(self) -> dict[str, float | None]:
        """Return all figures by name."""
        return _compute_figures(self.true_pass, self.false_fail, self.false_pass, self.true_fail)


class Figure(msgspec.Struct, frozen=True):
    """A figure and its interval, each None if it cannot be computed."""

    value: float | None
    interval: Interval | None


def count_table(pairs: Iterable[tuple[bool, bool]]) -> Table:
    """Count pairs of label and decision."""
    cells = Counter(pairs)
    return Table(true_pass=cells[True, True], false_fail=cells[True, False], false_pass=cells[False, True], true_fail=cells[False, False])


def with_intervals(table: Table, *, confidence: float = 0.95, draws: int = DRAWS, seed: int = SEED) -> dict[str, Figure]:
    """Return every figure of a table with its interval, which always contains the figure.

    Precision and kappa have none if all labels are the same.
    """
    values = table.compute_figures()
    has_both = table.true_pass + table.false_fail and table.false_pass + table.true_fail
    # The rate of false passes is unknown without wrong answers, and the rate of true ones without right answers.
    names = {name for name, value in values.items() if value is not None and (has_both or name not in ("precision", "kappa"))}
    resampled: dict[str, list[float]] = {name: [] for name in names}
    stream = Draws(seed)
    for _ in range(draws if resampled else 0):
        right, wrong = table.true_pass + table.false_fail, table.false_pass + table.true_fail
        # Each row separately: people chose how many answers are labelled right, so that is not random.
        passed_right = right * stream.beta(table.true_pass + 0.5, table.false_fail + 0.5) if right else 0.0
        passed_wrong = wrong * stream.beta(table.false_pass + 0.5, table.true_fail + 0.5) if wrong else 0.0
        drawn = _compute_figures(passed_right, right - passed_right, passed_wrong, wrong - passed_wrong)
        for name, drawn_values in resampled.items():
            value = drawn[name]
            if value is not None:
                drawn_values.append(value)
    return {name: Figure(value, _find_interval(value, resampled.get(name, []), confidence)) for name, value in values.items()}


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """How much better one judge agrees with the labels than another, on the same items."""

    before: float | None
    """Kappa."""
    after: float | None
    p_value: float
    """The chance of a gain this large if both judges were equally good: one-sided, by permutation."""


def measure_gain(
    labels: Sequence[bool],
    before: Sequence[bool],
    after: Sequence[bool],
    *,
    groups: Sequence[Hashable] | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
) -> Gain:
    """Compare two judges by kappa. If they were equally good, their decisions on any item could be swapped.

    Decisions of one group are made together, so they are swapped together.
    """
    right, wrong = sum(labels), len(labels) - sum(labels)
    # Passes of the first and of the second judge, by label. Items on which both decide alike are the same after any swap.
    alike = [0, 0]
    swappable: dict[Hashable, list[list[int]]] = {}
    for group, label, first, second in zip(groups or range(len(labels)), labels, before, after, strict=True):
        if first == second:
            alike[label] += first
        else:
            counts = swappable.setdefault(group, [[0, 0], [0, 0]])
            counts[0][label] += first
            counts[1][label] += second

    def compute_kappas(swaps: int) -> list[float | None]:
        passes = [alike[:], alike[:]]
        for place, counts in enumerate(swappable.values()):
            swapped = swaps >> place & 1
            for judge in (0, 1):
                for label in (0, 1):
                    passes[judge][label] += counts[judge ^ swapped][label]
        return [_compute_figures(passed[1], right - passed[1], passed[0], wrong - passed[0])["kappa"] for passed in passes]

    def compute_gain(swaps: int) -> float:
        first, second = compute_kappas(swaps)
        return (second or 0.0) - (first or 0.0)

    observed, stream = compute_gain(0), Draws(seed)
    draws = draws if observed > 0 else 0
    # A slightly smaller value counts too: it is the same gain with another rounding error.
    reached = sum(compute_gain(_draw_bits(stream, len(swappable))) >= observed - 1e-12 for _ in range(draws))
    kappa_before, kappa_after = compute_kappas(0)
    return Gain(before=kappa_before, after=kappa_after, p_value=(1 + reached) / (1 + draws) if draws else 1.0)


def _draw_bits(stream: Draws, count: int) -> int:
    drawn = 0
    for _ in range(0, count, 32):
        drawn = drawn << 32 | stream.below(1 << 32)
    return drawn & ((1 << count) - 1)


def find_quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of sorted values lies, with linear interpolation."""
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


def _find_interval(value: float | None, drawn: list[float], confidence: float) -> Interval | None:
    if value is None or not drawn:
        return None
    drawn.sort()
    tail = (1 - confidence) / 2
    # At the ends of the scale the draws approach the figure without reaching it.
    return Interval(min(value, find_quantile(drawn, tail)), max(value, find_quantile(drawn, 1 - tail)))


def _divide(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""The step of SplitMix64: 2**64 over the golden ratio, which spreads states evenly."""

Item = TypeVar("Item")


class Draws:
    """A stream of draws that its seed determines."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def _bits(self) -> int:
        self._state = (self._state + _GOLDEN) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def uniform(self) -> float:
        """Return a number of at least 0 and below 1."""
        return (self._bits() >> 11) * 2.0**-53

    def below(self, bound: int) -> int:
        """Return an integer of at least 0 and below `bound`, uniformly distributed."""
        # A number above the largest multiple of the bound is redrawn; otherwise small numbers would be slightly more likely.
        most = (1 << 64) - (1 << 64) % bound
        while (bits := self._bits()) >= most:
            pass
        return bits % bound

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """Return the items in another order."""
        mixed = list(items)
        for last in range(len(mixed) - 1, 0, -1):
            other = self.below(last + 1)
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed

    def beta(self, one: float, other: float) -> float:
        """Return a share distributed as Beta(one, other); both above 0."""
        first, second = self._gamma(one), self._gamma(other)
        total = first + second
        # With shapes near 0 both draws can be rounded to 0.
        return first / total if total > 0 else 0.5

    def _gamma(self, shape: float) -> float:
        # Marsaglia and Tsang 2000; a shape below 1 uses the draw for shape + 1.
        if shape < 1:
            return self._gamma(shape + 1) * (1 - self.uniform()) ** (1 / shape)
        d = shape - 1 / 3
        c = 1 / math.sqrt(9 * d)
        while True:
            x = self._normal()
            v = (1 + c * x) ** 3
            if v > 0 and math.log(1 - self.uniform()) < 0.5 * x * x + d - d * v + d * math.log(v):
                return d * v

    def _normal(self) -> float:
        # From 1: `uniform` may return 0, which has no logarithm, and never returns 1.
        return math.sqrt(-2 * math.log(1 - self.uniform())) * math.cos(2 * math.pi * self.uniform())
