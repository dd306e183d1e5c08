"""From cases to the figures of a whole run, kept as running sums so that a stream of any length fits in memory."""

from __future__ import annotations

from collections.abc import Iterable

from proctor.model.case import Case
from proctor.model.result import CaseResult, CaseSummary
from proctor.model.verdict import OUTCOMES, Outcome
from proctor.scoring.reduce import reduce_attempts


class _Count:
    """How often one case ended in each outcome."""

    __slots__ = ("case", "error", "fail", "passed", "skip")

    def __init__(self, case: Case) -> None:
        self.case = case
        self.passed = self.fail = self.error = self.skip = 0

    def to_counts(self) -> dict[str, int]:
        return {"pass": self.passed, "fail": self.fail, "error": self.error, "skip": self.skip}


class Tally:
    """Counts, scores and per-case outcomes over a stream of case results."""

    def __init__(self) -> None:
        self._by_case: dict[str, _Count] = {}
        self._last: _Count | None = None
        self._score_sum = 0.0
        self._scored = 0

    def add(self, result: CaseResult) -> None:
        """Count one result."""
        case = result.case
        count = self._last
        if count is None or count.case is not case:
            count = self._by_case.get(case.id)
            if count is None:
                count = self._by_case[case.id] = _Count(case)
            self._last = count
        outcome = result.outcome
        if outcome == "pass":
            count.passed += 1
        elif outcome == "fail":
            count.fail += 1
        elif outcome == "error":
            count.error += 1
        else:
            count.skip += 1
        score = result.score
        if score is not None:
            self._score_sum += score
            self._scored += 1

    def add_all(self, results: Iterable[CaseResult]) -> None:
        """Count many results; runs of passes of one case, the bulk of any large set, are counted in passing."""
        case: Case | None = None
        passes = 0
        score_sum = 0.0
        for result in results:
            if result.case is case and result.outcome == "pass" and result.score is not None:
                passes += 1
                score_sum += result.score
            else:
                self.add(result)
                if case is not None and case is not result.case:
                    self._by_case[case.id].passed += passes
                    self._scored += passes
                    passes = 0
                case = result.case
        if case is not None:
            self._by_case[case.id].passed += passes
            self._scored += passes
        self._score_sum += score_sum

    @property
    def counts(self) -> dict[str, int]:
        """How many results ended in each outcome."""
        per_case = [count.to_counts() for count in self._by_case.values()]
        return {outcome: sum(counts[outcome] for counts in per_case) for outcome in OUTCOMES}

    @property
    def score(self) -> float | None:
        """The plain mean of case scores; nothing when none was scored."""
        return round(self._score_sum / self._scored, 12) if self._scored else None

    def has_seen(self, case_id: str) -> bool:
        """Return whether any result of this case was counted."""
        return case_id in self._by_case

    def list_summaries(self) -> Iterable[CaseSummary]:
        """Return one line per case, in the order of first appearance."""
        for case_id, count in self._by_case.items():
            counts = {outcome: number for outcome, number in count.to_counts().items() if number}
            yield CaseSummary(
                id=case_id,
                name=count.case.name,
                outcome=reduce_attempts(counts, count.case.pass_threshold),
                runs=sum(counts.values()),
                counts=counts,
            )

    def decide_outcome(self) -> Outcome:
        """Return the outcome of the run: fail before error before pass; skip when nothing was decided."""
        outcomes = {summary.outcome for summary in self.list_summaries()}
        for candidate in ("fail", "error", "pass"):
            if candidate in outcomes:
                return candidate
        return "skip"
