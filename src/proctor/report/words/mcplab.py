"""What MCPLab says of a failed check, word by word, for the files it leaves behind.

Our own reasons say more; here stands what its users search their results for. Names are those after MCPLab's alias rule: a `server:tool`
that is no tool itself is told by the tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from proctor.model.case import Assertion
from proctor.model.evidence import Evidence, Json
from proctor.model.show import show
from proctor.model.verdict import Verdict

_TYPES: Final = {
    "tool_not_called": "forbidden_tool",
    "tool_called": "required_tool",
    "tools_in_order": "tool_sequence",
    "tools_exactly": "tool_sequence",
    "tool_input_contains": "tool_input_contains",
    "tool_input_matches": "tool_input_regex",
    "tool_input_path": "tool_input_jsonpath",
    "response_matches": "response_regex",
    "judged": "agent_check",
}
_TEXT_RULES: Final = {
    "response_contains": "Contains",
    "response_not_contains": "Not-contains",
    "response_starts_with": "Starts-with",
    "response_ends_with": "Ends-with",
    "response_equals": "Equals",
}


def find_type(assertion: Assertion) -> str:
    """Return what MCPLab calls a check in its results."""
    if assertion.check != "json_path":
        return _TYPES.get(assertion.check, assertion.check)
    spec: Json = assertion.spec
    return f"response_{assertion.rule.get('type') or ('jsonpath' if spec.exists else 'jsonpath_not_exists')}"


def explain_failure(assertion: Assertion, verdict: Verdict, evidence: Evidence | None) -> str:
    """Return why a check failed, in MCPLab's words; in ours where it has none."""
    spec: Json = assertion.spec
    seen = evidence or Evidence()
    match assertion.check:
        case "tool_not_called":
            return f"Forbidden tool used: {_find_tool(spec.name, seen)}"
        case "tool_called":
            return f"Required tool not used: {_find_tool(spec.name, seen)}"
        case "tools_in_order":
            return _explain_sequence([_find_tool(name, seen) for name in spec.names], [call.name for call in seen.tool_calls or ()])
        case "tools_exactly":
            return "Tool sequence did not match any allowed sequence"
        case "tool_input_contains" | "tool_input_matches" | "tool_input_path":
            return "Tool input assertion failed: " + _explain_input(assertion, verdict, seen)
        case "response_matches":
            return f"Invalid regex: {spec.pattern}" if verdict.code == "invalid_pattern" else f"Regex assertion failed: {spec.pattern}"
        case "json_path":
            return _explain_path(spec, verdict)
        case check if check in _TEXT_RULES:
            return f"{_TEXT_RULES[check]} assertion failed: {spec.text}"
        case _:
            return verdict.reason


def _find_tool(name: str, evidence: Evidence) -> str:
    """Return the tool that a rule means."""
    # MCPLab reads `server:tool` as the part behind the last colon, and only where that is an available tool.
    tail = name.rpartition(":")[2]
    called = {call.name for call in evidence.tool_calls or ()}
    return tail if tail in called or tail in (evidence.available_tools or ()) else name


def _explain_sequence(wanted: Sequence[str], called: Sequence[str]) -> str:
    """Return why the tools were not called in order: the first that could not be placed decides."""
    place = 0
    for name in wanted:
        if name not in called[place:]:
            if name not in called:
                return f"Required tool in sequence not used: {name}"
            break
        place = called.index(name, place) + 1
    return f"Tool sequence order was not satisfied: {' -> '.join(wanted)}"


def _explain_input(assertion: Assertion, verdict: Verdict, evidence: Evidence) -> str:
    spec: Json = assertion.spec
    tool = _find_tool(spec.tool, evidence)
    if verdict.code == "invalid_pattern":
        return f"invalid regex {spec.pattern}"
    if not any(call.goes_by(spec.tool) or call.name == tool for call in evidence.tool_calls or ()):
        return f"tool not used: {tool}"
    if assertion.check == "tool_input_contains":
        expected = f"contains {spec.text}"
    elif assertion.check == "tool_input_matches":
        expected = f"regex {spec.pattern}"
    else:
        expected = f"JSONPath {spec.path} " + ("exists" if spec.equals is msgspec.UNSET else f"== {_write_value(spec.equals)}")
    return f"{tool} input did not match (expected: {expected})"


def _explain_path(spec: Json, verdict: Verdict) -> str:
    if verdict.code == "not_json":
        return f"JSONPath assertion failed: invalid JSON for path {spec.path}"
    if not spec.exists:
        return f"JSONPath not-exists assertion failed: {spec.path}"
    compared = "" if spec.equals is msgspec.UNSET else "equals "
    return f"JSONPath {compared}assertion failed: {spec.path}"


def _write_value(value: Json) -> str:
    """Return a value in a text, as JavaScript writes it."""
    if isinstance(value, str):
        return value
    return show(int(value) if isinstance(value, float) and value.is_integer() else value)
