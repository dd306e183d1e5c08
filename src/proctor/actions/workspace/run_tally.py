"""What two runs are compared by: for each case the outcomes of its attempts, its medians, and why it failed first.

A comparison needs the median over the attempts of a case, not each of them, so that a hundred thousand attempts of a thousand cases are
stored in some ten thousand bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import msgspec

from proctor.actions.workspace.gating import lacks_evidence
from proctor.model.case import Suite
from proctor.model.result import Unmet
from proctor.model.run import EntryDigest, RunEntry
from proctor.scoring.amounts import find_median
from proctor.scoring.intervals import Counts
from proctor.scoring.statistics import count_outcomes
from proctor.store.files.run_files import left_nothing

_MOST_FAILED = 8
"""Failed attempts of a case without a reason that are held, as a later one may have a reason."""


Attempt = RunEntry | EntryDigest
"""A stored attempt, or its digest for lists and comparisons."""


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
        # This runs for every attempt of both runs of a comparison: rare cases cost no call.
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
        if len(self.failed) < _MOST_FAILED and not (self.failed and _has_reason(self.failed[-1])):
            self.failed.append(msgspec.structs.replace(entry, evidence=None, extracted={}) if isinstance(entry, RunEntry) else entry)


def _has_reason(entry: Attempt) -> bool:
    reason = next((verdict.reason for verdict in entry.verdicts if verdict.outcome in ("fail", "error")), entry.reason)
    return bool(reason)


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
        """Return the cases without an attempt that could be decided, and the attempts of cases that the suite does not have."""
        known = {case.id for case in suite.cases}
        answered = {case for case, tally in self.cases.items() if tally.answered}
        return Unmet(
            cases_without_evidence=sum(case.skip is None and case.id not in answered for case in suite.cases),
            records_without_case=sum(len(tally.attempts) for case, tally in self.cases.items() if case not in known),
        )


class _StoredCase(msgspec.Struct, frozen=True, array_like=True, gc=False):
    case: str
    outcomes: dict[str, int]
    attempts: int | tuple[int, ...]
    """Their numbers; how many there are, where none is left out."""
    ms: float | None
    tokens: float | None
    cost: float | None
    failed: tuple[EntryDigest, ...]
    lacks: bool
    answered: bool


class StoredTally(msgspec.Struct, frozen=True):
    """All cases of a run, in the order in which the first attempt of each ended."""

    cases: tuple[_StoredCase, ...]
    has_costs: bool


def shorten_tally(tally: RunTally) -> StoredTally:
    """Return a tally in stored form."""
    return StoredTally(tuple(_shorten_case(case, one) for case, one in tally.cases.items()), tally.has_costs)


def restore_tally(stored: StoredTally) -> RunTally:
    """Return a tally that compares as the stored one did."""
    tally = RunTally()
    tally.cases = {one.case: _restore_case(one) for one in stored.cases}
    tally.has_costs = stored.has_costs
    return tally


def _shorten_case(case: str, tally: CaseTally) -> _StoredCase:
    numbers = sorted(tally.attempts)
    count = len(numbers)
    return _StoredCase(
        case=case,
        outcomes=tally.outcomes,
        attempts=count if numbers == list(range(count)) else tuple(numbers),
        ms=_find_middle(tally.times_ms),
        tokens=_find_middle(tally.tokens),
        cost=_find_middle(tally.costs),
        failed=tuple(entry for entry in tally.failed if isinstance(entry, EntryDigest)),
        lacks=tally.lacks,
        answered=tally.answered,
    )


def _find_middle(amounts: Sequence[float]) -> float | None:
    return find_median(amounts) if amounts else None


def _restore_case(stored: _StoredCase) -> CaseTally:
    tally = CaseTally()
    tally.outcomes = stored.outcomes
    tally.attempts = list(range(stored.attempts)) if isinstance(stored.attempts, int) else list(stored.attempts)
    # A single amount is its own median, and a comparison asks for no more.
    tally.times_ms, tally.tokens, tally.costs = ([] if one is None else [one] for one in (stored.ms, stored.tokens, stored.cost))
    tally.failed = list(stored.failed)
    tally.lacks, tally.answered = stored.lacks, stored.answered
    return tally
