"""Computes the figures of a run from its cases, as running sums so that a stream of any length fits in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from proctor.model.case import Case
from proctor.model.cost import CostTally, TotalCost
from proctor.model.lazy_cases import LazySequence
from proctor.model.result import CaseResult, CaseSummary
from proctor.model.scratch import IN_MEMORY, NameTable, Scratch
from proctor.model.verdict import OUTCOMES, Outcome
from proctor.scoring.score import reduce_attempts

# The number of results of each of very many cases in each outcome, stored in scratch space


class PackedCounts:
    """Cases in the order of first occurrence."""

    def __init__(self, scratch: Scratch = IN_MEMORY) -> None:
        self._scratch = scratch
        self._count = 0
        self._totals: dict[Outcome, int] = dict.fromkeys(OUTCOMES, 0)
        self._thresholds: dict[float | None, int] = {}
        """The distinct thresholds, each with its number."""
        self._numbers: NameTable | None = None

    def __len__(self) -> int:
        return self._count

    def __contains__(self, case_id: str) -> bool:
        return self._find(case_id) is not None

    def add(self, case: Case, outcome: Outcome, often: int = 1) -> None:
        """Count results of one case with the same outcome."""
        number = self._find(case.id)
        if number is None:
            number = self._append(case)
        self._counts[outcome][number] += often
        self._totals[outcome] += often

    def count(self, outcome: Outcome) -> int:
        """Return the number of results with this outcome."""
        return self._totals[outcome]

    def summarize(self, number: int) -> CaseSummary:
        """Return one case over all its attempts, by its number from 0."""
        counts: dict[str, int] = {outcome: counters[number] for outcome, counters in self._counts.items()}
        threshold = tuple(self._thresholds)[self._threshold_numbers[number]]
        return _summarize(self._texts[2 * number], self._texts[2 * number + 1], counts, threshold)

    def _append(self, case: Case) -> int:
        if self._numbers is None:
            # Most runs have few cases, and need no scratch storage.
            self._numbers = NameTable(self._scratch)
            self._texts = self._scratch.make_texts()
            """The id and the name of each case, alternating."""
            self._threshold_numbers = self._scratch.make_numbers("I")
            """The number of the threshold of each case."""
            self._counts = {outcome: self._scratch.make_numbers("I") for outcome in OUTCOMES}
        number = self._count
        self._count += 1
        self._texts.append(case.id)
        self._texts.append(case.name)
        for counters in self._counts.values():
            counters.append(0)
        self._threshold_numbers.append(self._thresholds.setdefault(case.pass_threshold, len(self._thresholds)))
        self._numbers.add(case.id, number)
        return number

    def _find(self, case_id: str) -> int | None:
        if self._numbers is None:
            return None
        # The table stores hashes, and another id may have the same one.
        return next((number for number in self._numbers.find(case_id) if self._texts[2 * number] == case_id), None)


def _summarize(case_id: str, name: str, by_outcome: Mapping[str, int], threshold: float | None) -> CaseSummary:
    counts: dict[str, int] = {outcome: count for outcome, count in by_outcome.items() if count}
    return CaseSummary(id=case_id, name=name, outcome=reduce_attempts(counts, threshold), runs=sum(counts.values()), counts=counts)


MOST_COUNTED = 5_000
"""The maximum number of cases counted individually; the counts of further cases are packed, which is slower but saves much memory."""


class _Count:
    """The number of results of one case by outcome."""

    __slots__ = ("clean", "counts", "name", "pass_threshold")

    def __init__(self, case: Case) -> None:
        # Not the case itself: in a large suite it is created on demand, and would stay in memory here.
        self.name = case.name
        self.pass_threshold = case.pass_threshold
        self.counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        # Passes with the full score after a result of the same case: nearly all results of a healthy agent. One number counts them.
        self.clean = 0

    def to_counts(self) -> dict[str, int]:
        return {**self.counts, "pass": self.counts["pass"] + self.clean}

    def summarize(self, case_id: str) -> CaseSummary:
        return _summarize(case_id, self.name, self.to_counts(), self.pass_threshold)


class Tally:
    """Counts, scores and per-case outcomes over a stream of case results."""

    def __init__(self, scratch: Scratch = IN_MEMORY) -> None:
        """`scratch` stores the counts of very many cases."""
        self._by_case: dict[str, _Count] = {}
        self._packed = PackedCounts(scratch)
        """The cases beyond the limit for individual counting."""
        self._last: _Count | None = None
        self._last_case: Case | None = None
        self._score_sum = 0.0
        self._scored = 0
        self._costs = CostTally()

    def add(self, result: CaseResult) -> None:
        """Count one result."""
        case, count, score = result.case, self._last, result.score
        # Results of one case are usually consecutive, and comparing identity saves the lookup by id.
        if count is not None and case is self._last_case:
            if score == 1.0 and result.outcome == "pass" and result.cost is None:
                count.clean += 1
                return
        else:
            count = None
        if result.cost is not None:
            self._costs.add(result.cost)
        if score is not None:
            self._score_sum += score
            self._scored += 1
        if count is None:
            count = self._by_case.get(case.id)
            if count is None and len(self._by_case) >= MOST_COUNTED:
                self._packed.add(case, result.outcome)
                return
            if count is None:
                count = self._by_case[case.id] = _Count(case)
            self._last, self._last_case = count, case
        count.counts[result.outcome] += 1

    def add_all(self, results: Iterable[CaseResult]) -> None:
        """Count many results; consecutive passes of one case, the bulk of any large set, are counted together."""
        case: Case | None = None
        passes = 0
        score_sum = 0.0
        last: CaseResult | None = None
        for result in results:
            # Evidence without a source shares the result of a clean pass.
            if result is last:
                passes += 1
                score_sum += 1.0
            elif result.case is case and result.outcome == "pass" and result.score is not None:
                passes += 1
                score_sum += result.score
                if result.cost is not None:
                    self._costs.add(result.cost)
                elif result.score == 1.0:
                    last = result
            else:
                last = None
                self.add(result)
                # A failure between passes of the same case does not end the series; only another case does.
                if case is not None and case is not result.case:
                    self._add_passes(case, passes)
                    passes = 0
                case = result.case
        if case is not None:
            self._add_passes(case, passes)
        self._score_sum += score_sum

    def _add_passes(self, case: Case, passes: int) -> None:
        count = self._by_case.get(case.id)
        if count is not None:
            count.counts["pass"] += passes
        # Only a case that arrived after `MOST_COUNTED` others is not found: it is packed.
        elif passes:
            self._packed.add(case, "pass", passes)
        self._scored += passes

    @property
    def counts(self) -> dict[str, int]:
        """The number of results by outcome."""
        per_case = [count.to_counts() for count in self._by_case.values()]
        return {outcome: sum(counts[outcome] for counts in per_case) + self._packed.count(outcome) for outcome in OUTCOMES}

    @property
    def score(self) -> float | None:
        """The plain mean of case scores; None if none was scored."""
        clean = sum(count.clean for count in self._by_case.values())
        scored = self._scored + clean
        return round((self._score_sum + clean) / scored, 12) if scored else None

    @property
    def cost(self) -> TotalCost | None:
        """The cost of all results; None without prices."""
        return self._costs.finish()

    def has_seen(self, case_id: str) -> bool:
        """Return whether any result of this case was counted."""
        return case_id in self._by_case or case_id in self._packed

    def list_summaries(self) -> Sequence[CaseSummary]:
        """Return one line per case, in order of first occurrence; for very many cases lines are created on demand."""
        if not len(self._packed):
            return tuple(self._iterate_summaries())
        first = tuple(count.summarize(case_id) for case_id, count in self._by_case.items())
        many = len(first)
        return LazySequence(
            many + len(self._packed), lambda number: first[number] if number < many else self._packed.summarize(number - many), remember=1
        )

    def _iterate_summaries(self) -> Iterator[CaseSummary]:
        for case_id, count in self._by_case.items():
            yield count.summarize(case_id)
        for number in range(len(self._packed)):
            yield self._packed.summarize(number)

    def decide_outcome(self) -> Outcome:
        """Return the outcome of the run: fail before error before pass; skip if nothing was decided."""
        outcomes = {summary.outcome for summary in self._iterate_summaries()}
        for candidate in ("fail", "error", "pass"):
            if candidate in outcomes:
                return candidate
        return "skip"
