"""The results of a kept run with very many attempts: where each stands is put aside, and it is read when it is asked for.

The order is that of the suite, then that of the attempts, whatever the order in which they ended. An attempt beyond the plan, or of a case
that the suite does not have, comes behind those of its case, or last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from proctor.model.case import Case, Suite
from proctor.model.lazy_cases import LazySequence, find_scratch, find_traits
from proctor.model.name_table import NameTable
from proctor.model.result import CaseResult, Ending, Incomplete, MissingAttempts, Unmet
from proctor.model.run import RunEntry, RunHeader
from proctor.model.scratch import Numbers
from proctor.scoring.completeness import count_planned_attempts
from proctor.store.files.run_entries import EntryFile, left_nothing

_NOT_THERE = 0
"""No place: a place is kept as one more than the byte at which an entry begins."""


class KeptResults:
    """What was kept of a run, in the order of its suite."""

    def __init__(self, header: RunHeader, suite: Suite, entries: EntryFile, make: Callable[[Case, RunEntry], CaseResult]) -> None:
        """`make` gives the result of one entry."""
        self._suite, self._entries, self._make = suite, entries, make
        self._scratch = find_scratch(suite.cases)
        self._positions = NameTable(self._scratch)
        self._first = self._scratch.make_numbers("Q", 1)
        """Of each case the number of its first planned attempt among all of them; the last one is how many there are."""
        self._count = 0
        """How many attempts were planned."""
        for position, case in enumerate(suite.cases):
            self._positions.add(case.id, position)
            self._count += count_planned_attempts(case, header.repeat)
            self._first.append(self._count)
        self._planned = self._scratch.make_numbers("Q", self._count)
        """Where the entry of each planned attempt stands."""
        self._beyond: dict[tuple[int, str, int], int] = {}
        """Where entries stand that were not planned: by the position of the case, its id and the attempt."""
        self._answered = bytearray(len(suite.cases))
        self._unknown = 0
        self._read_heads()
        self.results = LazySequence(*self._put_in_order(), remember=16, traits=find_traits(suite.cases))

    def _read_heads(self) -> None:
        for start, head in self._entries.iterate_heads():
            position = self._find(head.case)
            if position is None:
                self._unknown += 1
                self._beyond[len(self._answered), head.case, head.attempt] = start + 1
                continue
            self._answered[position] |= not left_nothing(head)
            place = self._first[position] + head.attempt
            # A negative number, as a forged log may have, would lead to an attempt of another case.
            if head.attempt >= 0 and place < self._first[position + 1]:
                self._planned[place] = start + 1
            else:
                self._beyond[position, head.case, head.attempt] = start + 1

    def _put_in_order(self) -> tuple[int, Callable[[int], CaseResult]]:
        """Return how many results there are, and how one is read by its number."""
        # The planned places are in order already: nothing has to be held in memory and sorted.
        if not self._beyond:
            order = self._put_numbers_aside(start for start in self._planned if start != _NOT_THERE)
        else:
            found = [(position, attempt, start) for (position, _, attempt), start in self._beyond.items()]
            for position in range(len(self._answered)):
                first, end = self._first[position], self._first[position + 1]
                found += [(position, place - first, start) for place in range(first, end) if (start := self._planned[place]) != _NOT_THERE]
            order = self._put_numbers_aside(start for _, _, start in sorted(found))
        return len(order), lambda number: self._read(order[number])

    def _put_numbers_aside(self, numbers: Iterable[int]) -> Numbers:
        found = self._scratch.make_numbers("Q")
        for number in numbers:
            found.append(number)
        return found

    def _read(self, place: int) -> CaseResult:
        entry = self._entries.read(place - 1)
        position = self._find(entry.case)
        return self._make(Case(id=entry.case) if position is None else self._suite.cases[position], entry)

    def _find(self, case_id: str) -> int | None:
        # The table knows hashes only, so the name that stands there is compared.
        return next((position for position in self._positions.find(case_id) if self._suite.cases[position].id == case_id), None)

    def find_incomplete(self, ended: Ending) -> Incomplete | None:
        """Return what is missing of the planned attempts, or None where every one of them is there."""
        done = self._scratch.make_numbers("I", len(self._answered))
        lacking = self._scratch.make_numbers("I")
        finished = 0
        for position in range(len(self._answered)):
            first, end = self._first[position], self._first[position + 1]
            done[position] = count = sum(self._planned[place] != _NOT_THERE for place in range(first, end))
            finished += count
            if count < end - first:
                lacking.append(position)
        if not lacking:
            return None

        def make(number: int) -> MissingAttempts:
            position = lacking[number]
            planned = self._first[position + 1] - self._first[position]
            return MissingAttempts(case=self._suite.cases[position], planned=planned, finished=done[position])

        return Incomplete(
            ended=ended,
            attempts_finished=finished,
            attempts_planned=self._count,
            cases_finished=len(done) - len(lacking),
            cases_planned=len(done),
            missing=LazySequence(len(lacking), make),
        )

    def find_unmet(self) -> Unmet:
        """Return the cases of which no attempt left anything to decide on, and the attempts of cases that the suite does not have."""
        silent = (self._suite.cases[position] for position, answered in enumerate(self._answered) if not answered)
        return Unmet(cases_without_evidence=sum(case.skip is None for case in silent), records_without_case=self._unknown)

    def list_entries(self) -> Mapping[tuple[str, int], RunEntry]:
        """Return what was kept of each attempt, by case and attempt."""
        return _Entries(self)

    def find_entry(self, case_id: str, attempt: int) -> RunEntry | None:
        """Return what was kept of one attempt."""
        position = self._find(case_id)
        start = _NOT_THERE
        if position is not None and attempt >= 0 and self._first[position] + attempt < self._first[position + 1]:
            start = self._planned[self._first[position] + attempt]
        if start == _NOT_THERE:
            start = self._beyond.get((len(self._answered) if position is None else position, case_id, attempt), _NOT_THERE)
        return None if start == _NOT_THERE else self._entries.read(start - 1)


class _Entries(Mapping[tuple[str, int], RunEntry]):
    """What was kept of each attempt, read when it is asked for."""

    def __init__(self, kept: KeptResults) -> None:
        self._kept = kept

    def __getitem__(self, key: tuple[str, int]) -> RunEntry:
        found = self._kept.find_entry(*key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((result.case.id, result.attempt) for result in self._kept.results)

    def __len__(self) -> int:
        return len(self._kept.results)
