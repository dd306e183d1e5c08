"""What a file of recorded evidence is made of, as text for people and as plain data for machines.

What this room may see of a description is its parts, not the action that makes it: actions stand above reports.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.evidence.account import known_document
from proctor.evidence.span_survey import Counted, TraceSurvey
from proctor.model.account import Known
from proctor.model.evidence import Evidence, Json, Source
from proctor.report.evidence_text import EvidencePainter
from proctor.report.neutral import one_line, several_lines
from proctor.report.style import Style, padded, wrap
from proctor.report.wording import counted, evidence_place

_LABEL = 16
_MOST_LISTED = 12


class TracePainter:
    """Lines about records, for one width and one choice of colour."""

    def __init__(self, style: Style, width: int) -> None:
        self._style = style
        self._width = width
        self._evidence = EvidencePainter(style, width)

    def unreadable(self, source: Source, error: str) -> list[str]:
        """Return the lines about a record that could not be read."""
        first, *rest = several_lines(error)
        return [self._title(source), *self._labelled("unreadable", first), *(line for more in rest for line in self._labelled("", more))]

    def record(self, source: Source, known: Known, evidence: Evidence, trace: TraceSurvey | None) -> list[str]:
        """Return the lines about one record: what it is made of, and what is known of its parts."""
        lines = [self._title(source), *self._labelled("read as", one_line(known.reader))]
        if trace is not None:
            lines += self._survey(trace)
        if evidence.turns:
            lines += self._labelled("turns", str(len(evidence.turns)))
        if evidence.model is not None:
            lines += self._labelled("model", one_line(evidence.model))
        if evidence.no_run is not None:
            lines += self._labelled("no run", f"{one_line(evidence.no_run, 400)}: it is kept and not judged")
        return [*lines, "", *self._evidence.parts(known)]

    def together(self, unknown: Sequence[Counted]) -> list[str]:
        """Return the lines about attributes that no reader uses, over all traces of a file."""
        if not unknown:
            return []
        lines = [self._style.paint("Attributes nobody understood, over all traces", "bold")]
        width = max(len(one_line(entry.name)) for entry in unknown)
        return [*lines, *(f"  {padded(one_line(entry.name), width)}  {counted(entry.count, 'time')}" for entry in unknown)]

    def _survey(self, trace: TraceSurvey) -> list[str]:
        without = trace.requests - trace.requests_with_content
        requests = f"{trace.requests:,}: {trace.requests_with_content:,} with content, {without:,} without" if trace.requests else "none"
        rows = [
            ("conventions", _listed(trace.conventions) or "none that is known"),
            ("scopes", _listed(trace.scopes)),
            ("spans", f"{trace.spans:,}: {_listed(trace.kinds)}"),
            ("model requests", requests),
            ("tool spans", _listed(trace.tools) or "none"),
            ("conversations", _names(trace.conversations) or "none named"),
            ("not understood", _listed(trace.not_understood) or "nothing"),
            ("in messages", _names(trace.strange)),
            ("lost", _names(trace.lost)),
            ("vocabularies", f"unknown: {_listed(trace.vocabularies)}" if trace.vocabularies else ""),
        ]
        return [line for label, text in rows if text for line in self._labelled(label, text)]

    def _title(self, source: Source) -> str:
        return self._style.paint(one_line(evidence_place(source) or "evidence", 300), "bold")

    def _labelled(self, label: str, text: str) -> list[str]:
        first, *rest = wrap(text, max(20, self._width - 2 - _LABEL)) or [""]
        return ["  " + self._style.paint(padded(label, _LABEL), "dim") + first, *(" " * (2 + _LABEL) + line for line in rest)]


def _listed(entries: Sequence[Counted]) -> str:
    shown = ", ".join(f"{one_line(entry.name)} ({entry.count:,})" for entry in entries[:_MOST_LISTED])
    rest = len(entries) - _MOST_LISTED
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def _names(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_LISTED
    return ", ".join(one_line(name) for name in names[:_MOST_LISTED]) + (f" and {rest:,} more" if rest > 0 else "")


def record_document(
    source: Source, known: Known | None, evidence: Evidence | None, trace: TraceSurvey | None, error: str | None
) -> dict[str, Json]:
    """Return one record as plain data."""
    document: dict[str, Json] = {"file": source.file, "line": source.line, "id": source.id}
    if error is not None:
        document["error"] = error
    if known is not None:
        document["account"] = known_document(known)
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
