"""Tests and intervals of which those in `scoring` are the general case, and figures that they promise."""

from __future__ import annotations

import math
from collections.abc import Iterable

from proctor.scoring.amounts import find_bucket
from proctor.scoring.intervals import Counts, Interval, _square_and_add, find_two_sided_z
from proctor.scoring.paired import stratified_test


def compute_power(cases: int, repeats: int, base_rate: float, drop: float, *, alpha: float = 0.05) -> float:
    """Return the chance that a comparison gives `regressed` if every case's pass rate falls by `drop`."""
    assert 0 <= base_rate <= 1 and 0 <= drop <= 1
    attempts = cases * repeats
    if attempts < 1 or drop <= 0:
        return 0.0
    after = base_rate - drop
    # A fall to exactly zero may be slightly negative by rounding.
    if after < -1e-12:
        return 0.0
    after = max(0.0, after)
    middle = (base_rate + after) / 2
    needed = find_two_sided_z(1 - alpha) * math.sqrt(2 * middle * (1 - middle))
    spread = math.sqrt(base_rate * (1 - base_rate) + after * (1 - after))
    surplus = (drop - 1 / attempts) * math.sqrt(attempts) - needed
    if not spread:
        return 1.0 if surplus >= 0 else 0.0
    return math.erfc(-surplus / spread / math.sqrt(2)) / 2


def mcnemar(only_base: int, only_candidate: int) -> float:
    """Return the exact test of McNemar, which is the sign test of items that passed in only one run, two-sided."""
    one, none = Counts(1, 1), Counts(1, 0)
    return stratified_test([(one, none)] * only_base + [(none, one)] * only_candidate).p_value


def newcombe_paired(both: int, only_base: int, only_candidate: int, neither: int, *, confidence: float = 0.95) -> Interval:
    """Return the hybrid score interval of the difference over pairs that passed in both runs, in only one, or in neither."""
    pairs = both + only_base + only_candidate + neither
    if not pairs:
        return Interval(-1.0, 1.0)
    base, candidate = both + only_base, both + only_candidate
    margins = base * (pairs - base) * candidate * (pairs - candidate)
    concordance: float = both * neither - only_base * only_candidate
    # Newcombe's continuity correction: it weakens a correlation and never reverses it.
    if concordance > 0:
        concordance = max(0.0, concordance - pairs / 2)
    phi = concordance / math.sqrt(margins) if margins else 0.0
    return _square_and_add(base / pairs, pairs, candidate / pairs, pairs, phi, find_two_sided_z(confidence))


def count_amounts(amounts: Iterable[float], buckets: dict[int, int]) -> None:
    """Add amounts to their buckets; invalid ones (below 0, not finite) are ignored."""
    for amount in amounts:
        bucket = find_bucket(amount)
        if bucket is not None:
            buckets[bucket] = buckets.get(bucket, 0) + 1
