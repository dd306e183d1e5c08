"""Splits the files of a data set into partitions without reading the data: Parquet footers, sizes and beginnings of other files.

A Parquet file is split between its row groups, a file of JSON lines at fixed byte offsets (a line belongs to the partition in which it
begins); a compressed file is one partition. A file that cannot be planned (cut off, without the column) is a partition too, with one
error row as its result: one broken file among thousands does not stop the others. Small files are merged into one partition.

If records are spans, the partitions are only gathered; then shares of the traces are decided, by a digest of their ids.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from proctor.errors import EvidenceError, InputError
from proctor.report.words.wording import count_noun
from proctor.sources.datasets.columns import ALL_COLUMNS, NoSpansHere, choose_columns
from proctor.sources.datasets.files import DataFile, import_arrow, open_file
from proctor.sources.datasets.row_filter import Condition
from proctor.sources.datasets.rows import require_names
from proctor.sources.span_lines import SPAN_FORMATS, begins_with_spans

PARTITION_BYTES = 64 * 1024 * 1024
"""Approximate bytes of a partition: some seconds of work, and little to repeat if a process dies."""
LEAST_BYTES = 1024 * 1024
"""Minimum partition bytes of a small data set, so that all cores have work: some tenths of a second in Parquet."""
_WANTED = 32
"""Minimum number of partitions to aim for."""
MOST_FILES = 50
"""Maximum small files per merged partition: in an object store each takes several requests."""
MOST_SHARES = 4_096
"""Maximum shares of gathered spans: deciding one opens the gathered part of every partition."""
_LEAST_SHARE = 4_096
_GROWTH = {"": 1, "parquet": 6, "gzip": 8, "zstd": 8}
"""Approximate bytes of spans per byte of a file."""
_HEAD_BYTES = 64 * 1024
"""Bytes of a file of lines that are read to recognise spans."""
_LONG_HEAD_BYTES = 4 * 1024 * 1024
"""Bytes read if the first line is longer: the keys of a span may be at its end."""
AT_ONCE = 32
"""Footers read concurrently: in an object store each takes a round trip or two."""


class Partition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of one file, or several small files: the unit of work, of repetition and of commitment."""

    id: str
    """A digest of all fields below: another file, version or part has another id."""
    file: DataFile
    start: int = 0
    """The first row group, or the first byte."""
    end: int = 0
    """The row group or the byte after the last one."""
    first_row: int = 0
    """The number of rows of the file before it (Parquet)."""
    broken: str | None = None
    """Why the file cannot be read, if so."""
    rows: int = 0
    """Number of rows, if a footer has it."""
    limit: int | None = None
    """The number of records to read, if not all."""
    spans: bool = False
    """Whether its records are parts of traces, which are gathered before anything is decided."""
    parts: tuple[Partition, ...] = ()
    """The small files that are merged into it, one part for each."""

    def list_parts(self) -> tuple[Partition, ...]:
        """Return its parts of single files."""
        return self.parts or (self,)


def choose_partition_bytes(files: Sequence[DataFile]) -> int:
    """Return the partition size for a data set."""
    return max(LEAST_BYTES, min(PARTITION_BYTES, sum(file.size for file in files) // _WANTED))


def plan_partitions(
    files: Sequence[DataFile],
    *,
    column: str | None = None,
    evidence_format: str | None = None,
    partition_bytes: int = PARTITION_BYTES,
    where: Condition | None = None,
    known: Mapping[DataFile, Sequence[Partition]] | None = None,
) -> list[Partition]:
    """Return the partitions of all files; `known` ones are not opened. Raises `InputError` if no file can be read.

    `where` is the filter of their rows: a file without its columns cannot be read.
    """
    wanted = _Wanted(column, evidence_format, partition_bytes, where, set(), set())

    def plan(file: DataFile) -> Sequence[Partition]:
        previous = (known or {}).get(msgspec.structs.replace(file, name=""))
        return [msgspec.structs.replace(part, file=file) for part in previous] if previous else list(_plan_file(file, wanted))

    with ThreadPoolExecutor(AT_ONCE) as threads:
        # `map` yields results in the order of the files, whichever footer arrives first.
        planned = [part for parts in threads.map(plan, files) for part in parts]
    if planned and all(part.broken is not None for part in planned):
        first = planned[0]
        omitted = f" (and {len(planned) - 1:,} more files)" if len(planned) > 1 else ""
        raise InputError(f"{first.file.name}: {first.broken}{omitted}")
    return [_gather_unread(part, wanted) for part in planned] if any(part.spans for part in planned) else planned


def _gather_unread(part: Partition, wanted: _Wanted) -> Partition:
    """Return an unreadable part of a file as a part with spans: among files of spans it may contain some of any trace."""
    if part.spans or part.file in wanted.without_spans or (part.broken is None and part.file not in wanted.unread):
        return part
    return _make_partition(part.file, part.start, part.end, part.first_row, broken=part.broken, spans=True, rows=part.rows)


def merge_small_files(planned: Sequence[Partition], partition_bytes: int, before: Sequence[Partition] = ()) -> list[Partition]:
    """Return the partitions with small files merged, each at the position of its first file.

    Partitions of an earlier plan (`before`) whose files have not changed stay as they are: they may have a result.
    """
    known = {part.id for part in planned}
    earlier = {part.id: old for old in before if all(part.id in known for part in old.list_parts()) for part in old.list_parts()}
    parts_of_file = Counter(part.file for part in planned)
    most_bytes, most_files = min(partition_bytes, PARTITION_BYTES), min(MOST_FILES, len(planned) // _WANTED)
    groups: dict[str, list[Partition]] = {}
    filling: dict[bool, tuple[str, int]] = {}
    for part in planned:
        key = earlier[part.id].id if part.id in earlier else part.id
        if part.id not in earlier and parts_of_file[part.file] == 1:
            size = part.file.size * _GROWTH[part.file.codec or ""]
            group, filled = filling.get(part.spans, ("", most_bytes))
            if filled + size <= most_bytes and len(groups[group]) < most_files:
                key, size = group, filled + size
            filling[part.spans] = key, size
        groups.setdefault(key, []).append(part)
    return [parts[0] if len(parts) == 1 else earlier.get(parts[0].id) or _merge(parts) for parts in groups.values()]


def _merge(parts: Sequence[Partition]) -> Partition:
    name = f"{parts[0].file.name} and {count_noun(len(parts) - 1, 'more file')}"
    file = DataFile(name=name, path="", size=sum(part.file.size for part in parts), modified_ns=0, kind="merged")
    id = hashlib.sha256(msgspec.json.encode([part.id for part in parts])).hexdigest()[:24]
    return Partition(id=id, file=file, spans=parts[0].spans, parts=tuple(parts))


def plan_shares(sources: Sequence[Partition], partition_bytes: int, count: int | None = None) -> list[Partition]:
    """Return the shares in which the traces of gathered spans are decided, of about this size; `count` is the earlier number of shares."""
    if not sources:
        return []
    files = {(source.file.root, source.file.path): source.file for source in sources}
    size = sum(file.size * _GROWTH["parquet" if file.kind == "parquet" else file.codec or ""] for file in files.values())
    count = count or max(1, min(MOST_SHARES, -(-size // max(partition_bytes, _LEAST_SHARE))))
    description = f"{count_noun(len(files), 'file')} of spans"
    ids = [source.id for source in sources]
    shares: list[Partition] = []
    for number in range(count):
        file = DataFile(name=f"{description}, share {number + 1} of {count}", path="", size=0, modified_ns=0, kind="spans")
        key = msgspec.json.encode((ids, number, count))
        shares.append(Partition(id=hashlib.sha256(key).hexdigest()[:24], file=file, start=number, end=count))
    return shares


class _Wanted(NamedTuple):
    column: str | None
    evidence_format: str | None
    partition_bytes: int
    where: Condition | None
    unread: set[DataFile]
    """Files of lines with an unreadable beginning."""
    without_spans: set[DataFile]
    """Readable files without spans."""


def _plan_file(file: DataFile, wanted: _Wanted) -> Iterator[Partition]:
    if file.fault is not None:
        yield _make_partition(file, broken=file.fault)
        return
    if file.kind == "parquet":
        yield from _plan_parquet(file, wanted)
        return
    if wanted.column not in (None, ALL_COLUMNS):
        yield _make_partition(file, broken="a file of JSON lines has no columns; leave out --column, or name only Parquet files")
        return
    try:
        source = open_file(file.root, file.path)
    except OSError as error:
        # An error row: in a merged partition it would prevent a result for the other files.
        yield _make_partition(file, broken=f"it cannot be read: {error}")
        return
    try:
        spans = begins_with_spans(_read_head(file, source), wanted.evidence_format)
    except (OSError, ValueError):
        # Reading the file reports the error.
        spans = None if wanted.evidence_format is None else wanted.evidence_format in SPAN_FORMATS
    if spans is None:
        wanted.unread.add(file)
    if file.codec is not None:
        yield _make_partition(file, 0, file.size, spans=bool(spans))
        return
    for start in range(0, file.size, wanted.partition_bytes):
        yield _make_partition(file, start, min(start + wanted.partition_bytes, file.size), spans=bool(spans))


def _read_head(file: DataFile, source: Any) -> bytes:
    with source:
        blocks = source if file.codec is None else import_arrow("pyarrow").CompressedInputStream(source, file.codec)
        head: bytes = blocks.read(_HEAD_BYTES)
        return head if b"\n" in head or len(head) < _HEAD_BYTES else head + blocks.read(_LONG_HEAD_BYTES)


def _plan_parquet(file: DataFile, wanted: _Wanted) -> Iterator[Partition]:
    parquet = import_arrow("pyarrow.parquet")
    all_rows = 0
    try:
        with open_file(file.root, file.path) as source, parquet.ParquetFile(source) as opened:
            all_rows = opened.metadata.num_rows
            columns = choose_columns(opened.schema_arrow, wanted.column)
            require_names(wanted.where, opened.schema_arrow, file.path)
            row_groups = map(opened.metadata.row_group, range(opened.metadata.num_row_groups))
            groups = [(group.num_rows, group.total_byte_size) for group in row_groups]
    except EvidenceError as error:
        if isinstance(error, NoSpansHere):
            wanted.without_spans.add(file)
        yield _make_partition(file, broken=error.message, rows=all_rows)
        return
    except (OSError, ValueError) as error:
        yield _make_partition(file, broken=f"no Parquet file that can be read: {error}")
        return
    spans = columns.spans if wanted.evidence_format is None else wanted.evidence_format in SPAN_FORMATS
    start = first_row = rows = size = 0
    for number, (group_rows, group_bytes) in enumerate(groups):
        # A row group is never split: one that is larger than a partition is its own partition.
        if size and size + group_bytes > wanted.partition_bytes:
            yield _make_partition(file, start, number, first_row, spans=spans, rows=rows - first_row)
            start, first_row, size = number, rows, 0
        rows += group_rows
        size += group_bytes
    if rows > first_row:
        yield _make_partition(file, start, len(groups), first_row, spans=spans, rows=rows - first_row)


def _make_partition(
    file: DataFile, start: int = 0, end: int = 0, first_row: int = 0, *, broken: str | None = None, spans: bool = False, rows: int = 0
) -> Partition:
    # Without the name: a folder under another path is the same data set.
    key = msgspec.json.encode((msgspec.structs.replace(file, name=""), start, end, first_row, broken, *(["spans"] if spans else [])))
    id = hashlib.sha256(key).hexdigest()[:24]
    return Partition(id=id, file=file, start=start, end=end, first_row=first_row, broken=broken, spans=spans, rows=rows)
