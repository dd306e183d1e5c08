"""Decides whether amounts changed between two runs: durations of cases, tokens used.

Cases differ by orders of magnitude and times have long tails, so no means are used. Each case gives one figure: the ratio of its median in
the candidate to its median in the base. The change of the suite is the pseudo-median of these ratios (Hodges and Lehmann, on logarithms:
the median of all pairwise geometric means), with the interval of Wilcoxon's signed-rank test. The test's distribution is exact up to
`LARGEST_EXACT` cases. Nothing is random, so the same runs give the same answer.

Amounts that do not fit in memory are counted in buckets that grow by 2 % and can be added up. A percentile is exact within 1 %. Zero has a
bucket of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from proctor.scoring.intervals import Interval, find_two_sided_z

LARGEST_EXACT = 60
"""The maximum number of cases for the exact distribution; beyond it the normal approximation is used."""

AmountVerdict = Literal["higher", "lower", "unchanged", "too_little_data"]


class AmountChange(msgspec.Struct, frozen=True, kw_only=True):
    """How an amount changed over the cases both runs have."""

    verdict: AmountVerdict
    """`higher` or `lower` when the interval lies on one side of 1; `too_little_data` when there are too few cases for an interval."""
    cases: int
    """Cases with a positive amount in both runs."""
    base_median: float | None = None
    """The median over the cases' medians."""
    candidate_median: float | None = None
    ratio: float | None = None
    """Candidate over base; 1.2 is a fifth more."""
    interval: Interval | None = None
    """The interval of the ratio."""


def compare_amounts(
    base: Mapping[str, Sequence[float]], candidate: Mapping[str, Sequence[float]], *, alpha: float = 0.05, least_change: float = 0.0
) -> AmountChange:
    """Compare the amounts of the attempts of each case; cases without a positive amount on both sides are ignored.

    A change of the median smaller than `least_change` is ignored: the interval is then widened to include 1.
    """
    medians = [(find_median(base[case]), find_median(candidate[case])) for case in base if base[case] and candidate.get(case)]
    # Ratios are compared by their logarithms, which must be finite.
    medians = [(before, after) for before, after in medians if 0 < before < math.inf and 0 < after < math.inf]
    if not medians:
        return AmountChange(verdict="too_little_data", cases=0)
    logs = sorted(math.log(after) - math.log(before) for before, after in medians)
    interval = _find_interval(logs, alpha)
    pairs = len(logs) * (len(logs) + 1) // 2
    ratio = math.exp((_find_pair_mean(logs, (pairs + 1) // 2) + _find_pair_mean(logs, pairs // 2 + 1)) / 2)
    base_median = find_median([before for before, _ in medians])
    if interval is not None and base_median * abs(ratio - 1) < least_change:
        interval = Interval(min(1.0, interval.low), max(1.0, interval.high))
    return AmountChange(
        verdict=_name_change(interval),
        cases=len(logs),
        base_median=base_median,
        candidate_median=find_median([after for _, after in medians]),
        ratio=ratio,
        interval=interval,
    )


def _name_change(interval: Interval | None) -> AmountVerdict:
    if interval is None:
        return "too_little_data"
    return "higher" if interval.low > 1 else "lower" if interval.high < 1 else "unchanged"


def find_median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two in the middle."""
    if not values:
        raise ValueError("expected at least one value")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _find_interval(logs: Sequence[float], alpha: float) -> Interval | None:
    rank = _find_critical_rank(len(logs), alpha)
    if rank < 1:
        return None
    pairs = len(logs) * (len(logs) + 1) // 2
    return Interval(math.exp(_find_pair_mean(logs, rank)), math.exp(_find_pair_mean(logs, pairs + 1 - rank)))


def _find_pair_mean(ordered: Sequence[float], rank: int) -> float:
    """Return the value at this rank, from 1, among the means of all pairs, including each value with itself.

    Found by bisection: counting the pairs below a value takes one pass over the list, so any suite size is fine.
    """
    low, high = ordered[0], ordered[-1]
    while True:
        middle = (low + high) / 2
        # There is no float between the two, so one of them is the value.
        if not low < middle < high:
            return low if _count_pairs_up_to(ordered, low) >= rank else high
        if _count_pairs_up_to(ordered, middle) >= rank:
            high = middle
        else:
            low = middle


def _count_pairs_up_to(ordered: Sequence[float], limit: float) -> int:
    count = 0
    right = len(ordered) - 1
    for left, value in enumerate(ordered):
        while right >= left and (value + ordered[right]) / 2 > limit:
            right -= 1
        if right < left:
            break
        count += right - left + 1
    return count


@functools.lru_cache(maxsize=256)
def _find_critical_rank(cases: int, alpha: float) -> int:
    """Return the largest rank r such that a rank sum below r has a chance of at most alpha / 2; 0 if there is none."""
    if cases > LARGEST_EXACT:
        mean = cases * (cases + 1) / 4
        deviation = math.sqrt(cases * (cases + 1) * (2 * cases + 1) / 24)
        return max(0, math.floor(mean - find_two_sided_z(1 - alpha) * deviation))
    # The number of ways in which ranks from 1 on add up to each total: Wilcoxon's distribution, rank by rank.
    ways = [1]
    for rank in range(1, cases + 1):
        ways = [
            (ways[total] if total < len(ways) else 0) + (ways[total - rank] if total >= rank else 0) for total in range(len(ways) + rank)
        ]
    rank, below = 0, ways[0]
    while 2 * below <= alpha * 2**cases:
        rank += 1
        below += ways[rank]
    return rank


_GROWTH = math.log(1.02)
_LEAST_AMOUNTS = 10
"""The minimum number of amounts for an interval of the median."""
_NOTHING = -(10**6)
"""The bucket of 0, far below that of the smallest float."""


def find_bucket(amount: float) -> int | None:
    """Return the bucket of an amount; None for an invalid one (below 0, not finite)."""
    if amount == 0:
        return _NOTHING
    return math.floor(math.log(amount) / _GROWTH) if 0 < amount < math.inf else None


def find_percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """Return the amount that this share of all amounts does not exceed, or None if there are none."""
    left = math.ceil(share * sum(buckets.values()))
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 0:
            return 0.0 if bucket == _NOTHING else math.exp((bucket + 0.5) * _GROWTH)
    return None


def compare_sketches(
    base: Mapping[int, int], candidate: Mapping[int, int], *, alpha: float = 0.05, least_change: float = 0.0
) -> AmountChange:
    """Compare the medians of two unpaired sets of amounts; a change smaller than `least_change` is ignored.

    The interval of each median is that of its rank (binomial, by normal approximation), widened by the bucket size; both are combined into
    that of the ratio on logarithms (Zou and Donner).
    """
    before, after = find_percentile(base, 0.5), find_percentile(candidate, 0.5)
    if not before or not after:
        return AmountChange(verdict="too_little_data", cases=0)
    low_base, high_base = _find_median_bounds(base, alpha)
    low_candidate, high_candidate = _find_median_bounds(candidate, alpha)
    ratio = math.log(after / before)
    interval: Interval | None = None
    # The lower bounds are divisors below; a bound of 0 leaves the ratio without an interval.
    if min(sum(base.values()), sum(candidate.values())) >= _LEAST_AMOUNTS and low_base and low_candidate:
        below = math.hypot(math.log(after / low_candidate), math.log(high_base / before))
        above = math.hypot(math.log(high_candidate / after), math.log(before / low_base))
        interval = Interval(math.exp(ratio - below), math.exp(ratio + above))
        if abs(after - before) < least_change:
            interval = Interval(min(1.0, interval.low), max(1.0, interval.high))
    return AmountChange(
        verdict=_name_change(interval),
        cases=1,
        base_median=before,
        candidate_median=after,
        ratio=math.exp(ratio),
        interval=interval,
    )


def _find_median_bounds(buckets: Mapping[int, int], alpha: float) -> tuple[float, float]:
    reach = find_two_sided_z(1 - alpha) / (2 * math.sqrt(sum(buckets.values())))
    low, high = find_percentile(buckets, max(0.0, 0.5 - reach)), find_percentile(buckets, min(1.0, 0.5 + reach))
    half = math.exp(_GROWTH / 2)
    return (low or 0.0) / half, (high or 0.0) * half
