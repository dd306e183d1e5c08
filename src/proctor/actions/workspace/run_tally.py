"""The basis for comparing two runs: for each case the outcomes of its attempts, its medians, and the first reason for failing.

A comparison needs the median over the attempts of a case, not each of them, so that a hundred thousand attempts of a thousand cases are
stored in some ten thousand bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Self

import msgspec

from proctor.actions.workspace.gating import lacks_evidence
from proctor.model.case import Suite
from proctor.model.cost import CostTally, TotalCost
from proctor.model.result import Unmet
from proctor.model.run import EntryDigest, RunEntry
from proctor.report.words.findings import find_shape
from proctor.scoring.amounts import find_median
from proctor.scoring.intervals import Counts
from proctor.scoring.score import reduce_attempts
from proctor.scoring.statistics import count_outcomes
from proctor.store.files.run_files import left_nothing

_MOST_FAILED = 8
"""The maximum number of failed attempts without a reason that are held per case; a later one may have a reason."""


Attempt = RunEntry | EntryDigest
"""A stored attempt, or its digest for lists and comparisons."""
_LONGEST_REASON = 500
"""Characters of a reason by which failures are compared."""
_MOST_CAUSES = 20
"""Causes that are counted per case."""


class CaseTally(msgspec.Struct, array_like=True):
    """The attempts of one case."""

    outcomes: dict[str, int] = {}
    attempts: list[int] = []
    times_ms: list[float] = []
    """Durations of the agent."""
    tokens: list[float] = []
    costs: list[float] = []
    failed: list[EntryDigest] = []
    """The first attempts that did not pass, up to one with a reason, without their evidence."""
    causes: dict[str, int] = {}
    """The number of failed attempts by the shape of their reason."""
    lacks: bool = False
    """Whether the evidence of an attempt lacks something that a claim needs."""
    answered: bool = False
    """Whether an attempt has evidence."""

    def add(self, entry: Attempt) -> None:
        """Add one attempt."""
        # Runs for every attempt of both runs of a comparison, so rare cases are checked without a call.
        outcome = entry.outcome
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.attempts.append(entry.attempt)
        evidence = entry.evidence
        took = entry.duration_ms if evidence is None or evidence.duration_ms is None else evidence.duration_ms
        if took is not None:
            self.times_ms.append(took)
        if evidence is not None and evidence.usage is not None and (tokens := evidence.usage.total()) is not None:
            self.tokens.append(tokens)
        if entry.cost is not None and (cost := entry.cost.total()) is not None:
            self.costs.append(cost)
        if entry.verdicts and not self.lacks:
            self.lacks = lacks_evidence(entry.verdicts)
        if not self.answered:
            self.answered = not left_nothing(entry)
        if outcome in ("fail", "error"):
            cause = find_shape((_find_reason(entry) or "")[:_LONGEST_REASON])
            if cause in self.causes or len(self.causes) < _MOST_CAUSES:
                self.causes[cause] = self.causes.get(cause, 0) + 1
            if len(self.failed) < _MOST_FAILED and not (self.failed and _find_reason(self.failed[-1])):
                fields = {name: getattr(entry, name) for name in EntryDigest.__struct_fields__ if name != "evidence"}
                self.failed.append(EntryDigest(**fields))


def _find_reason(entry: Attempt) -> str | None:
    return next((verdict.reason for verdict in entry.verdicts if verdict.outcome in ("fail", "error")), entry.reason)


class RunTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a run: cases, tokens and cost."""

    cases: int
    cases_passed: int
    tokens: Annotated[float | None, msgspec.Meta(description="of the agent, over all attempts; null if unknown")] = None
    cost: Annotated[TotalCost | None, msgspec.Meta(description="of agent, judge and simulated users; null without prices")] = None


class RunTally:
    """The attempts of one run, by case."""

    def __init__(self) -> None:
        self.cases: dict[str, CaseTally] = {}
        """In the order in which the first attempt of each ended."""
        self.has_costs = False
        self._costs = CostTally()

    @classmethod
    def of(cls, entries: Iterable[Attempt]) -> Self:
        """Return the tally of these entries."""
        tally = cls()
        tally.add_all(entries)
        return tally

    def add_all(self, entries: Iterable[Attempt]) -> None:
        """Add many attempts."""
        cases = self.cases
        for entry in entries:
            known = cases.get(entry.case)
            if known is None:
                known = cases[entry.case] = CaseTally()
            known.add(entry)
            if entry.cost is not None:
                self.has_costs = True
                self._costs.add(entry.cost)

    def put_in_order(self, order: Mapping[str, int]) -> RunTally:
        """Return the tally with its cases in this order; cases that it does not list come last."""
        ordered = RunTally()
        ordered.cases = dict(sorted(self.cases.items(), key=lambda item: order.get(item[0], len(order))))
        ordered.has_costs = self.has_costs
        return ordered

    def count_by_case(self) -> dict[str, Counts]:
        """Return how many attempts of each case were decided, and how many of them passed."""
        return {case: count_outcomes(tally.outcomes) for case, tally in self.cases.items()}

    def add_up(self, suite: Suite) -> RunTotals:
        """Return the totals. The tally must be made from attempts, because a stored one has only medians."""
        thresholds = {case.id: case.pass_threshold for case in suite.cases if case.pass_threshold is not None}
        tokens = [amount for entry in self.cases.values() for amount in entry.tokens]
        return RunTotals(
            cases=len(self.cases),
            cases_passed=sum(reduce_attempts(entry.outcomes, thresholds.get(case)) == "pass" for case, entry in self.cases.items()),
            tokens=sum(tokens) if tokens else None,
            cost=self._costs.finish(),
        )

    def find_unmet(self, suite: Suite) -> Unmet:
        """Return the cases without a decidable attempt, and the attempts of cases that are not in the suite."""
        known = {case.id for case in suite.cases}
        answered = {case for case, tally in self.cases.items() if tally.answered}
        return Unmet(
            cases_without_evidence=sum(case.skip is None and case.id not in answered for case in suite.cases),
            records_without_case=sum(len(tally.attempts) for case, tally in self.cases.items() if case not in known),
        )


class StoredTally(msgspec.Struct, frozen=True):
    """All cases of a run, in the order in which the first attempt of each ended."""

    cases: dict[str, CaseTally]
    has_costs: bool


def shorten_tally(tally: RunTally) -> StoredTally:
    """Return a tally in stored form. A single amount is its own median, and a comparison needs only that."""
    cases: dict[str, CaseTally] = {}
    for case, entry in tally.cases.items():
        amounts = {"times_ms": entry.times_ms, "tokens": entry.tokens, "costs": entry.costs}
        medians = {name: [find_median(values)] if values else [] for name, values in amounts.items()}
        cases[case] = msgspec.structs.replace(entry, attempts=sorted(entry.attempts), **medians)
    return StoredTally(cases, tally.has_costs)


def restore_tally(stored: StoredTally) -> RunTally:
    """Return a tally that compares as the stored one did."""
    tally = RunTally()
    tally.cases, tally.has_costs = stored.cases, stored.has_costs
    return tally
