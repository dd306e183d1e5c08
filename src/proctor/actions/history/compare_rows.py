"""The cases that changed between two runs, sorted by what matters: every format of `compare` shows these groups in this order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proctor.actions.history.compare import RunComparison
from proctor.report.words.wording import count_noun
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import Comparison, RepeatsNeeded


class ChangedCase(NamedTuple):
    """One case, with how often it passed in either run."""

    case: str
    base: str
    candidate: str
    reason: str
    """Why it fails now; empty where it does not, or nobody asked."""


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
    """Return the groups that have a case, worst first; a case stands in the first group that it fits."""
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
    """Return lines that say how much there is of either run, where that is not all; the comparison says nothing about what is missing."""
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
