"""Gathers the spans of one partition: every record is read as spans and handed to the spill, which sorts them by trace."""

from __future__ import annotations

from proctor.batches.slices.slicer import write_value
from proctor.batches.spans.spill import Beside, GatheredError, SpillWriter
from proctor.errors import EvidenceError
from proctor.evidence.otlp.merging import find_lost_traces
from proctor.evidence.values.json_bytes import decode
from proctor.model.evidence import Json
from proctor.sources.datasets.cells import Cells, read_cells
from proctor.sources.datasets.folder_keys import read_folder_keys
from proctor.sources.datasets.plan import Partition
from proctor.sources.datasets.rows import RowChoice
from proctor.sources.datasets.unreadable_rows import LostRows
from proctor.sources.records import RecordReader
from proctor.sources.span_lines import is_metrics

_NO_SPANS = EvidenceError("no spans, while the first record of the file has some", code="not_spans")


def gather_spans(reader: RecordReader, partition: Partition, column: str | None, choice: RowChoice, spill: SpillWriter) -> int:
    """Gather every span of a partition; returns how many records there were. Raises `ChangedFile` and `OSError`."""
    gathering = _Gathering(reader, partition, choice, spill)
    for cells in read_cells(partition, column, choice):
        gathering.gather_cells(cells)
    return gathering.records


class _Gathering:
    """One partition while it is gathered."""

    def __init__(self, reader: RecordReader, partition: Partition, choice: RowChoice, spill: SpillWriter) -> None:
        self._reader, self._spill = reader, spill
        keys = read_folder_keys(partition.file.path)
        self._from_folders = [keys.get(name) for name in choice.beside]
        self._file, self._row = partition.file.name, partition.first_row
        # As in `worker.py`: behind the first part of a file of lines only the byte tells the place.
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
                self._gather_record(record, offset, None if cells.beside is None else self._write_beside(cells.beside[number]))
        self._row += max(0, cells.lost - 1)

    def _write_beside(self, values: tuple[Json, ...]) -> Beside:
        """Return what a trace is sliced by: keys of folders first, as everywhere."""
        told = zip(self._from_folders, values, strict=True)
        return tuple([write_value(value) if key is None else key for key, value in told])

    def _gather_record(self, record: bytes, offset: int | None, beside: Beside) -> None:
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
            self._spill.add_record(spans, self._show_row(), offset, beside)

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
