"""Prints what was read of evidence, with `--explain` and `--evidence`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proctor.cli.show.output import Output
from proctor.cli.show.renderers import find_width, wants_colour
from proctor.errors import InputError
from proctor.model.run import RunEntry
from proctor.report.blocks.evidence_text import EvidencePainter, title_record
from proctor.report.words.neutral import to_one_line
from proctor.report.words.style import Style
from proctor.sources.records import Record

MOST_EXPLAINED = 20
"""Records explained by default."""


class Explainer:
    """Explains records of a stream."""

    def __init__(self, output: Output, *, no_color: bool, record: str | None = None) -> None:
        self._output = output
        self._painter = make_painter(output, no_color=no_color)
        self._record = record
        self._explained = 0
        self._passed_over = 0

    def explain_each(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield every record after explaining it. Raises `InputError` if the chosen one is missing."""
        for record in records:
            if self._record is None or is_chosen(record, self._record):
                self._explain(record)
            yield record
        if self._record is not None and not self._explained:
            raise InputError(f"--record {self._record!r}: no record has this line, id or case")
        if self._passed_over:
            self._output.write_text(f"… {self._passed_over:,} more records are not explained; --record LINE|ID chooses one\n\n")

    def _explain(self, record: Record) -> None:
        if self._explained == MOST_EXPLAINED:
            self._passed_over += 1
            return
        self._explained += 1
        title = title_record(record.source, record.evidence)
        if record.evidence is None:
            lines = self._painter.paint_unreadable(title, "no reason given" if record.error is None else record.error.message)
        else:
            lines = self._painter.paint_record(title, record.evidence)
        self._output.write_text("\n".join(lines) + "\n\n")


def is_chosen(record: Record, wanted: str) -> bool:
    """Return whether a record has this line, id or case."""
    source, evidence = record.source, record.evidence
    return wanted in (str(source.line), source.id, evidence.case if evidence is not None else None)


def explain_entry(painter: EvidencePainter, title: str, entry: RunEntry | None, reader: str) -> list[str]:
    """Return the lines about the evidence of one stored attempt."""
    if entry is None or entry.evidence is None:
        return [to_one_line(title, 300), "  no evidence was stored for this attempt"]
    return painter.paint_record(title, entry.evidence, reader)


def make_painter(output: Output, *, no_color: bool) -> EvidencePainter:
    """Return the painter for this output."""
    return EvidencePainter(Style(colour=wants_colour(output, no_color)), find_width(output))
