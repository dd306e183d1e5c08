"""Intervals for pass rates and for differences of pass rates.

wilson           one rate: the score interval, which never leaves 0..1 and is right for 5 of 5
newcombe         two independent rates: the Wilson intervals of both, squared and added (Newcombe 1998, method 10)
stratified       two runs over the same cases with any number of attempts each. With one attempt per case this *is* Newcombe's
                 interval for pairs (the same minus the correlation of the pairs, method 10 with the corrected phi), with a
                 single case it *is* `newcombe`: see `stratified_difference`

Differences are always candidate minus base: negative is a drop.

The estimate for a large population, from a sample drawn separately from each of several strata, is the mean of the rates of the strata,
weighted by their sizes. Its interval combines Wilson's intervals of the strata (Zou and Donner), which stay sensible if a stratum has few
samples or only passes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import msgspec

Z95 = 1.959963984540054
"""The standard normal quantile of 0.975."""


class Interval(msgspec.Struct, frozen=True, gc=False):
    """Two bounds, both included."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


class Counts(msgspec.Struct, frozen=True, gc=False):
    """The number of decided attempts, and how many of them passed.

    An attempt that errored was decided and did not pass; one that was skipped does not count.
    """

    runs: int
    passes: int

    def __post_init__(self) -> None:
        if not 0 <= self.passes <= self.runs:
            raise ValueError(f"expected 0 <= passes <= runs, found {self.passes} passes of {self.runs} runs")

    @property
    def rate(self) -> float:
        """The share of passes; 0 without runs."""
        return self.passes / self.runs if self.runs else 0.0

    @property
    def flaky(self) -> bool:
        """Whether some attempts passed and some did not."""
        return 0 < self.passes < self.runs


@functools.lru_cache(maxsize=64)
def find_normal_quantile(probability: float) -> float:
    """Return the standard normal quantile of this probability."""
    from statistics import NormalDist  # imported late: it loads decimal, fractions and random, and most commands need no quantile

    return NormalDist().inv_cdf(probability)


def find_two_sided_z(confidence: float) -> float:
    """Return the quantile that leaves half of `1 - confidence` on each side."""
    if not 0 < confidence < 1:
        raise ValueError(f"expected a confidence between 0 and 1, found {confidence}")
    # The usual confidence is answered without loading `statistics`.
    return Z95 if confidence == 0.95 else find_normal_quantile(0.5 + confidence / 2)


def wilson(counts: Counts, *, confidence: float = 0.95) -> Interval:
    """Return the Wilson score interval of a pass rate; 0 to 1 without runs."""
    if not counts.runs:
        return Interval(0.0, 1.0)
    return _wilson(counts.rate, counts.runs, find_two_sided_z(confidence))


# Most cases of a suite have the same counts.
@functools.lru_cache(maxsize=4096)
def newcombe(base: Counts, candidate: Counts, *, confidence: float = 0.95) -> Interval:
    """Return the hybrid score interval of the difference of two independent pass rates; -1 to 1 if one side has no runs."""
    if not base.runs or not candidate.runs:
        return Interval(-1.0, 1.0)
    z = find_two_sided_z(confidence)
    return _square_and_add(base.rate, base.runs, candidate.rate, candidate.runs, 0.0, z)


class StratifiedDifference(msgspec.Struct, frozen=True, gc=False):
    """The rates of two runs over the same cases and their difference."""

    base_rate: float
    candidate_rate: float
    difference: float
    interval: Interval


def stratified_difference(pairs: Sequence[tuple[Counts, Counts]], *, confidence: float = 0.95) -> StratifiedDifference:
    """Return the difference of pass rates over cases, each given as the counts of base and candidate.

    A case with n and m attempts has the weight `n m / (n + m)` (Mantel and Haenszel): with equal repeats that is the plain mean over
    the cases, and it is the weighting under which the difference and the exact test agree on the direction. The variance of
    the difference is Sato's, which is correct even with one attempt per case. By how much it is smaller than that of two independent
    runs gives the correlation in Newcombe's formula, corrected for continuity as in his paired form.

    Cases that always fail, or always pass, in both runs show no variance. They must not narrow the interval of the others (by simulation
    it would cover 85 to 93 % in suites of which half always fails), so it is at least as wide as that of the others alone.
    """
    pairs = [(base, candidate) for base, candidate in pairs if base.runs and candidate.runs]
    if not pairs:
        return StratifiedDifference(0.0, 0.0, 0.0, Interval(-1.0, 1.0))
    whole, total = _find_difference(pairs, confidence)
    low, high = whole.interval.low, whole.interval.high
    if all(base.runs == candidate.runs == 1 for base, candidate in pairs):
        return whole  # pairs, for which Newcombe's formula was made
    not_failing = [pair for pair in pairs if pair[0].passes or pair[1].passes]
    not_passing = [pair for pair in pairs if pair[0].passes < pair[0].runs or pair[1].passes < pair[1].runs]
    for others in (not_failing, not_passing):
        if others and len(others) < len(pairs):
            part, weight = _find_difference(others, confidence)
            low, high = min(low, part.interval.low * weight / total), max(high, part.interval.high * weight / total)
    return msgspec.structs.replace(whole, interval=Interval(low, high))


def _find_difference(pairs: Sequence[tuple[Counts, Counts]], confidence: float) -> tuple[StratifiedDifference, float]:
    """Return the difference over these cases, and their weight."""
    weights = [base.runs * candidate.runs / (base.runs + candidate.runs) for base, candidate in pairs]
    total = math.fsum(weights)
    base_rate = math.fsum(w * base.rate for w, (base, _) in zip(weights, pairs, strict=True)) / total
    candidate_rate = math.fsum(w * candidate.rate for w, (_, candidate) in zip(weights, pairs, strict=True)) / total
    # The number of attempts at a single rate with the same precision; with equal repeats, all of them.
    base_size = total**2 / math.fsum(w * w / base.runs for w, (base, _) in zip(weights, pairs, strict=True))
    candidate_size = total**2 / math.fsum(w * w / candidate.runs for w, (_, candidate) in zip(weights, pairs, strict=True))
    difference = candidate_rate - base_rate
    correlation = _find_correlation(pairs, difference, total, (base_rate, base_size), (candidate_rate, candidate_size))
    interval = _square_and_add(base_rate, base_size, candidate_rate, candidate_size, correlation, find_two_sided_z(confidence))
    return StratifiedDifference(base_rate, candidate_rate, difference, interval), total


def _find_correlation(
    pairs: Sequence[tuple[Counts, Counts]], difference: float, total: float, base: tuple[float, float], candidate: tuple[float, float]
) -> float:
    """Return how much the pairing by case reduces the variance of two independent rates."""
    base_variance = base[0] * (1 - base[0]) / base[1]
    candidate_variance = candidate[0] * (1 - candidate[0]) / candidate[1]
    scale = math.sqrt(base_variance * candidate_variance)
    if not scale:
        return 0.0
    # Sato's P and Q of each case.
    slopes: list[float] = []
    levels: list[float] = []
    for before, after in pairs:
        n, m = before.runs, after.runs
        slopes.append((m * m * before.passes - n * n * after.passes + n * m * (n - m) / 2) / (n + m) ** 2)
        levels.append((after.passes * (n - before.passes) + before.passes * (m - after.passes)) / (2 * (n + m)))
    covariance = (base_variance + candidate_variance - (difference * math.fsum(slopes) + math.fsum(levels)) / total**2) / 2
    if covariance > 0:
        covariance = max(0.0, covariance - 1 / (2 * base[1] * candidate[1]))
    return min(1.0, max(-1.0, covariance / scale))


def _wilson(rate: float, size: float, z: float) -> Interval:
    shrink = 1 + z * z / size
    centre = (rate + z * z / (2 * size)) / shrink
    reach = z / shrink * math.sqrt(rate * (1 - rate) / size + z * z / (4 * size * size))
    # At the ends the bound is exactly 0 or 1, which the formula would miss by a rounding error.
    return Interval(0.0 if rate <= 0 else max(0.0, centre - reach), 1.0 if rate >= 1 else min(1.0, centre + reach))


def _square_and_add(
    base_rate: float, base_size: float, candidate_rate: float, candidate_size: float, correlation: float, z: float
) -> Interval:
    base, candidate = _wilson(base_rate, base_size, z), _wilson(candidate_rate, candidate_size, z)
    difference = candidate_rate - base_rate
    down = _join(candidate_rate - candidate.low, base.high - base_rate, correlation)
    up = _join(candidate.high - candidate_rate, base_rate - base.low, correlation)
    return Interval(max(-1.0, difference - down), min(1.0, difference + up))


def _join(one: float, other: float, correlation: float) -> float:
    # With a correlation of 1 and equal parts, rounding may give slightly less than 0.
    return math.sqrt(max(0.0, one * one - 2 * correlation * one * other + other * other))


class Stratum(msgspec.Struct, frozen=True):
    """One stratum: its size, its sample size, and the decisions on the sample."""

    size: int
    looked_at: int
    counts: Counts


class SampledRate(msgspec.Struct, frozen=True):
    """An estimate and its interval."""

    rate: float
    interval: Interval


def estimate_rate(strata: Sequence[Stratum], *, confidence: float = 0.95) -> SampledRate | None:
    """Return the estimated pass rate; None if nothing was decided.

    A stratum whose whole sample is undecided is ignored. One without a sample may have any rate.
    """
    known = [part for part in strata if part.size and not (part.looked_at and not part.counts.runs)]
    decided = Counts(sum(part.counts.runs for part in known), sum(part.counts.passes for part in known))
    if not decided.runs:
        return None
    total = sum(part.size for part in known)
    rate = below = above = 0.0
    for part in known:
        weight = part.size / total
        # An unsampled stratum is assumed to be like the others; its bounds show the uncertainty.
        own = part.counts.rate if part.counts.runs else decided.rate
        # A stratum that was sampled completely has no uncertainty.
        whole = part.counts.runs >= part.size
        bounds = Interval(own, own) if whole else wilson(part.counts, confidence=confidence) if part.counts.runs else Interval(0.0, 1.0)
        rate += weight * own
        below += (weight * (own - bounds.low)) ** 2
        above += (weight * (bounds.high - own)) ** 2
    return SampledRate(rate, Interval(max(0.0, rate - math.sqrt(below)), min(1.0, rate + math.sqrt(above))))
