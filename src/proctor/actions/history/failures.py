"""Failures of a run, grouped by reason.

Two failures are alike when the same assertion failed and the reasons differ at most in numbers and quoted text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from proctor.actions.history.compare import find_reason
from proctor.model.case import Case
from proctor.model.run import RunEntry
from proctor.model.verdict import Outcome
from proctor.report.words.findings import find_shape

MOST_LOOKED_AT = 1_000
"""The maximum number of failed attempts that are grouped, the newest ones."""
MOST_GROUPS = 50
MOST_SEARCHED = 150
"""Characters of the text that the reasons of a group share."""
MOST_RESULTS = 25
"""Attempts that a group names."""


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a group."""

    id: str
    case: str
    attempt: int
    outcome: Annotated[str, Outcome]


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts that failed for the same reason."""

    reason: Annotated[str, Meta(description="reason of the first attempt, with the name of the assertion")]
    code: str | None
    outcome: Annotated[str, Outcome]
    count: int
    cases: Annotated[int, Meta(description="number of different cases")]
    results: Annotated[tuple[FailedAttempt, ...], Meta(description="the first attempts")]
    search: Annotated[str, Meta(description="text that the reasons share, to search for all of them")] = ""


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """Failures of a run, the largest group first."""

    groups: tuple[FailureGroup, ...]
    looked_at: Annotated[int, Meta(description="number of grouped attempts")]
    more: Annotated[bool, Meta(description="whether there are older failures that were not examined")]
    more_groups: Annotated[int, Meta(description="number of further groups")] = 0


def group_failures(failed: Iterable[tuple[str, RunEntry]], cases: Mapping[str, Case], *, more: bool = False) -> Failures:
    """Group attempts that failed or ended with an error, each given with its id; `cases` name the assertions."""
    by_shape: dict[tuple[str, str | None, str], list[tuple[str, RunEntry, str]]] = {}
    looked_at = 0
    for id, entry in failed:
        reason = find_reason(entry, cases.get(entry.case))
        code = find_code(entry)
        by_shape.setdefault((entry.outcome, code, find_shape(reason)), []).append((id, entry, reason))
        looked_at += 1
    ranked = sorted(by_shape.items(), key=lambda item: (-len(item[1]), item[0][0] != "error"))
    groups = tuple(_make_group(outcome, code, members) for (outcome, code, _), members in ranked[:MOST_GROUPS])
    return Failures(groups=groups, looked_at=looked_at, more=more, more_groups=max(0, len(ranked) - MOST_GROUPS))


def find_code(entry: RunEntry) -> str | None:
    """Return the code of an attempt that did not pass, or of its first assertion that did not."""
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
        # The longest part that does not vary between similar failures.
        search=max(find_shape(find_reason(members[0][1], None)).split("…"), key=len).strip()[:MOST_SEARCHED],
    )
