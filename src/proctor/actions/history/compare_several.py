"""More than two runs side by side: each of them compared with the first, the base, as two runs are compared.

Every comparison has the figures that it would have alone. With several comparisons, a chance finding is more likely, so each p-value is
also adjusted by Holm's method, and a difference counts as more than chance only if it is significant after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple, Protocol, TypedDict, TypeVar, get_args

import msgspec
from msgspec import Meta

from proctor.actions.doctor.snapshots import TAG
from proctor.actions.history.compare import RunComparison
from proctor.report.words.findings import find_shape
from proctor.report.words.wording import count_noun
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import RepeatsNeeded, adjust_by_holm


class ChangedCase(NamedTuple):
    """One case, with how often it passed in either run."""

    case: str
    base: str
    candidate: str
    reason: str
    """Why it fails now; empty if it does not, or if not requested."""
    cause: str = ""
    """The reason that it shares with others that got worse."""


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


def list_changed_cases(result: RunComparison) -> list[ChangedGroup]:
    """Return the groups that have a case, worst first; a case is in the first group that fits."""
    comparison = result.comparison
    shares = {
        change.case: (f"{change.base.passes}/{change.base.runs}", f"{change.candidate.passes}/{change.candidate.runs}")
        for change in comparison.changes
    }
    regressed, improved = ([one.case for one in comparison.changes if one.verdict == verdict] for verdict in ("regressed", "improved"))
    # Changes within chance and cases as flaky as before come last; from always to never is listed, however few attempts there were.
    changed = {change.case: abs(change.difference) for change in comparison.changes if change.difference}
    small = {
        *(case for case in result.within_chance if changed[case] < 1),
        *(case for case in comparison.candidate.flaky if case not in changed),
    }
    ranks = _rank_by_cause(result)
    drops = {change.case: change.difference for change in comparison.changes}
    listed_ids: set[str] = set()

    def pick(title: str, kind: str, cases: Iterable[str], *, is_small: bool = False) -> ChangedGroup:
        chosen = [case for case in dict.fromkeys(cases) if case not in listed_ids and (is_small or case not in small)]
        listed_ids.update(chosen)
        chosen.sort(key=lambda case: (ranks[case][0], drops[case]) if case in ranks else (len(ranks), 0.0))
        rows = [
            ChangedCase(case, *shares.get(case, ("", "")), result.reasons.get(case, ""), ranks.get(case, (0, ""))[1]) for case in chosen
        ]
        return ChangedGroup(title, kind, rows)

    groups = [
        pick("newly failing", "bad", comparison.newly_failing),
        pick("regressed", "bad", regressed),
        pick("flaky in the candidate", "doubtful", comparison.candidate.flaky),
        pick("newly passing", "good", comparison.newly_passing),
        pick("improved", "good", improved),
        pick("only in the base", "plain", comparison.only_in_base),
        pick("only in the candidate", "plain", comparison.only_in_candidate),
        pick("within chance", "plain", (case for case in [*drops, *comparison.candidate.flaky] if case in small), is_small=True),
    ]
    return [group for group in groups if group.cases]


def _rank_by_cause(comparison: RunComparison) -> dict[str, tuple[int, str]]:
    """Return the rank and the heading of every case that got worse: its cause, split by assertion as in the failures of a run."""
    ranks: dict[str, tuple[int, str]] = {}
    headings: dict[tuple[int, str], tuple[int, str]] = {}
    for number, cause in enumerate(comparison.causes):
        for case in cause.cases:
            reason = comparison.reasons.get(case, cause.reason)
            ranks[case] = headings.setdefault((number, find_shape(reason)), (len(headings), reason))
    return ranks


class _WithCause(Protocol):
    @property
    def cause(self) -> str: ...


CaseRow = TypeVar("CaseRow", bound=_WithCause)


def split_by_cause(cases: Iterable[CaseRow]) -> list[tuple[str, list[CaseRow]]]:
    """Return the cases of a group by cause; those without one share an empty cause."""
    rows_by_cause: dict[str, list[CaseRow]] = {}
    for case in cases:
        rows_by_cause.setdefault(case.cause, []).append(case)
    return [*rows_by_cause.items()]


def list_repeats_needed(comparison: RunComparison) -> list[RepeatsNeeded]:
    """Return how often to repeat each case to detect drops; empty if a change is shown, or chance has no part (an examined server)."""
    if comparison.comparison.verdict in ("regressed", "improved") or TAG in comparison.candidate.tags:
        return []
    return [needed for needed in comparison.comparison.repeats_needed if needed.repeats is not None]


def describe_incomplete(comparison: RunComparison) -> list[str]:
    """Return lines about incomplete runs; the comparison does not cover missing attempts."""
    incomplete = [
        f"INCOMPLETE: the {name} has {completeness.attempts_finished:,} of {count_noun(completeness.attempts_planned, 'attempt')}, "
        f"{completeness.cases_finished:,} of {count_noun(completeness.cases_planned, 'case')}"
        for name, completeness in (("base", comparison.base_incomplete), ("candidate", comparison.candidate_incomplete))
        if completeness is not None
    ]
    return [*incomplete, *comparison.warnings]


def describe_runs(result: RunComparison) -> tuple[str, str]:
    """Return both runs by name, if they have one, and by id."""
    base, candidate = (f"{header.name} ({header.run_id})" if header.name else header.run_id for header in (result.base, result.candidate))
    return base, candidate


MOST_RUNS = 6
"""Runs in one comparison, the base among them."""
Group = Literal[
    "newly failing",
    "regressed",
    "flaky in the candidate",
    "newly passing",
    "improved",
    "only in the base",
    "only in the candidate",
    "within chance",
]
GROUPS: tuple[Group, ...] = get_args(Group)
"""How a case may have changed, worst first; changes within chance last."""


class AgainstBase(msgspec.Struct, frozen=True, kw_only=True):
    """One run compared with the base."""

    found: RunComparison
    adjusted_p: float
    """Adjusted by Holm's method over all comparisons with the base."""
    more_than_chance: bool
    """Whether the run regressed or improved, after adjusting for all comparisons."""


class CaseCounts(TypedDict):
    """Decided and passed attempts of a case."""

    runs: int
    passes: int


class CaseAcross(msgspec.Struct, frozen=True, kw_only=True):
    """A case that changed in at least one of the runs."""

    case: str
    group: Annotated[Group, Meta(description="the worst change in any of the runs")]
    base: Annotated[Counts | None, CaseCounts]
    candidates: Annotated[tuple[Annotated[Counts | None, CaseCounts], ...], Meta(description="in each of the other runs")]
    reasons: Annotated[tuple[str, ...], Meta(description="for each of the other runs, why it got worse there; else empty")]
    cause: Annotated[str, Meta(description="reason that it shares with others that got worse; empty if it did not")] = ""


class SeveralRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about several runs."""

    comparisons: tuple[AgainstBase, ...]
    """One for each run except the base, in the given order."""
    cases: tuple[CaseAcross, ...]
    """Every case that changed, newly failing first."""


def join_comparisons(comparisons: Sequence[RunComparison]) -> SeveralRuns:
    """Combine comparisons that have the same base."""
    groups: dict[str, int] = {}
    for each in comparisons:
        for group in list_changed_cases(each):
            rank = [*GROUPS].index(group.title)
            for row in group.cases:
                groups[row.case] = min(rank, groups.get(row.case, rank))
    counts = [{change.case: change for change in each.comparison.changes} for each in comparisons]
    causes: dict[str, tuple[int, str]] = {}
    for each in comparisons:
        causes = _rank_by_cause(each) | causes
    joined = [
        CaseAcross(
            case=case,
            group=GROUPS[rank],
            base=next((by_case[case].base for by_case in counts if case in by_case), None),
            candidates=tuple(by_case[case].candidate if case in by_case else None for by_case in counts),
            reasons=tuple(each.reasons.get(case, "") for each in comparisons),
            cause=causes[case][1] if case in causes else "",
        )
        for case, rank in groups.items()
    ]
    # Within a group, cases with one cause are adjacent, the largest drop first; otherwise the order of the suite stays.
    joined.sort(key=lambda case: (GROUPS.index(case.group), *_rank(case, causes.get(case.case))))
    adjusted = adjust_by_holm([each.comparison.p_value for each in comparisons])
    return SeveralRuns(
        comparisons=tuple(
            AgainstBase(
                found=each,
                adjusted_p=p_value,
                more_than_chance=each.comparison.verdict in ("regressed", "improved") and p_value <= each.comparison.alpha,
            )
            for each, p_value in zip(comparisons, adjusted, strict=True)
        ),
        cases=tuple(joined),
    )


def _rank(case: CaseAcross, cause: tuple[int, str] | None) -> tuple[int, float]:
    drops = [after.rate - case.base.rate for after in case.candidates if after is not None] if case.base is not None else []
    return (cause[0] if cause else 10**6, min(drops, default=0.0))
