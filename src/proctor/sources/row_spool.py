"""Puts rows aside in a temporary file without a name, and brings single ones back: a large file of cases is not held in memory.

The rows are copies: what happens to the file they came from while they are in use does not matter.
"""

from __future__ import annotations

import os
import tempfile
import threading
from array import array

import msgspec

from proctor.formats.rows import Row
from proctor.model.typed import make_json_decoder

_DECODER = make_json_decoder(Row)
_MOST_PENDING = 1 << 20
"""Bytes that wait to be written together."""


class FileSpool:
    """Rows in a temporary file, which goes with the process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="proctor-rows-")  # noqa: SIM115 - lives as long as the suite
        self._starts = array("Q", [0])
        self._pending = bytearray()
        # Several threads may ask for rows, and what waits is written once.
        self._lock = threading.Lock()

    def append(self, row: Row) -> None:
        """Put a row aside."""
        data = msgspec.json.encode(row)
        self._starts.append(self._starts[-1] + len(data))
        self._pending += data
        if len(self._pending) > _MOST_PENDING:
            self._flush()

    def _flush(self) -> None:
        self._file.write(self._pending)
        self._file.flush()
        self._pending.clear()

    def read(self, index: int) -> Row:
        """Return a row that was put aside, by its number from 0."""
        start, end = self._starts[index], self._starts[index + 1]
        if self._pending:
            with self._lock:
                self._flush()
        return _DECODER.decode(os.pread(self._file.fileno(), end - start, start))

    def __del__(self) -> None:
        self._file.close()
