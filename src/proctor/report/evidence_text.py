"""What was read of one record and what is known of it, as text for people.

    traces/support.jsonl:3 · case refund-1
      read as  otlp (OpenInference)

      tool calls               recorded
      arguments of tool calls  not known  the trace does not carry the arguments of 1 of 1 calls
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

from proctor.evidence.account import known_of
from proctor.model.account import PART_NAMES, Known, PartState
from proctor.model.evidence import Evidence, EvidenceTurn, Json, ToolCall, Usage
from proctor.model.show import show
from proctor.report.neutral import one_line
from proctor.report.style import Colour, Style, padded, wrap

MOST_CALLS = 20
MOST_TURNS = 10
MOST_NAMES = 12
MOST_NOTES = 20
_VALUE = 200
_LABEL = 9
_STATUS_COLOURS: dict[str, Colour] = {"recorded": "green", "none": "green", "not known": "yellow"}
_NAME_WIDTH = max(map(len, PART_NAMES.values()))
_STATUS_WIDTH = len("not known")


class EvidencePainter:
    """Lines about evidence, for one width and one choice of colour."""

    def __init__(self, style: Style, width: int) -> None:
        self._style = style
        self._width = width

    def block(self, title: str, evidence: Evidence, reader: str = "plain") -> list[str]:
        """Return the lines about one record: who read it, what is known of each part, and what was read."""
        known = known_of(evidence, reader)
        lines = [self._style.paint(one_line(title, 300), "bold"), *self._labelled("read as", one_line(known.reader)), ""]
        lines += self.parts(known)
        if evidence.no_run is not None:
            lines += ["", *self._labelled("no run", f"{one_line(evidence.no_run, 400)}: it is kept and not judged")]
        read = [line for name, text in _rows(evidence) for line in self._labelled(name, text)]
        return [*lines, "", *read] if read else lines

    def parts(self, known: Known) -> list[str]:
        """Return one line for each part, and the notes of the reader."""
        lines = [line for part, state in known.parts.items() for line in self._part(PART_NAMES[part], state)]
        for note in known.notes[:MOST_NOTES]:
            lines += self._labelled("note", one_line(note, 400))
        return lines

    def _part(self, name: str, state: PartState) -> list[str]:
        status = self._style.paint(padded(state.status, _STATUS_WIDTH), _STATUS_COLOURS[state.status])
        head = f"  {padded(name, _NAME_WIDTH)}  {status}"
        if state.why is None:
            return [head.rstrip()]
        indent = 2 + _NAME_WIDTH + 2 + _STATUS_WIDTH + 2
        first, *rest = wrap(one_line(state.why, 400), max(20, self._width - indent))
        return [f"{head}  {first}", *(" " * indent + line for line in rest)]

    def _labelled(self, label: str, text: str) -> list[str]:
        first, *rest = wrap(text, max(20, self._width - 2 - _LABEL)) or [""]
        return ["  " + self._style.paint(padded(label, _LABEL), "dim") + first, *(" " * (2 + _LABEL) + line for line in rest)]


def _rows(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Label and text of what was read, as far as it was."""
    if evidence.turns:
        yield from _turn_rows(evidence.turns)
    else:
        yield from _exchange_rows(evidence.input, evidence.tool_calls, evidence.text, evidence.body)
    if evidence.tool_calls is None and evidence.nodes is not None:
        yield from _call_rows([call for node in evidence.nodes for call in node.tool_calls])
    if evidence.http_status is not None:
        yield "status", str(evidence.http_status)
    if evidence.nodes:
        yield "nodes", _names([node.name for node in evidence.nodes])
    usage = usage_words(evidence.usage)
    if usage:
        yield "tokens", usage
    if evidence.model is not None:
        yield "model", one_line(evidence.model)
    if evidence.error is not None:
        yield "error", one_line(evidence.error, 400)


def _turn_rows(turns: Sequence[EvidenceTurn]) -> Iterator[tuple[str, str]]:
    for number, turn in enumerate(turns[:MOST_TURNS], 1):
        yield f"turn {number}", ""
        yield from _exchange_rows(turn.input, turn.tool_calls, turn.text, turn.body)
    if len(turns) > MOST_TURNS:
        yield "", f"… and {len(turns) - MOST_TURNS:,} more turns"


def _exchange_rows(given: Json, calls: Sequence[ToolCall] | None, text: str | None, body: Json) -> Iterator[tuple[str, str]]:
    if given is not None:
        yield "input", _value(given)
    yield from _call_rows(calls or ())
    if text is not None:
        yield "answer", _value(text)
    elif body is not None:
        yield "answer", _value(body)


def _call_rows(calls: Sequence[ToolCall]) -> Iterator[tuple[str, str]]:
    for number, call in enumerate(calls[:MOST_CALLS], 1):
        yield "calls" if number == 1 else "", f"{number}. {call_words(call)}"
    if len(calls) > MOST_CALLS:
        yield "", f"… and {len(calls) - MOST_CALLS:,} more calls"


def call_words(call: ToolCall) -> str:
    """Return a call on one line: `lookup_order {"id":17} → {"total":9}`; what was not recorded of it is said."""
    arguments = "(arguments not known)" if call.arguments is None else _value(call.arguments)
    failure = call.failure()
    came = f" → failed: {_value(failure)}" if failure is not None else "" if call.result is None else f" → {_value(call.result)}"
    return f"{one_line(call.name)} {arguments}{came}"


def usage_words(usage: Usage | None) -> str:
    """Return tokens in words: `120 in, 80 out`; empty where nothing was recorded."""
    if usage is None:
        return ""
    counts = [(usage.input_tokens, "in"), (usage.output_tokens, "out"), (usage.total_tokens, "in all")]
    return ", ".join(f"{count:,} {word}" for count, word in counts if count is not None)


def _names(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join(one_line(name, 60) for name in names[:MOST_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")


def _value(value: Json) -> str:
    return one_line(show(value, _VALUE), 2 * _VALUE)
