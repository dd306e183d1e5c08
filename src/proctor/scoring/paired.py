"""Two runs of one suite, joined by case: did the agent get worse, better, or is that unclear?

The suite verdict:

regressed, improved  the exact test over all cases gives p <= alpha, the interval of the change lies on one side
                     of 0, and the change is at least `min_effect`; at most a share alpha of comparisons without a real
                     change gets such a verdict
unchanged            otherwise, if the interval of the change lies within plus or minus `resolution`: a change of 20 points
                     is ruled out
too_little_data      otherwise: such a change is still possible, or no case has results in both runs

In addition, each case is tested separately: Fisher's exact test, adjusted by Benjamini and Hochberg over the cases that can show
a change (a case that always passed in both runs cannot, and would only dilute the others). The lists of newly failing and newly
passing cases need no statistics.

The exact tests only assume that the attempts of one case are identically distributed and independent.

If nothing changed, the passes of a case split between the runs by chance, given their total: the split follows a hypergeometric
distribution. Cases are independent, so the total of the candidate's passes follows
the sum of these distributions, which is computed exactly. One case makes this Fisher's test; one attempt per case and run makes
it McNemar's; in between it is the exact test of Cochran, Mantel and Haenszel. A test at level alpha therefore gives a false alarm
in at most that share of comparisons, whatever the pass rates of the cases and however few attempts there were.

Two-sided means that every total that is at most as likely as the observed one counts against "nothing changed".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from proctor.scoring.intervals import Counts, Interval, find_normal_quantile, find_two_sided_z, newcombe, stratified_difference
from proctor.scoring.score import reduce_attempts
from proctor.scoring.statistics import SuiteStatistics, summarize_suite


def repeats_needed(cases: int, base_rate: float, drop: float, *, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """Return how often both runs must repeat each case to detect a drop with this power, or None if the rate cannot fall so far."""
    if not (0 <= base_rate <= 1 and 0 <= drop <= 1):
        raise ValueError(f"expected rates between 0 and 1, found base rate {base_rate} and drop {drop}")
    if cases < 1 or drop <= 0 or drop > base_rate + 1e-12:
        return None
    after = max(0.0, base_rate - drop)
    middle = (base_rate + after) / 2
    root = find_two_sided_z(1 - alpha) * math.sqrt(2 * middle * (1 - middle))
    root += find_normal_quantile(power) * math.sqrt(base_rate * (1 - base_rate) + after * (1 - after))
    root /= drop
    attempts = ((root + math.sqrt(root * root + 4 / drop)) / 2) ** 2
    # A rounding error in an integer quotient must not cost one more repeat of everything.
    return max(1, math.ceil(attempts / cases - 1e-9))


def detectable_drop(cases: int, repeats: int, base_rate: float, *, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """Return the smallest drop, to a tenth of a point, that is detected with this power, or None if not even a fall to zero is."""
    for tenths in range(1, int(base_rate * 1000 + 1e-9) + 1):
        attempts = repeats_needed(cases, base_rate, tenths / 1000, power=power, alpha=alpha)
        if attempts is not None and attempts <= repeats:
            return tenths / 1000
    return None


ALPHA = 0.05
"""The chance of reporting a change if there is none."""
LEAST_ALPHA = 1e-9
"""Less than this is treated as zero."""
RESOLUTION = 0.2
"""A drop that a comparison should be able to detect, as a share; a less sensitive one reports that."""
DROPS = (0.05, 0.1, 0.2)
"""Drops, as shares, for which the needed repeats are shown."""

Change = Literal["regressed", "improved", "unchanged", "too_little_data"]


class CaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """One case in both runs."""

    case: str
    base: Counts
    candidate: Counts
    verdict: Change
    """`regressed` or `improved` if the adjusted p-value is at most alpha; `too_little_data` if so few attempts can never reach it."""
    difference: float
    """Candidate rate minus base rate."""
    interval: Interval
    p_value: float
    """Fisher's exact test, two-sided."""
    adjusted_p: float
    """After Benjamini and Hochberg."""


class RepeatsNeeded(msgspec.Struct, frozen=True):
    """How often every case must be run, in both runs, to detect a drop four times out of five."""

    drop: float
    repeats: int | None
    """None if the base rate is too low to fall so far."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a report shows about two runs."""

    verdict: Change
    reason: str
    alpha: float
    resolution: float
    cases: int
    """Cases with decided attempts in both runs; everything below but the `only_in` lists is about these."""
    informative: int
    """Cases that neither always passed nor always failed over both runs: only they can show a change."""
    base: SuiteStatistics
    candidate: SuiteStatistics
    base_rate: float
    """The mean over the cases, weighted by their attempts if these differ."""
    candidate_rate: float
    effect: float
    """Candidate rate minus base rate."""
    interval: Interval
    """The interval of the effect, with confidence 1 - alpha; it contains 0 if the test finds no change."""
    p_value: float
    """The two-sided p-value of the exact test over all cases."""
    p_regressed: float
    p_improved: float
    exact: bool
    """Whether the p-values are exact; very large comparisons use the normal curve."""
    changes: tuple[CaseChange, ...] = ()
    """Every case, in the order of the base run."""
    newly_failing: tuple[str, ...] = ()
    """Cases that passed in the base run and not in the candidate, or passed sometimes and never in the candidate."""
    newly_passing: tuple[str, ...] = ()
    only_in_base: tuple[str, ...] = ()
    """Cases without a decided attempt in the candidate."""
    only_in_candidate: tuple[str, ...] = ()
    detectable_drop: float | None = None
    """The smallest drop that is detected four times out of five with as many cases and repeats."""
    repeats_needed: tuple[RepeatsNeeded, ...] = ()


def compare_runs(
    base: Mapping[str, Counts],
    candidate: Mapping[str, Counts],
    *,
    alpha: float = ALPHA,
    min_effect: float = 0.0,
    resolution: float = RESOLUTION,
    pass_thresholds: Mapping[str, float] | None = None,
) -> Comparison:
    """Compare two runs, each given as the counts of its cases.

    `pass_thresholds` names the pass rate that makes a case pass, for the lists of newly failing and passing cases; without one
    a case passes when all its attempts do.
    """
    decided = {case: counts for case, counts in base.items() if counts.runs}
    against = {case: counts for case, counts in candidate.items() if counts.runs}
    before = {case: counts for case, counts in decided.items() if case in against}
    after = {case: against[case] for case in before}
    pairs = list(zip(before.values(), after.values(), strict=True))
    test = stratified_test(pairs)
    difference = stratified_difference(pairs, confidence=1 - alpha)
    effect = difference.difference
    interval = difference.interval
    if test.p_value > alpha:
        interval = Interval(min(0.0, interval.low), max(0.0, interval.high))
    verdict = _decide_suite(len(pairs), test.p_value, effect, interval, alpha, min_effect, resolution)
    thresholds = pass_thresholds or {}
    passed = {case for case, counts in before.items() if _has_passed(counts, thresholds.get(case))}
    passes = {case for case, counts in after.items() if _has_passed(counts, thresholds.get(case))}
    had_passes = passed | {case for case, counts in before.items() if counts.passes and not after[case].passes}
    failing = tuple(case for case in before if case in had_passes and case not in passes)
    repeats = min((counts.runs for pair in pairs for counts in pair), default=0)
    return Comparison(
        verdict=verdict,
        reason=_write_reason(verdict, len(pairs), effect, interval, test.p_value, alpha, min_effect, resolution),
        alpha=alpha,
        resolution=resolution,
        cases=len(pairs),
        informative=test.informative,
        base=summarize_suite(before, confidence=1 - alpha),
        candidate=summarize_suite(after, confidence=1 - alpha),
        base_rate=difference.base_rate,
        candidate_rate=difference.candidate_rate,
        effect=effect,
        interval=interval,
        p_value=test.p_value,
        p_regressed=test.p_regressed,
        p_improved=test.p_improved,
        exact=test.exact,
        changes=compare_cases(before, after, alpha=alpha),
        newly_failing=failing,
        newly_passing=tuple(case for case in before if case in passes and case not in passed),
        only_in_base=tuple(case for case in decided if case not in against),
        only_in_candidate=tuple(case for case in against if case not in decided),
        detectable_drop=detectable_drop(len(pairs), repeats, difference.base_rate, alpha=alpha) if pairs else None,
        repeats_needed=tuple(
            RepeatsNeeded(drop, repeats_needed(len(pairs), difference.base_rate, drop, alpha=alpha)) for drop in DROPS if pairs
        ),
    )


def compare_cases(base: Mapping[str, Counts], candidate: Mapping[str, Counts], *, alpha: float = ALPHA) -> tuple[CaseChange, ...]:
    """Return each case of both runs separately, adjusted for their number."""
    shared = [case for case in base if case in candidate]
    p_values = {case: fisher(base[case], candidate[case]) for case in shared}
    # Which cases could be significant is known from their total attempts and passes, before looking at how these split: choosing the family
    # by it keeps the error rate (Gilbert 2005), and the excluded cases could never be significant.
    family = [case for case in shared if find_least_p_value_of(base[case], candidate[case]) <= alpha]
    adjusted = dict(zip(family, benjamini_hochberg([p_values[case] for case in family]), strict=True))
    changes: list[CaseChange] = []
    for case in shared:
        before, after, adjusted_p = base[case], candidate[case], adjusted.get(case, 1.0)
        difference = after.rate - before.rate
        if adjusted_p <= alpha:
            verdict: Change = "regressed" if difference < 0 else "improved"
        else:
            verdict = "too_little_data" if find_least_p_value(before.runs, after.runs) > alpha else "unchanged"
        changes.append(
            CaseChange(
                case=case,
                base=before,
                candidate=after,
                verdict=verdict,
                difference=difference,
                interval=newcombe(before, after, confidence=1 - alpha),
                p_value=p_values[case],
                adjusted_p=adjusted_p,
            )
        )
    return tuple(changes)


def _has_passed(counts: Counts, threshold: float | None) -> bool:
    return reduce_attempts({"pass": counts.passes, "fail": counts.runs - counts.passes}, threshold) == "pass"


def _decide_suite(
    cases: int, p_value: float, effect: float, interval: Interval, alpha: float, min_effect: float, resolution: float
) -> Change:
    if not cases:
        return "too_little_data"
    if p_value <= alpha and abs(effect) >= min_effect and 0.0 not in interval:
        return "regressed" if effect < 0 else "improved"
    return "unchanged" if -resolution <= interval.low and interval.high <= resolution else "too_little_data"


def _write_reason(
    verdict: Change, cases: int, effect: float, interval: Interval, p_value: float, alpha: float, min_effect: float, resolution: float
) -> str:
    if not cases:
        return "no case has results in both runs"
    bounds = f"{_write_points(interval.low)} to {_write_points(interval.high)}"
    figures = (
        f"{_write_points(effect)} points, {1 - alpha:.0%} interval {bounds}, {'p < 0.001' if p_value < 0.001 else f'p = {p_value:.2g}'}"
    )
    over = f"over {cases} {'case' if cases == 1 else 'cases'}"
    if verdict in ("regressed", "improved"):
        return f"the pass rate {'fell' if effect < 0 else 'rose'} {over}: {figures}"
    least = f"{100 * resolution:.0f} points"
    large = f"none of {least} or more is likely" if verdict == "unchanged" else f"one of {least} cannot be ruled out"
    if p_value <= alpha:
        small = abs(effect) < min_effect
        why = f"less than the minimum of {100 * min_effect:g} points" if small else "but the interval includes 0, so it is not called"
        return f"the pass rate {'fell' if effect < 0 else 'rose'} {over}, {why}: {figures}"
    if verdict == "unchanged":
        return f"no change beyond chance {over}, and {large}: {figures}"
    return f"too little data {over} to distinguish a change from chance, and {large}: {figures}"


def _write_points(share: float) -> str:
    return f"{100 * share:+.1f}"


LARGEST_EXACT_BITS = 2_000_000
"""The maximum size of the exact distribution; beyond it, hundreds of cases vary and the normal curve is as good."""

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
    """Whether the distribution was computed exactly instead of by the normal curve with continuity correction."""


def stratified_test(pairs: Iterable[tuple[Counts, Counts]]) -> ExactTest:
    """Test whether the candidate passes as often as the base, case by case; each case as counts of base and candidate."""
    kinds: dict[_Kind, int] = {}
    observed = 0
    for base, candidate in pairs:
        passes, runs = base.passes + candidate.passes, base.runs + candidate.runs
        if base.runs and candidate.runs and 0 < passes < runs:
            # Cases with the same counts have the same distribution: each kind is computed once and raised to its power.
            kind = (base.runs, candidate.runs, passes)
            kinds[kind] = kinds.get(kind, 0) + 1
            observed += candidate.passes - _find_range(kind)[0]
    return _test(kinds, observed)


@functools.lru_cache(maxsize=4096)
def fisher(base: Counts, candidate: Counts) -> float:
    """Return the two-sided p-value of Fisher's exact test of one case."""
    return stratified_test([(base, candidate)]).p_value


def find_least_p_value(base_runs: int, candidate_runs: int) -> float:
    """Return the smallest two-sided p-value of Fisher's test with these attempts: all pass on one side, none on the other."""
    return fisher(Counts(base_runs, base_runs), Counts(candidate_runs, 0)) if base_runs and candidate_runs else 1.0


@functools.lru_cache(maxsize=4096)
def find_least_p_value_of(base: Counts, candidate: Counts) -> float:
    """Return the smallest two-sided p-value of Fisher's test with these attempts and this total number of passes."""
    passes = base.passes + candidate.passes
    possible = _find_range((base.runs, candidate.runs, passes))
    return min(fisher(Counts(base.runs, passes - x), Counts(candidate.runs, x)) for x in (possible[0], possible[-1]))


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted so that at most a share q of the calls with a value up to q are false."""
    adjusted = [1.0] * len(p_values)
    least = 1.0
    order = sorted(range(len(p_values)), key=lambda index: p_values[index], reverse=True)
    for rank, index in zip(range(len(p_values), 0, -1), order, strict=True):
        # From the largest down, with the minimum so far: a smaller p-value never gets a larger adjusted one.
        least = min(least, p_values[index] * len(p_values) / rank)
        adjusted[index] = least
    return adjusted


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted after Holm: with calls up to alpha, the chance of any false call is at most alpha."""
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        # With the maximum so far: a larger p-value never gets a smaller adjusted one.
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def _find_range(kind: _Kind) -> range:
    """Return the possible numbers of passes of the candidate."""
    base_runs, candidate_runs, passes = kind
    return range(max(0, passes - base_runs), min(candidate_runs, passes) + 1)


def _test(kinds: Mapping[_Kind, int], observed: int) -> ExactTest:
    """Return the test; `observed` is the candidate's number of passes above the minimum possible."""
    informative = sum(kinds.values())
    if not informative:
        return ExactTest(1.0, 1.0, 1.0, 0)
    length = 1 + sum(count * (len(_find_range(kind)) - 1) for kind, count in kinds.items())
    bits = sum(count * _estimate_log2_ways(kind) for kind, count in kinds.items())
    # Up to eight extra bits for each total, because coefficients are stored in whole bytes.
    if length * (bits + 8) > LARGEST_EXACT_BITS:
        return _test_by_normal_curve(kinds, observed, informative)
    ways = _count_ways(kinds, length)
    # Integers, so that totals exactly as likely as the observed one are found; floats would miss ties.
    total, observed_ways = sum(ways), ways[observed]
    return ExactTest(
        sum(count_of_ways for count_of_ways in ways if count_of_ways <= observed_ways) / total,
        sum(ways[: observed + 1]) / total,
        sum(ways[observed:]) / total,
        informative,
    )


def _estimate_log2_ways(kind: _Kind) -> float:
    runs, passes = kind[0] + kind[1], kind[2]
    return (math.lgamma(runs + 1) - math.lgamma(passes + 1) - math.lgamma(runs - passes + 1)) / math.log(2)


def _count_ways(kinds: Mapping[_Kind, int], length: int) -> list[int]:
    """Return the number of ways to reach each total.

    The distribution of a sum is the product of polynomials. Encoded as integers, with coefficients in digits wide enough not to overflow,
    Python multiplies them exactly and fast.
    """
    # The sum of all coefficients, so that none of them overflows into the next.
    everything = math.prod(math.comb(n + m, passes) ** count for (n, m, passes), count in kinds.items())
    width = (everything.bit_length() + 7) // 8
    product = 1
    for kind, count in kinds.items():
        n, m, passes = kind
        terms = (math.comb(m, x) * math.comb(n, passes - x) << 8 * width * place for place, x in enumerate(_find_range(kind)))
        product *= sum(terms) ** count
    digits = product.to_bytes(width * length, "little")
    return [int.from_bytes(digits[place : place + width], "little") for place in range(0, len(digits), width)]


def _test_by_normal_curve(kinds: Mapping[_Kind, int], observed: int, informative: int) -> ExactTest:
    mean = variance = 0.0
    for (n, m, passes), count in kinds.items():
        runs = n + m
        mean += count * (m * passes / runs - _find_range((n, m, passes))[0])
        variance += count * (n * m * passes * (runs - passes) / (runs * runs * (runs - 1)))
    # Never 0: every kind has passes and failures, and attempts in both runs.
    deviation = math.sqrt(variance)
    regressed = _find_share_below((observed + 0.5 - mean) / deviation)
    improved = _find_share_below((mean - observed + 0.5) / deviation)
    return ExactTest(min(1.0, 2 * min(regressed, improved)), regressed, improved, informative, exact=False)


def _find_share_below(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2
