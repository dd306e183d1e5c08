"""The calls an MCPJam case expects, and how they are compared.

Expected calls and match options make one assertion `tool_calls_match`; a negative case makes the same one, negative, and looks at
no expected call, as in the original. Where nothing is expected and nothing limited there is no assertion, as in the original.
`isNegativeTest: false` beside an empty list declares that some tool must be called.
"""

from __future__ import annotations

from proctor.checks.tool_order import ToolsCalled
from proctor.checks.tool_pairing import ExpectedCall, ToolCallsMatch
from proctor.formats.drafting import draft_assertion
from proctor.formats.located import Located, Reading
from proctor.formats.mcpjam_predicates import ARGUMENT_MATCHING, read_word
from proctor.model.case import Assertion
from proctor.model.evidence import Json

_ORDERS = ("ignore", "strict", "superset")
_MATCH_KEYS = ("toolCallOrder", "argumentMatching", "maxExtraToolCalls", "allowExtraToolCalls")
_NAME_KEYS = ("toolName", "name", "tool")
_ARGUMENT_KEYS = ("arguments", "args", "input")


def read_match_options(reading: Reading, node: Located | None) -> dict[str, Json]:
    """Return what the options set, in the names of our spec."""
    if node is None or reading.require_object(node, "'matchOptions'") is None:
        return {}
    reading.check_keys(node, _MATCH_KEYS, "'matchOptions'")
    read: dict[str, Json] = {}
    order = read_word(reading, node.get("toolCallOrder"), _ORDERS, "'toolCallOrder'")
    if order is not None:
        read["order"] = order
    arguments = read_word(reading, node.get("argumentMatching"), ARGUMENT_MATCHING, "'argumentMatching'")
    if arguments is not None:
        read["arguments"] = arguments
    allow = reading.require_boolean(node.get("allowExtraToolCalls"), "'allowExtraToolCalls'")
    if allow is not None:
        read["max_extra"] = None if allow else 0
    limit = node.get("maxExtraToolCalls")
    if limit is not None:
        # The newer option wins, also when it is null: any number.
        read["max_extra"] = None if limit.value is None else reading.require_integer(limit, "'maxExtraToolCalls'", at_least=0)
    return read


def read_expected_calls(reading: Reading, node: Located, negative: bool | None, options: dict[str, Json]) -> list[Assertion]:
    """Return the assertions about expected calls; `options` are those of the suite."""
    options = {**options, **read_match_options(reading, node.get("matchOptions"))}
    found = reading.require_list(node.get("expectedToolCalls"), "'expectedToolCalls'")
    calls = [call for entry in found.items() if (call := _call(reading, entry)) is not None] if found is not None else []
    made = _read_expected_tools(reading, node)
    at = found if found is not None else node
    if negative:
        if calls or made:
            message = "a negative case expects no tool call at all; these expected calls are not looked at"
            reading.warn(at, message, hint="leave them out, or leave out 'isNegativeTest'", code="contradiction")
        where = node.get("isNegativeTest") or node
        return [draft_assertion(reading, where, "tool_calls_match", ToolCallsMatch(negative=True), label="no tool is called")]
    positive_only = negative is False and found is not None and not calls
    if calls or positive_only or (found is not None and options.get("max_extra") is not None):
        spec = ToolCallsMatch(calls=tuple(calls), positive_only=positive_only, **options)
        label = f"expected calls · {', '.join(call.name for call in calls)}" if calls else "expected calls"
        made.insert(0, draft_assertion(reading, at, "tool_calls_match", spec, label=label))
    return made


def _read_expected_tools(reading: Reading, node: Located) -> list[Assertion]:
    """Return the retired form: names only, any order, each at least once."""
    found = reading.require_list(node.get("expectedTools"), "'expectedTools'")
    names = (
        [name for entry in found.items() if (name := reading.require_text(entry, "an expected tool")) is not None]
        if found is not None
        else []
    )
    if not names or found is None:
        return []
    return [draft_assertion(reading, found, "tools_called", ToolsCalled(names=tuple(names)), label=f"expected tools · {', '.join(names)}")]


def _call(reading: Reading, node: Located) -> ExpectedCall | None:
    if isinstance(node.value, str) and node.value:
        return ExpectedCall(name=node.value)
    if reading.require_object(node, "an expected call") is None:
        return None
    reading.check_keys(node, (*_NAME_KEYS, *_ARGUMENT_KEYS), "an expected call")
    named = next((found for key in _NAME_KEYS if (found := node.get(key)) is not None), None)
    if named is None:
        reading.error(node, "an expected call needs 'toolName'", code="missing_key")
        return None
    name = reading.require_text(named, "'toolName'")
    if name == "":
        reading.error(named, "'toolName': expected text of at least one character, found empty text", code="wrong_value")
        return None
    given = next((found for key in _ARGUMENT_KEYS if (found := node.get(key)) is not None), None)
    arguments = reading.require_object(given, "'arguments'") if given is not None and given.value is not None else None
    return None if name is None else ExpectedCall(name=name, arguments=arguments.plain() if arguments is not None else {})
