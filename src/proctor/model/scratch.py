"""Storage for numbers and texts about very many cases: in memory, or wherever higher layers put it.

The reader of a large data file provides the storage for its rows (`sources/tables/open.py`), and passes it on with the cases.

Names of very many cases: their 64-bit hashes in one table, instead of the texts themselves.

The hash of an unknown name may, very rarely, equal that of a known one: callers compare the name at the position found.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Literal, Protocol

Code = Literal["I", "Q"]
"""The size of a number: 32 bits, or 64."""


class Numbers(Protocol):
    """Numbers in a row, by their position from 0."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...
    def __iter__(self) -> Iterator[int]: ...
    def append(self, value: int, /) -> None:
        """Append a number."""
        ...


class Texts(Protocol):
    """Texts in a row, by their position from 0."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> str: ...
    def append(self, text: str, /) -> None:
        """Append a text."""
        ...


class Scratch(Protocol):
    """Temporary storage, private to its writer."""

    def make_numbers(self, code: Code, count: int = 0) -> Numbers:
        """Return a list of `count` zeros that can grow."""
        ...

    def make_texts(self) -> Texts:
        """Return an empty list of texts that can grow."""
        ...


class MemoryScratch:
    """Holds everything in memory."""

    def make_numbers(self, code: Code, count: int = 0) -> Numbers:
        """Return a list of `count` zeros that can grow."""
        numbers = array(code)
        numbers.frombytes(bytes(numbers.itemsize * count))
        return numbers

    def make_texts(self) -> Texts:
        """Return an empty list of texts that can grow."""
        return []


IN_MEMORY = MemoryScratch()


_FIRST_SIZE = 256
_MASK = (1 << 64) - 1
_HALF = (1 << 32) - 1


class NameTable:
    """Positions by name, which is a text or bytes."""

    def __init__(self, scratch: Scratch = IN_MEMORY) -> None:
        self._scratch = scratch
        # Open addressing by the last bits of the hash. The upper 32 bits of a slot are half of the hash, the lower 32 bits are the number
        # of the newest entry with that hash, from 1; 0 is a free slot. Half a hash is enough for nearly all lookups to read one number.
        self._places = scratch.make_numbers("Q", _FIRST_SIZE)
        self._size = _FIRST_SIZE
        self._used = 0
        self._hashes = scratch.make_numbers("Q")
        self._positions = scratch.make_numbers("Q")
        """For each entry: its position (lower 32 bits) and the number of the previous entry with the same hash, from 1 (upper 32 bits)."""

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, name: str | bytes, position: int) -> None:
        """Add a name; a known name gets one more position."""
        if 3 * (self._used + 1) > 2 * self._size:
            self._grow()
        hashed = hash(name) & _MASK
        place, newest = self._find_place(hashed)
        self._used += not newest
        self._hashes.append(hashed)
        self._positions.append(newest << 32 | position)
        self._places[place] = (hashed & _HALF) << 32 | len(self._hashes)

    def find(self, name: str | bytes) -> Iterator[int]:
        """Yield every position of this name, or of one with the same hash, newest first."""
        _, entry = self._find_place(hash(name) & _MASK)
        while entry:
            packed = self._positions[entry - 1]
            yield packed & _HALF
            entry = packed >> 32

    def _find_place(self, hashed: int) -> tuple[int, int]:
        """Return the slot of a hash with its newest entry, or its free slot and 0."""
        places, last, half = self._places, self._size - 1, hashed & _HALF
        place = hashed & last
        while slot := places[place]:
            if slot >> 32 == half and self._hashes[(slot & _HALF) - 1] == hashed:
                return place, slot & _HALF
            place = (place + 1) & last
        return place, 0

    def _grow(self) -> None:
        # In slot order: each entry goes to the same slot of one of the quarters, so that few pages are touched at a time.
        old_slots, self._size = self._places, 4 * self._size
        places, last = self._scratch.make_numbers("Q", self._size), self._size - 1
        for slot in old_slots:
            if slot:
                place = slot >> 32 & last
                while places[place]:
                    place = (place + 1) & last
                places[place] = slot
        self._places = places


class TakenNames:
    """The set of taken names: the first `held` as text, and only the hashes of the others.

    Beyond that number, a free name is reported as taken with a chance of 1 in 10^19 for each taken name.
    """

    def __init__(self, held: int = 5_000, scratch: Scratch = IN_MEMORY) -> None:
        self._held = held
        self._scratch = scratch
        self._names: set[str] = set()
        self._more: NameTable | None = None

    def __len__(self) -> int:
        return len(self._names) + (len(self._more) if self._more is not None else 0)

    def __contains__(self, name: object) -> bool:
        if name in self._names:
            return True
        return self._more is not None and isinstance(name, str) and next(self._more.find(name), None) is not None

    def add(self, name: str) -> None:
        """Mark a name as taken, if it is not yet."""
        if name in self:
            return
        if len(self._names) < self._held:
            self._names.add(name)
            return
        if self._more is None:
            self._more = NameTable(self._scratch)
        self._more.add(name, 0)
