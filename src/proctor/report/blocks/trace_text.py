"""What a file of recorded evidence is made of, as text for people and as plain data for machines.

What this room may see of a description is its parts, not the action that makes it: actions stand above reports.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.evidence.traces.survey import Counted, TraceSurvey
from proctor.evidence.unknowns.account import write_known
from proctor.model.account import Known
from proctor.model.evidence import Evidence, Json, Source
from proctor.report.blocks.evidence_text import EvidencePainter
from proctor.report.words.neutral import to_lines, to_one_line
from proctor.report.words.style import Style, pad, wrap
from proctor.report.words.wording import count_noun, evidence_place

_LABEL = 16
"""Columns of the labels on the left."""
_MOST_LISTED = 12
"""Names with their counts in one line."""


class TracePainter:
    """Lines about records, for one width and one choice of colour."""

    def __init__(self, style: Style, width: int) -> None:
        self._style = style
        self._width = width
        self._evidence = EvidencePainter(style, width)

    def paint_unreadable(self, source: Source, error: str) -> list[str]:
        """Return the lines about a record that could not be read."""
        first, *rest = to_lines(error)
        return [
            self._paint_title(source),
            *self._paint_labelled("unreadable", first),
            *(line for more in rest for line in self._paint_labelled("", more)),
        ]

    def paint_record(self, source: Source, known: Known, evidence: Evidence, trace: TraceSurvey | None) -> list[str]:
        """Return the lines about one record: what it is made of, and what is known of its parts."""
        lines = [self._paint_title(source), *self._paint_labelled("read as", to_one_line(known.reader))]
        if trace is not None:
            lines += self._paint_survey(trace)
        if evidence.turns:
            lines += self._paint_labelled("turns", str(len(evidence.turns)))
        if evidence.model is not None:
            lines += self._paint_labelled("model", to_one_line(evidence.model))
        if evidence.no_run is not None:
            lines += self._paint_labelled("no run", f"{to_one_line(evidence.no_run, 400)}: it is kept and not judged")
        return [*lines, "", *self._evidence.paint_parts(known)]

    def paint_unused_attributes(self, unknown: Sequence[Counted]) -> list[str]:
        """Return the lines about attributes that no reader uses, over all traces of a file."""
        if not unknown:
            return []
        lines = [self._style.paint("Attributes nobody understood, over all traces", "bold")]
        width = max(len(to_one_line(entry.name)) for entry in unknown)
        return [*lines, *(f"  {pad(to_one_line(entry.name), width)}  {count_noun(entry.count, 'time')}" for entry in unknown)]

    def _paint_survey(self, trace: TraceSurvey) -> list[str]:
        without = trace.requests - trace.requests_with_content
        requests = f"{trace.requests:,}: {trace.requests_with_content:,} with content, {without:,} without" if trace.requests else "none"
        rows = [
            ("conventions", _list_counts(trace.conventions) or "none that is known"),
            ("scopes", _list_counts(trace.scopes)),
            ("spans", f"{trace.spans:,}: {_list_counts(trace.kinds)}"),
            ("model requests", requests),
            ("tool spans", _list_counts(trace.tools) or "none"),
            ("conversations", _list_names(trace.conversations) or "none named"),
            ("not understood", _list_counts(trace.not_understood) or "nothing"),
            ("in messages", _list_names(trace.strange)),
            ("lost", _list_names(trace.lost)),
            ("vocabularies", f"unknown: {_list_counts(trace.vocabularies)}" if trace.vocabularies else ""),
        ]
        return [line for label, text in rows if text for line in self._paint_labelled(label, text)]

    def _paint_title(self, source: Source) -> str:
        return self._style.paint(to_one_line(evidence_place(source) or "evidence", 300), "bold")

    def _paint_labelled(self, label: str, text: str) -> list[str]:
        first, *rest = wrap(text, max(20, self._width - 2 - _LABEL)) or [""]
        return ["  " + self._style.paint(pad(label, _LABEL), "dim") + first, *(" " * (2 + _LABEL) + line for line in rest)]


def _list_counts(entries: Sequence[Counted]) -> str:
    shown = ", ".join(f"{to_one_line(entry.name)} ({entry.count:,})" for entry in entries[:_MOST_LISTED])
    rest = len(entries) - _MOST_LISTED
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def _list_names(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_LISTED
    return ", ".join(to_one_line(name) for name in names[:_MOST_LISTED]) + (f" and {rest:,} more" if rest > 0 else "")


def record_document(
    source: Source, known: Known | None, evidence: Evidence | None, trace: TraceSurvey | None, error: str | None
) -> dict[str, Json]:
    """Return one record as plain data."""
    document: dict[str, Json] = {"file": source.file, "line": source.line, "id": source.id}
    if error is not None:
        document["error"] = error
    if known is not None:
        document["account"] = write_known(known)
    if evidence is not None:
        document |= {"case": evidence.case, "model": evidence.model, "no_run": evidence.no_run, "turns": len(evidence.turns or ()) or None}
    if trace is not None:
        document["trace"] = survey_document(trace)
    return document


def survey_document(trace: TraceSurvey) -> dict[str, Json]:
    """Return what a trace is made of as plain data: counts by name."""
    document: dict[str, Json] = msgspec.structs.asdict(trace)
    for name, value in document.items():
        if isinstance(value, list) and all(isinstance(entry, Counted) for entry in value) and name not in ("conversations", "strange"):
            document[name] = counts_document(value)
    return document


def counts_document(entries: Sequence[Counted]) -> dict[str, Json]:
    """Return names with their counts as one object, in order."""
    return {entry.name: entry.count for entry in entries}
