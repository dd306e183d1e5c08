"""What was read of one record and what is known of it, as text for people.

    traces/support.jsonl:3 · case refund-1
      read as  otlp (OpenInference)

      tool calls               recorded
      arguments of tool calls  unknown  the trace does not carry the arguments of 1 of 1 calls
      the answer               recorded
      ...

      input    "I was charged twice"
      calls    1. lookup_order {"id":17} → {"total":9}
      answer   "Refund processed."
      tokens   120 in, 80 out

Values are shortened and lists are bounded: whoever wants all of it asks for JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.evidence.unknowns.account import find_known
from proctor.model.account import PART_NAMES, Known, PartState
from proctor.model.evidence import Evidence, EvidenceTurn, Json, ToolCall, Usage
from proctor.model.show import show
from proctor.report.words.neutral import to_one_line
from proctor.report.words.simulated_users import describe_user
from proctor.report.words.style import Colour, Style, count_columns, pad, wrap

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
_LABELS = (
    *("read as", "no run", "note", "ignored", "status", "nodes", "tokens", "model", "user", "error", "input", "calls", "answer", "time"),
    f"turn {MOST_TURNS}",
)
_STATUS_WIDTH = len("recorded")
_STATUS_COLOURS: dict[str, Colour] = {"recorded": "green", "none": "green", "unknown": "yellow", "not known": "yellow"}


class EvidencePainter:
    """Lines about evidence, for one width and one choice of colour."""

    def __init__(self, style: Style, width: int) -> None:
        self._style = style
        self._width = width
        self._label_width = 2 + max(map(count_columns, _LABELS))
        self._name_width = max(map(count_columns, PART_NAMES.values()))

    def paint_block(self, title: str, evidence: Evidence, reader: str = "plain") -> list[str]:
        """Return the lines about one record: who read it, what is known of each part, and what was read."""
        known = find_known(evidence, reader)
        lines = [self._style.paint(to_one_line(title, 300), "bold"), *self.paint_row("read as", to_one_line(known.reader)), ""]
        lines += self.paint_parts(known)
        if evidence.no_run is not None:
            lines += ["", *self.paint_row("no run", f"{to_one_line(evidence.no_run, 400)}: it is kept and not judged")]
        read = self.paint_rows(evidence)
        return [*lines, "", *read] if read else lines

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
        """Return the lines about what was read: input, calls, answer, status, tokens, model."""
        return [line for name, text in _list_rows(evidence) for line in self.paint_row(name, text)]

    def paint_row(self, label: str, text: str) -> list[str]:
        """Return the lines of one thing that was read, with its label before it."""
        width = self._label_width
        first, *rest = wrap(text, max(20, self._width - 2 - width)) or [""]
        return ["  " + self._style.paint(pad(label, width), "dim") + first, *(" " * (2 + width) + line for line in rest)]


def _list_rows(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each thing that was read."""
    if evidence.turns:
        yield from _turn_rows(evidence.turns)
    else:
        yield from _list_exchange_rows(evidence.input, evidence.tool_calls, evidence.text, evidence.body)
    if evidence.tool_calls is None and evidence.nodes is not None:
        yield from _call_rows([call for node in evidence.nodes for call in node.tool_calls])
    if evidence.http_status is not None:
        yield "status", str(evidence.http_status)
    if evidence.nodes:
        yield "nodes", _list_names([node.name for node in evidence.nodes])
    usage = usage_words(evidence.usage)
    if usage:
        yield "tokens", usage
    if evidence.model is not None:
        yield "model", to_one_line(evidence.model)
    if evidence.simulated_user is not None:
        yield "user", to_one_line(describe_user(evidence.simulated_user), 400)
    if evidence.error is not None:
        yield "error", to_one_line(evidence.error, 400)


def _turn_rows(turns: Sequence[EvidenceTurn]) -> Iterator[tuple[str, str]]:
    for number, turn in enumerate(turns[:MOST_TURNS], 1):
        yield f"turn {number}", ""
        yield from _list_exchange_rows(turn.input, turn.tool_calls, turn.text, turn.body)
    if len(turns) > MOST_TURNS:
        yield "", f"… and {len(turns) - MOST_TURNS:,} more turns"


def _list_exchange_rows(given: Json, calls: Sequence[ToolCall] | None, text: str | None, body: Json) -> Iterator[tuple[str, str]]:
    if given is not None:
        yield "input", _write_value(given)
    yield from _call_rows(calls or ())
    if text is not None:
        yield "answer", _write_value(text)
    elif body is not None:
        yield "answer", _write_value(body)


def _call_rows(calls: Sequence[ToolCall]) -> Iterator[tuple[str, str]]:
    for number, call in enumerate(calls[:MOST_CALLS], 1):
        yield "calls" if number == 1 else "", f"{number}. {call_words(call)}"
    if len(calls) > MOST_CALLS:
        yield "", f"… and {len(calls) - MOST_CALLS:,} more calls"


def call_words(call: ToolCall) -> str:
    """Return a call on one line: `lookup_order {"id":17} → {"total":9}`; what was not recorded of it is said."""
    arguments = "(arguments unknown)" if call.arguments is None else _write_value(call.arguments)
    failure = call.failure()
    came = (
        f" → failed: {_write_value(failure)}" if failure is not None else "" if call.result is None else f" → {_write_value(call.result)}"
    )
    return f"{to_one_line(call.name)} {arguments}{came}"


def usage_words(usage: Usage | None) -> str:
    """Return tokens in words: `120 in, 80 out`; empty where nothing was recorded."""
    if usage is None:
        return ""
    counts = [("in", usage.input_tokens), ("out", usage.output_tokens), ("in all", usage.total_tokens)]
    return ", ".join(f"{count:,} {name}" for name, count in counts if count is not None)


def _list_names(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    more = f" and {rest:,} more" if rest > 0 else ""
    return ", ".join(to_one_line(name, 60) for name in names[:MOST_NAMES]) + more


def _write_value(value: Json) -> str:
    return to_one_line(show(value, _VALUE), 2 * _VALUE)
