"""Whether amounts changed between two runs: how long cases took, how many tokens they used.

Cases differ by orders of magnitude and times have long tails, so nothing here is a mean. Each case gives one figure: the ratio
of its median in the candidate to its median in the base. The change of the suite is the pseudo-median of these ratios (Hodges
and Lehmann, on logarithms: the median of all pairwise geometric means), with the interval that belongs to Wilcoxon's signed-rank
test. The test's distribution is exact up to `LARGEST_EXACT` cases. Nothing is drawn at random, so the same runs give the same answer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from proctor.scoring.intervals import Interval, find_two_sided_z

LARGEST_EXACT = 60
"""Cases up to which the distribution is exact; beyond, it is approximated by the normal one."""

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
    """Of the ratio."""


def compare_amounts(
    base: Mapping[str, Sequence[float]], candidate: Mapping[str, Sequence[float]], *, alpha: float = 0.05, least_change: float = 0.0
) -> AmountChange:
    """Compare the amounts of the attempts of each case; cases without a positive amount on both sides are left out.

    A change of the median by less than `least_change` is none: the interval is then widened to include 1.
    """
    medians = [(find_median(base[case]), find_median(candidate[case])) for case in base if base[case] and candidate.get(case)]
    # Ratios are compared by their logarithms, and that of 0 or infinity is no number to compute with.
    medians = [(before, after) for before, after in medians if 0 < before < math.inf and 0 < after < math.inf]
    if not medians:
        return AmountChange(verdict="too_little_data", cases=0)
    logs = sorted(math.log(after) - math.log(before) for before, after in medians)
    interval = _find_interval(logs, alpha)
    ratio = math.exp(_find_pseudo_median(logs))
    base_median = find_median([before for before, _ in medians])
    if interval is not None and base_median * abs(ratio - 1) < least_change:
        interval = Interval(min(1.0, interval.low), max(1.0, interval.high))
    verdict: AmountVerdict = "too_little_data"
    if interval is not None:
        verdict = "higher" if interval.low > 1 else "lower" if interval.high < 1 else "unchanged"
    return AmountChange(
        verdict=verdict,
        cases=len(logs),
        base_median=base_median,
        candidate_median=find_median([after for _, after in medians]),
        ratio=ratio,
        interval=interval,
    )


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
    return Interval(math.exp(_pair_mean(logs, rank)), math.exp(_pair_mean(logs, pairs + 1 - rank)))


def _find_pseudo_median(logs: Sequence[float]) -> float:
    pairs = len(logs) * (len(logs) + 1) // 2
    return (_pair_mean(logs, (pairs + 1) // 2) + _pair_mean(logs, pairs // 2 + 1)) / 2


def _pair_mean(ordered: Sequence[float], rank: int) -> float:
    """Return the value at this rank, from 1, among the means of all pairs, a value with itself included.

    Found by halving: counting the pairs below a value takes one walk over the list, so a suite of any size is fine.
    """
    low, high = ordered[0], ordered[-1]
    while True:
        middle = (low + high) / 2
        # No float lies between the two any more, so one of them is the value.
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
    """Return the largest rank r such that a rank sum below r has at most a chance of alpha / 2; 0 when there is none."""
    if cases > LARGEST_EXACT:
        mean = cases * (cases + 1) / 4
        deviation = math.sqrt(cases * (cases + 1) * (2 * cases + 1) / 24)
        return max(0, math.floor(mean - find_two_sided_z(1 - alpha) * deviation))
    # In how many ways the ranks from 1 on can add up to each total: Wilcoxon's distribution, counted out rank by rank.
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
