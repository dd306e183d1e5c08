"""From verdicts to the outcome of one attempt, and from attempts to the outcome of their case.

Only *gating* assertions count: an advisory one enters neither outcome nor score. *Decided* means pass or fail.

boolean   a gating fail makes the case fail, else a gating error makes it error, else something decided makes it pass
weighted  a gating error makes the case error and counts 0 in its score, so that it never raises one; else the weighted mean of
          the scores gives the verdict (`pass` from `pass_at`, `partial` above `partial_above`, else `fail`), and a failed required
          assertion fails it whatever the mean; the outcome is pass exactly when the verdict is

Nothing decided is `skip`. A case without any assertion has the outcome of its scoring (`when_empty`).

Attempts of one case are combined into one outcome. Without a threshold a case passes if every decided attempt passes. With `pass_threshold`
it passes if the share of passing attempts reaches it; skipped attempts do not count, errored attempts count as not passed.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proctor.model.case import Assertion, Scoring
from proctor.model.result import AxisScore, CaseVerdict
from proctor.model.verdict import Outcome, Verdict

DEFAULT_AXIS = "__default__"
TOLERANCE = 1e-9
"""The rounding error allowed below a threshold: weights of .2, .4 and .3 must give 0.9."""


class CaseScore(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a case and its figures."""

    outcome: Outcome
    score: float | None
    verdict: CaseVerdict | None = None
    axes: dict[str, AxisScore] | None = None
    undecided: int = 0
    """The number of undecided assertions of a weighted case."""


def find_weighted_mean(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Return the mean of `(score, weight)` pairs, or None without a weight.

    Sums are exact to the last bit (`fsum`) and the quotient is rounded to twelve places, so that weights .2 .4 .3 of 1.0
    give 0.9 and not its neighbour.
    """
    entries = list(pairs)
    total = math.fsum(weight for _, weight in entries)
    # Not `<= 0`, so that a NaN sum counts as no weight too.
    if not total > 0:
        return None
    return round(math.fsum(score * weight for score, weight in entries) / total, 12)


def decide_case_verdict(score: float, scoring: Scoring) -> CaseVerdict:
    """Return `pass`, `partial` or `fail` by the thresholds."""
    if score >= scoring.pass_at - TOLERANCE:
        return "pass"
    return "partial" if score > scoring.partial_above else "fail"


def score_case(assertions: Sequence[Assertion], verdicts: Sequence[Verdict], scoring: Scoring) -> CaseScore:
    """Decide a case from the verdicts on its assertions, both in the same order."""
    weighted = scoring.mode == "weighted"
    if not assertions:
        return _score_empty(scoring)
    gating = [(a, v) for a, v in zip(assertions, verdicts, strict=True) if not a.advisory]
    # A boolean score covers only decided assertions; a weighted one would rise with undecided ones.
    decided = [(a, v) for a, v in gating if v.outcome in ("pass", "fail") or (weighted and v.outcome == "error")]
    score = find_weighted_mean((v.score, a.weight) for a, v in decided)
    outcomes = {v.outcome for _, v in gating}
    if not weighted:
        if "fail" in outcomes:
            return CaseScore("fail", score)
        if "error" in outcomes:
            return CaseScore("error", score)
        return CaseScore("pass" if decided else "skip", score)
    axes = score_axes(decided)
    if "error" in outcomes:
        return CaseScore("error", score, None, axes, sum(v.outcome == "error" for _, v in gating))
    if score is None:
        return CaseScore("skip", None, None, axes)
    verdict = decide_case_verdict(score, scoring)
    if any(a.required and v.outcome == "fail" for a, v in decided):
        verdict = "fail"
    return CaseScore("pass" if verdict == "pass" else "fail", score, verdict, axes)


def score_evenly(verdicts: Sequence[Verdict]) -> tuple[Outcome, float | None]:
    """Return the result of `score_case` for a boolean case whose assertions all gate with equal weight: the common case, in one pass."""
    # A plain sum, unlike `find_weighted_mean`: with equal weights the rounding to twelve places hides its last bits.
    total = 0.0
    decided = 0
    outcome: Outcome = "skip"
    for verdict in verdicts:
        decided_as = verdict.outcome
        if decided_as == "pass":
            total += verdict.score
            decided += 1
            if outcome == "skip":
                outcome = "pass"
        elif decided_as == "fail":
            total += verdict.score
            decided += 1
            outcome = "fail"
        elif decided_as == "error" and outcome != "fail":
            outcome = "error"
    return outcome, _divide(total, decided) if decided else None


# Over a million cases the same few quotients recur.
@functools.lru_cache(maxsize=1024)
def _divide(total: float, count: int) -> float:
    return round(total / count, 12)


def score_axes(decided: Iterable[tuple[Assertion, Verdict]]) -> dict[str, AxisScore]:
    """Return the weighted mean and the weight of every axis; assertions without one share `__default__`."""
    by_axis: dict[str, list[tuple[float, float]]] = {}
    for assertion, verdict in decided:
        by_axis.setdefault(assertion.axis or DEFAULT_AXIS, []).append((verdict.score, assertion.weight))
    return {
        axis: AxisScore(find_weighted_mean(pairs) or 0.0, round(math.fsum(weight for _, weight in pairs), 12))
        for axis, pairs in by_axis.items()
    }


def _score_empty(scoring: Scoring) -> CaseScore:
    axes: dict[str, AxisScore] | None = {} if scoring.mode == "weighted" else None
    outcome = scoring.when_empty
    if outcome == "skip":
        return CaseScore("skip", None, None, axes)
    return CaseScore(outcome, float(outcome == "pass"), outcome if axes is not None else None, axes)


def reduce_attempts(counts: Mapping[str, int], pass_threshold: float | None = None) -> Outcome:
    """Return the outcome of a case from the number of attempts by outcome."""
    passed, failed, errored = counts.get("pass", 0), counts.get("fail", 0), counts.get("error", 0)
    decided = passed + failed + errored
    if not decided:
        return "skip"
    # A single attempt has no rate: it passed or not.
    if pass_threshold is not None and decided > 1:
        if passed / decided >= pass_threshold - TOLERANCE:
            return "pass"
        # If only errors keep it below its threshold, it has not certainly failed.
        return "fail" if failed else "error"
    if failed:
        return "fail"
    return "error" if errored else "pass"
