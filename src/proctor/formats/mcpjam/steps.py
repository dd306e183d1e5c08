"""The steps of an MCPJam case: prompts, direct tool calls, assertions, and interactions with widgets.

Prompts are what is said to the agent. An assertion is about the turn of the latest prompt before it (with a single prompt:
about the run). Direct calls are made by a live run on MCP servers (`settings.direct_calls`). Driving a widget needs a browser, and
recorded evidence does not show what such a step saw: a case with one is skipped.
"""

from __future__ import annotations

from proctor.formats.mcpjam.predicates import read_predicate
from proctor.formats.text.located import Located, Reading
from proctor.model.case import Assertion, Turn
from proctor.model.evidence import Json
from proctor.model.show import show

MOST_STEPS = 200
"""MCPJam's own limit, per case."""
_MOST_RENDER_MS = 120_000
"""MCPJam's own limit, in milliseconds."""

_STEP_KEYS = {
    "prompt": ("id", "kind", "prompt"),
    "toolCall": ("id", "kind", "serverId", "serverName", "toolName", "arguments", "renderTimeoutMs"),
    "interact": ("id", "kind", "toolName", "action"),
    "assert": ("id", "kind", "assertion"),
}
_WIDGET_ASSERTIONS = {
    "textVisible": ("toolName", "text"),
    "elementVisible": ("toolName", "target"),
    "elementHidden": ("toolName", "target"),
    "inputValue": ("toolName", "target", "equals"),
    "widgetToolCalled": ("toolName", "calledToolName"),
}
_ACTIONS = ("click", "type", "key", "scroll", "wait")


class Steps:
    """The steps of one case, read in order."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._ids: dict[str, Located] = {}
        self._asserts: list[tuple[Located, int]] = []
        self.turns: list[Turn] = []
        self.direct_calls: list[Json] = []
        self.unsupported: str | None = None
        """The first step that recorded evidence cannot show."""

    def read(self, node: Located) -> None:
        """Read the list; problems go to the reading."""
        reading = self._reading
        if reading.require_list(node, "steps") is None:
            return
        if not 1 <= len(node.value) <= MOST_STEPS:
            reading.error(node, f"steps: expected 1 to {MOST_STEPS} steps, found {len(node.value)}", code="wrong_size")
        for step in node.items():
            self._step(step)

    def list_assertions(self) -> list[Assertion]:
        """Return the assertions among the steps, each about its turn."""
        several = len(self.turns) > 1
        # One that stands before the first prompt is about the run as well.
        read = (read_predicate(self._reading, node, turn=turn if several and turn >= 0 else None) for node, turn in self._asserts)
        return [assertion for assertion in read if assertion is not None]

    def _step(self, node: Located) -> None:
        reading = self._reading
        if reading.require_object(node, "a step") is None:
            return
        named = reading.require_member(node, "kind", "a step")
        kind = reading.require_text(named, "the kind of a step")
        if kind is None or named is None:
            return
        keys = _STEP_KEYS.get(kind)
        if keys is None:
            reading.error_unknown(named, f"unknown kind of step {show(kind, 60)}", kind, _STEP_KEYS, code="unknown_step")
            return
        reading.check_keys(node, keys, f"a {kind} step")
        self._read_id(node, kind)
        match kind:
            case "prompt":
                text = reading.require_text(reading.require_member(node, "prompt", "a prompt step"), "'prompt'")
                if text is not None:
                    self.turns.append(Turn(input=text, origin=reading.origin(node)))
            case "toolCall":
                self._read_tool_call(node)
            case "interact":
                self._read_interact(node)
            case _:
                self._read_assert(node)

    def _read_id(self, node: Located, kind: str) -> None:
        found = self._reading.require_member(node, "id", f"a {kind} step")
        value = self._reading.require_text(found, "the id of a step")
        if value is None or found is None:
            return
        if value in self._ids:
            first = self._ids[value]
            self._reading.error(
                found,
                f"duplicate step id {show(value, 80)}",
                hint=f"first used in line {first.line}; step ids are unique in a case",
                code="duplicate_id",
            )
        self._ids.setdefault(value, found)

    def _read_tool_call(self, node: Located) -> None:
        reading = self._reading
        what = "a toolCall step"
        server = reading.require_text(reading.require_member(node, "serverName", what), "'serverName'")
        tool = reading.require_text(reading.require_member(node, "toolName", what), "'toolName'")
        arguments = reading.require_object(reading.require_member(node, "arguments", what), "'arguments'")
        limit = node.get("renderTimeoutMs")
        wait = reading.require_integer(limit, "'renderTimeoutMs'", at_least=1)
        if wait is not None and limit is not None and wait > _MOST_RENDER_MS:
            reading.error(limit, f"'renderTimeoutMs': expected at most {_MOST_RENDER_MS}, found {wait}")
        if server is None or tool is None or arguments is None:
            return
        # `after_prompts` keeps its place: a live run makes the call between the same two prompts.
        call: dict[str, Json] = {"server": server, "tool": tool, "arguments": arguments.plain(), "after_prompts": len(self.turns)}
        for key, name in (("id", "id"), ("serverId", "server_id"), ("renderTimeoutMs", "render_timeout_ms")):
            found = node.get(key)
            if found is not None:
                call[name] = found.plain()
        self.direct_calls.append(call)

    def _read_interact(self, node: Located) -> None:
        reading = self._reading
        reading.require_text(reading.require_member(node, "toolName", "an interact step"), "'toolName'")
        action = reading.require_object(reading.require_member(node, "action", "an interact step"), "'action'")
        if action is not None:
            self._read_kind(action, _ACTIONS, "action")
        self._mark_unsupported("an interact step drives a widget")

    def _read_assert(self, node: Located) -> None:
        reading = self._reading
        assertion = reading.require_object(reading.require_member(node, "assertion", "an assert step"), "'assertion'")
        if assertion is None:
            return
        widget = assertion.get("kind")
        if widget is None:
            self._asserts.append((assertion, len(self.turns) - 1))
            return
        if assertion.get("type") is not None:
            reading.error_at_key(assertion, "kind", "an assertion has 'type' (a predicate) or 'kind' (a widget assertion), not both")
            return
        kind = self._read_kind(assertion, tuple(_WIDGET_ASSERTIONS), "widget assertion")
        if kind is not None:
            fields = _WIDGET_ASSERTIONS[kind]
            reading.check_keys(assertion, ("kind", *fields), kind)
            for key in fields:
                reading.require_member(assertion, key, kind)
            self._mark_unsupported(f"{kind} looks at a widget")

    def _read_kind(self, node: Located, words: tuple[str, ...], what: str) -> str | None:
        named = self._reading.require_member(node, "kind", what)
        kind = self._reading.require_text(named, f"the kind of {what}")
        if kind is None or kind in words or named is None:
            return kind
        self._reading.error_unknown(named, f"unknown {what} {show(kind, 60)}", kind, words, code="unknown_step")
        return None

    def _mark_unsupported(self, why: str) -> None:
        self.unsupported = self.unsupported or f"{why}, which recorded evidence cannot show"
