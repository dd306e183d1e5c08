"""Percentiles of amounts that nobody can hold: counts in buckets that grow by two in a hundred, added up from wherever they were counted.

A percentile is told within one in a hundred of what it is. Amounts of nothing have a bucket of their own; there are no others below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

_GROWTH = math.log(1.02)
_NOTHING = -(10**6)
"""The bucket of 0: far below that of the smallest number there is."""


def count_amounts(amounts: Iterable[float], buckets: dict[int, int]) -> None:
    """Add amounts to the buckets they belong to; what is no amount (below 0, not finite) is left out."""
    for amount in amounts:
        if amount == 0:
            bucket = _NOTHING
        elif 0 < amount < math.inf:
            bucket = math.floor(math.log(amount) / _GROWTH)
        else:
            continue
        buckets[bucket] = buckets.get(bucket, 0) + 1


def find_percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """Return the amount that this share of all amounts does not exceed; nothing where there are none."""
    left = math.ceil(share * sum(buckets.values()))
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 0:
            return 0.0 if bucket == _NOTHING else math.exp((bucket + 0.5) * _GROWTH)
    return None
