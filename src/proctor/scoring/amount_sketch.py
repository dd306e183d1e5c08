"""Percentiles of amounts that do not fit in memory: counts in buckets that grow by 2 %, which can be added up.

A percentile is exact within 1 %. Zero has a bucket of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from proctor.scoring.amounts import AmountChange, AmountVerdict
from proctor.scoring.intervals import Interval, find_two_sided_z

_GROWTH = math.log(1.02)
_LEAST_AMOUNTS = 10
"""Fewer amounts have no interval of their median."""
_NOTHING = -(10**6)
"""The bucket of 0: far below that of the smallest number there is."""


def count_amounts(amounts: Iterable[float], buckets: dict[int, int]) -> None:
    """Add amounts to the buckets they belong to; what is no amount (below 0, not finite) is left out."""
    for amount in amounts:
        bucket = find_bucket(amount)
        if bucket is not None:
            buckets[bucket] = buckets.get(bucket, 0) + 1


def find_bucket(amount: float) -> int | None:
    """Return the bucket that an amount belongs to; None for what is no amount (below 0, not finite)."""
    if amount == 0:
        return _NOTHING
    return math.floor(math.log(amount) / _GROWTH) if 0 < amount < math.inf else None


def find_percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """Return the amount that this share of all amounts does not exceed; nothing where there are none."""
    left = math.ceil(share * sum(buckets.values()))
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 0:
            return 0.0 if bucket == _NOTHING else math.exp((bucket + 0.5) * _GROWTH)
    return None


def compare_sketches(
    base: Mapping[int, int], candidate: Mapping[int, int], *, alpha: float = 0.05, least_change: float = 0.0
) -> AmountChange:
    """Compare the medians of two sets of amounts that are not paired; a change by less than `least_change` is none.

    The interval of each median is that of its rank (binomial, by the normal curve), wider by what a bucket leaves open; both make that of
    the ratio on logarithms (Zou and Donner).
    """
    before, after = find_percentile(base, 0.5), find_percentile(candidate, 0.5)
    if not before or not after:
        return AmountChange(verdict="too_little_data", cases=0)
    low_base, high_base = _find_median_bounds(base, alpha)
    low_candidate, high_candidate = _find_median_bounds(candidate, alpha)
    ratio = math.log(after / before)
    interval: Interval | None = None
    verdict: AmountVerdict = "too_little_data"
    # The lower bounds are divided by below; one of 0 leaves the ratio without an interval.
    if min(sum(base.values()), sum(candidate.values())) >= _LEAST_AMOUNTS and low_base and low_candidate:
        below = math.hypot(math.log(after / low_candidate), math.log(high_base / before))
        above = math.hypot(math.log(high_candidate / after), math.log(before / low_base))
        interval = Interval(math.exp(ratio - below), math.exp(ratio + above))
        if abs(after - before) < least_change:
            interval = Interval(min(1.0, interval.low), max(1.0, interval.high))
        verdict = "higher" if interval.low > 1 else "lower" if interval.high < 1 else "unchanged"
    return AmountChange(verdict=verdict, cases=1, base_median=before, candidate_median=after, ratio=math.exp(ratio), interval=interval)


def _find_median_bounds(buckets: Mapping[int, int], alpha: float) -> tuple[float, float]:
    reach = find_two_sided_z(1 - alpha) / (2 * math.sqrt(sum(buckets.values())))
    low, high = find_percentile(buckets, max(0.0, 0.5 - reach)), find_percentile(buckets, min(1.0, 0.5 + reach))
    half = math.exp(_GROWTH / 2)
    return (low or 0.0) / half, (high or 0.0) * half
