"""What the cases of a suite are called, and by which of them a record may name one.

A record names a case by its id, by what it is called in its own file, or by its name. An id wins over the name of another case, not over
what that case is called in its own file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from proctor.model.case import Case
from proctor.model.lazy_cases import find_scratch
from proctor.model.name_table import NameTable


class CaseNames(Protocol):
    """Positions of cases by name."""

    def add(self, case: Case, position: int) -> bool:
        """Take the names of a case; returns False where another case has its id."""
        ...

    def finish(self) -> None:
        """Every case was taken."""
        ...

    def find(self, name: str) -> list[int] | None:
        """Return the positions of the cases that a name may mean, or None where it means none."""
        ...

    def list_names(self) -> Sequence[str]:
        """Return every name."""
        ...


class HeldNames:
    """The names themselves, held: one look-up finds a position."""

    def __init__(self) -> None:
        self.positions: dict[str, list[int]] = {}
        self._others: list[tuple[int, str, str | None, str]] = []

    def add(self, case: Case, position: int) -> bool:
        """Take the names of a case; returns False where another case has its id."""
        free = case.id not in self.positions
        self.positions[case.id] = [position]
        if case.own_id is not None or case.name:
            self._others.append((position, case.id, case.own_id, case.name))
        return free

    def finish(self) -> None:
        """Let the names stand beside the ids, now that all ids are known."""
        # Taken before any name is added: from then on `positions` no longer tells ids from names.
        ids = frozenset(self.positions) if self._others else frozenset[str]()
        for position, case_id, own_id, called in self._others:
            for name in {own_id, called if called not in ids else None} - {None, "", case_id}:
                self.positions.setdefault(name or "", []).append(position)
        self._others = []

    def find(self, name: str) -> list[int] | None:
        """Return the positions of the cases that a name may mean, or None where it means none."""
        return self.positions.get(name)

    def list_names(self) -> Sequence[str]:
        """Return every name."""
        return tuple(self.positions)


class HashedNames:
    """The names of cases that are made when they are asked for: only their hashes are held, and the case says what it is called."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = cases
        self._ids = NameTable(find_scratch(cases))
        self._others = NameTable(find_scratch(cases))
        self._listed: tuple[str, ...] | None = None

    def add(self, case: Case, position: int) -> bool:
        """Take the names of a case; returns False where another case has its id."""
        free = self._find_id(case.id) is None
        self._ids.add(case.id, position)
        for name in _list_other_names(case):
            self._others.add(name, position)
        return free

    def finish(self) -> None:
        """Nothing is left to do: names are held against ids when they are looked for."""

    def find(self, name: str) -> list[int] | None:
        """Return the positions of the cases that a name may mean, or None where it means none."""
        owner = self._find_id(name)
        found = [] if owner is None else [owner]
        for position in sorted(set(self._others.find(name))):
            # Another name may have the same hash, so the case itself is asked what it is called.
            case = self._cases[position]
            if case.id != name and (case.own_id == name or (owner is None and case.name == name)):
                found.append(position)
        return found or None

    def list_names(self) -> Sequence[str]:
        """Return every name; they are held from then on, since what is told of unknown names asks for them again and again."""
        if self._listed is None:
            ids = dict.fromkeys(case.id for case in self._cases)
            self._listed = tuple(ids | dict.fromkeys(name for case in self._cases for name in _list_other_names(case)))
        return self._listed

    def _find_id(self, name: str) -> int | None:
        return next((position for position in self._ids.find(name) if self._cases[position].id == name), None)


def _list_other_names(case: Case) -> Iterable[str]:
    return dict.fromkeys(name for name in (case.own_id, case.name) if name and name != case.id)
