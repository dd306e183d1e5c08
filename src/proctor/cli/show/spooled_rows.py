"""Report formats whose header is known only at the end: results are spooled to a temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator

import msgspec

from proctor.cli.show.output import Output
from proctor.errors import InputError
from proctor.model.json_values import encode_strangers
from proctor.model.result import CaseResult, RunResult
from proctor.model.run import RunEntry
from proctor.report.data.json_text import CaseEncoder, indent_item, iterate_document
from proctor.report.data.result_rows import Cells, RowWriter, iterate_csv, name_run

_IN_MEMORY = 1 << 18
"""Bytes held before a file is created."""


class _PutAside:
    """Pieces of bytes without NUL, in order."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="proctor-results-")  # noqa: SIM115 - given back by `take`

    def add(self, piece: bytes) -> None:
        self._file.write(piece + b"\0")

    def take(self) -> Iterator[bytes]:
        """Yield every piece once."""
        with self._file as file:
            file.seek(0)
            rest = b""
            while block := file.read(1 << 16):
                *whole, rest = (rest + block).split(b"\0")
                yield from whole


class JsonRun:
    """The whole run as one object."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._encoder = CaseEncoder()
        self._cases = _PutAside()

    def add(self, result: CaseResult) -> None:
        """Spool a result."""
        # JSON escapes a NUL in a text.
        self._cases.add(indent_item(self._encoder.encode(result)))

    def list_held(self) -> list[CaseResult]:
        """Return nothing: results are spooled."""
        return []

    def finish(self, run: RunResult) -> None:
        """Write the document."""
        for piece in iterate_document(run, self._cases.take()):
            self._output.write(piece)


class Table:
    """One row for each result: CSV, or Parquet."""

    def __init__(self, output: Output, format: str) -> None:
        self._output = output
        self._format = format
        if format == "parquet":
            from proctor.report.data.result_parquet import import_arrow  # an optional part

            import_arrow()
            if not output.is_file:
                raise InputError("--format parquet is no text: name a file with --output")
        self._writer = RowWriter()
        self._rows = _PutAside()

    def add(self, result: CaseResult, entry: RunEntry | None = None) -> None:
        """Spool the row of a result and its stored attempt."""
        self._rows.add(encode_strangers(self._writer.make_row(result, entry)))

    def list_held(self) -> list[CaseResult]:
        """Return nothing: rows are spooled."""
        return []

    def finish(self, run: RunResult) -> None:
        """Write the table."""
        columns, rows = self._writer.list_columns(), name_run(self._take_rows(), run)
        if self._format == "parquet":
            from proctor.report.data.result_parquet import write_parquet  # only this format needs it

            self._output.write_with(lambda file: write_parquet(columns, rows, file))
            return
        for text in iterate_csv(columns, rows):
            self._output.write_text(text)

    def _take_rows(self) -> Iterable[Cells]:
        return (_decode(piece) for piece in self._rows.take())


def _decode(piece: bytes) -> Cells:
    try:
        return msgspec.json.decode(piece)
    except msgspec.DecodeError:
        from json import loads  # msgspec does not take the escape of half a character

        return loads(piece)
