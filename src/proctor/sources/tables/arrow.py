"""Rows of Parquet files, and of Arrow files saved by Hugging Face data sets: one batch in memory at a time.

Times are read as ISO 8601, decimal numbers as text with every digit. Bytes, and numbers that JSON cannot represent, cannot be values of a
case: they are rejected if a template uses their column.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proctor.errors import InputError, MissingExtra
from proctor.formats.text.row_shapes import Row, TableOptions
from proctor.model.evidence import Json
from proctor.model.problem import Origin
from proctor.sources.tables.text import MAX_FIELD, MAX_FILE, MAX_ROWS, check_size, make_json, refuse_at, refuse_more_rows

BATCH = 512
"""Rows of one batch."""
_READ_AT_ONCE = 1 << 16
"""Bytes of one read of a column."""
_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""The environment variable for Arrow's memory allocator, read once, when it is imported."""


def open_parquet(files: Sequence[tuple[Path, str]], options: TableOptions, *, stem: str | None = None) -> ArrowTable:
    """Open Parquet files of one table, each with its path for messages."""
    parquet = _import("pyarrow.parquet", "Parquet")
    return ArrowTable([_ParquetPart(parquet, path, label) for path, label in files], options, stem=stem or files[0][0].stem)


def open_arrow(files: Sequence[tuple[Path, str]], options: TableOptions, *, stem: str) -> ArrowTable:
    """Open Arrow files (streams or files of record batches) of one table."""
    arrow = _import("pyarrow", "Arrow")
    _import("pyarrow.ipc", "Arrow")
    return ArrowTable([_ArrowPart(arrow, path, label) for path, label in files], options, stem=stem)


def _import(module: str, what: str) -> Any:
    import importlib

    try:
        with _prefer_plain_memory():
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f"Reading {what} files", "data") from error


@contextmanager
def _prefer_plain_memory() -> Generator[None]:
    """Make Arrow use the system's memory allocator unless one was chosen: its own rarely returns memory."""
    if "pyarrow" in sys.modules or _POOL in os.environ:
        yield
        return
    os.environ[_POOL] = "system"
    try:
        yield
    finally:
        # Child processes choose for themselves.
        del os.environ[_POOL]


class _ParquetPart:
    def __init__(self, parquet: Any, path: Path, file: str) -> None:
        check_size(path, file, MAX_FILE)
        self.file = file
        self._parquet, self._path = parquet, path
        self._arrow = _import("pyarrow", "Parquet")
        try:
            # Opened again for every pass: an open file would hold its buffers.
            with parquet.ParquetFile(path) as opened:
                self.count: int = opened.metadata.num_rows
                self.columns = tuple(str(name) for name in opened.schema_arrow.names)
        except (OSError, ValueError) as error:
            raise refuse_at(file, None, f"no Parquet file that can be read: {error}", code="bad_parquet") from error

    def batches(self, columns: Sequence[str] | None) -> Iterator[Any]:
        """Yield the rows, a batch at a time."""
        names = None if columns is None else [name for name in columns if name in self.columns]
        try:
            # Nothing is mapped or read ahead: both would use more memory than the requested batch.
            with self._parquet.ParquetFile(self._path, memory_map=False, buffer_size=_READ_AT_ONCE, pre_buffer=False) as opened:
                yield from opened.iter_batches(batch_size=BATCH, columns=names, use_threads=False)
        except (OSError, ValueError) as error:
            raise refuse_at(self.file, None, f"this Parquet file cannot be read on: {error}", code="bad_parquet") from error
        finally:
            # Freed, because later steps need memory and the file is not read again.
            self._arrow.default_memory_pool().release_unused()


class _ArrowPart:
    """One Arrow file, as a stream or as a file with an index."""

    def __init__(self, arrow: Any, path: Path, file: str) -> None:
        check_size(path, file, MAX_FILE)
        self.file = file
        self._arrow, self._path = arrow, path
        self.columns: tuple[str, ...] = ()
        self.count = 0
        for batch in self._read():
            self.columns = tuple(str(name) for name in batch.schema.names)
            self.count += batch.num_rows

    def _read(self) -> Iterator[Any]:
        try:
            with self._arrow.memory_map(str(self._path)) as source:
                # Files with an index begin with these letters, streams do not.
                if source.read(6) == b"ARROW1":
                    source.seek(0)
                    reader = self._arrow.ipc.open_file(source)
                    yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
                else:
                    source.seek(0)
                    yield from self._arrow.ipc.open_stream(source)
        except (OSError, ValueError) as error:
            raise refuse_at(self.file, None, f"no Arrow file that can be read: {error}", code="bad_arrow") from error

    def batches(self, columns: Sequence[str] | None) -> Iterator[Any]:
        """Yield the rows, a batch at a time."""
        for batch in self._read():
            selected = batch if columns is None else batch.select([name for name in columns if name in self.columns])
            for start in range(0, batch.num_rows, BATCH):
                yield selected.slice(start, BATCH)


class ArrowTable:
    """One table in one or more files."""

    def __init__(self, parts: Sequence[_ParquetPart | _ArrowPart], options: TableOptions, *, stem: str) -> None:
        self._parts = parts
        self._limit = options.limit
        self._chosen: tuple[str, ...] | None = None
        for part in parts:
            if part.columns != parts[0].columns:
                raise InputError(f"{part.file}: its columns are not those of {parts[0].file}")
        names = parts[0].columns
        for position, name in enumerate(names):
            if name in names[:position]:
                raise refuse_at(parts[0].file, None, f"two columns are called {name!r}")
        total = sum(part.count for part in parts)
        if (total if options.limit is None else min(total, options.limit)) > MAX_ROWS:
            raise refuse_more_rows(parts[0].file, None)
        self.file, self.stem = parts[0].file, stem
        self.columns = parts[0].columns

    def choose_columns(self, names: Sequence[str]) -> None:
        """Read only these columns."""
        self._chosen = tuple(name for name in self.columns if name in names)

    def rows(self) -> Iterator[Row]:
        """Yield every row of every file."""
        rows_left = MAX_ROWS if self._limit is None else self._limit
        for part in self._parts:
            index = 0
            for batch in part.batches(self._chosen):
                for values in _decode_batch(batch, part.file, index)[:rows_left]:
                    yield self._make_row(values, part.file, index)
                    index += 1
                rows_left -= batch.num_rows
                if rows_left <= 0:
                    return

    def _make_row(self, values: dict[str, Any], file: str, index: int) -> Row:
        origin = Origin(file=file, line=index + 1, path=f"row {index + 1}")
        found: dict[str, Json] = {}
        for name, value in values.items():
            try:
                found[str(name)] = make_json(value)
            except ValueError as error:
                raise refuse_at(file, index + 1, f"column {name!r}: {error}", code="bad_cell", path=origin.path) from None
            if isinstance(value, str) and len(value) > MAX_FIELD:
                message = f"column {name!r} has {len(value):,} characters; the limit is {MAX_FIELD:,}"
                raise refuse_at(file, index + 1, message, code="too_large", path=origin.path)
        return Row(found, origin)


def _decode_batch(batch: Any, file: str, first: int) -> list[dict[str, Any]]:
    """Return the rows of a batch; raises `InputError` at the first cell that Python cannot represent."""
    try:
        return batch.to_pylist()
    except (ValueError, OverflowError):
        # A batch is decoded at once, which does not report the failing cell: each cell is tried only after an error.
        for number in range(batch.num_rows):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                try:
                    column[number].as_py()
                except (ValueError, OverflowError) as error:
                    place, message = first + number + 1, f"column {name!r}: {error}"
                    raise refuse_at(file, place, message, code="bad_cell", path=f"row {place}") from error
        raise
