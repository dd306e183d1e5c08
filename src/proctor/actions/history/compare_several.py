"""More than two runs side by side: each of them compared with the first, the base, as two runs are compared.

Every comparison has the figures that it would have alone. Where several are made, one of them finds something by chance more easily; so
each also has its p-value adjusted after Holm, and is called more than chance only where it still is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.actions.history.compare import RunComparison
from proctor.actions.history.compare_rows import list_changed_cases
from proctor.scoring.exact import adjust_by_holm
from proctor.scoring.intervals import Counts

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
