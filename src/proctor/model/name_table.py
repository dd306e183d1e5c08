"""Names of very many cases in some thirty bytes each: their 64-bit hashes in one table, instead of the texts themselves.

A hash of an unknown name may be that of a known one, if hardly ever: whoever finds a position compares the name that stands there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

_FIRST_SIZE = 256
_MASK = (1 << 64) - 1


class NameTable:
    """Positions by name, which is a text or bytes."""

    def __init__(self) -> None:
        self._places = array("I", bytes(4 * _FIRST_SIZE))
        """By the last bits of a hash: one more than the number of the newest entry with it; 0 is a free place."""
        self._used = 0
        self._hashes = array("Q")
        self._positions = array("I")
        self._older = array("I")
        """Of each entry: one more than the number of the one before it with the same hash."""

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, name: str | bytes, position: int) -> None:
        """Put a name in; a name that is there already gets one more position."""
        if 3 * (self._used + 1) > 2 * len(self._places):
            self._grow()
        hashed = hash(name) & _MASK
        place = self._find_place(hashed)
        older = self._places[place]
        self._used += not older
        self._hashes.append(hashed)
        self._positions.append(position)
        self._older.append(older)
        self._places[place] = len(self._hashes)

    def find(self, name: str | bytes) -> Iterator[int]:
        """Yield every position that was put in under this name, or under one with the same hash, the newest first."""
        entry = self._places[self._find_place(hash(name) & _MASK)]
        while entry:
            yield self._positions[entry - 1]
            entry = self._older[entry - 1]

    def _find_place(self, hashed: int) -> int:
        """Return the place of a hash, or the free one where it belongs."""
        places, hashes, last = self._places, self._hashes, len(self._places) - 1
        place = hashed & last
        while places[place] and hashes[places[place] - 1] != hashed:
            place = (place + 1) & last
        return place

    def _grow(self) -> None:
        before, self._places = self._places, array("I", bytes(8 * len(self._places)))
        for entry in before:
            if entry:
                self._places[self._find_place(self._hashes[entry - 1])] = entry


class TakenNames:
    """Which names are taken: the first ones themselves, and the hashes of all further ones.

    Once there are more than `held`, one free name in 10^19 for each that is taken is said to be taken, too.
    """

    def __init__(self, held: int = 5_000) -> None:
        self._held = held
        self._names: set[str] = set()
        self._more: NameTable | None = None

    def __len__(self) -> int:
        return len(self._names) + (len(self._more) if self._more is not None else 0)

    def __contains__(self, name: object) -> bool:
        if name in self._names:
            return True
        return self._more is not None and isinstance(name, str) and next(self._more.find(name), None) is not None

    def add(self, name: str) -> None:
        """Take a name; one that is taken stays taken."""
        if name in self:
            return
        if len(self._names) < self._held:
            self._names.add(name)
            return
        if self._more is None:
            self._more = NameTable()
        self._more.add(name, 0)
