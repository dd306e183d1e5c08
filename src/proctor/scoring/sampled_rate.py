"""The pass rate of very many things of which a sample was looked at, drawn from each of several parts (strata) by itself.

The estimate is the mean of the rates of the parts, weighted by their sizes. Its interval is made of Wilson's intervals of the parts (Zou
and Donner), which stay sensible where a part has few samples or only passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from proctor.scoring.intervals import Counts, Interval, wilson


class Stratum(msgspec.Struct, frozen=True):
    """One part: how many things it has, how many of them were looked at, and what was decided of these."""

    size: int
    looked_at: int
    counts: Counts


class SampledRate(msgspec.Struct, frozen=True):
    """An estimate and its interval."""

    rate: float
    interval: Interval


def estimate_rate(strata: Sequence[Stratum], *, confidence: float = 0.95) -> SampledRate | None:
    """Return the estimated pass rate; None where nothing was decided.

    A part in which everything that was looked at could not be decided does not count. One of which nothing was looked at may be anything.
    """
    known = [part for part in strata if part.size and not (part.looked_at and not part.counts.runs)]
    decided = Counts(sum(part.counts.runs for part in known), sum(part.counts.passes for part in known))
    if not decided.runs:
        return None
    total = sum(part.size for part in known)
    rate = below = above = 0.0
    for part in known:
        weight = part.size / total
        # An unsampled part is assumed to be like the others; its bounds show the uncertainty.
        own = part.counts.rate if part.counts.runs else decided.rate
        # A part that was looked at as a whole leaves nothing open.
        whole = part.counts.runs >= part.size
        bounds = Interval(own, own) if whole else wilson(part.counts, confidence=confidence) if part.counts.runs else Interval(0.0, 1.0)
        rate += weight * own
        below += (weight * (own - bounds.low)) ** 2
        above += (weight * (bounds.high - own)) ** 2
    return SampledRate(rate, Interval(max(0.0, rate - math.sqrt(below)), min(1.0, rate + math.sqrt(above))))
