"""Gathers the spans of one partition and sorts them into shares by trace, to be decided later; one spill file per partition."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from proctor.batches.slicer import write_value
from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span, find_lost_traces, mark_lost_spans
from proctor.evidence.values.json_bytes import decode
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import decode_any_json, encode_any_json
from proctor.model.typed import convert_to, make_json_decoder, make_msgpack_decoder
from proctor.sources.datasets.cells import Cells, read_cells
from proctor.sources.datasets.columns import LostRows
from proctor.sources.datasets.files import import_arrow
from proctor.sources.datasets.plan import Partition
from proctor.sources.datasets.rows import RowChoice, read_folder_keys
from proctor.sources.records import MAX_LINE_BYTES, RecordReader
from proctor.sources.span_lines import is_metrics

MAX_TRACE_BYTES = MAX_LINE_BYTES
"""The maximum size of a trace, the same as that of a record."""
MOST_BUFFERED_BYTES = 32 * 1024 * 1024
"""Maximum bytes that a writer buffers in memory."""
MOST_BYTES_PER_PASS = 128 * 1024 * 1024
"""Maximum bytes of a share that a reader loads at once; a larger share is read in several passes."""
ERRORS = -1
"""The share number of errors in the index."""
EVERYWHERE = -2
"""The share number of lost spans whose traces are unknown."""


Extra = tuple[str | None, ...] | None
"""The extra values by which a batch is sliced, as text; None if there are none."""


class SpilledSpan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One span, with its place."""

    trace: str
    row: int | None
    offset: int | None
    run: int
    """Which trace of its record it belongs to, from 0."""
    span: bytes
    """As JSON; empty if `lost` has a reason."""
    extra: Extra = None
    lost: str | None = None
    """Where and why a span of the trace could not be read."""
    file: int = 0
    """The number of its file in its partition."""


class GatheredError(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An error while spans were gathered."""

    file: str
    row: int | None
    offset: int | None
    code: str
    reason: str
    rows: int = 1

    def describe_loss(self) -> str:
        """Return the reason for a verdict on a trace that may lack these spans."""
        row = "" if self.row is None else f", row {self.row}"
        place = f", byte {self.offset}" if self.row is None and self.offset is not None else row
        return f"{self.file}{place} could not be read and may hold spans of this trace: {self.reason}"


class Segment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A range of bytes in a file."""

    share: int
    start: int
    packed: int
    size: int


class GatheredTrace(msgspec.Struct):
    """A trace with all of its spans, and the place of the first of them."""

    trace: str
    source: int
    row: int | None
    offset: int | None
    run: int
    extra: Extra = None
    """For each name, the value of the first span that has one."""
    size: int = 0
    spans: list[bytes] = []
    lost: str | None = None
    """The first reason why it may lack spans, if any."""
    file: int = 0
    """The number of its file in `source`."""

    def read_evidence(self, parts: Collection[Part] | None = None) -> list[Evidence]:
        """Return a list of one evidence or none, limited to `parts`; incomplete parts are unknown. Raises `EvidenceError`."""
        from proctor.evidence.traces.read_otlp import read_batches  # a third of the imports of a worker, and most have no spans to read

        listed = read_batches([[_read_span(span) for span in self.spans]], parts)
        return listed if self.lost is None else [mark_lost_spans(evidence, self.lost) for evidence in listed]


_span_decoder = make_json_decoder(Span)
_spans_decoder = make_msgpack_decoder(list[SpilledSpan])
_ERRORS = make_msgpack_decoder(list[GatheredError])
_LOSSES = make_msgpack_decoder(list[str])
_INDEX = make_msgpack_decoder(list[Segment])
_encode = msgspec.msgpack.Encoder().encode


def digest_trace(trace: str) -> int:
    """Return the number that decides which share a trace belongs to."""
    # Not `hash`, which differs between processes: workers would put the spans of one trace into several shares.
    return int.from_bytes(hashlib.blake2b(trace.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _read_span(data: bytes) -> Span:
    try:
        return _span_decoder.decode(data)
    except msgspec.MsgspecError:
        # The fast decoder may reject what the slow encoder wrote.
        return convert_to(decode_any_json(data), Span)


class SpillWriter:
    """Sorts the spans of one partition into shares."""

    def __init__(self, path: Path, shares: int) -> None:
        self.path, self._shares = path, shares
        self.file = 0
        self._file = path.open("wb")
        self._codec = import_arrow("pyarrow").Codec("zstd")
        self._index: list[Segment] = []
        self._buffered: dict[int, list[Any]] = {}
        self._size = self._position = 0
        self._lost_everywhere: str | None = None

    def add_record(self, spans: Sequence[Span], row: int | None, offset: int | None, extra: Extra = None) -> None:
        """Add the spans of one record."""
        runs: dict[str, int] = {}
        for span in spans:
            run = runs.setdefault(span.trace_id, len(runs))
            data = encode_any_json(span)
            item = SpilledSpan(span.trace_id, row, offset, run, data, extra, None, self.file)
            self._buffer(digest_trace(span.trace_id) % self._shares, item, len(data))

    def add_error(self, error: GatheredError, traces: frozenset[str] | None = None) -> None:
        """Add an error about spans of these traces; None means that it may affect any trace."""
        self._buffer(ERRORS, error, len(error.reason) + 100)
        if traces is None:
            self._lost_everywhere = self._lost_everywhere or error.describe_loss()
        for trace in sorted(traces or ()):
            lost = SpilledSpan(trace, error.row, error.offset, 0, b"", None, error.describe_loss())
            self._buffer(digest_trace(trace) % self._shares, lost, len(error.reason) + 100)

    def _buffer(self, share: int, value: Any, size: int) -> None:
        self._buffered.setdefault(share, []).append(value)
        self._size += size
        if self._size > MOST_BUFFERED_BYTES:
            self._flush()

    def _flush(self) -> None:
        for share in sorted(self._buffered):
            data = _encode(self._buffered[share])
            packed = self._codec.compress(data, asbytes=True)
            self._file.write(packed)
            self._index.append(Segment(share, self._position, len(packed), len(data)))
            self._position += len(packed)
        self._buffered.clear()
        self._size = 0

    def finish(self) -> Path:
        """Write the remaining spans and the index; returns the file."""
        if self._lost_everywhere is not None:
            self._buffer(EVERYWHERE, self._lost_everywhere, len(self._lost_everywhere))
        self._flush()
        index = _encode(self._index)
        self._file.write(index + len(index).to_bytes(8, "big"))
        self._file.close()
        return self.path

    def close(self) -> None:
        """Close the file, complete or not."""
        self._file.close()


class Spills:
    """The spill files of all partitions."""

    def __init__(self, openers: Sequence[Callable[[], Any]]) -> None:
        """Each of `openers` opens one file."""
        self._openers = openers

    def read_errors(self) -> Iterator[GatheredError]:
        """Yield the errors of all partitions."""
        for _, data in self._read_segments(self._list_segments(ERRORS, EVERYWHERE)[0]):
            yield from _ERRORS.decode(data)

    def read_share(self, share: int, shares: int) -> Iterator[GatheredTrace]:
        """Yield the traces of one share, each with all of its spans."""
        segments, lost = self._list_segments(share, EVERYWHERE)
        size = sum(segment.size for listed in segments for segment in listed)
        passes = max(1, math.ceil(size / MOST_BYTES_PER_PASS))
        lost_everywhere = next((loss for _, data in self._read_segments(lost) for loss in _LOSSES.decode(data)), None)
        for number in range(passes):
            # All digests of a share have the same remainder modulo `shares`, so the quotient decides the pass.
            for trace in self._read_pass(segments, lambda trace, number=number: digest_trace(trace) // shares % passes == number):
                trace.lost = trace.lost or lost_everywhere
                yield trace

    def _read_pass(self, segments: list[list[Segment]], is_wanted: Callable[[str], bool]) -> Iterator[GatheredTrace]:
        traces: dict[str, GatheredTrace | None] = {}
        for number, data in self._read_segments(segments):
            for item in _spans_decoder.decode(data):
                trace = traces.get(item.trace)
                if trace is None:
                    if item.trace in traces or not is_wanted(item.trace):
                        # Remembered, so that the digest of an unwanted trace is computed once per pass, not for each of its spans.
                        traces[item.trace] = None
                        continue
                    trace = traces[item.trace] = GatheredTrace(item.trace, number, item.row, item.offset, item.run, item.extra)
                elif trace.extra is not None and item.extra is not None and None in trace.extra:
                    trace.extra = tuple([a if a is not None else b for a, b in zip(trace.extra, item.extra, strict=True)])
                if item.lost is not None:
                    trace.lost = trace.lost or item.lost
                    continue
                if not trace.size:
                    # Its place is that of the first readable span.
                    trace.source, trace.row, trace.offset, trace.run, trace.extra = number, item.row, item.offset, item.run, item.extra
                    trace.file = item.file
                trace.size += len(item.span)
                if trace.size <= MAX_TRACE_BYTES:
                    trace.spans.append(item.span)
                else:
                    # Its spans are dropped, but its size is still counted, which marks it as too large.
                    trace.spans.clear()
        # A trace without a readable span is reported by its errors.
        yield from (trace for trace in traces.values() if trace is not None and trace.size)

    def _list_segments(self, share: int, also: int) -> tuple[list[list[Segment]], list[list[Segment]]]:
        """Return the segments of two shares in every file; the indexes of all shares would not fit into memory."""
        listed: tuple[list[list[Segment]], list[list[Segment]]] = ([], [])
        for open_spill in self._openers:
            with open_spill() as file:
                end = file.size() - 8
                file.seek(end)
                length = int.from_bytes(file.read(8), "big")
                file.seek(end - length)
                index = _INDEX.decode(file.read(length))
            for segments, wanted in zip(listed, (share, also), strict=True):
                segments.append([segment for segment in index if segment.share == wanted])
        return listed

    def _read_segments(self, listed: list[list[Segment]]) -> Iterator[tuple[int, bytes]]:
        codec = import_arrow("pyarrow").Codec("zstd")
        for number, segments in enumerate(listed):
            if not segments:
                continue
            with self._openers[number]() as file:
                for segment in segments:
                    file.seek(segment.start)
                    yield number, codec.decompress(file.read(segment.packed), segment.size, asbytes=True)


_NO_SPANS = EvidenceError("no spans, while the first record of the file has some", code="not_spans")


def gather_spans(reader: RecordReader, partition: Partition, column: str | None, choice: RowChoice, spill: SpillWriter) -> int:
    """Gather every span of a partition; returns the number of records. Raises `ChangedFile` and `OSError`."""
    gathering = _Gathering(reader, partition, choice, spill)
    for cells in read_cells(partition, column, choice):
        gathering.gather_cells(cells)
    return gathering.records


class _Gathering:
    def __init__(self, reader: RecordReader, partition: Partition, choice: RowChoice, spill: SpillWriter) -> None:
        self._reader, self._spill = reader, spill
        keys = read_folder_keys(partition.file.path)
        self._from_folders = [keys.get(name) for name in choice.extra]
        self._file, self._row = partition.file.name, partition.first_row
        # As in `worker.py`: after the first part of a file of lines, the place is the byte offset.
        self._counts_rows = partition.broken is None and (partition.file.kind != "lines" or partition.start == 0)
        self.records = 0

    def gather_cells(self, cells: Cells) -> None:
        """Gather the spans of some records."""
        for number, record in enumerate(cells.records):
            self._row += 1
            offset = None if cells.offsets is None else cells.offsets[number]
            if type(record) is not bytes:
                assert isinstance(record, EvidenceError)
                self._note_error(record, offset, record.traces if isinstance(record, LostRows) else None, cells.lost or 1)
            elif record and not record.isspace():
                self.records += 1
                self._gather_record(record, offset, None if cells.extra is None else self._write_extra(cells.extra[number]))
        self._row += max(0, cells.lost - 1)

    def _write_extra(self, values: tuple[Json, ...]) -> Extra:
        """Return the values by which a trace is sliced: keys of folders first, as everywhere."""
        pairs = zip(self._from_folders, values, strict=True)
        return tuple([write_value(value) if key is None else key for key, value in pairs])

    def _gather_record(self, record: bytes, offset: int | None, extra: Extra) -> None:
        try:
            spans = self._reader.find_spans(record)
        except EvidenceError as error:
            self._note_error(error, offset, find_lost_traces(record))
            return
        if spans is None and is_metrics(record):
            return
        if spans is None:
            self._note_error(_NO_SPANS, offset, find_lost_traces(record, readable=self._is_json(record)))
        else:
            self._spill.add_record(spans, self._show_row(), offset, extra)

    def _is_json(self, record: bytes) -> bool:
        try:
            decode(record)
        except EvidenceError:
            return False
        return True

    def _show_row(self) -> int | None:
        return self._row if self._counts_rows else None

    def _note_error(self, error: EvidenceError, offset: int | None, traces: frozenset[str] | None, rows: int = 1) -> None:
        reason = error.message.encode("utf-8", "replace").decode()
        self._spill.add_error(GatheredError(self._file, self._show_row(), offset, error.code, reason, rows), traces)
