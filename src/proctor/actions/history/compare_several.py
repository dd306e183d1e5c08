"""More than two runs side by side: each of them compared with the first, the base, as two runs are compared.

Every comparison has the figures that it would have alone. Where several are made, one of them finds something by chance more easily; so
each also has its p-value adjusted after Holm, and is called more than chance only where it still is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from proctor.actions.history.compare import RunComparison
from proctor.report.words.wording import count_noun
from proctor.scoring.exact import adjust_by_holm
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import Comparison, RepeatsNeeded


class ChangedCase(NamedTuple):
    """One case, with how often it passed in either run."""

    case: str
    base: str
    candidate: str
    reason: str
    """Why it fails now; empty if it does not, or if not requested."""


class ChangedGroup(NamedTuple):
    """Cases that changed in the same way."""

    title: str
    kind: str
    """`bad`, `doubtful`, `good` or `plain`: how it is coloured."""
    cases: list[ChangedCase]

    @property
    def slug(self) -> str:
        """The title as a part of a name: `newly_failing`."""
        return self.title.replace(" ", "_")


def list_changed_cases(found: RunComparison) -> list[ChangedGroup]:
    """Return the groups that have a case, worst first; a case is in the first group that fits."""
    comparison = found.comparison
    counts = {change.case: (change.base, change.candidate) for change in comparison.changes}
    decided = {
        verdict: [change.case for change in comparison.changes if change.verdict == verdict] for verdict in ("regressed", "improved")
    }
    taken: set[str] = set()

    def pick(title: str, kind: str, cases: Iterable[str]) -> ChangedGroup:
        chosen = [case for case in cases if case not in taken]
        taken.update(chosen)
        rows = [ChangedCase(case, *_write_shares(counts.get(case)), found.reasons.get(case, "")) for case in chosen]
        return ChangedGroup(title, kind, rows)

    groups = [
        pick("newly failing", "bad", comparison.newly_failing),
        pick("regressed", "bad", decided["regressed"]),
        pick("flaky in the candidate", "doubtful", comparison.candidate.flaky),
        pick("newly passing", "good", comparison.newly_passing),
        pick("improved", "good", decided["improved"]),
        pick("only in the base", "plain", comparison.only_in_base),
        pick("only in the candidate", "plain", comparison.only_in_candidate),
    ]
    return [group for group in groups if group.cases]


def _write_shares(counts: tuple[Counts, Counts] | None) -> tuple[str, str]:
    if counts is None:
        return "", ""
    base, candidate = (f"{each.passes}/{each.runs}" for each in counts)
    return base, candidate


def describe_change(comparison: Comparison) -> str:
    """Return by how much the pass rate changed, in points: `-40.0 points, -61.2 to -18.8, p 0.003`."""
    low, high = 100 * comparison.interval.low, 100 * comparison.interval.high
    return f"{100 * comparison.effect:+.1f} points, {low:+.1f} to {high:+.1f}, p {comparison.p_value:.3g}"


def list_repeats_needed(found: RunComparison) -> list[RepeatsNeeded]:
    """Return how often to repeat each case to see drops; nothing where the comparison has seen a change already."""
    if found.comparison.verdict in ("regressed", "improved"):
        return []
    return [needed for needed in found.comparison.repeats_needed if needed.repeats is not None]


def describe_incomplete(found: RunComparison) -> list[str]:
    """Return lines about incomplete runs; the comparison does not cover what is missing."""
    incomplete = [
        f"INCOMPLETE: the {name} has {much.attempts_finished:,} of {count_noun(much.attempts_planned, 'attempt')}, "
        f"{much.cases_finished:,} of {count_noun(much.cases_planned, 'case')}"
        for name, much in (("base", found.base_incomplete), ("candidate", found.candidate_incomplete))
        if much is not None
    ]
    return [*incomplete, *found.warnings]


def describe_runs(found: RunComparison) -> tuple[str, str]:
    """Return both runs as a person calls them: the id, and the name where it has one."""
    base, candidate = (f"{header.run_id} ({header.name})" if header.name else header.run_id for header in (found.base, found.candidate))
    return base, candidate


MOST_RUNS = 6
"""Runs in one comparison, the base among them."""
GROUPS = (
    "newly failing", "regressed", "flaky in the candidate", "newly passing", "improved", "only in the base", "only in the candidate",
)  # fmt: skip
"""How a case may have changed, worst first."""


class AgainstBase(msgspec.Struct, frozen=True, kw_only=True):
    """One run compared with the base."""

    found: RunComparison
    adjusted_p: float
    """After Holm, over all comparisons with the base."""
    more_than_chance: bool
    """Whether the run regressed or improved, also when all comparisons are counted."""


class CaseAcross(msgspec.Struct, frozen=True, kw_only=True):
    """One case that changed in at least one of the runs."""

    case: str
    group: str
    """The worst of what it did in any of the runs: one of `GROUPS`."""
    base: Counts | None
    candidates: tuple[Counts | None, ...]
    """In each of the other runs; None where it has no decided attempt there or in the base."""
    reasons: tuple[str, ...]
    """Why it is newly failing, for each of the other runs; empty where it is not."""


class SeveralRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about several runs."""

    comparisons: tuple[AgainstBase, ...]
    """Of each run but the base, in the order in which they were named."""
    cases: tuple[CaseAcross, ...]
    """Every case that changed, newly failing first."""


def join_comparisons(found: Sequence[RunComparison]) -> SeveralRuns:
    """Return comparisons of several runs with the same base as one."""
    adjusted = adjust_by_holm([each.comparison.p_value for each in found])
    return SeveralRuns(
        comparisons=tuple(
            AgainstBase(found=each, adjusted_p=p_value, more_than_chance=_is_more_than_chance(each, p_value))
            for each, p_value in zip(found, adjusted, strict=True)
        ),
        cases=_join_cases(found),
    )


def _is_more_than_chance(found: RunComparison, adjusted_p: float) -> bool:
    return found.comparison.verdict in ("regressed", "improved") and adjusted_p <= found.comparison.alpha


def _join_cases(found: Sequence[RunComparison]) -> tuple[CaseAcross, ...]:
    groups: dict[str, int] = {}
    for each in found:
        for group in list_changed_cases(each):
            rank = GROUPS.index(group.title)
            for row in group.cases:
                groups[row.case] = min(rank, groups.get(row.case, rank))
    counts = [{change.case: change for change in each.comparison.changes} for each in found]
    joined = [
        CaseAcross(
            case=case,
            group=GROUPS[rank],
            base=next((by_case[case].base for by_case in counts if case in by_case), None),
            candidates=tuple(by_case[case].candidate if case in by_case else None for by_case in counts),
            reasons=tuple(each.reasons.get(case, "") for each in found),
        )
        for case, rank in groups.items()
    ]
    # Sorted by the group alone, and stable: within a group cases stay in the order of the suite.
    return tuple(sorted(joined, key=lambda case: GROUPS.index(case.group)))
