"""Failures of a run, grouped by reason.

Two failures are alike when the same assertion failed and the reasons differ at most in numbers and quoted text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from proctor.actions.history.compare import find_reason
from proctor.model.case import Case
from proctor.model.run import RunEntry

MOST_LOOKED_AT = 1_000
"""Attempts that are grouped; of a run with more failures the newest."""
MOST_GROUPS = 50
MOST_RESULTS = 25
"""Attempts that a group names."""
_VARIABLE = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'" + r"|\d+(?:[.,:]\d+)*")
"""What may differ between two reasons that are alike."""


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a group."""

    id: str
    case: str
    attempt: int
    outcome: str


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts that failed for the same reason."""

    reason: str
    """Of the first of them, with the name of the assertion."""
    code: str | None
    """The word for machines, where there is one."""
    outcome: str
    """`fail` or `error`."""
    count: int
    cases: int
    """How many different cases."""
    results: tuple[FailedAttempt, ...]
    """The first of them."""


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong in a run."""

    groups: tuple[FailureGroup, ...]
    """The largest first; errors before failures of the same size."""
    looked_at: int
    """How many attempts are in the groups."""
    more: bool
    """Whether there are further failures that were not examined."""
    more_groups: int = 0
    """Groups beyond those that are listed."""


def group_failures(failed: Iterable[tuple[str, RunEntry]], cases: Mapping[str, Case], *, more: bool = False) -> Failures:
    """Group attempts that failed or broke, each given with its id; `cases` name the assertions."""
    found: dict[tuple[str, str | None, str], list[tuple[str, RunEntry, str]]] = {}
    looked_at = 0
    for id, entry in failed:
        reason = find_reason(entry, cases.get(entry.case))
        code = find_code(entry)
        found.setdefault((entry.outcome, code, find_shape(reason)), []).append((id, entry, reason))
        looked_at += 1
    ranked = sorted(found.items(), key=lambda item: (-len(item[1]), item[0][0] != "error"))
    groups = tuple(_make_group(outcome, code, members) for (outcome, code, _), members in ranked[:MOST_GROUPS])
    return Failures(groups=groups, looked_at=looked_at, more=more, more_groups=max(0, len(ranked) - MOST_GROUPS))


def find_shape(reason: str) -> str:
    """Return a reason without what may differ between two that are alike."""
    return _VARIABLE.sub("…", reason)


def find_code(entry: RunEntry) -> str | None:
    """Return the word for why an attempt did not pass, of the attempt or of its first assertion that did not."""
    if entry.code is not None:
        return entry.code
    return next((verdict.code for verdict in entry.verdicts if verdict.outcome in ("fail", "error")), None)


def _make_group(outcome: str, code: str | None, members: list[tuple[str, RunEntry, str]]) -> FailureGroup:
    results = [FailedAttempt(id=id, case=entry.case, attempt=entry.attempt, outcome=entry.outcome) for id, entry, _ in members]
    return FailureGroup(
        reason=members[0][2],
        code=code,
        outcome=outcome,
        count=len(members),
        cases=len({result.case for result in results}),
        results=tuple(results[:MOST_RESULTS]),
    )
