"""What could not be read of a partition, as a Parquet file: one row for a record, or for the rest of a row group or file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proctor.model.evidence import Json
from proctor.sources.dataset_files import import_arrow

ROWS_AT_ONCE = 10_000
"""Rows that are held and written together: a file in which nothing can be read must not fill the memory."""


class ErrorTable:
    """Gathers the rows of one partition; there is a file only where there are rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: Any = None
        self._rows: list[dict[str, Json]] = []

    def add(self, row: dict[str, Json]) -> None:
        """Add one row."""
        self._rows.append(row)
        if len(self._rows) >= ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        arrow, parquet = import_arrow("pyarrow"), import_arrow("pyarrow.parquet")
        text, whole = arrow.string(), arrow.int64()
        schema = arrow.schema([("file", text), ("row", whole), ("offset", whole), ("rows", whole), ("code", text), ("reason", text)])
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self.path, schema, compression="zstd")
        self._writer.write_table(arrow.Table.from_pylist(self._rows, schema=schema))
        self._rows.clear()

    def finish(self) -> Path | None:
        """Write what is left; returns the file, if there were any rows."""
        if self._rows:
            self._flush()
        self.close()
        return None if self._writer is None else self.path

    def close(self) -> None:
        """Give the file back, whole or not."""
        if self._writer is not None:
            self._writer.close()
