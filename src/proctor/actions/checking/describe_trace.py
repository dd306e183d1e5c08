"""What is in a file of recorded evidence and what was understood of it: `proctor describe trace FILE`.

Nothing is decided and no service is needed. OTLP traces are described by their spans; any evidence by its reader and the known parts.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from proctor.evidence.traces.survey import MOST_NAMED, Counted, TraceSurvey, survey_trace
from proctor.evidence.unknowns.account import find_known
from proctor.model.account import Known
from proctor.model.evidence import Evidence, Source
from proctor.model.mapping import DeclaredEvidence
from proctor.sources.records import Record, read_records

if TYPE_CHECKING:
    from proctor.evidence.otlp.spans import Span

MOST_RECORDS = 200
"""How many records of a file are described; the rest is counted."""


class RecordDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What was understood of one record."""

    source: Source
    known: Known | None = None
    """The known parts; nothing if it could not be read."""
    evidence: Evidence | None = None
    trace: TraceSurvey | None = None
    """What it is made of, where it is a trace in OTLP."""
    error: str | None = None
    """Why it could not be read."""


class FileDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What was understood of a file."""

    file: str
    records: tuple[RecordDescription, ...]
    more: int = 0
    """How many records are not described."""
    unreadable: int = 0
    """How many of all records could not be read."""
    not_understood: tuple[Counted, ...] = ()
    """Attributes that no reader uses, over all traces that are described."""


def describe_trace(path: str, *, format: str | None = None, declared: DeclaredEvidence | None = None) -> FileDescription:
    """Return what is in a file, a folder or, for `-`, in standard input."""
    held: dict[str, tuple[Source, list[Span]]] = {}

    def hold(source: Source, spans: list[Span]) -> None:
        held["trace"] = (source, spans)

    described: list[RecordDescription] = []
    more = unreadable = 0
    for record in read_records([path], format=format, declared=declared, on_trace=hold):
        source, spans = held.pop("trace", (None, None))
        unreadable += record.evidence is None
        if len(described) < MOST_RECORDS:
            described.append(_describe_record(record, spans if source is record.source else None))
        else:
            more += 1
    return FileDescription(file=path, records=tuple(described), more=more, unreadable=unreadable, not_understood=_together(described))


def _describe_record(record: Record, spans: list[Span] | None) -> RecordDescription:
    evidence = record.evidence
    if evidence is None:
        return RecordDescription(source=record.source, error="unreadable" if record.error is None else record.error.message)
    trace = survey_trace(spans) if spans else None
    return RecordDescription(source=record.source, known=find_known(evidence), evidence=evidence, trace=trace)


def _together(records: list[RecordDescription]) -> tuple[Counted, ...]:
    """Attributes that no reader uses over all traces, in the order in which each trace names them."""
    counts: Counter[str] = Counter()
    for record in records:
        for entry in record.trace.not_understood if record.trace is not None else ():
            counts[entry.name] += entry.count
    return tuple(Counted(name, count) for name, count in list(counts.items())[:MOST_NAMED])
