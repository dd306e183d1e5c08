"""What was read from a record and what is known of it, as text.

    traces/support.jsonl:3 · case refund-1
      read as         otlp (OpenInference)

      tool calls               recorded
      arguments of tool calls  unknown  the trace does not carry the arguments of 1 of 1 calls
      the answer               recorded
      ...

      input           "I was charged twice"
      calls           1. lookup_order {"id":17} → {"total":9}
      answer          "Refund processed."
      tokens          120 in, 80 out

Values and lists are shortened; JSON has everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.evidence.traces.survey import Counted, TraceSurvey
from proctor.evidence.unknowns.account import find_known
from proctor.model.account import PART_NAMES, Known, PartState
from proctor.model.evidence import Evidence, EvidenceTurn, Json, Source, ToolCall, Usage
from proctor.model.show import show
from proctor.report.words.neutral import to_lines, to_one_line
from proctor.report.words.style import Colour, Style, count_columns, pad, wrap
from proctor.report.words.tallies import describe_user
from proctor.report.words.wording import count_noun, evidence_place

MOST_CALLS = 20
"""Calls shown of one record."""
MOST_TURNS = 10
"""Turns shown of one record."""
MOST_NAMES = 12
"""Names in one line."""
MOST_NOTES = 20
"""Notes of a reader shown of one record."""
_VALUE = 200
"""Characters of a value."""
_LABEL_WIDTH = 16
"""Columns of a label."""
_STATUS_WIDTH = len("recorded")
_STATUS_COLOURS: dict[str, Colour] = {"recorded": "green", "none": "green", "unknown": "yellow", "not known": "yellow"}


class EvidencePainter:
    """Text about evidence, for one width and colour choice."""

    def __init__(self, style: Style, width: int) -> None:
        self._style = style
        self._width = width
        self._name_width = max(map(count_columns, PART_NAMES.values()))

    def paint_record(self, title: str, evidence: Evidence, reader: str = "plain", trace: TraceSurvey | None = None) -> list[str]:
        """Return the lines about one record: reader, spans of a trace, known parts, content."""
        known = find_known(evidence, reader)
        lines = [self._style.paint(to_one_line(title, 300), "bold"), *self.paint_row("read as", to_one_line(known.reader))]
        lines += [line for name, text in (_list_survey(trace) if trace is not None else ()) for line in self.paint_row(name, text)]
        lines += ["", *self.paint_parts(known)]
        if evidence.no_run is not None:
            lines += ["", *self.paint_row("no run", f"{to_one_line(evidence.no_run, 400)}: stored, not judged")]
        rows = self.paint_rows(evidence)
        return [*lines, "", *rows] if rows else lines

    def paint_unreadable(self, title: str, error: str) -> list[str]:
        """Return the lines about a record that could not be read."""
        lines = [f"  {line}" for part in to_lines(f"could not be read: {error}") for line in wrap(part, max(20, self._width - 2))]
        return [self._style.paint(to_one_line(title, 300), "bold"), *lines]

    def paint_unused_attributes(self, unknown: Sequence[Counted]) -> list[str]:
        """Return the lines about unused attributes over all traces of a file."""
        if not unknown:
            return []
        lines = [self._style.paint("Unrecognised attributes in all traces", "bold")]
        width = max(len(to_one_line(entry.name)) for entry in unknown)
        return [*lines, *(f"  {pad(to_one_line(entry.name), width)}  {count_noun(entry.count, 'time')}" for entry in unknown)]

    def paint_parts(self, known: Known) -> list[str]:
        """Return one line for each part, and the notes of the reader."""
        lines = [line for part, state in known.parts.items() for line in self._paint_part(PART_NAMES[part], state)]
        for note in known.notes[:MOST_NOTES]:
            lines += self.paint_row("note", to_one_line(note, 400))
        if known.ignored:
            lines += self.paint_row("ignored", to_one_line(", ".join(known.ignored), 400))
        return lines

    def _paint_part(self, name: str, state: PartState) -> list[str]:
        status = self._style.paint(
            pad("unknown" if state.status == "not known" else state.status, _STATUS_WIDTH), _STATUS_COLOURS[state.status]
        )
        head = f"  {pad(name, self._name_width)}  {status}"
        if state.why is None:
            return [head.rstrip()]
        indent = 2 + self._name_width + 2 + _STATUS_WIDTH + 2
        first, *rest = wrap(to_one_line(state.why, 400), max(20, self._width - indent))
        return [f"{head}  {first}", *(" " * indent + line for line in rest)]

    def paint_rows(self, evidence: Evidence) -> list[str]:
        """Return the lines about the content: input, calls, answer, status, tokens, model."""
        return [line for name, text in _list_rows(evidence) for line in self.paint_row(name, text)]

    def paint_row(self, label: str, text: str) -> list[str]:
        """Return one labelled line."""
        first, *rest = wrap(text, max(20, self._width - 2 - _LABEL_WIDTH)) or [""]
        return ["  " + self._style.paint(pad(label, _LABEL_WIDTH), "dim") + first, *(" " * (2 + _LABEL_WIDTH) + line for line in rest)]


def title_record(source: Source, evidence: Evidence | None) -> str:
    """Return the place of a record, and the case that it names."""
    place = evidence_place(source) or "evidence"
    return place if evidence is None or evidence.case is None else f"{place} · case {evidence.case}"


def _list_survey(trace: TraceSurvey) -> list[tuple[str, str]]:
    without_content = trace.requests - trace.requests_with_content
    requests = f"{trace.requests:,}: {trace.requests_with_content:,} with content, {without_content:,} without"
    rows = [
        ("conventions", _list_counts(trace.conventions) or "none recognised"),
        ("scopes", _list_counts(trace.scopes)),
        ("spans", f"{trace.spans:,}: {_list_counts(trace.kinds)}"),
        ("model requests", requests if trace.requests else "none"),
        ("tool spans", _list_counts(trace.tools) or "none"),
        ("conversations", _list_names(trace.conversations) or "none named"),
        ("unrecognised", _list_counts(trace.not_understood) or "nothing"),
        ("in messages", _list_names(trace.strange)),
        ("lost", _list_names(trace.lost)),
        ("vocabularies", f"unknown: {_list_counts(trace.vocabularies)}" if trace.vocabularies else ""),
    ]
    return [(label, text) for label, text in rows if text]


def _list_rows(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield label and text of each item."""
    if evidence.turns:
        for number, turn in enumerate(evidence.turns[:MOST_TURNS], 1):
            yield f"turn {number}", ""
            yield from _list_exchange_rows(turn)
        if len(evidence.turns) > MOST_TURNS:
            yield "", f"… and {len(evidence.turns) - MOST_TURNS:,} more turns"
    else:
        yield from _list_exchange_rows(evidence)
    if evidence.tool_calls is None and evidence.nodes is not None:
        yield from _list_call_rows([call for node in evidence.nodes for call in node.tool_calls])
    rows = {
        "status": None if evidence.http_status is None else str(evidence.http_status),
        "nodes": _list_names([to_one_line(node.name, 60) for node in evidence.nodes]) if evidence.nodes else None,
        "tokens": usage_words(evidence.usage) or None,
        "model": None if evidence.model is None else to_one_line(evidence.model),
        "user": None if evidence.simulated_user is None else to_one_line(describe_user(evidence.simulated_user), 400),
        "error": None if evidence.error is None else to_one_line(evidence.error, 400),
    }
    yield from ((label, text) for label, text in rows.items() if text is not None)


def _list_exchange_rows(observed: Evidence | EvidenceTurn) -> Iterator[tuple[str, str]]:
    if observed.input is not None:
        yield "input", _write_value(observed.input)
    yield from _list_call_rows(observed.tool_calls or ())
    if observed.text is not None or observed.body is not None:
        yield "answer", _write_value(observed.body if observed.text is None else observed.text)


def _list_call_rows(calls: Sequence[ToolCall]) -> Iterator[tuple[str, str]]:
    for number, call in enumerate(calls[:MOST_CALLS], 1):
        yield "calls" if number == 1 else "", f"{number}. {call_words(call)}"
    if len(calls) > MOST_CALLS:
        yield "", f"… and {len(calls) - MOST_CALLS:,} more calls"


def call_words(call: ToolCall) -> str:
    """Return a call on one line: `lookup_order {"id":17} → {"total":9}`."""
    arguments = "(arguments unknown)" if call.arguments is None else _write_value(call.arguments)
    failure = call.failure()
    came = (
        f" → failed: {_write_value(failure)}" if failure is not None else "" if call.result is None else f" → {_write_value(call.result)}"
    )
    return f"{to_one_line(call.name)} {arguments}{came}"


def usage_words(usage: Usage | None) -> str:
    """Return tokens: `120 in, 80 out`; empty if not recorded."""
    if usage is None:
        return ""
    counts = [("in", usage.input_tokens), ("out", usage.output_tokens), ("in all", usage.total_tokens)]
    return ", ".join(f"{count:,} {name}" for name, count in counts if count is not None)


def _write_value(value: Json) -> str:
    return to_one_line(show(value, _VALUE), 2 * _VALUE)


def _list_counts(entries: Sequence[Counted]) -> str:
    return _list_names([f"{to_one_line(entry.name)} ({entry.count:,})" for entry in entries])


def _list_names(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join(map(to_one_line, names[:MOST_NAMES])) + (f" and {rest:,} more" if rest > 0 else "")
