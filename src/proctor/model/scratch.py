"""Storage for numbers and texts about very many cases: in memory, or wherever higher layers put it.

The reader of a large data file provides the storage for its rows (`sources/tables/open.py`), and passes it on with the cases.
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


class HeldTexts:
    """Texts in one piece of memory."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._starts = array("Q", [0])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int, /) -> str:
        return self._bytes[self._starts[index] : self._starts[index + 1]].decode("utf-8", "surrogatepass")

    def append(self, text: str, /) -> None:
        """Append a text."""
        # UTF-8 cannot represent a lone surrogate, but a name may contain one.
        self._bytes += text.encode("utf-8", "surrogatepass")
        self._starts.append(len(self._bytes))


class MemoryScratch:
    """Holds everything in memory."""

    def make_numbers(self, code: Code, count: int = 0) -> Numbers:
        """Return a list of `count` zeros that can grow."""
        numbers = array(code)
        numbers.frombytes(bytes(numbers.itemsize * count))
        return numbers

    def make_texts(self) -> Texts:
        """Return an empty list of texts that can grow."""
        return HeldTexts()


IN_MEMORY = MemoryScratch()
