"""Two runs of one suite, joined by case: did the agent get worse, better, or is that unclear?

The suite verdict:

regressed, improved  the exact test over all cases (`exact.py`) gives p <= alpha, the interval of the change lies on one side
                     of 0, and the change is at least `min_effect`; at most a share alpha of comparisons in which nothing
                     changed ends so
unchanged            it does not, and the interval of the change lies within plus or minus `resolution`: had the rate moved by
                     20 points, this comparison would rule it out
too_little_data      it does not, and a change that large is still possible, or no case has results in both runs

In addition, each case on its own: Fisher's exact test with the adjustment of Benjamini and Hochberg over the cases that could
show anything at all (a case that always passed in both runs cannot, and would only dilute the others), and the plain lists
of what passed before and does not now, which need no statistics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from proctor.scoring.exact import benjamini_hochberg, find_least_p_value, find_least_p_value_of, fisher, stratified_test
from proctor.scoring.intervals import Counts, Interval, find_normal_quantile, find_two_sided_z, newcombe, stratified_difference
from proctor.scoring.reduce import reduce_attempts
from proctor.scoring.statistics import SuiteStatistics, summarize_suite

# --- how small a drop a comparison can see, and how many repeats it takes


def compute_power(cases: int, repeats: int, base_rate: float, drop: float, *, alpha: float = 0.05) -> float:
    """Return the chance that a comparison gives `regressed` when every case's pass rate falls by `drop`."""
    _check(base_rate, drop)
    attempts = cases * repeats
    if attempts < 1 or drop <= 0:
        return 0.0
    after = base_rate - drop
    # A fall to exactly zero may come out a little below it by rounding.
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


def repeats_needed(cases: int, base_rate: float, drop: float, *, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """Return how often both runs must repeat each case to see a drop with this power, or None if the rate cannot fall so far."""
    _check(base_rate, drop)
    if cases < 1 or drop <= 0 or drop > base_rate + 1e-12:
        return None
    after = max(0.0, base_rate - drop)
    middle = (base_rate + after) / 2
    root = find_two_sided_z(1 - alpha) * math.sqrt(2 * middle * (1 - middle))
    root += find_normal_quantile(power) * math.sqrt(base_rate * (1 - base_rate) + after * (1 - after))
    root /= drop
    attempts = ((root + math.sqrt(root * root + 4 / drop)) / 2) ** 2
    # A quotient that is a whole number but for its last bit must not cost one more repeat of everything.
    return max(1, math.ceil(attempts / cases - 1e-9))


def detectable_drop(cases: int, repeats: int, base_rate: float, *, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """Return the smallest drop, to a tenth of a point, that is seen with this power, or None when not even the fall to zero is."""
    for tenths in range(1, int(base_rate * 1000 + 1e-9) + 1):
        attempts = repeats_needed(cases, base_rate, tenths / 1000, power=power, alpha=alpha)
        if attempts is not None and attempts <= repeats:
            return tenths / 1000
    return None


def _check(base_rate: float, drop: float) -> None:
    if not (0 <= base_rate <= 1 and 0 <= drop <= 1):
        raise ValueError(f"expected rates between 0 and 1, found base rate {base_rate} and drop {drop}")


ALPHA = 0.05
"""The chance of calling a change that is none."""
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
    """`regressed` or `improved` when the adjusted p-value is at most alpha; `too_little_data` when so few attempts never could be."""
    difference: float
    """Candidate rate minus base rate."""
    interval: Interval
    p_value: float
    """Fisher's exact test, two-sided."""
    adjusted_p: float
    """After Benjamini and Hochberg."""


class RepeatsNeeded(msgspec.Struct, frozen=True):
    """How often every case must be run, in both runs, to see a drop four times out of five."""

    drop: float
    repeats: int | None
    """Nothing when the base rate is too low to fall so far."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a report shows about two runs."""

    verdict: Change
    reason: str
    alpha: float
    resolution: float
    cases: int
    """Cases with decided attempts in both runs; everything below but the `only_in` lists is about these."""
    informative: int
    """Those that neither always passed nor always failed over both runs: only they can show a change."""
    base: SuiteStatistics
    candidate: SuiteStatistics
    base_rate: float
    """The mean over the cases, weighted by their attempts where these differ."""
    candidate_rate: float
    effect: float
    """Candidate rate minus base rate."""
    interval: Interval
    """Of the effect, with confidence 1 - alpha; it holds 0 whenever the test finds nothing."""
    p_value: float
    """Of the exact test over all cases, two-sided."""
    p_regressed: float
    p_improved: float
    exact: bool
    """Whether the p-values are exact; very large comparisons use the normal curve."""
    changes: tuple[CaseChange, ...] = ()
    """Every case, in the order of the base run."""
    newly_failing: tuple[str, ...] = ()
    """Passed in the base run and does not in the candidate, or passed there in part and in no attempt of the candidate."""
    newly_passing: tuple[str, ...] = ()
    only_in_base: tuple[str, ...] = ()
    """Cases without a decided attempt in the candidate."""
    only_in_candidate: tuple[str, ...] = ()
    detectable_drop: float | None = None
    """The smallest drop seen four times out of five with as many cases and repeats."""
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
    interval = _widen_to_zero(difference.interval) if test.p_value > alpha else difference.interval
    verdict = _decide_suite(len(pairs), test.p_value, effect, interval, alpha, min_effect, resolution)
    newly_failing, newly_passing = list_turned_cases(before, after, pass_thresholds or {})
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
        newly_failing=newly_failing,
        newly_passing=newly_passing,
        only_in_base=tuple(case for case in decided if case not in against),
        only_in_candidate=tuple(case for case in against if case not in decided),
        detectable_drop=_find_detectable_drop(pairs, difference.base_rate, alpha),
        repeats_needed=_count_repeats_needed(len(pairs), difference.base_rate, alpha),
    )


def list_turned_cases(
    before: Mapping[str, Counts], after: Mapping[str, Counts], thresholds: Mapping[str, float]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the cases that passed and do not any more, and those that did not and do now.

    A case that passed in part and passes in no attempt now has lost something, whatever it was called before.
    """
    passed = {case for case, counts in before.items() if _has_passed(counts, thresholds.get(case))}
    passes = {case for case, counts in after.items() if _has_passed(counts, thresholds.get(case))}
    had = passed | {case for case, counts in before.items() if counts.passes and not after[case].passes}
    failing = tuple(case for case in before if case in had and case not in passes)
    return failing, tuple(case for case in before if case in passes and case not in passed)


def _find_detectable_drop(pairs: Sequence[tuple[Counts, Counts]], base_rate: float, alpha: float) -> float | None:
    """Return the smallest drop that such a comparison sees; it sees no more than the case with the fewest attempts allows."""
    repeats = min((counts.runs for pair in pairs for counts in pair), default=0)
    return detectable_drop(len(pairs), repeats, base_rate, alpha=alpha) if pairs else None


def _count_repeats_needed(cases: int, base_rate: float, alpha: float) -> tuple[RepeatsNeeded, ...]:
    return tuple(RepeatsNeeded(drop, repeats_needed(cases, base_rate, drop, alpha=alpha)) for drop in DROPS if cases)


def compare_cases(base: Mapping[str, Counts], candidate: Mapping[str, Counts], *, alpha: float = ALPHA) -> tuple[CaseChange, ...]:
    """Return each case of both runs on its own, adjusted for their number."""
    shared = [case for case in base if case in candidate]
    p_values = {case: fisher(base[case], candidate[case]) for case in shared}
    # Which cases could be significant is known from their attempts and passes together, before looking at how these split:
    # choosing the family by it keeps the error rate (Gilbert 2005), and the cases left out could not have been called anyway.
    family = [case for case in shared if find_least_p_value_of(base[case], candidate[case]) <= alpha]
    adjusted = dict(zip(family, benjamini_hochberg([p_values[case] for case in family]), strict=True))
    return tuple(_make_case_change(case, base[case], candidate[case], p_values[case], adjusted.get(case, 1.0), alpha) for case in shared)


def _make_case_change(case: str, base: Counts, candidate: Counts, p_value: float, adjusted: float, alpha: float) -> CaseChange:
    difference = candidate.rate - base.rate
    if adjusted <= alpha:
        verdict: Change = "regressed" if difference < 0 else "improved"
    else:
        verdict = "too_little_data" if find_least_p_value(base.runs, candidate.runs) > alpha else "unchanged"
    return CaseChange(
        case=case,
        base=base,
        candidate=candidate,
        verdict=verdict,
        difference=difference,
        interval=newcombe(base, candidate, confidence=1 - alpha),
        p_value=p_value,
        adjusted_p=adjusted,
    )


def _has_passed(counts: Counts, threshold: float | None) -> bool:
    return reduce_attempts({"pass": counts.passes, "fail": counts.runs - counts.passes}, threshold) == "pass"


def _widen_to_zero(interval: Interval) -> Interval:
    """Widen an interval to include zero: it is an approximation and may not rule out what the exact test allows."""
    return Interval(min(0.0, interval.low), max(0.0, interval.high))


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
    figures = f"{_write_points(effect)} points, {1 - alpha:.0%} interval {bounds}, p = {p_value:.2g}"
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
