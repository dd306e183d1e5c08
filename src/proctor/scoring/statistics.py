"""Statistics of several attempts at a case, and at a suite.

pass@k   the chance that at least one of k attempts passes: 1 - C(n-c, k) / C(n, k)
pass^k   the chance that all of k attempts pass: C(c, k) / C(n, k)

Both are unbiased estimates from n attempts with c passes, and exist only for k up to n: ten attempts cannot be estimated
from three. Over a suite they are means over the cases, for every k that each case reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from proctor.model.case import Case
from proctor.model.result import Ending, Incomplete, MissingAttempts
from proctor.model.verdict import Outcome
from proctor.scoring.intervals import Counts, Interval, wilson

SHOWN_K = (1, 2, 3, 4, 5, 8, 10, 20, 50, 100)
"""The reported values of k, up to the number of attempts, and that number itself."""
LARGEST_K = 10_000
"""The maximum number of attempts that is reported as its own k: the number of ways to choose half of a million has a million digits."""


class CaseStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the attempts at one case."""

    runs: int
    """Attempts that were decided: skipped ones do not count, errored ones do."""
    passes: int
    rate: float
    interval: Interval
    """Wilson's interval of the pass rate."""
    pass_at: dict[int, float]
    """By k: the chance that at least one of k attempts passes."""
    pass_hat: dict[int, float]
    """By k: the chance that all of k attempts pass."""
    flaky: bool
    """Whether some attempts passed and some did not."""


class SuiteStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the attempts at all cases."""

    cases: int
    """Cases with at least one decided attempt."""
    runs: int
    passes: int
    rate: float
    """Passes over decided attempts."""
    interval: Interval
    """Wilson's interval of that rate; cases of unequal difficulty make it wider than necessary."""
    pass_at: dict[int, float]
    """By k: the mean over the cases."""
    pass_hat: dict[int, float]
    """By k: the mean over the cases."""
    flaky: tuple[str, ...]
    """The cases with both outcomes, sorted."""


def count_outcomes(outcomes: Mapping[str, int]) -> Counts:
    """Count attempts by outcome: an error did not pass, a skip does not count."""
    passes = outcomes.get("pass", 0)
    return Counts(passes + outcomes.get("fail", 0) + outcomes.get("error", 0), passes)


def pass_at_k(counts: Counts, k: int) -> float:
    """Return the chance that at least one of k attempts passes."""
    ways = _count_ways(counts, k)
    # Integers up to the division: the difference of two floats near 1 would lose its digits.
    return (ways - math.comb(counts.runs - counts.passes, k)) / ways


def pass_hat_k(counts: Counts, k: int) -> float:
    """Return the chance that all of k attempts pass, written pass^k."""
    ways = _count_ways(counts, k)
    return math.comb(counts.passes, k) / ways


def summarize(counts: Counts, *, confidence: float = 0.95) -> CaseStatistics:
    """Return the statistics of one case."""
    ks = _list_shown_k(counts.runs)
    return CaseStatistics(
        runs=counts.runs,
        passes=counts.passes,
        rate=counts.rate,
        interval=wilson(counts, confidence=confidence),
        pass_at={k: pass_at_k(counts, k) for k in ks},
        pass_hat={k: pass_hat_k(counts, k) for k in ks},
        flaky=counts.flaky,
    )


def summarize_suite(cases: Mapping[str, Counts], *, confidence: float = 0.95) -> SuiteStatistics:
    """Return the statistics of a suite, from the counts of its cases."""
    decided = [counts for counts in cases.values() if counts.runs]
    total = Counts(sum(counts.runs for counts in decided), sum(counts.passes for counts in decided))
    ks = _list_shown_k(min((counts.runs for counts in decided), default=0))
    return SuiteStatistics(
        cases=len(decided),
        runs=total.runs,
        passes=total.passes,
        rate=total.rate,
        interval=wilson(total, confidence=confidence),
        pass_at={k: _find_mean(decided, lambda counts, k=k: pass_at_k(counts, k)) for k in ks},
        pass_hat={k: _find_mean(decided, lambda counts, k=k: pass_hat_k(counts, k)) for k in ks},
        flaky=tuple(sorted(case for case, counts in cases.items() if counts.flaky)),
    )


def _find_mean(decided: Sequence[Counts], find_chance: Callable[[Counts], float]) -> float:
    # Most cases of a suite have the same counts, so each is computed once.
    known = {counts: find_chance(counts) for counts in set(decided)}
    return math.fsum(known[counts] for counts in decided) / len(decided)


def _count_ways(counts: Counts, k: int) -> int:
    if not 1 <= k <= counts.runs:
        raise ValueError(f"expected k from 1 to the number of attempts, {counts.runs}; found {k}")
    return math.comb(counts.runs, k)


def _list_shown_k(runs: int) -> list[int]:
    shown = [k for k in SHOWN_K if k <= runs]
    return shown if not runs or runs in shown or runs > LARGEST_K else [*shown, runs]


# Decides whether a run is complete, and which attempts are missing.
# A run plans every case `repeat` times, or as often as the case itself requires if that is more. A missing attempt has neither passed nor
# failed: a run without it is incomplete, whatever its results.


def count_planned_attempts(case: Case, repeat: int) -> int:
    """Return how often a run with this `repeat` runs the case."""
    return max(repeat, case.repetitions or 1)


def find_incomplete(cases: Sequence[Case], repeat: int, finished: Iterable[tuple[str, int]], ended: Ending) -> Incomplete | None:
    """Return the missing planned attempts, or None if there are none."""
    found_attempts: dict[str, set[int]] = {}
    for case_id, attempt in finished:
        found_attempts.setdefault(case_id, set()).add(attempt)
    return find_incomplete_cases(cases, repeat, found_attempts, ended)


def find_incomplete_cases(cases: Sequence[Case], repeat: int, finished: Mapping[str, Collection[int]], ended: Ending) -> Incomplete | None:
    """Return the same from the number of finished attempts per case."""
    attempts_planned = attempts_finished = 0
    missing: list[MissingAttempts] = []
    for case in cases:
        planned = count_planned_attempts(case, repeat)
        # Attempts beyond the plan (recorded with more repeats) do not compensate for missing ones.
        done = sum(map(planned.__gt__, set(finished.get(case.id, ()))))
        attempts_planned += planned
        attempts_finished += done
        if done < planned:
            missing.append(MissingAttempts(case=case, planned=planned, finished=done))
    if not missing:
        return None
    return Incomplete(
        ended=ended,
        attempts_finished=attempts_finished,
        attempts_planned=attempts_planned,
        cases_finished=len(cases) - len(missing),
        cases_planned=len(cases),
        missing=tuple(missing),
    )


def decide_outcome(decided: Outcome, incomplete: Incomplete | None) -> Outcome:
    """Return the outcome of a run: a failure stays a failure, but an incomplete run does not pass."""
    return decided if incomplete is None or decided == "fail" else "error"
