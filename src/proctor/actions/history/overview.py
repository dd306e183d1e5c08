"""Recent activity of a project: how its runs went, and what has changed since a moment.

Cases are compared between the newest run of a suite since then and the last one before: newly failing, newly passing and newly flaky.
These are facts, not a test: the comparison of the two runs tests against chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proctor.actions.history.failures import find_shape
from proctor.model.evidence import Json
from proctor.scoring.intervals import Counts, wilson
from proctor.scoring.paired import list_turned_cases

MOST_TREND = 20
"""Runs in a trend."""
MOST_NAMED = 20
"""Cases or reasons that a list names; their number is given as well."""
MOST_REASONS = 10


class TrendPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One completed run."""

    run_id: str
    suite_name: str
    name: str
    created_at: str
    runs: int
    """Attempts that were decided."""
    passes: int
    rate: float | None
    """None where nothing was decided."""
    low: float | None
    """The bounds of the rate, with 95 % confidence."""
    high: float | None


class TurnedCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case that turned."""

    case: str
    before: Counts
    after: Counts
    reason: str = ""
    """Why it fails now, if known."""


class TurnedCases(msgspec.Struct, frozen=True, kw_only=True):
    """Cases that turned in the same way."""

    total: int
    cases: tuple[TurnedCase, ...]
    """The first of them."""


class SuiteChange(msgspec.Struct, frozen=True, kw_only=True):
    """What changed in a suite between its last run before a moment and its newest one since."""

    suite_name: str
    run_id: str
    before_id: str | None
    """None: there is none to compare with."""
    newly_failing: TurnedCases
    newly_passing: TurnedCases
    newly_flaky: TurnedCases
    is_part: bool = False
    """Whether so many cases fail that only some of them were examined."""


class NewReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why results of traces fail since a moment, and did not before."""

    reason: str
    code: str | None
    outcome: str
    count: int
    result_id: str
    """The newest of them."""
    trace_id: str


class FailedResult(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a trace that did not pass."""

    id: str
    trace_id: str
    outcome: str
    code: str | None
    reason: str


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What is going on in a project."""

    project_id: str
    since: str
    trend: tuple[TrendPoint, ...]
    """The latest completed runs, oldest first."""
    alerts: list[dict[str, Json]] | None
    """The rules that fire; None for who does not read alerts."""
    new_runs: dict[str, int]
    """How many runs were made since then, by status."""
    more_runs: bool
    """Whether there are more than were counted."""
    suites: tuple[SuiteChange, ...]
    reasons: tuple[NewReason, ...]
    """New reasons for which results of traces fail."""
    more_reasons: int
    """Reasons beyond those that are listed."""


def make_trend_point(run: Mapping[str, object], counts: Mapping[str, int]) -> TrendPoint:
    """Return a run as a point of a trend; an error counts as not passed, a skip does not count."""
    passes = counts.get("pass", 0)
    decided = Counts(passes + counts.get("fail", 0) + counts.get("error", 0), passes)
    bounds = wilson(decided) if decided.runs else None
    return TrendPoint(
        run_id=str(run["id"]),
        suite_name=str(run["suite_name"]),
        name=str(run["name"] or ""),
        created_at=str(run["created_at"]),
        runs=decided.runs,
        passes=decided.passes,
        rate=decided.rate if decided.runs else None,
        low=None if bounds is None else bounds.low,
        high=None if bounds is None else bounds.high,
    )


def list_newly_flaky(before: Mapping[str, Counts], after: Mapping[str, Counts]) -> tuple[str, ...]:
    """Return the cases of both that passed only sometimes in the second, and in the first always or never."""
    return tuple(case for case, counts in after.items() if counts.flaky and case in before and not before[case].flaky)


def find_turned(
    before: Mapping[str, Counts], after: Mapping[str, Counts], thresholds: Mapping[str, float]
) -> tuple[TurnedCases, TurnedCases, TurnedCases]:
    """Return the newly failing, the newly passing and the newly flaky cases, of those with decided attempts in both runs."""
    old = {case: counts for case, counts in before.items() if counts.runs}
    new = {case: counts for case, counts in after.items() if counts.runs}
    shared = {case: counts for case, counts in old.items() if case in new}
    failing, passing = list_turned_cases(shared, new, thresholds)

    def name(cases: Sequence[str]) -> TurnedCases:
        listed = tuple(TurnedCase(case=case, before=old[case], after=new[case]) for case in cases[:MOST_NAMED])
        return TurnedCases(total=len(cases), cases=listed)

    return name(failing), name(passing), name(list_newly_flaky(old, new))


def find_new_reasons(since: Iterable[FailedResult], before: Iterable[FailedResult]) -> tuple[tuple[NewReason, ...], int]:
    """Return the reasons for which results fail since a moment and did not before, the commonest first, and how many there are."""
    known = {_find_kind(result) for result in before}
    found: dict[tuple[str, str | None, str], list[FailedResult]] = {}
    for result in since:
        kind = _find_kind(result)
        if kind not in known:
            found.setdefault(kind, []).append(result)
    ranked = sorted(found.values(), key=len, reverse=True)
    return tuple(_make_reason(members) for members in ranked[:MOST_REASONS]), len(ranked)


def _find_kind(result: FailedResult) -> tuple[str, str | None, str]:
    return (result.outcome, result.code, find_shape(result.reason))


def _make_reason(members: Sequence[FailedResult]) -> NewReason:
    first = members[0]
    return NewReason(
        reason=first.reason,
        code=first.code,
        outcome=first.outcome,
        count=len(members),
        result_id=first.id,
        trace_id=first.trace_id,
    )
