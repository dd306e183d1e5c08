"""Recent activity of a project: how its runs went, and what has changed since a moment.

The newest run of each kind since then is compared with the previous one of the same kind. Changes that may be chance are only counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from proctor.actions.history.compare import RunComparison
from proctor.actions.history.compare_several import CaseCounts, list_changed_cases
from proctor.model.evidence import Json
from proctor.report.words.findings import find_shape
from proctor.scoring.intervals import Counts, wilson

MOST_TREND = 20
"""Runs in a trend."""
MOST_NAMED = 20
"""Cases or reasons that a list names; their number is given as well."""
MOST_REASONS = 10


class TrendPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One completed run."""

    run_id: str
    suite_name: str
    name: Annotated[str, Meta(description="name and note of the run")]
    created_at: str
    runs: Annotated[int, Meta(description="decided attempts")]
    passes: int
    rate: Annotated[float | None, Meta(description="null if nothing was decided")]
    low: Annotated[float | None, Meta(description="the lower bound of the rate, with 95 % confidence")]
    high: float | None


class TurnedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case whose results changed."""

    case: str
    before: Annotated[Counts | None, CaseCounts]
    after: Annotated[Counts | None, CaseCounts]
    reason: Annotated[str, Meta(description="why it fails now, if it got worse")] = ""
    cause: Annotated[str, Meta(description="the reason that it shares with others that got worse")] = ""


class TurnedCases(msgspec.Struct, frozen=True, kw_only=True):
    """Cases with the same change."""

    total: int
    cases: Annotated[tuple[TurnedCase, ...], Meta(description="the first twenty, cases with the same cause together")]


NO_CASES = TurnedCases(total=0, cases=())


class SuiteChange(msgspec.Struct, frozen=True, kw_only=True):
    """The newest run of a kind since the time, compared with the previous run of the same kind."""

    suite_name: str
    run_id: str
    run_name: Annotated[str, Meta(description="name and note of the run")] = ""
    before_id: Annotated[str | None, Meta(description="the previous run of the same kind; null if there is none")] = None
    before_name: str = ""
    before_at: str = ""
    verdict: Annotated[str | None, Meta(description="regressed, improved, unchanged or too_little_data")] = None
    effect: Annotated[float | None, Meta(description="change of the pass rate, as a share")] = None
    low: Annotated[float | None, Meta(description="the lower bound of the change, with 95 % confidence")] = None
    high: float | None = None
    newly_failing: Annotated[TurnedCases, Meta(description="beyond chance")] = NO_CASES
    newly_passing: Annotated[TurnedCases, Meta(description="beyond chance")] = NO_CASES
    within_chance: Annotated[int, Meta(description="number of changed cases whose change may be chance")] = 0


class NewReason(msgspec.Struct, frozen=True, kw_only=True):
    """A new reason for failing results of traces."""

    reason: str
    code: str | None
    outcome: str
    count: int
    result_id: str
    trace_id: str


class FailedResult(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a trace that did not pass."""

    id: str
    trace_id: str
    outcome: str
    code: str | None
    reason: str


class TraceCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The traces of a project since a time."""

    since: str
    total: int
    counts: Annotated[dict[str, int], Meta(description="evaluated traces by outcome, the worst of their results")]
    is_part: Annotated[bool, Meta(description="whether only the newest 10,000 were counted")] = False


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a project."""

    project_id: str
    since: str
    trend: Annotated[tuple[TrendPoint, ...], Meta(description="the latest 20 completed runs, oldest first")]
    alerts: Annotated[Sequence[Mapping[str, Json]] | None, Meta(description="firing alerts; null for project keys")]
    new_runs: Annotated[dict[str, int], Meta(description="number of new runs by status")]
    more_runs: Annotated[bool, Meta(description="whether there are more than the hundred that are counted")]
    traces: Annotated[tuple[TraceCounts, ...], Meta(description="since the time, and of the last seven days; empty without traces")] = ()
    suites: Annotated[tuple[SuiteChange, ...], Meta(description="of at most five kinds of completed runs since then")]
    reasons: Annotated[tuple[NewReason, ...], Meta(description="new reasons of failing results of traces, most frequent first")]
    more_reasons: Annotated[int, Meta(description="number of further reasons")]


def make_trend_point(run: Mapping[str, object], counts: Mapping[str, int]) -> TrendPoint:
    """Return a run as a point of a trend; an error counts as not passed, a skip does not count."""
    passes = counts.get("pass", 0)
    decided = Counts(passes + counts.get("fail", 0) + counts.get("error", 0), passes)
    bounds = wilson(decided) if decided.runs else None
    return TrendPoint(
        run_id=str(run["id"]),
        suite_name=str(run["suite_name"]),
        name=_name_run(run),
        created_at=str(run["created_at"]),
        runs=decided.runs,
        passes=decided.passes,
        rate=decided.rate if decided.runs else None,
        low=None if bounds is None else bounds.low,
        high=None if bounds is None else bounds.high,
    )


def make_suite_change(run: Mapping[str, Json], before: Mapping[str, Json] | None, run_comparison: RunComparison | None) -> SuiteChange:
    """Return what changed since the previous run, from their comparison."""
    change = SuiteChange(suite_name=str(run["suite_name"]), run_id=str(run["id"]), run_name=_name_run(run))
    if before is None or run_comparison is None:
        return change
    counts = {each.case: (each.base, each.candidate) for each in run_comparison.comparison.changes}
    groups = {group.title: group.cases for group in list_changed_cases(run_comparison)}
    small = set(run_comparison.within_chance)

    def name(*titles: str) -> TurnedCases:
        cases = [case for title in titles for case in groups.get(title, ()) if case.case not in small]
        listed = (
            TurnedCase(case=row.case, before=counts[row.case][0], after=counts[row.case][1], reason=row.reason, cause=row.cause)
            for row in cases[:MOST_NAMED]
        )
        return TurnedCases(total=len(cases), cases=tuple(listed))

    comparison = run_comparison.comparison
    return msgspec.structs.replace(
        change,
        before_id=str(before["id"]),
        before_name=_name_run(before),
        before_at=str(before["created_at"]),
        verdict=comparison.verdict,
        effect=comparison.effect,
        low=comparison.interval.low,
        high=comparison.interval.high,
        newly_failing=name("newly failing", "regressed"),
        newly_passing=name("newly passing", "improved"),
        within_chance=len(run_comparison.within_chance),
    )


def _name_run(run: Mapping[str, object]) -> str:
    return " · ".join(str(value) for key in ("name", "note") if (value := run.get(key)))


def find_new_reasons(since: Iterable[FailedResult], before: Iterable[FailedResult]) -> tuple[tuple[NewReason, ...], int]:
    """Return the new reasons of failing results since a moment, the commonest first, and their number."""
    known = {_find_kind(result) for result in before}
    by_reason: dict[tuple[str, str | None, str], list[FailedResult]] = {}
    for result in since:
        kind = _find_kind(result)
        if kind not in known:
            by_reason.setdefault(kind, []).append(result)
    ranked = sorted(by_reason.values(), key=len, reverse=True)
    reasons = (
        NewReason(
            reason=members[0].reason,
            code=members[0].code,
            outcome=members[0].outcome,
            count=len(members),
            result_id=members[0].id,
            trace_id=members[0].trace_id,
        )
        for members in ranked[:MOST_REASONS]
    )
    return tuple(reasons), len(ranked)


def _find_kind(result: FailedResult) -> tuple[str, str | None, str]:
    return (result.outcome, result.code, find_shape(result.reason))


BINS = 24
"""Bars of the picture."""
_SLOW = 0.99
"""Attempts slower than this quantile share the last bar: a single hanging one would compress the others."""


class LatencyBin(msgspec.Struct, frozen=True, kw_only=True):
    """Number of attempts with a duration between two bounds; the last bin includes its upper bound."""

    low_ms: float
    high_ms: float
    count: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of the attempts of a run."""

    looked_at: Annotated[int, Meta(description="attempts with a known duration among the examined ones")]
    total: Annotated[int, Meta(description="finished attempts")]
    is_sample: Annotated[bool, Meta(description="whether only a sample, spread evenly over the run, was examined")] = False
    least_ms: float | None = None
    median_ms: float | None = None
    p95_ms: float | None = None
    most_ms: float | None = None
    bins: tuple[LatencyBin, ...] = ()


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
    """Return the smallest value that is not exceeded by at least this share of the values."""
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
