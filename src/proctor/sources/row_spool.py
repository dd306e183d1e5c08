"""Puts rows aside in a temporary file without a name, and brings single ones back: a large file of cases is not held in memory.

The rows are copies: what happens to the file they came from while they are in use does not matter.
"""

from __future__ import annotations

import msgspec

from proctor.formats.rows import Row
from proctor.model.typed import make_json_decoder
from proctor.sources.scratch_files import FilePieces

_DECODER = make_json_decoder(Row)


class FileSpool:
    """Rows in a temporary file, which goes with the process."""

    def __init__(self) -> None:
        self._pieces = FilePieces()

    def append(self, row: Row) -> None:
        """Put a row aside."""
        self._pieces.append(msgspec.json.encode(row))

    def read(self, index: int) -> Row:
        """Return a row that was put aside, by its number from 0."""
        return _DECODER.decode(self._pieces.read(index))
