"""Classifies a span (tool, model, agent, step) and finds its display name."""

from __future__ import annotations

import re

from proctor.evidence.otlp.spans import Span
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.attribute_shapes import Shape, find_shape, find_value, unquote
from proctor.evidence.values.access import text_or_none
from proctor.model.evidence import Json
from proctor.model.show import show

_AGENT_SPAN = re.compile(r"^(?:invoke_agent|agent_run|agent run|execute_task)\s+\[?([^\]]+)\]?$")
_TOOL_SPAN = re.compile(r"^(?:execute_tool[ :]+|tool: ?|tool\.|tool_call[ :.]+)\S", re.IGNORECASE)
"""Names that people give to tool spans by hand."""
_HAYSTACK_KINDS = {
    "haystack.agent.run": "agent",
    "haystack.agent.step.llm": "model",
    "haystack.agent.step.tool": "tool",
    "haystack.agent.step": "task",
    "haystack.pipeline.run": "workflow",
}
_LOGFIRE_KINDS = {"Function: ": "tool", "Agent run": "agent", "MCP tools": "step", "Turn ": "task", "Task:": "task", "Handoff": "task"}
_TEMPLATE = "logfire.msg_template"
_COMPONENT = "haystack.component.type"
_MAX_CACHED_KINDS, _MAX_CACHED_CHARACTERS = 50, 300
"""Kinds that are cached for the spans of one shape, and the length of their names; a sender who invents names must not fill the memory."""


def find_kind(name: str, attributes: dict[str, Json], shape: Shape | None = None) -> str | None:
    """Return `tool`, `agent`, `model` or another kind, `unknown` for an unknown word, or None if no attribute or name gives the kind."""
    shape = shape or find_shape(attributes)
    if shape.kind_words is None:
        return _find_kind(name, attributes, shape)
    key = (name, shape.kind_words(attributes))
    try:
        return shape.kinds[key]
    except KeyError:
        kind = _find_kind(name, attributes, shape)
        if len(shape.kinds) < _MAX_CACHED_KINDS and len(str(key)) < _MAX_CACHED_CHARACTERS:
            shape.kinds[key] = kind
        return kind


def _find_kind(name: str, attributes: dict[str, Json], shape: Shape) -> str | None:
    if name in _HAYSTACK_KINDS:
        return _HAYSTACK_KINDS[name]
    if not attributes:
        return "tool" if _TOOL_SPAN.match(name) else None
    if shape.names["kind"]:
        kind = _read_kind(attributes, shape.names["kind"])
        if kind == "agent":
            return kind
        # A general word (`chain`, `step`) next to the attributes of a tool: the attributes are more specific.
        if kind not in ("tool", None, "model") and _is_tool(attributes, shape):
            return "tool"
        if kind == "tool" and (
            name in vocabulary.NOT_TOOLS or text_or_none(find_value(attributes, shape.names["tool_name"])) in vocabulary.NOT_TOOLS
        ):
            return "step"
        if kind in ("unknown", "step") and shape.has_model_mark and (shape.has_agent_mark or shape.names["finish"]):
            return "model"  # A model and messages decide, whatever its kind attribute is.
        if kind == "model" and name.endswith(vocabulary.NOT_REQUESTS):
            return "step"
        if kind is not None:
            return kind
    if _is_tool(attributes, shape) or "tool.name" in attributes:
        return "tool"
    if _TEMPLATE in attributes:
        for start, kind in _LOGFIRE_KINDS.items():
            if str(attributes[_TEMPLATE]).startswith(start) or name.startswith(start):
                return kind
    if name.endswith(".mcp"):
        return "tool" if name.startswith("tools/call") else "mcp"  # Traceloop
    if shape.has_model_mark:
        return "model"
    component = text_or_none(attributes.get(_COMPONENT))
    if component is not None:
        return "model" if component.endswith(("Generator", "GeneratorAdapter")) else "step"
    if shape.has_agent_mark:
        return "agent"
    return "tool" if _TOOL_SPAN.match(name) else None


def _read_kind(attributes: dict[str, Json], keys: tuple[str, ...]) -> str | None:
    """Return the kind by the first known word, or `unknown` if no word is known."""
    unknown: str | None = None
    for key in keys:
        if attributes[key] is None:
            continue
        found = unquote(attributes[key])
        if isinstance(found, str) and found.lower() in vocabulary.CLOSED_KINDS.get(key, (found.lower(),)):
            kind = vocabulary.KINDS.get(found) or vocabulary.KINDS.get(found.lower())
            if kind is None and key == "ai.operationId":
                # The AI SDK names the request itself `ai.generateText.doGenerate`, and the loop around it `ai.generateText`.
                kind = "model" if ".do" in found else "agent"
            kind = kind or {"mcp.method.name": "mcp", "llm.request.type": "model"}.get(key)
            if kind is not None:
                return kind
        # Continue: another convention on the same span may have a known word.
        unknown = "unknown"
    return unknown


def _is_tool(attributes: dict[str, Json], shape: Shape) -> bool:
    if shape.tool_marks:
        name = text_or_none(find_value(attributes, shape.tool_marks))
        return bool(name) and name not in vocabulary.NOT_TOOLS
    return "tool.name" in attributes and "tool.arguments" in attributes


def describe_kind(span: Span) -> str | None:
    """Return the attribute that names the kind of a span, for a message about a kind that is not known."""
    return next((f"{key}: {show(span.attributes[key])}" for key in vocabulary.NAMES["kind"] if span.attributes.get(key) is not None), None)


def name_of_span(span: Span, kind: str | None, shape: Shape) -> str:
    """Return the node name of a span: an agent's own name, n8n's name of the node, else the span's name."""
    attributes = span.attributes
    n8n_name = attributes.get(vocabulary.N8N_NAME)
    if isinstance(n8n_name, str):
        return n8n_name
    if kind in ("agent", "task", "chain"):
        if kind == "agent":
            named = unquote(find_value(attributes, shape.names["agent_name"]))
            if isinstance(named, str) and named:
                return named
        match = _AGENT_SPAN.match(span.name)
        if match is not None:
            return match.group(1)
    return span.name
