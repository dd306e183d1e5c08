"""The cases of a suite by what they say to the agent: of cases that are made when they are asked for, only hashes of it are held."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from proctor.model.case import Case
from proctor.model.evidence import Json
from proctor.model.lazy_cases import find_scratch, is_lazy
from proctor.model.name_table import NameTable


class SaidIndex:
    """Positions of cases by messages."""

    def __init__(self, cases: Sequence[Case], list_said: Callable[[Case], Sequence[Json]]) -> None:
        """`list_said` gives the messages of a case."""
        self._cases = cases
        self._list_said = list_said
        self._held: dict[bytes, list[int]] | None = None if is_lazy(cases) else {}
        self._hashed = NameTable(find_scratch(cases))

    def add(self, said: Sequence[Json], position: int) -> None:
        """Take what a case says."""
        if self._held is None:
            self._hashed.add(make_key(said), position)
        else:
            self._held.setdefault(make_key(said), []).append(position)

    def find(self, said: Sequence[Json]) -> list[int] | None:
        """Return the positions of the cases that say this, or None where none does."""
        key = make_key(said)
        if self._held is not None:
            return self._held.get(key)
        # Another key may have the same hash: what the case itself says decides.
        return sorted(found for found in self._hashed.find(key) if make_key(self._list_said(self._cases[found])) == key) or None


def make_key(said: Sequence[Json]) -> bytes:
    """Return messages in a form that can be looked up: a JSON list."""
    try:
        return msgspec.json.encode(said, order="sorted")
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
        # A lone surrogate or a number that JSON cannot carry: no less exact, only slower.
        return repr(said).encode("utf-8", "backslashreplace")
