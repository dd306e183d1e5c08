"""Report formats whose header is known only at the end: results are spooled to a temporary file."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.cli.show.output import Output
from proctor.errors import InputError
from proctor.model.json_values import decode_any_json, encode_any_json
from proctor.model.result import CaseResult, RunResult
from proctor.model.run import RunEntry
from proctor.report.data.json_text import CaseEncoder, indent_item, iterate_document
from proctor.report.data.result_rows import RowWriter, iterate_csv, name_run
from proctor.sources.scratch_files import FilePieces


class JsonRun:
    """The whole run as one object."""

    in_memory: Sequence[CaseResult] = ()

    def __init__(self, output: Output) -> None:
        self._output = output
        self._encoder = CaseEncoder()
        self._cases = FilePieces()

    def add(self, result: CaseResult) -> None:
        """Spool a result."""
        self._cases.append(indent_item(self._encoder.encode(result)))

    def finish(self, run: RunResult) -> None:
        """Write the document."""
        for piece in iterate_document(run, self._cases):
            self._output.write(piece)


class Table:
    """One row for each result: CSV, or Parquet."""

    in_memory: Sequence[CaseResult] = ()

    def __init__(self, output: Output, format: str) -> None:
        self._output = output
        self._format = format
        if format == "parquet":
            from proctor.report.data.result_rows import import_arrow  # an optional part

            import_arrow()
            if not output.is_file:
                raise InputError("--format parquet is binary: name a file with --output")
        self._writer = RowWriter()
        self._rows = FilePieces()

    def add(self, result: CaseResult, entry: RunEntry | None = None) -> None:
        """Spool the row of a result and its stored attempt."""
        self._rows.append(encode_any_json(self._writer.make_row(result, entry)))

    def finish(self, run: RunResult) -> None:
        """Write the table."""
        columns, rows = self._writer.list_columns(), name_run((decode_any_json(piece) for piece in self._rows), run)
        if self._format == "parquet":
            from proctor.report.data.result_rows import write_parquet  # only for this format

            self._output.write_with(lambda file: write_parquet(columns, rows, file))
            return
        for text in iterate_csv(columns, rows):
            self._output.write_text(text)
