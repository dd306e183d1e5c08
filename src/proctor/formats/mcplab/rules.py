"""MCPLab's `eval` block as assertions.

Assertions are in MCPLab's own order of checks (forbidden tools, required tools, tool sequence, tool inputs, response, agent checks; inside
each group as written) and have its labels. The original finds a malformed rule only while evaluating, and then loses the whole run; here
it is a load error. An invalid regular expression is a failed check, as in the original, with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from proctor.checks.answer.json_path import JsonPath
from proctor.checks.answer.text import ResponseContains, ResponseEndsWith, ResponseEquals, ResponseNotContains, ResponseStartsWith
from proctor.checks.answer.text_pattern import ResponseMatches
from proctor.checks.judged.semantic import Judged
from proctor.checks.tools.tool_arguments import ToolInputContains, ToolInputMatches, ToolInputPath
from proctor.checks.tools.tool_calls import ToolCalled, ToolNotCalled
from proctor.checks.tools.tool_order import ToolsExactly, ToolsInOrder
from proctor.errors import SpecError
from proctor.formats.native.drafting import draft_assertion
from proctor.formats.text.located import Located, Reading
from proctor.model.case import Assertion, Capture
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.patterns.engine import compile_pattern

# --- which keys an MCPLab file may have, and the problems of others

CONFIG_KEYS: Final = ("name", "description", "agents", "scenarios", "servers", "run_defaults", "snapshot_eval")
SCENARIO_KEYS: Final = (
    "id",
    "name",
    "description",
    "tags",
    "prompt",
    "mcp_servers",
    "servers",
    "attachments",
    "eval",
    "extract",
    "agent",
    "snapshot_eval",
)
REMOVED_KEYS: Final = {
    "server_refs": "no longer supported: write {ref: <id>} entries in 'mcp_servers' of the scenario",
    "agent_refs": "no longer supported: write {ref: <id>} entries in 'agents'",
    "scenario_refs": "no longer supported: write {ref: <id>} entries in 'scenarios'",
}
_OF_A_SCENARIO: Final = ("prompt", "mcp_servers", "attachments", "eval", "extract")
EVAL_KEYS: Final = (
    "tool_constraints",
    "tool_sequence",
    "tool_input_assertions",
    "response_assertions",
    "agent_assertions",
    "agent_context",
)
MISPLACED_KEYS: Final = {
    **{key: f"write {key!r} in the scenarios it is meant for" for key in _OF_A_SCENARIO},
    **{key: f"write {key!r} under 'eval' of a scenario" for key in EVAL_KEYS},
    "selected_agents": "write it under 'run_defaults'",
}


def warn_of_snapshots(node: Located, reading: Reading) -> None:
    """Warn that `snapshot_eval` has no effect."""
    if node.get("snapshot_eval") is not None:
        message = "'snapshot_eval' was removed from MCPLab and has no effect"
        hint = "`proctor accept RUN` makes a passing run golden; `proctor compare BASE CANDIDATE` shows what changed between two runs"
        reading.warn_at_key(node, "snapshot_eval", message, hint=hint, code="legacy_form")


_LISTS: Final = ("tool_input_assertions", "response_assertions", "agent_assertions")

# type: check, label, spec
TEXT_CHECKS: Final[Mapping[str, tuple[str, str, type[msgspec.Struct]]]] = {
    "contains": ("response_contains", "Text contains", ResponseContains),
    "not_contains": ("response_not_contains", "Text does not contain", ResponseNotContains),
    "starts_with": ("response_starts_with", "Text starts with", ResponseStartsWith),
    "ends_with": ("response_ends_with", "Text ends with", ResponseEndsWith),
    "equals": ("response_equals", "Text equals", ResponseEquals),
}
_RESPONSE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(TEXT_CHECKS, ("type", "value")),
    "regex": ("type", "pattern"),
    "jsonpath": ("type", "path", "equals"),
    "jsonpath_exists": ("type", "path"),
    "jsonpath_not_exists": ("type", "path"),
}
_INPUT_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "contains": ("type", "tool", "value"),
    "regex": ("type", "tool", "pattern"),
    "jsonpath": ("type", "tool", "path", "equals"),
}
CONTEXT_FLAGS: Final = {
    "include_prompt": "show_prompt",
    "include_tool_sequence": "show_tool_names",
    "include_tool_inputs": "show_tool_inputs",
}
# The original removes one leading group of inline flags without applying the flags.
_INLINE_FLAGS = re.compile(r"\(\?[imsx]+\)")


def read_rules(node: Located | None, reading: Reading) -> tuple[Assertion, ...]:
    """Return the assertions of one `eval` block; an absent or empty block has none."""
    if node is None or node.value is None or reading.require_object(node, "'eval'") is None:
        return ()
    reading.check_keys(node, EVAL_KEYS, "'eval'", hints=_MISPLACED)
    return tuple(_Rules(reading).read_all(node))


_MISPLACED: Final = {
    "required_tools": "write it under 'tool_constraints'",
    "forbidden_tools": "write it under 'tool_constraints'",
    "include_prompt": "write it under 'agent_context'",
}


class _Rules:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    def read_all(self, node: Located) -> list[Assertion]:
        reading = self.reading
        assertions: list[Assertion | None] = []
        constraints = reading.require_object(node.find("tool_constraints"), "'tool_constraints'")
        if constraints is not None:
            reading.check_keys(constraints, ("required_tools", "forbidden_tools"), "'tool_constraints'")
            for item, name in self._read_names(constraints.find("forbidden_tools"), "'forbidden_tools'"):
                spec = ToolNotCalled(name=name, server_prefix=True)
                assertions.append(self._draft_assertion(item, "tool_not_called", spec, f"Forbidden tool · {name}", name=item))
            for item, name in self._read_names(constraints.find("required_tools"), "'required_tools'"):
                spec = ToolCalled(name=name, server_prefix=True)
                assertions.append(self._draft_assertion(item, "tool_called", spec, f"Required tool · {name}", name=item))
        assertions.append(self._read_sequence(node.find("tool_sequence")))
        inputs, responses, judged = (reading.list_items(node.find(key), f"{key!r}") for key in _LISTS)
        assertions += [self._read_tool_input(rule) for rule in inputs]
        assertions += [self._read_response(rule) for rule in responses]
        context = reading.require_object(node.find("agent_context"), "'agent_context'")
        shown: dict[str, Json] = {}
        if context is not None:
            reading.check_keys(context, tuple(CONTEXT_FLAGS), "'agent_context'")
            shown = {field: bool(reading.require_boolean(context.get(key), f"{key!r}")) for key, field in CONTEXT_FLAGS.items()}
        for rule in judged:
            what = "an agent assertion"
            if reading.require_object(rule, what) is None:
                continue
            reading.check_keys(rule, ("label", "prompt"), what)
            label, prompt = reading.need_text(rule, "label", what), reading.need_text(rule, "prompt", what)
            if label is not None and prompt is not None:
                spec = Judged(criteria=prompt, **shown)
                assertions.append(self._draft_assertion(rule, "judged", spec, label, criteria=rule.value["prompt"]))
        return [assertion for assertion in assertions if assertion is not None]

    def _read_sequence(self, node: Located | None) -> Assertion | None:
        if node is None:
            return None
        if not node.is_object:
            names = tuple(name for _, name in self._read_names(node, "'tool_sequence'"))
            spec, label = ToolsInOrder(names=names, server_prefix=True), f"Tool sequence · {' -> '.join(names)}"
            return self._draft_assertion(node, "tools_in_order", spec, label, names=node) if names else None
        self.reading.check_keys(node, ("allow",), "'tool_sequence'")
        allowed = self.reading.require_list(self.reading.require_member(node, "allow", "'tool_sequence' as an object"), "'allow'")
        if allowed is None:
            return None
        message = "the old form of 'tool_sequence': the whole list of calls must equal one of the allowed lists"
        hint = "write a plain list for the present meaning: these tools in this order, others may lie between"
        self.reading.warn(node, message, hint=hint, code="legacy_form")
        lists = tuple(
            tuple(name for _, name in self._read_names(item, "an allowed sequence"))
            for item in allowed.items()
            if self.reading.require_list(item, "an allowed sequence") is not None
        )
        label = " | ".join(" -> ".join(names) or "(no tools)" for names in lists)
        spec = ToolsExactly(any_of=lists, server_prefix=True)
        return self._draft_assertion(node, "tools_exactly", spec, f"Tool sequence · {label}", any_of=allowed) if lists else None

    def _read_tool_input(self, rule: Located) -> Assertion | None:
        what = "a tool input assertion"
        if self.reading.require_object(rule, what) is None:
            return None
        kind = self._read_type(rule, _INPUT_KEYS, what)
        tool_node = self.reading.require_member(rule, "tool", what)
        tool = self.reading.require_text(tool_node, "'tool'")
        if kind is None or tool is None or tool_node is None or (value := self._read_value(rule, kind, what)) is None:
            return None
        common: dict[str, Json] = {"tool": tool, "server_prefix": True}
        if kind == "contains":
            check, spec, claim = "tool_input_contains", ToolInputContains(text=value, **common), f"contains {value}"
        elif kind == "regex":
            check, spec = "tool_input_matches", ToolInputMatches(pattern=value, on_invalid="fail", **common)
            claim = f"matches regex {value}"
        else:
            equals = self._equals(rule)
            check, spec = "tool_input_path", ToolInputPath(path=value, equals=equals, syntax="mcplab", **common)
            claim = f"JSONPath {value} exists" if equals is msgspec.UNSET else f"JSONPath {value} == {_write_label(equals)}"
        return self._draft_assertion(rule, check, spec, f"Tool input · {tool} {claim}", tool=tool_node)

    def _read_response(self, rule: Located) -> Assertion | None:
        what = "a response assertion"
        if self.reading.require_object(rule, what) is None:
            return None
        kind = self._read_type(rule, _RESPONSE_KEYS, what)
        if kind is None or (value := self._read_value(rule, kind, what, flags="i", drop_inline_flags=True)) is None:
            return None
        if kind in TEXT_CHECKS:
            check, label, spec = TEXT_CHECKS[kind]
            # MCPLab lower-cases both sides of every text rule.
            return self._draft_assertion(rule, check, spec(text=value, ignore_case=True), f"{label} · {value}")
        if kind == "regex":
            matches = ResponseMatches(pattern=value, flags="i", drop_inline_flags=True, on_invalid="fail")
            return self._draft_assertion(rule, "response_matches", matches, f"Text matches regex · {value}")
        equals = self._equals(rule) if kind == "jsonpath" else msgspec.UNSET
        exists = kind != "jsonpath_not_exists"
        # MCPLab parses the whole final text (a code fence makes it invalid JSON), compares single values only, and finds nothing in the
        # documents `null`, `0`, `false` and `""`.
        quirks: dict[str, Json] = {"syntax": "mcplab", "source": "text", "unfence": False, "scalars_only": True, "falsy_is_empty": True}
        label = f"{'exists' if exists else 'not exists'} · {value}"
        if equals is not msgspec.UNSET:
            label = f"equals · {value} == {_write_label(equals)}"
        spec = JsonPath(path=value, equals=equals, exists=exists, **quirks)
        # Without `equals` two rules are equivalent; the writer needs to know which one it was.
        return msgspec.structs.replace(self._draft_assertion(rule, "json_path", spec, f"JSONPath {label}"), rule={"type": kind})

    def _draft_assertion(self, node: Located, check: str, spec: msgspec.Struct, label: str, **fields: Located) -> Assertion:
        spelled = {"text": "value", "pattern": "pattern", "path": "path", "equals": "equals"}
        known = {field: member for field, key in spelled.items() if (member := node.get(key)) is not None}
        return draft_assertion(self.reading, node, check, spec, fields={**known, **fields}, label=label)

    def _read_names(self, node: Located | None, what: str) -> list[tuple[Located, str]]:
        names = [(item, self.reading.require_text(item, f"a tool name in {what}")) for item in self.reading.list_items(node, what)]
        return [(item, name) for item, name in names if name is not None]

    def _read_type(self, rule: Located, keys: Mapping[str, tuple[str, ...]], what: str) -> str | None:
        """Return the rule's type, after checking its keys against those of the type."""
        kind = self.reading.require_choice(rule, "type", keys, what, lambda word: f"unknown type {word!r} of {what}", code="unknown_type")
        if kind is not None:
            self.reading.check_keys(rule, keys[kind], f"{what} of type {kind!r}")
        return kind

    def _read_value(self, rule: Located, kind: str, what: str, *, flags: str = "", drop_inline_flags: bool = False) -> str | None:
        key = "pattern" if kind == "regex" else "path" if kind.startswith("jsonpath") else "value"
        node = self.reading.require_member(rule, key, what)
        if key == "value" and node is not None and isinstance(node.value, (int, float)):
            message = f"'value': expected text, found {node.kind} {show(node.value, 60)}"
            self.reading.error(node, message, hint="put it in quotes", code="wrong_type")
            return None
        text = self.reading.require_text(node, f"{key!r}")
        if node is None or text is None:
            return None
        if key == "pattern":
            warn_of_pattern(self.reading, node, flags=flags, drop_inline_flags=drop_inline_flags, consequence="this check always fails")
        elif key == "value" and text == "":
            self.reading.warn(node, "an empty 'value': every text contains, begins and ends with it")
        elif key == "path" and not text.strip():
            self.reading.error(node, "an empty path selects nothing", hint="'$' is the whole document", code="empty_path")
            return None
        return text

    def _equals(self, rule: Located) -> Json:
        """Return the value of `equals` if the key is present, so that null is a value."""
        node = rule.get("equals")
        if node is None:
            return msgspec.UNSET
        if isinstance(node.value, (list, dict)):
            message = "'equals' with a list or object never holds: only single values are compared"
            self.reading.warn(node, message, hint="assert on its members")
        return node.plain()


def warn_of_pattern(reading: Reading, node: Located, *, flags: str = "", drop_inline_flags: bool = False, consequence: str) -> None:
    """Warn about an invalid regular expression, or one with a backspace that was surely meant as a word boundary."""
    pattern: str = node.value
    dropped = _INLINE_FLAGS.match(pattern) if drop_inline_flags else None
    skip = dropped.end() if dropped else 0
    if "\b" in pattern:
        hint = "in double quotes \\b is a backspace; write the pattern in single quotes for a word boundary"
        reading.warn(node, "the pattern contains a backspace character", hint=hint)
    try:
        compile_pattern(pattern[skip:], flags)
    except SpecError as error:
        # Counted in the compiled pattern, and shown in the pattern as written.
        offset = None if error.offset is None else error.offset + skip
        moved = SpecError(error.message, field="pattern", offset=offset, nearest=error.nearest)
        reading.report_spec_warning(node, moved, {"pattern": node}, hint=error.hint or consequence, code="invalid_pattern")


def read_captures(node: Located | None, reading: Reading) -> tuple[Capture, ...]:
    """Return the rules of one `extract` block."""
    captures: list[Capture] = []
    what = "an 'extract' rule"
    for rule in reading.list_items(node, "'extract'"):
        if reading.require_object(rule, what) is None:
            continue
        reading.check_keys(rule, ("name", "from", "regex"), what)
        name = reading.need_text(rule, "name", what)
        source = rule.get("from")
        if source is not None and source.value != "final_text":
            reading.warn(
                source, f"'from': {show(source.plain(), 60)} is ignored, values are read from the final text", expected="final_text"
            )
        pattern_node = reading.require_member(rule, "regex", what)
        pattern = reading.require_text(pattern_node, "'regex'")
        if name is None or pattern is None or pattern_node is None:
            continue
        warn_of_pattern(reading, pattern_node, consequence="the captured value is always null")
        captures.append(Capture(name=name, pattern=pattern))
    return tuple(captures)


def _write_label(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return show(value)
