"""Stores values of very many rows in unnamed temporary files, of which a few pages are in memory at a time.

A hundred thousand rows then take no more memory than ten thousand. Pages are read and written, not mapped: mapped pages count as memory
of the process for as long as the system likes.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from array import array
from collections.abc import Generator, Iterator
from typing import IO

from proctor.errors import InputError
from proctor.model.scratch import Code

_PAGE = 4096
"""Bytes that are read and written together: look-ups by hash hit any of them, and need one number of it."""
_MOST_PAGES = 16
"""Pages of one row of numbers that are in memory."""
_MOST_PENDING = 1 << 16
"""Bytes that wait to be written together."""


def _make_file() -> IO[bytes]:
    with _explain_full_disk():
        # Without a buffer: `pread` and `pwrite` go past the one of the file object.
        return tempfile.TemporaryFile(prefix="proctor-rows-", buffering=0)


@contextlib.contextmanager
def _explain_full_disk() -> Generator[None]:
    """Raise `InputError` where a temporary file cannot be made or written: the user knows of none, and may think of another file."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"rows are stored in temporary files under {tempfile.gettempdir()!r}: {error.strerror or error}; "
            "free space there, or set TMPDIR to another folder"
        ) from error


class FileNumbers:
    """Numbers in a temporary file, once they are more than a few pages."""

    def __init__(self, code: Code, count: int = 0) -> None:
        self._code: Code = code
        on_page = _PAGE // array(code).itemsize
        self._shift, self._mask = on_page.bit_length() - 1, on_page - 1
        # Zeros that fill whole pages are not made here: `_load` makes them of a place that was never written.
        first = count & ~self._mask
        self._last = first, array(code, [0]) * (count - first)
        """The page that is not full, and the number with which it begins; in one piece, so that threads see both or neither."""
        self._pages: dict[int, array[int]] = {}
        """Other pages by their number; the one that was read first goes first."""
        self._changed: set[int] = set()
        self._file: IO[bytes] | None = None
        # Several threads may ask, and what one of them writes must not go to a page that another one pushes out.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        first, last = self._last
        return first + len(last)

    def __getitem__(self, index: int, /) -> int:
        first, last = self._last
        if index >= first:
            return last[index - first]
        # Without the lock, as most look-ups find their page: one that is pushed out right now still holds its numbers.
        page = self._pages.get(index >> self._shift)
        if page is None:
            with self._lock:
                page = self._load(index >> self._shift)
        return page[index & self._mask]

    def __setitem__(self, index: int, value: int, /) -> None:
        first, last = self._last
        if index >= first:
            last[index - first] = value
            return
        number = index >> self._shift
        with self._lock:
            page = self._pages.get(number)
            (self._load(number) if page is None else page)[index & self._mask] = value
            self._changed.add(number)

    def __iter__(self) -> Iterator[int]:
        return (self[index] for index in range(len(self)))

    def append(self, value: int, /) -> None:
        """Append a number; only one thread may do so."""
        first, last = self._last
        last.append(value)
        if len(last) > self._mask:
            with self._lock:
                self._drop_oldest_page()
                number = first >> self._shift
                self._pages[number] = last
                self._changed.add(number)
                # Last of all: until here readers find these numbers in `_last`, from here on among the pages, and never in neither.
                self._last = first + len(last), array(self._code)

    def count_held(self) -> int:
        """Return how many bytes are in memory."""
        return (len(self._pages) + 1) * _PAGE

    def _load(self, number: int) -> array[int]:
        """Return a page; the lock is held."""
        if number < 0:
            raise IndexError(number)
        self._drop_oldest_page()
        found = b"" if self._file is None else os.pread(self._file.fileno(), _PAGE, number * _PAGE)
        # Unwritten parts are zeros, also after the end of the file.
        page = self._pages[number] = array(self._code, found if len(found) == _PAGE else found.ljust(_PAGE, b"\0"))
        return page

    def _drop_oldest_page(self) -> None:
        """Put a page aside, where there are too many; the lock is held."""
        if len(self._pages) < _MOST_PAGES:
            return
        number = next(iter(self._pages))
        # Readers that miss the page from here on wait for the lock, and so until it is in the file.
        page = self._pages.pop(number)
        if number in self._changed:
            self._changed.discard(number)
            if self._file is None:
                self._file = _make_file()
            _write_at(self._file, memoryview(page).cast("B"), number * _PAGE)

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()


class FilePieces:
    """Pieces of bytes in a temporary file, each found again by its number from 0."""

    def __init__(self) -> None:
        self._file = _make_file()
        self._starts = FileNumbers("Q", 1)
        self._end = 0
        self._pending = bytearray()
        # Several threads may ask for pieces, and what waits is written once.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def append(self, piece: bytes) -> None:
        """Put one more piece aside."""
        with self._lock:
            self._pending += piece
            self._end += len(piece)
            if len(self._pending) > _MOST_PENDING:
                self._flush()
        # After the bytes: from here on the piece can be read.
        self._starts.append(self._end)

    def read(self, index: int) -> bytes:
        """Return a piece; raises `IndexError` where there is none."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        start, end = self._starts[index], self._starts[index + 1]
        # A look without the lock is enough: bytes leave `_pending` only after they are in the file.
        if self._pending:
            with self._lock:
                self._flush()
        return os.pread(self._file.fileno(), end - start, start)

    def _flush(self) -> None:
        _write_at(self._file, self._pending, self._end - len(self._pending))
        self._pending.clear()

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # it may not have been possible to make one
            self._file.close()


def _write_at(file: IO[bytes], data: memoryview | bytearray, place: int) -> None:
    """Write all of it: the system may take a part only."""
    with _explain_full_disk():
        written = os.pwrite(file.fileno(), data, place)
        while written < len(data):
            written += os.pwrite(file.fileno(), bytes(data[written:]), place + written)


class FileTexts:
    """Texts in a temporary file."""

    def __init__(self) -> None:
        self._pieces = FilePieces()

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, index: int, /) -> str:
        return self._pieces.read(index).decode("utf-8", "surrogatepass")

    def append(self, text: str, /) -> None:
        """Append a text."""
        self._pieces.append(text.encode("utf-8", "surrogatepass"))
