"""What two runs are compared by, added up attempt by attempt: of a hundred thousand attempts figures are held, not the attempts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from proctor.actions.workspace.gating import lacks_evidence
from proctor.model.case import Suite
from proctor.model.result import Unmet
from proctor.model.run import EntryDigest, RunEntry
from proctor.scoring.intervals import Counts
from proctor.scoring.statistics import count_outcomes
from proctor.store.files.run_entries import left_nothing

_MOST_FAILED = 8
"""Attempts of a case that failed without a word, of which one may still have something to say."""


Attempt = RunEntry | EntryDigest
"""An attempt as it is kept, or what is kept of it for lists and comparisons."""


class CaseTally:
    """The attempts of one case."""

    __slots__ = ("answered", "attempts", "costs", "failed", "lacks", "outcomes", "times_ms", "tokens")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.attempts: list[int] = []
        self.times_ms: list[float] = []
        """How long the agent took."""
        self.tokens: list[float] = []
        self.costs: list[float] = []
        self.failed: list[Attempt] = []
        """The first attempts that did not pass, up to one with a reason, without what they left."""
        self.lacks = False
        """Whether the evidence of one lacks what a claim asks for."""
        self.answered = False
        """Whether one left anything to decide on."""

    def add(self, entry: Attempt) -> None:
        """Add one attempt."""
        # Asked for every attempt of both runs of a comparison: what most attempts do not have costs no call.
        outcome = entry.outcome
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.attempts.append(entry.attempt)
        seen = entry.evidence
        took = entry.duration_ms if seen is None or seen.duration_ms is None else seen.duration_ms
        if took is not None:
            self.times_ms.append(took)
        if seen is not None and seen.usage is not None and (tokens := seen.usage.total()) is not None:
            self.tokens.append(tokens)
        if entry.cost is not None and (cost := entry.cost.total()) is not None:
            self.costs.append(cost)
        if entry.verdicts and not self.lacks:
            self.lacks = lacks_evidence(entry.verdicts)
        if not self.answered:
            self.answered = not left_nothing(entry)
        if outcome in ("fail", "error"):
            self._add_failed(entry)

    def _add_failed(self, entry: Attempt) -> None:
        if len(self.failed) < _MOST_FAILED and not (self.failed and _tells_why(self.failed[-1])):
            self.failed.append(msgspec.structs.replace(entry, evidence=None, extracted={}) if isinstance(entry, RunEntry) else entry)


def _tells_why(entry: Attempt) -> bool:
    told = next((verdict.reason for verdict in entry.verdicts if verdict.outcome in ("fail", "error")), entry.reason)
    return bool(told)


class RunTally:
    """The attempts of one run, by case."""

    def __init__(self) -> None:
        self.cases: dict[str, CaseTally] = {}
        """In the order in which the first attempt of each ended."""
        self.has_costs = False

    @classmethod
    def of(cls, entries: Iterable[Attempt]) -> Self:
        """Return all of these added up."""
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

    def put_in_order(self, order: Mapping[str, int]) -> RunTally:
        """Return the same with its cases in an order; those that it does not name come last."""
        ordered = RunTally()
        ordered.cases = dict(sorted(self.cases.items(), key=lambda item: order.get(item[0], len(order))))
        ordered.has_costs = self.has_costs
        return ordered

    def count_by_case(self) -> dict[str, Counts]:
        """Return how many attempts of each case were decided, and how many of them passed."""
        return {case: count_outcomes(tally.outcomes) for case, tally in self.cases.items()}

    def find_unmet(self, suite: Suite) -> Unmet:
        """Return the cases of which no attempt left anything to decide on, and the attempts of cases that the suite does not have."""
        known = {case.id for case in suite.cases}
        answered = {case for case, tally in self.cases.items() if tally.answered}
        return Unmet(
            cases_without_evidence=sum(case.skip is None and case.id not in answered for case in suite.cases),
            records_without_case=sum(len(tally.attempts) for case, tally in self.cases.items() if case not in known),
        )
