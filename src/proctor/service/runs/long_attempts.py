"""Finds what the verdicts of an attempt are about when it is kept: of very long texts nobody can look for it in time later."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proctor.actions.history import case_result
from proctor.model.case import Case
from proctor.model.run import RunEntry
from proctor.report.ranges import add_ranges
from proctor.store.shown_entries import Ranges


def make_range_finder(cases: Sequence[Case]) -> Callable[[RunEntry], Ranges]:
    """Return what finds, of each verdict of an attempt, the characters that it is about."""

    def find_ranges(entry: RunEntry) -> Ranges:
        # Looked for each time: few attempts are so long, and a run may have very many cases.
        case = next((case for case in cases if case.id == entry.case), None) or Case(id=entry.case)
        result = case_result(case, entry)
        found = () if entry.evidence is None else add_ranges(result, entry.evidence).ranges
        # None at all would be looked for again.
        return found or ((),) * len(result.verdicts)

    return find_ranges
