"""How often each of very many cases ended in each outcome, put aside wherever there is a place for it."""

from __future__ import annotations

from proctor.model.case import Case
from proctor.model.name_table import NameTable
from proctor.model.result import CaseSummary
from proctor.model.scratch import IN_MEMORY, Scratch
from proctor.model.verdict import OUTCOMES, Outcome
from proctor.scoring.reduce import reduce_attempts


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
            """The id and the name of each case, one behind the other."""
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
