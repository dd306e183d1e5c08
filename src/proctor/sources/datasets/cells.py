"""Reads the records of one partition as JSON, in batches, each with its position in the file.

A broken part is reported in its place and does not end the partition: the rest of an unreadable row group, the rest of a compressed file
that was cut off, a line that is too long to hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from proctor.errors import EvidenceError, ProctorError
from proctor.model.evidence import Json
from proctor.sources.datasets.columns import Cell, LostRows, choose_columns, list_ids, make_cells, read_lost_traces
from proctor.sources.datasets.files import DataFile, find_state, import_arrow, open_file
from proctor.sources.datasets.plan import Partition
from proctor.sources.datasets.rows import (
    EVERYTHING,
    LEFT_OUT,
    GroupFilter,
    RowChoice,
    drop_cells,
    drop_lines,
    read_extra_columns,
    read_extra_keys,
)
from proctor.sources.records import MAX_LINE_BYTES, iterate_whole_lines

ROWS_AT_ONCE = 1_024
"""Rows of Parquet that are decoded together."""
BYTES_AT_ONCE = 16 * 1024 * 1024
"""Approximate bytes per batch: fewer large records are decoded together."""
_BLOCK = 1 << 20
_UNPACKED_BLOCK = 1 << 16
"""Smaller for a compressed file: if it was cut off, a whole block is lost."""
_TOO_LONG = EvidenceError(f"a line longer than {MAX_LINE_BYTES // 2**20} MB", code="line_too_long")


class Cells(msgspec.Struct, frozen=True):
    """Consecutive records."""

    records: Sequence[Cell]
    """Each as JSON, or an error; an empty one is a blank line."""
    offsets: Sequence[int] | None = None
    """The offset of each line in its file, or in the decompressed data; empty for Parquet."""
    ids: Sequence[str | None] | None = None
    """The ids of the traces, if they have their own column."""
    extra: Sequence[tuple[Json, ...]] | None = None
    """Values of the requested extra columns, for each record."""
    lost: int = 0
    """Rows that the last record represents, if it is an error about several."""
    left_out: int = 0
    """Rows that `--where` excludes."""


class ChangedFile(ProctorError):
    """A file has changed since the partitions were planned."""


def read_cells(partition: Partition, column: str | None = None, choice: RowChoice = EVERYTHING) -> Iterator[Cells]:
    """Yield the records of a partition in order; an excluded record is empty.

    Raises `ChangedFile` where its file has changed before or while it was read.
    """
    file = partition.file
    if partition.broken is not None:
        yield Cells([EvidenceError(partition.broken, code="unreadable_file")], lost=partition.rows)
        return
    # Before and after: a file that changes during reading yields rows of two versions.
    _require_unchanged(file)
    cells = _read_parquet(partition, column, choice) if file.kind == "parquet" else _read_lines(partition, choice)
    yield from cells if partition.limit is None else _cut_cells(cells, partition.limit)
    _require_unchanged(file)


def _cut_cells(batches: Iterator[Cells], limit: int) -> Iterator[Cells]:
    for cells in batches:
        yield cells if len(cells.records) <= limit else msgspec.structs.replace(cells, records=cells.records[:limit])
        limit -= len(cells.records)
        if limit <= 0:
            return


def _require_unchanged(file: DataFile) -> None:
    try:
        state = find_state(file.root, file.path)
    except OSError as error:
        raise ChangedFile(f"{file.name}: it was there when the batch was planned, and cannot be read now: {error.strerror}") from error
    if state != (file.size, file.modified_ns):
        raise ChangedFile(f"{file.name}: it has changed since the batch was planned; give the command again")


def _read_parquet(partition: Partition, column: str | None, choice: RowChoice) -> Iterator[Cells]:
    parquet = import_arrow("pyarrow.parquet")
    file = partition.file
    with ExitStack() as stack:
        source = stack.enter_context(open_file(file.root, file.path))
        opened = stack.enter_context(
            parquet.ParquetFile(source, memory_map=False, pre_buffer=bool(file.root), page_checksum_verification=True)
        )
        schema = opened.schema_arrow
        columns = choose_columns(schema, column)
        column_names = list(dict.fromkeys((*columns.list_read(), *choice.list_extra_columns(schema))))
        chosen = None if choice.where is None else GroupFilter(source, schema, choice.where, file.path)
        for group in range(partition.start, partition.end):
            metadata = opened.metadata.row_group(group)
            rows_left: int = metadata.num_rows
            rows = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE * rows_left // max(1, metadata.total_byte_size)))
            try:
                keep = None if chosen is None else chosen.find_rows(group)
                if chosen is not None and keep is None:
                    yield Cells([LEFT_OUT] * rows_left, left_out=rows_left)
                    continue
                for batch in opened.iter_batches(rows, row_groups=[group], columns=column_names, use_threads=False):
                    cells = make_cells(batch, columns)
                    fitting = None if keep is None else keep.slice(metadata.num_rows - rows_left, batch.num_rows)
                    found = Cells(
                        cells if fitting is None else drop_cells(cells, fitting),
                        ids=list_ids(batch, columns),
                        extra=read_extra_columns(batch, choice.extra),
                        left_out=0 if fitting is None else batch.num_rows - fitting.true_count,
                    )
                    rows_left -= batch.num_rows
                    yield found
            except (OSError, ValueError, NotImplementedError) as error:  # the last one is for an encoding that pyarrow does not support
                why = f"{rows_left:,} rows of row group {group + 1} cannot be read: {error}"
                traces = read_lost_traces(opened, group, metadata.num_rows - rows_left) if columns.spans else None
                yield Cells([LostRows(why, code="unreadable_rows", traces=traces)], lost=rows_left)


def _read_lines(partition: Partition, choice: RowChoice) -> Iterator[Cells]:
    file = partition.file
    with open_file(file.root, file.path) as source:
        blocks = _Range(source, partition.start, partition.end) if file.codec is None else _Unpacked(source, file.codec)
        offset = blocks.first
        try:
            for block in iterate_whole_lines(blocks):
                if block is None:
                    yield Cells([_TOO_LONG], [offset])
                    # Only the byte counter knows the end position.
                    offset = blocks.next_line
                    continue
                records, offsets, start = [], [], 0
                while (end := block.find(b"\n", start)) >= 0:
                    records.append(block[start:end])
                    offsets.append(offset + start)
                    start = end + 1
                offset += len(block)
                remaining, left_out = records, 0
                if choice.where is not None:
                    records = drop_lines(remaining, choice.where, file.path, choice.names_seen)
                    # A blank line is empty like an excluded one, but is not counted as excluded.
                    left_out = sum(not record and bool(line) for line, record in zip(remaining, records, strict=True))
                yield Cells(records, offsets, extra=read_extra_keys(records, choice.extra), left_out=left_out)
        except (OSError, ValueError) as error:
            yield Cells([EvidenceError(f"the rest of the file cannot be read: {error}", code="unreadable_rows")], [offset])


class _Range:
    """The lines of a file that begin in a range of offsets."""

    def __init__(self, source: Any, start: int, end: int) -> None:
        self._source, self._end = source, end
        self._position = start
        self._over = False
        self.next_line = 0
        """The offset of the line after the last one that was too long."""
        if start:
            # A line that begins exactly at the start is included; check the byte before it.
            source.seek(start - 1)
            self._skip_line(start - 1)
        self.first = self._position

    def _skip_line(self, position: int) -> None:
        while block := self._source.read(_BLOCK):
            line_break = block.find(b"\n")
            if line_break >= 0:
                self._position = position + line_break + 1
                self._source.seek(self._position)
                break
            position += len(block)
            if position >= self._end:
                # The previous line continues beyond the range, so no line begins here.
                self._over = True
                return
        else:
            self._over = True
        self._over = self._over or self._position >= self._end

    def read1(self, size: int, /) -> bytes:
        if self._over:
            return b""
        block = self._source.read(_BLOCK)
        if not block:
            self._over = True
            return b""
        at_end = self._position + len(block)
        if at_end >= self._end:
            # The last line contains the last byte of the range; it ends here, or at the next line break.
            line_break = block.find(b"\n", max(0, self._end - 1 - self._position))
            if line_break >= 0:
                self._over = True
                block = block[: line_break + 1]
        line_break = block.find(b"\n")
        if line_break >= 0:
            self.next_line = self._position + line_break + 1
        self._position += len(block)
        return block


class _Unpacked:
    """The bytes of a compressed file, unpacked on demand."""

    def __init__(self, source: Any, codec: str) -> None:
        self._source = import_arrow("pyarrow").CompressedInputStream(source, codec)
        self._position = self.first = self.next_line = 0

    def read1(self, size: int, /) -> bytes:
        block: bytes = self._source.read(_UNPACKED_BLOCK)
        line_break = block.find(b"\n")
        if line_break >= 0:
            self.next_line = self._position + line_break + 1
        self._position += len(block)
        return block
