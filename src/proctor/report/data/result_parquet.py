"""The table of results as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import IO, Any

from proctor.errors import MissingExtra
from proctor.report.data.result_rows import NUMBERS, WHOLE, Cells, batch_rows

GROUP = 10_000
"""Rows written together."""


def write_parquet(columns: Sequence[str], rows: Iterable[Cells], file: IO[bytes]) -> None:
    """Write the table in Parquet: texts, whole numbers and numbers by column."""
    arrow, parquet = import_arrow()
    fields = [(name, arrow.int64() if name in WHOLE else arrow.float64() if name in NUMBERS else arrow.string()) for name in columns]
    schema = arrow.schema(fields)
    with parquet.ParquetWriter(file, schema) as writer:
        for group in batch_rows(rows, GROUP):
            arrays = [arrow.array([_fit(row.get(name), name) for row in group], type=kind) for name, kind in fields]
            writer.write_table(arrow.table(arrays, schema=schema))


def import_arrow() -> tuple[Any, Any]:
    """Return the library. Raises `MissingExtra` if it is not installed."""
    try:
        import pyarrow  # an optional part
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("--format parquet", "data") from error
    return pyarrow, pyarrow.parquet


def _fit(value: object, name: str) -> object:
    if value is None or (name not in WHOLE and name not in NUMBERS):
        # Lone surrogates are not valid UTF-8.
        return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
    return int(value) if name in WHOLE and isinstance(value, (int, float)) else value
