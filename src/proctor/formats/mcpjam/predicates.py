"""The thirteen predicates of MCPJam as our assertions.

A predicate is an object keyed by `type`. The requirements of its schema apply here too, and errors have positions; what the original
decides at run time stays a verdict (an invalid pattern fails, and the reader warns about it). The schema ignores unknown keys; they cause
a warning, since they are usually misspelt.

`tokenBudgetUnder` and `turnCountUnder` are about the whole run, wherever they occur.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, cast

import msgspec

from proctor.checks.answer.text import ResponseContains, ResponseNotEmpty
from proctor.checks.answer.text_pattern import ResponseMatches
from proctor.checks.run.limits import TokensWithin, TurnsWithin
from proctor.checks.run.widget import WidgetNoConsoleErrors, WidgetRendered, WidgetRenderedWithin
from proctor.checks.tools.tool_calls import NoToolErrors, ToolCalled, ToolNotCalled
from proctor.checks.tools.tool_order import FirstTool
from proctor.errors import SpecError
from proctor.formats.native.drafting import draft_assertion
from proctor.formats.text.located import Located, Reading
from proctor.model.case import Assertion
from proctor.model.evidence import Json
from proctor.model.show import nearest, shorten, show
from proctor.patterns.engine import compile_pattern

MOST_TEXT = 100_000
"""A longer final message fails `responseMatches`, counted in UTF-16 units."""

ARGUMENT_MATCHING = ("partial", "exact", "ignore")
_WHOLE_RUN = ("tokenBudgetUnder", "turnCountUnder")


class _Made(msgspec.Struct, frozen=True):
    check: str
    spec: msgspec.Struct
    about: str = ""
    """The label without the type."""
    fields: Mapping[str, Located] = {}


_Maker = Callable[["Reading", Located, str], _Made | None]


def read_predicate(reading: Reading, node: Located, *, turn: int | None = None) -> Assertion | None:
    """Return one predicate, or None after a problem."""
    if reading.require_object(node, "a predicate") is None:
        return None
    type_node = node.get("type")
    if type_node is None:
        reading.error(node, "a predicate needs 'type'", expected="one of " + ", ".join(PREDICATES), code="missing_key")
        return None
    kind = reading.require_text(type_node, "the type of a predicate")
    if kind is None:
        return None
    entry = PREDICATES.get(kind)
    if entry is None:
        reading.error_unknown(type_node, f"unknown predicate type {show(kind, 80)}", kind, PREDICATES, code="unknown_predicate")
        return None
    make, keys = entry
    for key, _ in node.members():
        if key != "type" and key not in keys:
            reading.warn_at_key(node, key, f"{kind} has no field {key!r}; it is ignored", nearest=nearest(key, keys), code="unknown_key")
    parts = make(reading, node, kind)
    if parts is None:
        return None
    label = f"{kind} · {shorten(parts.about, 80)}" if parts.about else kind
    return draft_assertion(
        reading, node, parts.check, parts.spec, fields=parts.fields, label=label, turn=None if kind in _WHOLE_RUN else turn
    )


def _read_nonempty_text(reading: Reading, node: Located, key: str, kind: str) -> str | None:
    return refuse_empty(reading, reading.require_member(node, key, kind), f"{kind} {key!r}")


def refuse_empty(reading: Reading, node: Located | None, what: str) -> str | None:
    """Return a text that is not empty, or None after a problem."""
    value = reading.require_text(node, what)
    if value == "" and node is not None:
        reading.error(node, f"{what}: expected text of at least one character, found empty text", code="wrong_value")
        return None
    return value


def _read_above_zero(reading: Reading, node: Located, key: str, kind: str) -> int | None:
    return reading.require_integer(reading.require_member(node, key, kind), f"{kind} {key!r}", at_least=1)


def read_word(reading: Reading, node: Located | None, words: tuple[str, ...], what: str) -> str | None:
    """Return one of some words, or None after a problem."""
    value = reading.require_text(node, what)
    if value is None or value in words or node is None:
        return value
    reading.error_unknown(node, f"{what}: {show(value, 60)} is not a known word here", value, words)
    return None


def _read_tool_called_with(reading: Reading, node: Located, kind: str) -> _Made | None:
    name = _read_nonempty_text(reading, node, "toolName", kind)
    wrapper = reading.require_object(reading.require_member(node, "args", kind), f"{kind} 'args'")
    listed: Located | None = None
    match: str | None = None
    if wrapper is not None:
        # Writing the arguments directly under `args` is a common mistake; one more level belongs between them.
        if wrapper.get("args") is None:
            reading.error(
                wrapper, f"{kind} 'args' needs 'args': the expected arguments one level deeper", hint='write {"args": {"args": {...}}}'
            )
        listed = reading.require_object(wrapper.get("args"), f"{kind} 'args.args'")
        match = read_word(reading, wrapper.get("argumentMatching"), ARGUMENT_MATCHING, f"{kind} 'argumentMatching'")
        for key, _ in wrapper.members():
            if key not in ("args", "argumentMatching"):
                reading.warn_at_key(wrapper, key, f"'args' of {kind} has no field {key!r}; it is ignored", code="unknown_key")
    count = 1 if node.get("minCount") is None else _read_above_zero(reading, node, "minCount", kind)
    if name is None or listed is None or count is None:
        return None
    spec = ToolCalled(
        name=name,
        arguments=listed.plain(),
        match=cast(Literal["partial", "exact", "ignore"], match or "partial"),
        values="placeholders",
        at_least=count,
    )
    return _Made("tool_called", spec, name, {"name": node.value["toolName"], "arguments": listed})


def _read_response_contains(reading: Reading, node: Located, kind: str) -> _Made | None:
    needle = _read_nonempty_text(reading, node, "needle", kind)
    strict = reading.require_boolean(node.get("caseSensitive"), f"{kind} 'caseSensitive'")
    if needle is None:
        return None
    return _Made("response_contains", ResponseContains(text=needle, ignore_case=not strict), needle)


def _read_response_matches(reading: Reading, node: Located, kind: str) -> _Made | None:
    pattern = _read_nonempty_text(reading, node, "pattern", kind)
    if pattern is None:
        return None
    at = node.value["pattern"]
    try:
        compile_pattern(pattern)
    except SpecError as error:
        reading.warn(at, f"{kind}: {error.message}; this check can only fail", code="invalid_pattern")
    # MCPJam fails these at run time: nested quantifiers, and messages of more than 100,000 UTF-16 units.
    spec = ResponseMatches(pattern=pattern, on_invalid="fail", refuse_nested_quantifiers=True, max_length=MOST_TEXT)
    return _Made("response_matches", spec, pattern, {"pattern": at})


class Plain(msgspec.Struct, frozen=True):
    """A predicate whose fields are those of one spec."""

    check: str
    spec: type[msgspec.Struct]
    fields: dict[str, str] = {}
    """Fields of the predicate with those of the spec; the tool name of a widget is optional."""
    fixed: dict[str, Json] = {}
    """Fixed values that MCPJam implies."""


# MCPJam's total of tokens is the larger of `totalTokens` and the sum of input and output, and must stay below the budget.
PLAIN: dict[str, Plain] = {
    "toolCalledAtLeastOnce": Plain("tool_called", ToolCalled, {"toolName": "name"}),
    "toolNeverCalled": Plain("tool_not_called", ToolNotCalled, {"toolName": "name"}),
    "firstToolWas": Plain("first_tool", FirstTool, {"toolName": "name"}),
    "noToolErrors": Plain("no_tool_errors", NoToolErrors, {}, {"silent_calls": "succeeded"}),
    "finalAssistantMessageNonEmpty": Plain("response_not_empty", ResponseNotEmpty),
    "tokenBudgetUnder": Plain("tokens_within", TokensWithin, {"tokens": "total"}, {"exclusive": True, "total_is": "larger"}),
    "turnCountUnder": Plain("turns_within", TurnsWithin, {"turns": "turns"}, {"exclusive": True}),
    "widgetRendered": Plain("widget_rendered", WidgetRendered, {"toolName": "tool"}),
    "widgetRenderLatencyUnder": Plain("widget_rendered_within", WidgetRenderedWithin, {"toolName": "tool", "ms": "ms"}),
    "widgetNoConsoleErrors": Plain("widget_no_console_errors", WidgetNoConsoleErrors, {"toolName": "tool"}),
}
"""Predicates that are read and written field by field."""


def _read_plain(reading: Reading, node: Located, kind: str) -> _Made | None:
    plain = PLAIN[kind]
    problem_count = len(reading.problems)
    values: dict[str, Json] = {}
    for key, field in plain.fields.items():
        if field != "tool" or node.get(key) is not None:
            values[field] = (_read_nonempty_text if key == "toolName" else _read_above_zero)(reading, node, key, kind)
    if len(reading.problems) > problem_count:
        return None
    about = " ".join(f"{value} ms" if field == "ms" else str(value) for field, value in values.items())
    places = {field: node.value[key] for key, field in plain.fields.items() if field in values}
    return _Made(plain.check, plain.spec(**values, **plain.fixed), about, places)


PREDICATES: dict[str, tuple[_Maker, tuple[str, ...]]] = {
    "toolCalledWith": (_read_tool_called_with, ("toolName", "args", "minCount")),
    "responseContains": (_read_response_contains, ("needle", "caseSensitive")),
    "responseMatches": (_read_response_matches, ("pattern",)),
    **{kind: (_read_plain, tuple(plain.fields)) for kind, plain in PLAIN.items()},
}
"""Every type with its reader and its fields."""
