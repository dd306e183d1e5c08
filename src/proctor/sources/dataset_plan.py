"""Splits the files of a data set into partitions without reading the data: footers of Parquet, sizes of everything else.

A Parquet file is split between its row groups, a file of JSON lines at every so many bytes (a line belongs to the partition in which it
begins); a compressed file is one partition. A file that cannot be planned (cut off, without the column) is a partition as well, whose
result is one row that says so: one broken file among thousands keeps nobody from the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from proctor.errors import EvidenceError, InputError
from proctor.sources.dataset_columns import choose_columns
from proctor.sources.dataset_files import DataFile, import_arrow, open_file
from proctor.sources.dataset_rows import require_names
from proctor.sources.row_filter import Condition

PARTITION_BYTES = 64 * 1024 * 1024
"""About how many bytes a partition has: some seconds of work, and little to repeat where a process dies."""
LEAST_BYTES = 8 * 1024 * 1024
"""How small the partitions of a small data set become, so that there is work for every core."""
_WANTED = 32
"""Partitions that a data set should at least have."""
AT_ONCE = 8
"""Footers that are read at the same time: of an object store each takes a round trip or two."""


class Partition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of one file: the unit of work, of repetition and of commitment."""

    id: str
    """A digest of everything below: another file, another state of it or another part has another id."""
    file: DataFile
    start: int = 0
    """The first row group, or the first byte."""
    end: int = 0
    """The row group or the byte behind the last one."""
    first_row: int = 0
    """How many rows of the file stand before it (Parquet)."""
    broken: str | None = None
    """Why nothing of the file can be read, if so."""


def choose_partition_bytes(files: Sequence[DataFile]) -> int:
    """Return how large the partitions of a data set are to be."""
    return max(LEAST_BYTES, min(PARTITION_BYTES, sum(file.size for file in files) // _WANTED))


def plan_partitions(
    files: Sequence[DataFile], *, column: str | None = None, partition_bytes: int = PARTITION_BYTES, where: Condition | None = None
) -> list[Partition]:
    """Return the partitions of all files. Raises `InputError` where none of the files can be read.

    `where` is what is asked of their rows: a file that has not its columns cannot be read.
    """
    with ThreadPoolExecutor(AT_ONCE) as threads:
        parts = threads.map(lambda file: list(_plan_file(file, column, partition_bytes, where)), files)
        planned = [part for one in parts for part in one]
    if planned and all(part.broken is not None for part in planned):
        first = planned[0]
        more = f" (and {len(planned) - 1:,} more files)" if len(planned) > 1 else ""
        raise InputError(f"{first.file.name}: {first.broken}{more}")
    return planned


def _plan_file(file: DataFile, column: str | None, partition_bytes: int, where: Condition | None) -> Iterator[Partition]:
    if file.kind == "parquet":
        yield from _plan_parquet(file, column, partition_bytes, where)
    elif column is not None:
        yield _make_partition(file, broken="a file of JSON lines has no columns; leave out --column, or name only Parquet files")
    elif file.codec is not None:
        yield _make_partition(file, 0, file.size)
    else:
        for start in range(0, file.size, partition_bytes):
            yield _make_partition(file, start, min(start + partition_bytes, file.size))


def _plan_parquet(file: DataFile, column: str | None, partition_bytes: int, where: Condition | None) -> Iterator[Partition]:
    parquet = import_arrow("pyarrow.parquet")
    try:
        with open_file(file.root, file.path) as source, parquet.ParquetFile(source) as opened:
            choose_columns(opened.schema_arrow, column)
            require_names(where, opened.schema_arrow, file.path)
            groups = list(_list_groups(opened.metadata))
    except EvidenceError as error:
        yield _make_partition(file, broken=error.message)
        return
    except (OSError, ValueError) as error:
        yield _make_partition(file, broken=f"no Parquet file that can be read: {error}")
        return
    start = first_row = rows = size = 0
    for number, (group_rows, group_bytes) in enumerate(groups):
        if size and size + group_bytes > partition_bytes:
            yield _make_partition(file, start, number, first_row)
            start, first_row, size = number, rows, 0
        rows += group_rows
        size += group_bytes
    if rows > first_row:
        yield _make_partition(file, start, len(groups), first_row)


def _list_groups(metadata: Any) -> Iterator[tuple[int, int]]:
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        yield group.num_rows, group.total_byte_size


def _make_partition(file: DataFile, start: int = 0, end: int = 0, first_row: int = 0, *, broken: str | None = None) -> Partition:
    told = msgspec.json.encode((file, start, end, first_row, broken))
    return Partition(id=hashlib.sha256(told).hexdigest()[:24], file=file, start=start, end=end, first_row=first_row, broken=broken)
