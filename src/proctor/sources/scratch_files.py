"""Stores values of very many rows in unnamed temporary files: a hundred thousand rows take no more memory than ten thousand.

Files are read and written, not mapped: mapped pages count as memory of the process for as long as the system likes. The system caches what
is read often, so a second cache here measured no faster.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from array import array
from collections.abc import Generator, Iterator
from typing import IO

from proctor.errors import InputError
from proctor.model.scratch import Code

_PAGE = 4096
"""Bytes of appended numbers per write."""
_MOST_PENDING = 1 << 16
"""Bytes that may wait to be written."""


def _make_file() -> IO[bytes]:
    with _explain_full_disk():
        # Unbuffered: `pread` and `pwrite` bypass the buffer of the file object.
        return tempfile.TemporaryFile(prefix="proctor-rows-", buffering=0)


@contextlib.contextmanager
def _explain_full_disk() -> Generator[None]:
    """Raise `InputError` if a temporary file cannot be created or written, and name its folder, which the user did not choose."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"rows are stored in temporary files under {tempfile.gettempdir()!r}: {error.strerror or error}; "
            "free space there, or set TMPDIR to another folder"
        ) from error


class FileNumbers:
    """Numbers in a temporary file, once they exceed one page."""

    def __init__(self, code: Code, count: int = 0) -> None:
        self._code: Code = code
        self._size = array(code).itemsize
        self._last = count, array(code)
        """The count of numbers in the file, and the numbers after them; one tuple, so that threads see both or neither."""
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        stored, last = self._last
        return stored + len(last)

    def __getitem__(self, index: int, /) -> int:
        stored, last = self._last
        if index >= stored:
            return last[index - stored]
        if index < 0:
            raise IndexError(index)
        # Unwritten numbers are zero, also after the end of the file.
        return 0 if self._file is None else int.from_bytes(os.pread(self._file.fileno(), self._size, index * self._size), sys.byteorder)

    def __setitem__(self, index: int, value: int, /) -> None:
        stored, last = self._last
        if index >= stored:
            last[index - stored] = value
        else:
            self._write(index, value.to_bytes(self._size, sys.byteorder))

    def __iter__(self) -> Iterator[int]:
        stored, last = self._last
        for start in range(0, stored, _PAGE):
            count = min(_PAGE, stored - start) * self._size
            data = b"" if self._file is None else os.pread(self._file.fileno(), count, start * self._size)
            yield from array(self._code, data.ljust(count, b"\0"))
        yield from last

    def append(self, value: int, /) -> None:
        """Append a number; only one thread may do this."""
        stored, last = self._last
        last.append(value)
        if len(last) * self._size >= _PAGE:
            self._write(stored, last.tobytes())
            # After the bytes: readers always find these numbers either in `_last` or in the file.
            self._last = stored + len(last), array(self._code)

    def _write(self, index: int, data: bytes) -> None:
        if self._file is None:
            self._file = _make_file()
        _write_at(self._file, data, index * self._size)

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()


class FilePieces:
    """Pieces of bytes in a temporary file, numbered from 0."""

    def __init__(self) -> None:
        self._file = _make_file()
        self._starts = FileNumbers("Q", 1)
        self._end = 0
        self._pending = bytearray()
        # Several threads may read pieces, and pending bytes are written once.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __iter__(self) -> Iterator[bytes]:
        return (self.read(index) for index in range(len(self)))

    def append(self, piece: bytes) -> None:
        """Append a piece."""
        with self._lock:
            self._pending += piece
            self._end += len(piece)
            if len(self._pending) > _MOST_PENDING:
                self._flush()
        # After the bytes: now the piece can be read.
        self._starts.append(self._end)

    def read(self, index: int) -> bytes:
        """Return a piece; raises `IndexError` if it does not exist."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        start, end = self._starts[index], self._starts[index + 1]
        # No lock is needed: bytes leave `_pending` only after they are in the file.
        if self._pending:
            with self._lock:
                self._flush()
        return os.pread(self._file.fileno(), end - start, start)

    def _flush(self) -> None:
        _write_at(self._file, self._pending, self._end - len(self._pending))
        self._pending.clear()

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # creating it may have failed
            self._file.close()


def _write_at(file: IO[bytes], data: bytes | bytearray, place: int) -> None:
    """Write all bytes: the system may write only a part at once."""
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
