"""Names of very many cases: their 64-bit hashes in one table, instead of the texts themselves.

The hash of an unknown name may, very rarely, equal that of a known one: callers compare the name at the position found.
"""

from __future__ import annotations

from collections.abc import Iterator

from proctor.model.scratch import IN_MEMORY, Scratch

_FIRST_SIZE = 256
_MASK = (1 << 64) - 1
_HALF = (1 << 32) - 1


class NameTable:
    """Positions by name, which is a text or bytes."""

    def __init__(self, scratch: Scratch = IN_MEMORY) -> None:
        self._scratch = scratch
        # By the last bits of a hash: its lower half, and below that one more than the number of the newest entry with it; 0 is a free slot.
        # Half of the hash distinguishes nearly all names, so that a lookup reads one number.
        self._places = scratch.make_numbers("Q", _FIRST_SIZE)
        self._size = _FIRST_SIZE
        self._used = 0
        self._hashes = scratch.make_numbers("Q")
        self._positions = scratch.make_numbers("Q")
        """For each entry its position, and above that one more than the number of the previous entry with the same hash."""

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
            found = self._positions[entry - 1]
            yield found & _HALF
            entry = found >> 32

    def _find_place(self, hashed: int) -> tuple[int, int]:
        """Return the slot of a hash with its newest entry, or its free slot and 0."""
        places, last, half = self._places, self._size - 1, hashed & _HALF
        place = hashed & last
        while found := places[place]:
            if found >> 32 == half and self._hashes[(found & _HALF) - 1] == hashed:
                return place, found & _HALF
            place = (place + 1) & last
        return place, 0

    def _grow(self) -> None:
        # In slot order: each entry goes to the same slot of one of the quarters, so that few pages are touched at a time.
        old_slots, self._size = self._places, 4 * self._size
        places, last = self._scratch.make_numbers("Q", self._size), self._size - 1
        for found in old_slots:
            if found:
                place = found >> 32 & last
                while places[place]:
                    place = (place + 1) & last
                places[place] = found
        self._places = places


class TakenNames:
    """The set of taken names: the first ones as text, and the hashes of all further ones.

    Beyond `held` names, a free name is reported as taken with a chance of 1 in 10^19 for each taken name.
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
        """Take a name; a taken name stays taken."""
        if name in self:
            return
        if len(self._names) < self._held:
            self._names.add(name)
            return
        if self._more is None:
            self._more = NameTable(self._scratch)
        self._more.add(name, 0)
