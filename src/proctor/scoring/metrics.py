"""From cases to the figures of a whole run, as running sums so that a stream of any length fits in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from proctor.model.case import Case
from proctor.model.cost import CostTally, TotalCost
from proctor.model.lazy_cases import LazySequence
from proctor.model.name_table import NameTable
from proctor.model.result import CaseResult, CaseSummary
from proctor.model.scratch import IN_MEMORY, Scratch
from proctor.model.verdict import OUTCOMES, Outcome
from proctor.scoring.reduce import reduce_attempts

# --- how often each of very many cases ended in each outcome, put aside wherever there is a place for it


class PackedCounts:
    """Cases in the order in which they were first met."""

    def __init__(self, scratch: Scratch = IN_MEMORY) -> None:
        self._scratch = scratch
        self._count = 0
        self._totals: dict[Outcome, int] = dict.fromkeys(OUTCOMES, 0)
        self._thresholds: dict[float | None, int] = {}
        """All that are different, each with its number."""
        self._numbers: NameTable | None = None

    def __len__(self) -> int:
        return self._count

    def __contains__(self, case_id: str) -> bool:
        return self._find(case_id) is not None

    def add(self, case: Case, outcome: Outcome, often: int = 1) -> None:
        """Count results of one case that ended alike."""
        number = self._find(case.id)
        if number is None:
            number = self._append(case)
        self._counts[outcome][number] += often
        self._totals[outcome] += often

    def count(self, outcome: Outcome) -> int:
        """Return how many results ended so."""
        return self._totals[outcome]

    def summarize(self, number: int) -> CaseSummary:
        """Return one case over all its attempts, by its number from 0."""
        counts = {outcome: found for outcome, often in self._counts.items() if (found := often[number])}
        return CaseSummary(
            id=self._texts[2 * number],
            name=self._texts[2 * number + 1],
            outcome=reduce_attempts(counts, tuple(self._thresholds)[self._of_case[number]]),
            runs=sum(counts.values()),
            counts=counts,
        )

    def _append(self, case: Case) -> int:
        if self._numbers is None:
            # Most runs have few cases, and need no place for more.
            self._numbers = NameTable(self._scratch)
            self._texts = self._scratch.make_texts()
            """The id and the name of each case, one after the other."""
            self._of_case = self._scratch.make_numbers("I")
            """The number of the threshold of each case."""
            self._counts = {outcome: self._scratch.make_numbers("I") for outcome in OUTCOMES}
        number = self._count
        self._count += 1
        self._texts.append(case.id)
        self._texts.append(case.name)
        for often in self._counts.values():
            often.append(0)
        self._of_case.append(self._thresholds.setdefault(case.pass_threshold, len(self._thresholds)))
        self._numbers.add(case.id, number)
        return number

    def _find(self, case_id: str) -> int | None:
        if self._numbers is None:
            return None
        # The table knows hashes, and another id may have the same one.
        return next((number for number in self._numbers.find(case_id) if self._texts[2 * number] == case_id), None)


MOST_COUNTED = 5_000
"""Cases that are counted one by one; of more the counts are packed, which costs a little time and saves much memory."""


class _Count:
    """How often one case ended in each outcome."""

    __slots__ = ("clean", "error", "fail", "name", "pass_threshold", "passed", "skip")

    def __init__(self, case: Case) -> None:
        # Not the case itself: in a large suite it is made on demand, and would stay in memory here.
        self.name = case.name
        self.pass_threshold = case.pass_threshold
        self.passed = self.fail = self.error = self.skip = 0
        # Passes with the full score after a result of the same case: nearly all of a healthy agent. One number counts them.
        self.clean = 0

    def to_counts(self) -> dict[str, int]:
        return {"pass": self.passed + self.clean, "fail": self.fail, "error": self.error, "skip": self.skip}

    def summarize(self, case_id: str) -> CaseSummary:
        counts = {outcome: number for outcome, number in self.to_counts().items() if number}
        outcome = reduce_attempts(counts, self.pass_threshold)
        return CaseSummary(id=case_id, name=self.name, outcome=outcome, runs=sum(counts.values()), counts=counts)


class Tally:
    """Counts, scores and per-case outcomes over a stream of case results."""

    def __init__(self, scratch: Scratch = IN_MEMORY) -> None:
        """`scratch` takes the counts of very many cases."""
        self._by_case: dict[str, _Count] = {}
        self._packed = PackedCounts(scratch)
        """The cases that are too many to be counted one by one."""
        self._last: _Count | None = None
        self._last_case: Case | None = None
        self._score_sum = 0.0
        self._scored = 0
        self._costs = CostTally()

    def add(self, result: CaseResult) -> None:
        """Count one result."""
        case, count, score = result.case, self._last, result.score
        # Results of one case mostly follow each other, and its identity saves the lookup by id.
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
        outcome = result.outcome
        if outcome == "pass":
            count.passed += 1
        elif outcome == "fail":
            count.fail += 1
        elif outcome == "error":
            count.error += 1
        else:
            count.skip += 1

    def add_all(self, results: Iterable[CaseResult]) -> None:
        """Count many results; runs of passes of one case, the bulk of any large set, are counted in passing."""
        case: Case | None = None
        passes = 0
        score_sum = 0.0
        for result in results:
            if result.case is case and result.outcome == "pass" and result.score is not None:
                passes += 1
                score_sum += result.score
                if result.cost is not None:
                    self._costs.add(result.cost)
            else:
                self.add(result)
                # A failure between passes of the same case leaves them to be counted on; only another case ends the row.
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
            count.passed += passes
        # Only a case that came when `MOST_COUNTED` others were there is not found: it is among the packed ones.
        elif passes:
            self._packed.add(case, "pass", passes)
        self._scored += passes

    @property
    def counts(self) -> dict[str, int]:
        """How many results ended in each outcome."""
        per_case = [count.to_counts() for count in self._by_case.values()]
        return {outcome: sum(counts[outcome] for counts in per_case) + self._packed.count(outcome) for outcome in OUTCOMES}

    @property
    def score(self) -> float | None:
        """The plain mean of case scores; nothing when none was scored."""
        clean = sum(count.clean for count in self._by_case.values())
        scored = self._scored + clean
        return round((self._score_sum + clean) / scored, 12) if scored else None

    @property
    def cost(self) -> TotalCost | None:
        """What all results cost; nothing where there were no prices."""
        return self._costs.finish()

    def has_seen(self, case_id: str) -> bool:
        """Return whether any result of this case was counted."""
        return case_id in self._by_case or case_id in self._packed

    def list_summaries(self) -> Sequence[CaseSummary]:
        """Return one line per case, in the order of first appearance; of very many cases a line is made on demand."""
        if not len(self._packed):
            return tuple(self._iterate_summaries())
        first = tuple(count.summarize(case_id) for case_id, count in self._by_case.items())

        def make(number: int) -> CaseSummary:
            return first[number] if number < len(first) else self._packed.summarize(number - len(first))

        return LazySequence(len(first) + len(self._packed), make, remember=1)

    def _iterate_summaries(self) -> Iterator[CaseSummary]:
        for case_id, count in self._by_case.items():
            yield count.summarize(case_id)
        for number in range(len(self._packed)):
            yield self._packed.summarize(number)

    def decide_outcome(self) -> Outcome:
        """Return the outcome of the run: fail before error before pass; skip when nothing was decided."""
        outcomes = {summary.outcome for summary in self._iterate_summaries()}
        for candidate in ("fail", "error", "pass"):
            if candidate in outcomes:
                return candidate
        return "skip"
