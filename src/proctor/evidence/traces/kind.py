"""What a span is: a tool, a request to a model, an agent or a step around them, by what it says of itself; and what it is called."""

from __future__ import annotations

import re
from typing import Protocol

from proctor.evidence.otlp.spans import NOT_UNDERSTOOD, Span
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces.attribute_values import unquote
from proctor.evidence.values.access import find_first, text_or_none
from proctor.model.evidence import Json
from proctor.model.show import show

_AGENT_SPAN = re.compile(r"^(?:invoke_agent|agent_run|agent run|execute_task)\s+\[?([^\]]+)\]?$")
_SPEAKING = frozenset((*names.SAID_TEXT, "all_messages_events", "gen_ai.output.messages", "gen_ai.input.messages"))
"""Names that tell an answer, on a span that does not say what it is."""
_HAYSTACK_KINDS = {
    "haystack.agent.run": "agent",
    "haystack.agent.step.llm": "model",
    "haystack.agent.step.tool": "tool",
    "haystack.agent.step": "task",
    "haystack.pipeline.run": "workflow",
}
_LOGFIRE_KINDS = (
    ("Function: ", "tool"),
    ("Agent run", "agent"),
    ("MCP tools", "step"),
    ("Turn ", "task"),
    ("Task:", "task"),
    ("Handoff", "task"),
)
_TEMPLATE = "logfire.msg_template"
_COMPONENT = "haystack.component.type"
_TELLING = names.KIND_NAMES | names.TOOL_MARKS | names.MODEL_MARKS | _SPEAKING | {_TEMPLATE, _COMPONENT, "tool.name"}
"""Every name by which a span may say what it is: most spans of a large trace have none of them."""


class KindTelling(Protocol):
    """What of a span says what it is."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def attributes(self) -> dict[str, Json]:
        """What it carries."""
        ...


def find_kind(span: KindTelling) -> str | None:
    """Return `tool`, `agent`, `model` or another word of ours, or None if a span does not say what it is."""
    attributes = span.attributes
    if not attributes:
        return None
    if span.name in _HAYSTACK_KINDS:
        return _HAYSTACK_KINDS[span.name]
    if _TELLING.isdisjoint(attributes):
        return _find_kind_by_name(span.name)
    if not names.KIND_NAMES.isdisjoint(attributes):
        told = _read_kind(attributes)
        # A general word (`chain`, `step`) beside the attributes of a tool: the attributes are the more particular telling.
        if told not in ("tool", None, "model", "agent") and _is_tool(attributes):
            return "tool"
        if told == "tool" and (span.name in names.NOT_TOOLS or text_or_none(find_first(attributes, *names.TOOL_NAME)) in names.NOT_TOOLS):
            return "step"
        if told == "model" and span.name.endswith(names.NOT_REQUESTS):
            return "step"
        if told is not None:
            return told
    if _is_tool(attributes):
        return "tool"
    if _TEMPLATE in attributes:
        for start, kind in _LOGFIRE_KINDS:
            if str(attributes[_TEMPLATE]).startswith(start) or span.name.startswith(start):
                return kind
    by_name = _find_kind_by_name(span.name)
    if by_name is not None:
        return by_name
    if not names.MODEL_MARKS.isdisjoint(attributes):
        return "model"
    component = text_or_none(attributes.get(_COMPONENT))
    if component is not None:
        return "model" if component.endswith(("Generator", "GeneratorAdapter")) else "step"
    if not _SPEAKING.isdisjoint(attributes):
        return "agent"
    return None


def _find_kind_by_name(name: str) -> str | None:
    if not name.endswith(".mcp"):
        return None
    return "tool" if name.startswith("tools/call") else "mcp"  # Traceloop


def _read_kind(attributes: dict[str, Json]) -> str | None:
    """Return what a span says it is, by the first known word, or `unknown` if no word is known."""
    unknown: str | None = None
    for key in names.KIND:
        if key not in attributes:
            continue
        word = unquote(attributes[key])
        if word is None:
            continue
        if isinstance(word, str) and (key not in names.CLOSED_KINDS or word.lower() in names.CLOSED_KINDS[key]):
            kind = names.KINDS.get(word) or names.KINDS.get(word.lower()) or _find_open_kind(key, word)
            if kind is not None:
                return kind
        # The search goes on: another convention on the same span may say it in a word that is known.
        unknown = "unknown"
    return unknown


def describe_kind(span: Span) -> str | None:
    """Return the span's own words for what it is, to report a span that nobody understands."""
    return next((f"{key}: {show(span.attributes[key])}" for key in names.KIND if span.attributes.get(key) is not None), None)


def _find_open_kind(key: str, word: str) -> str | None:
    """Return the kind for a word of a growing list: operations of the AI SDK and methods of MCP."""
    if key == "ai.operationId":
        # The AI SDK calls the request itself `ai.generateText.doGenerate`, and the loop around it `ai.generateText`.
        return "model" if ".do" in word else "agent"
    if key == "mcp.method.name":
        return "mcp"
    if key == "llm.request.type":
        return "model"
    return None


def _is_tool(attributes: dict[str, Json]) -> bool:
    if not names.TOOL_MARKS.isdisjoint(attributes):
        name = text_or_none(find_first(attributes, *names.TOOL_MARKS))
        return bool(name) and name not in names.NOT_TOOLS
    return "tool.name" in attributes and "tool.arguments" in attributes


def find_sign_of_work(span: Span) -> str | None:
    """Return the first attribute that may tell of an agent's work, in a span of unknown kind."""
    if NOT_UNDERSTOOD in span.attributes:
        return NOT_UNDERSTOOD
    for key in span.attributes:
        if key.startswith(names.GENAI_PREFIXES) and key not in names.HARMLESS and not key.startswith(names.HARMLESS_PREFIXES):
            return key
    return None


def name_of_span(span: Span, kind: str | None) -> str:
    """Return the name of the node a span is: an agent's own name, n8n's name of the node, else the span's."""
    attributes = span.attributes
    own = text_or_none(attributes.get(names.N8N_NAME))
    if own is not None:
        return own
    if kind in ("agent", "task", "chain"):
        for key in names.AGENT_NAME if kind == "agent" else ():
            value = unquote(attributes.get(key))
            if isinstance(value, str) and value:
                return value
        named = _AGENT_SPAN.match(span.name)
        if named is not None:
            return named.group(1)
    return span.name
