"""How often each of very many cases ended in each outcome, in some fifty bytes a case beside its id and its name."""

from __future__ import annotations

from array import array

from proctor.model.case import Case
from proctor.model.name_table import NameTable
from proctor.model.result import CaseSummary
from proctor.model.verdict import OUTCOMES, Outcome
from proctor.scoring.reduce import reduce_attempts


class PackedCounts:
    """Cases in the order in which they were first met."""

    def __init__(self) -> None:
        self._numbers = NameTable()
        self._texts = bytearray()
        """The id and the name of each case, one behind the other."""
        self._ends = array("Q", [0])
        """Where each text ends: two for each case."""
        self._counts = {outcome: array("I") for outcome in OUTCOMES}
        self._thresholds: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._counts["pass"])

    def __contains__(self, case_id: str) -> bool:
        return self._find(case_id) is not None

    def add(self, case: Case, outcome: Outcome, often: int = 1) -> None:
        """Count results of one case that ended alike."""
        number = self._find(case.id)
        if number is None:
            number = self._append(case)
        self._counts[outcome][number] += often

    def count(self, outcome: Outcome) -> int:
        """Return how many results ended so."""
        return sum(self._counts[outcome])

    def summarize(self, number: int) -> CaseSummary:
        """Return one case over all its attempts, by its number from 0."""
        counts = {outcome: often[number] for outcome, often in self._counts.items() if often[number]}
        return CaseSummary(
            id=self._read(2 * number),
            name=self._read(2 * number + 1),
            outcome=reduce_attempts(counts, self._thresholds.get(number)),
            runs=sum(counts.values()),
            counts=counts,
        )

    def _append(self, case: Case) -> int:
        number = len(self)
        for text in (case.id, case.name):
            # Half of a surrogate pair is no text that UTF-8 can hold, and a name may be any text.
            self._texts += text.encode("utf-8", "surrogatepass")
            self._ends.append(len(self._texts))
        for often in self._counts.values():
            often.append(0)
        if case.pass_threshold is not None:
            self._thresholds[number] = case.pass_threshold
        self._numbers.add(case.id, number)
        return number

    def _find(self, case_id: str) -> int | None:
        return next((number for number in self._numbers.find(case_id) if self._read(2 * number) == case_id), None)

    def _read(self, index: int) -> str:
        return self._texts[self._ends[index] : self._ends[index + 1]].decode("utf-8", "surrogatepass")
