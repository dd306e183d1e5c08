"""Exact tests on counts of passes: nothing is assumed but that attempts of one case are alike and independent.

Given how often a case passed in both runs together, chance alone decides how these passes split between the runs when nothing
changed: the split follows a hypergeometric distribution. Cases are independent, so the total of the candidate's passes follows
the sum of these distributions, which is computed exactly. One case makes this Fisher's test; one attempt per case and run makes
it McNemar's; in between it is the exact test of Cochran, Mantel and Haenszel. A test at level alpha therefore cries wolf in at
most that share of comparisons, whatever the pass rates of the cases are and however few attempts there were.

Two-sided means: every total at most as likely as the one observed counts against "nothing changed".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from proctor.scoring.intervals import Counts

LARGEST_EXACT_BITS = 2_000_000
"""How large the exact distribution may be written out; beyond, hundreds of cases vary and the normal curve is as good."""

_Kind: TypeAlias = tuple[int, int, int]
"""Attempts of the base, attempts of the candidate, passes of both together."""


class ExactTest(msgspec.Struct, frozen=True, gc=False):
    """How well "nothing changed" explains the counts."""

    p_value: float
    """Two-sided."""
    p_regressed: float
    """The chance of a candidate at least this bad."""
    p_improved: float
    """The chance of a candidate at least this good."""
    informative: int
    """Informative cases: those that neither always passed nor never did."""
    exact: bool = True
    """Whether the distribution was computed exactly rather than by the normal curve with correction for continuity."""


def stratified_test(pairs: Iterable[tuple[Counts, Counts]]) -> ExactTest:
    """Test whether the candidate passes as often as the base, case by case; each case as counts of base and candidate."""
    kinds: dict[_Kind, int] = {}
    observed = 0
    for base, candidate in pairs:
        passes, runs = base.passes + candidate.passes, base.runs + candidate.runs
        if base.runs and candidate.runs and 0 < passes < runs:
            # Cases of the same counts have the same distribution: each kind is computed once and raised to its power.
            kind = (base.runs, candidate.runs, passes)
            kinds[kind] = kinds.get(kind, 0) + 1
            observed += candidate.passes - _find_fewest(kind)
    return _test(kinds, observed)


@functools.lru_cache(maxsize=4096)
def fisher(base: Counts, candidate: Counts) -> float:
    """Return the two-sided p-value of Fisher's exact test of one case."""
    return stratified_test([(base, candidate)]).p_value


def mcnemar(only_base: int, only_candidate: int) -> float:
    """Return the exact test of McNemar, which is the sign test: how many items passed in one run only, two-sided."""
    changed = only_base + only_candidate
    return _test({(1, 1, 1): changed} if changed else {}, only_candidate).p_value


def find_least_p_value(base_runs: int, candidate_runs: int) -> float:
    """Return the smallest two-sided p-value that Fisher's test can give with so many attempts: one side all, the other none."""
    return fisher(Counts(base_runs, base_runs), Counts(candidate_runs, 0)) if base_runs and candidate_runs else 1.0


@functools.lru_cache(maxsize=4096)
def find_least_p_value_of(base: Counts, candidate: Counts) -> float:
    """Return the smallest two-sided p-value that Fisher's test can give with so many attempts and so many passes altogether."""
    passes = base.passes + candidate.passes
    most = min(candidate.runs, passes)
    fewest = max(0, passes - base.runs)
    return min(fisher(Counts(base.runs, passes - x), Counts(candidate.runs, x)) for x in (fewest, most))


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted so that calling those up to q true lets at most a share q of the calls be false."""
    adjusted = [1.0] * len(p_values)
    least = 1.0
    order = sorted(range(len(p_values)), key=lambda index: p_values[index], reverse=True)
    for rank, index in zip(range(len(p_values), 0, -1), order, strict=True):
        # From the largest down, with the least so far: a smaller p-value never gets a larger adjusted one.
        least = min(least, p_values[index] * len(p_values) / rank)
        adjusted[index] = least
    return adjusted


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted after Holm: calling those up to alpha true makes any false call with a chance of at most alpha."""
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        # With the largest so far: a larger p-value never gets a smaller adjusted one.
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def _find_fewest(kind: _Kind) -> int:
    base_runs, _, passes = kind
    return max(0, passes - base_runs)


def _find_most(kind: _Kind) -> int:
    _, candidate_runs, passes = kind
    return min(candidate_runs, passes)


def _test(kinds: Mapping[_Kind, int], observed: int) -> ExactTest:
    """Return the test; `observed` is the candidate's total of passes above the fewest there could have been."""
    informative = sum(kinds.values())
    if not informative:
        return ExactTest(1.0, 1.0, 1.0, 0)
    length = 1 + sum(count * (_find_most(kind) - _find_fewest(kind)) for kind, count in kinds.items())
    bits = sum(count * _estimate_log2_ways(kind) for kind, count in kinds.items())
    # Up to eight bits more for each total: coefficients are stored in whole bytes.
    if length * (bits + 8) > LARGEST_EXACT_BITS:
        return _test_by_normal_curve(kinds, observed, informative)
    ways = _count_ways(kinds, length)
    # Whole numbers, so that totals exactly as likely as the observed one are found; floats would miss ties.
    total, here = sum(ways), ways[observed]
    return ExactTest(
        sum(way for way in ways if way <= here) / total,
        sum(ways[: observed + 1]) / total,
        sum(ways[observed:]) / total,
        informative,
    )


def _estimate_log2_ways(kind: _Kind) -> float:
    runs, passes = kind[0] + kind[1], kind[2]
    return (math.lgamma(runs + 1) - math.lgamma(passes + 1) - math.lgamma(runs - passes + 1)) / math.log(2)


def _count_ways(kinds: Mapping[_Kind, int], length: int) -> list[int]:
    """Return in how many ways each total can come about.

    The distribution of a sum is the product of polynomials. Written as integers, with their coefficients in digits wide enough
    that none overflows, Python multiplies them exactly and fast.
    """
    # What all coefficients add up to, so that none of them runs over into the digits of the next.
    everything = math.prod(math.comb(n + m, passes) ** count for (n, m, passes), count in kinds.items())
    width = (everything.bit_length() + 7) // 8
    product = 1
    for kind, count in kinds.items():
        n, m, passes = kind
        fewest = _find_fewest(kind)
        polynomial = sum(
            math.comb(m, x) * math.comb(n, passes - x) << 8 * width * (x - fewest) for x in range(fewest, _find_most(kind) + 1)
        )
        product *= polynomial**count
    digits = product.to_bytes(width * length, "little")
    return [int.from_bytes(digits[place : place + width], "little") for place in range(0, len(digits), width)]


def _test_by_normal_curve(kinds: Mapping[_Kind, int], observed: int, informative: int) -> ExactTest:
    mean = variance = 0.0
    for (n, m, passes), count in kinds.items():
        runs = n + m
        mean += count * (m * passes / runs - _find_fewest((n, m, passes)))
        variance += count * (n * m * passes * (runs - passes) / (runs * runs * (runs - 1)))
    # Never 0: only cases with passes and failures, and attempts in both runs, are among the kinds.
    deviation = math.sqrt(variance)
    regressed = _find_share_below((observed + 0.5 - mean) / deviation)
    improved = _find_share_below((mean - observed + 0.5) / deviation)
    return ExactTest(min(1.0, 2 * min(regressed, improved)), regressed, improved, informative, exact=False)


def _find_share_below(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2
