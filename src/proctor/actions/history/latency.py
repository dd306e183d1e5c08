"""How long the attempts of a run took, as a distribution: the middle, the slow end, and how many lie between which bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from proctor.model.run import RunEntry

BINS = 24
"""Bars of the picture."""
_SLOW = 0.99
"""Slower attempts than this quantile share the last bar: a single one that hung would squeeze the others."""


class LatencyBin(msgspec.Struct, frozen=True, kw_only=True):
    """How many attempts took between two bounds; those of the last one, at least the lower bound."""

    low_ms: float
    high_ms: float
    count: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long attempts took."""

    looked_at: int
    """Attempts with a known duration, of those that were examined."""
    total: int
    """Finished attempts of the run."""
    is_sample: bool = False
    """Whether only some attempts, spread evenly over the run, were examined."""
    least_ms: float | None = None
    median_ms: float | None = None
    p95_ms: float | None = None
    most_ms: float | None = None
    bins: tuple[LatencyBin, ...] = ()


def find_ms(entry: RunEntry) -> float | None:
    """Return how long the agent took in an attempt, by the evidence, else as measured."""
    recorded = None if entry.evidence is None else entry.evidence.duration_ms
    return entry.duration_ms if recorded is None else recorded


def describe_latency(durations: Sequence[float | None], total: int, *, is_sample: bool = False) -> Latency:
    """Return the distribution of durations; those that are unknown do not count."""
    known = sorted(ms for ms in durations if ms is not None and math.isfinite(ms) and ms >= 0)
    if not known:
        return Latency(looked_at=0, total=total, is_sample=is_sample)
    return Latency(
        looked_at=len(known),
        total=total,
        is_sample=is_sample,
        least_ms=known[0],
        median_ms=_find_quantile(known, 0.5),
        p95_ms=_find_quantile(known, 0.95),
        most_ms=known[-1],
        bins=_count_bins(known),
    )


def _find_quantile(known: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed."""
    return known[max(0, math.ceil(share * len(known)) - 1)]


def _count_bins(known: Sequence[float]) -> tuple[LatencyBin, ...]:
    low, high = known[0], max(_find_quantile(known, _SLOW), known[0])
    width = (high - low) / BINS
    if not width:
        return (LatencyBin(low_ms=low, high_ms=known[-1], count=len(known)),)
    counts = [0] * BINS
    for ms in known:
        counts[min(BINS - 1, int((ms - low) / width))] += 1
    return tuple(LatencyBin(low_ms=low + at * width, high_ms=low + (at + 1) * width, count=count) for at, count in enumerate(counts))
