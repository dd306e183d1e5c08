"""What one span says: its kind, what went in and came out, tokens, and the tool it called.

Attributes may be JSON text where the convention wants a structure; both are read. Names come from `otlp_names`.
"""

from __future__ import annotations

import re
from typing import Any

from proctor.evidence import otlp_names as names
from proctor.evidence.calls import CONTENT_ERROR, PROTOCOL_ERROR, mcp_error, read_arguments
from proctor.evidence.json_bytes import container_in, embedded
from proctor.evidence.shape import dict_of, first_of, list_of, text_or_none
from proctor.evidence.spans import Span
from proctor.evidence.text import NODE_KEYS, as_text, text_in
from proctor.evidence.usage import count_of
from proctor.evidence.workflow import is_ai, is_sub_node
from proctor.model.evidence import Json, ToolCall, Usage

_TOOL_SPAN_NAME = re.compile(r"^(?:execute_tool|tools/call|running tool)[ :]+", re.IGNORECASE)
_INDEX = re.compile(r"^(\d{1,4})\.(.+)$", re.DOTALL)
_MIME = {"input.value": "input.mime_type", "output.value": "output.mime_type"}
_JSON = "application/json"
_PLACEHOLDER = "[Object]"
_ENTITY_KEYS = ("traceloop.entity.input", "traceloop.entity.output")
_ENTITY_INPUT = frozenset(("inputs", "input_str", "args", "kwargs", "tags", "metadata"))
_ENTITY_OUTPUT = frozenset(("outputs", "output", "kwargs"))
# Most spans carry few of the names that are looked for. Whether they have any at all is asked first: that is many times as fast.
_KIND = frozenset(names.SPAN_KIND)
_TOOL_MARKS = frozenset(("gen_ai.tool.name", "ai.toolCall.name"))
_TOKENS = frozenset((*names.INPUT_TOKENS, *names.OUTPUT_TOKENS, *names.TOTAL_TOKENS))
_ANSWERS = frozenset((*names.OUTPUT_MESSAGES, *names.OUTPUT_TEXT))
_TEXTS = frozenset(names.OUTPUT_TEXT)


class _Messages:
    """Where messages may stand in a span: under one name, spread over many, or in its events."""

    def __init__(self, keys: tuple[str, ...], indexed: tuple[str, ...], events: frozenset[str]) -> None:
        self.keys = keys
        self.any_key = frozenset(keys)
        self.indexed = indexed
        self.starts = tuple(f"{prefix}." for prefix in indexed)
        self.events = events


_GIVEN = _Messages(names.INPUT_MESSAGES, names.INDEXED_INPUT, names.EVENT_INPUT)
_SAID = _Messages(names.OUTPUT_MESSAGES, names.INDEXED_OUTPUT, names.EVENT_OUTPUT)


_SAYING = frozenset((*_GIVEN.keys, *_SAID.keys, *names.OUTPUT_TEXT, *names.INPUT_VALUE, *names.OUTPUT_VALUE, names.N8N_OUTPUT))
_SAYING_STARTS = (*_GIVEN.starts, *_SAID.starts)


def says_something(span: Span) -> bool:
    """Whether anything that went in or came out may stand in a span. Of most spans of a trace nothing does."""
    attributes = span.attributes
    if span.events or not _SAYING.isdisjoint(attributes):
        return True
    for key in attributes:  # noqa: SIM110 - for every span of every trace, and a generator takes twice as long
        if key.startswith(_SAYING_STARTS):
            return True
    return False


def only_begins(span: Span) -> bool:
    """Whether a root does nothing but mark the beginning: Flowise ends its own at once, with this in place of an answer."""
    return span.attributes.get("output.value") == _PLACEHOLDER


def kind_of_span(span: Span) -> str | None:
    """`tool`, `agent`, `llm`, another word of the convention in lower case, or nothing."""
    attributes = span.attributes
    if not _TOOL_MARKS.isdisjoint(attributes) and any(text_or_none(attributes.get(mark)) for mark in _TOOL_MARKS):
        return "tool"
    if not _KIND.isdisjoint(attributes):
        word = text_or_none(first_of(attributes, *names.SPAN_KIND))
        if word is not None:
            return names.KINDS.get(word) or names.KINDS.get(word.lower(), word.lower())
    operation = text_or_none(attributes.get(names.AI_SDK_OPERATION))
    if operation is not None:
        return "llm" if ".do" in operation else "agent"
    if "gen_ai.request.model" in attributes or "llm.model_name" in attributes:
        return "llm"
    return None


def name_of_span(span: Span) -> str:
    """The name of the node a span is. n8n calls all its spans alike and has the node's name in an attribute."""
    return text_or_none(span.attributes.get(names.N8N_NAME)) or span.name


def type_of_span(span: Span, kind: str | None) -> str | None:
    """The type of the node a span is: n8n's own, else the kind."""
    return text_or_none(span.attributes.get(names.N8N_TYPE)) or kind


def talks_to_model(span: Span, kind: str | None) -> bool:
    """Whether the answer of the run may stand in this span of that kind."""
    node_type = text_or_none(span.attributes.get(names.N8N_TYPE))
    if node_type is not None:
        return is_ai(node_type) and not is_sub_node(node_type)
    if kind in ("llm", "agent"):
        return True
    return not _ANSWERS.isdisjoint(span.attributes) and first_of(span.attributes, *names.OUTPUT_MESSAGES, *names.OUTPUT_TEXT) is not None


def usage_of_span(span: Span) -> Usage | None:
    """The tokens a span itself reports."""
    if _TOKENS.isdisjoint(span.attributes):
        return None
    counts = [_count(span, table) for table in (names.INPUT_TOKENS, names.OUTPUT_TOKENS, names.TOTAL_TOKENS)]
    if counts == [None, None, None]:
        return None
    return Usage(input_tokens=counts[0], output_tokens=counts[1], total_tokens=counts[2])


def text_of_span(span: Span, spoken: str | None) -> str | None:
    """The answer a span carries: what was spoken, else what stands in its output value."""
    if spoken is not None:
        return spoken
    if names.N8N_OUTPUT in span.attributes:
        return text_in(_n8n_output(span), NODE_KEYS)
    value = _output_value(span)
    if isinstance(value, dict):
        last = dict_of((list_of(value.get("messages")) or [None])[-1])
        return _message_text(dict_of(last.get("kwargs")) or last) or next(
            (value[key] for key in NODE_KEYS if isinstance(value.get(key), str)), None
        )
    return value if isinstance(value, str) else None


def output_of_span(span: Span, kind: str | None, spoken: str | None) -> Json:
    """The output of the node a span is. A bare answer becomes `{"text": ...}`, so that its text can be asked for by name."""
    if names.N8N_OUTPUT in span.attributes:
        return _n8n_output(span)
    if spoken is not None:
        return {"text": spoken}
    value = _output_value(span)
    return {"text": value} if isinstance(value, str) and kind in ("llm", "agent") else value


def input_of_span(span: Span) -> Json:
    """What was said to a span: its last user message, else its input value."""
    asked = [text for role, text in _input_messages(span) if role in ("user", "human") and text]
    if asked:
        return asked[-1]
    value = _value_at(span, names.INPUT_VALUE)
    if not isinstance(value, dict) or not _ENTITY_INPUT.issuperset(value):
        return value
    given = first_of(value, "inputs", "input_str") or value.get("kwargs") or value.get("args")
    return given[0] if isinstance(given, list) and len(given) == 1 else given


def tool_call_of_span(span: Span, node: str | None) -> ToolCall:
    """The call a tool span is."""
    name = text_or_none(first_of(span.attributes, *names.TOOL_NAME, names.TOOL_ENTITY)) or _TOOL_SPAN_NAME.sub("", span.name)
    result = _unwrapped_output(_value_at(span, names.TOOL_RESULT))
    error, kind = mcp_error(result), CONTENT_ERROR
    if span.failed:
        error = span.message or _exception(span) or as_text(span.attributes.get(names.ERROR_TYPE)) or error or "the call failed"
        kind = CONTENT_ERROR if span.attributes.get(names.ERROR_TYPE) == names.TOOL_ERROR else PROTOCOL_ERROR
    return ToolCall(
        name=name,
        arguments=read_arguments(_unwrapped_arguments(_value_at(span, names.TOOL_ARGUMENTS))),
        result=result,
        error=error,
        error_kind=kind if error is not None else None,
        duration_ms=duration_ms(span),
        node=node,
        server=text_or_none(first_of(span.attributes, *names.TOOL_SERVER)),
        id=text_or_none(first_of(span.attributes, *names.TOOL_CALL_ID)),
    )


def requested_calls(span: Span) -> list[ToolCall]:
    """The tool calls a model asked for in its answer."""
    found: list[ToolCall] = []
    for message in _messages(span, _SAID):
        for part in [*list_of(message.get("parts")), *list_of(container_in(message.get("tool_calls")))]:
            call = dict_of(dict_of(part).get("tool_call")) or dict_of(part)
            function = dict_of(call.get("function")) or call
            if not isinstance(function.get("name"), str) or call.get("type") not in (None, "tool_call", "function"):
                continue
            arguments = read_arguments(first_of(function, "arguments", "args", "input"))
            found.append(ToolCall(name=function["name"], arguments=arguments, id=text_or_none(call.get("id"))))
    for call in map(dict_of, list_of(container_in(span.attributes.get(names.AI_SDK_CALLS)))):
        if isinstance(call.get("toolName"), str):
            arguments = read_arguments(first_of(call, "input", "args"))
            found.append(ToolCall(name=call["toolName"], arguments=arguments, id=text_or_none(call.get("toolCallId"))))
    return found


def duration_ms(span: Span) -> float | None:
    """How long a span took; nothing if it has no times."""
    return (span.end_ns - span.start_ns) / 1e6 if span.start_ns and span.end_ns >= span.start_ns else None


def _count(span: Span, table: tuple[str, ...]) -> int | None:
    attributes = span.attributes
    for key in table:
        if key in attributes:
            count = count_of(attributes[key])
            if count is not None:
                return count
    return None


def _n8n_output(span: Span) -> Json:
    return container_in(span.attributes.get(names.N8N_OUTPUT))


def spoken_of_span(span: Span) -> str | None:
    """What a span says in messages, else as response text."""
    for message in reversed(_messages(span, _SAID)):
        text = _message_text(message)
        if text:
            return text
    return None if _TEXTS.isdisjoint(span.attributes) else text_or_none(first_of(span.attributes, *names.OUTPUT_TEXT))


def _input_messages(span: Span) -> list[tuple[str, str | None]]:
    found = _messages(span, _GIVEN)
    return [(str(message.get("role", "user")), _message_text(message)) for message in found]


def _messages(span: Span, places: _Messages) -> list[dict[str, Any]]:
    attributes = span.attributes
    found: list[dict[str, Any]] = []
    if not places.any_key.isdisjoint(attributes):
        found = _as_messages(container_in(first_of(attributes, *places.keys)))
    if not found:
        for key in attributes:
            if key.startswith(places.starts):
                found = _spread(attributes, places.indexed)
                break
    for event in span.events:
        if event.name in places.events:
            inner = container_in(first_of(event.attributes, *places.keys, *names.EVENT_CONTENT))
            found = [*found, *_as_messages(inner)]
    return found


def _spread(attributes: dict[str, Json], indexed: tuple[str, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for prefix in indexed:
        found = found or [dict_of(entry.get("message")) or entry for entry in _unflattened(attributes, prefix)]
    return found


def _as_messages(value: Json) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [{"content": value}]
    if isinstance(value, dict):
        inner = value.get("messages")
        if isinstance(inner, list):
            return [entry for entry in inner if isinstance(entry, dict)]
        if isinstance(value.get("prompt"), str):
            return [{"content": value["prompt"]}]
        return [dict_of(value.get("message")) or value]
    return [entry for entry in list_of(value) if isinstance(entry, dict)]


def _unflattened(attributes: dict[str, Json], prefix: str) -> list[dict[str, Any]]:
    """`prefix.0.message.role` and the like as a list of objects."""
    groups: dict[int, dict[str, Json]] = {}
    start = f"{prefix}."
    for key, value in attributes.items():
        found = _INDEX.match(key[len(start) :]) if key.startswith(start) else None
        if found is not None:
            groups.setdefault(int(found.group(1)), {})[found.group(2)] = value
    return [_nested(groups[index]) for index in sorted(groups)]


def _nested(flat: dict[str, Json]) -> dict[str, Any]:
    # Only the shapes of the conventions are unfolded: message.*, message.contents.N.*, tool_calls.N.*.
    if any(key.startswith("message.") for key in flat):
        return {"message": _nested({key.removeprefix("message."): value for key, value in flat.items()})}
    if any(key.startswith("tool_call.") for key in flat):
        flat = {key.removeprefix("tool_call.").removeprefix("function."): value for key, value in flat.items()}
    result: dict[str, Any] = {key: value for key, value in flat.items() if "." not in key}
    calls = _unflattened(flat, "tool_calls") if any(key.startswith("tool_calls.") for key in flat) else []
    if calls:
        result["tool_calls"] = calls
    contents = [value for key, value in flat.items() if key.startswith("contents.") and key.endswith("message_content.text")]
    if contents and "content" not in result:
        result["content"] = "".join(value for value in contents if isinstance(value, str))
    return result


def _message_text(message: dict[str, Any]) -> str | None:
    content = container_in(first_of(message, "parts", "content", "text"))
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in list_of(content):
        if isinstance(part, dict) and part.get("type", "text") in ("text", "output_text"):
            text = first_of(part, "content", "text")
            if isinstance(text, str):
                texts.append(text)
    return "".join(texts) if texts else None


def _output_value(span: Span) -> Json:
    return _unwrapped_output(_value_at(span, names.OUTPUT_VALUE))


def _value_at(span: Span, keys: tuple[str, ...]) -> Json:
    """The value of the first of these attributes that is there.

    What Traceloop records is JSON, so its text stands in quotes; so does OpenInference's where it says that it is JSON.
    """
    key, value = "", None
    attributes = span.attributes
    for key in keys:
        if key in attributes and (value := attributes[key]) is not None:
            break
    if value is None:
        return None
    if isinstance(value, str) and value[:1] == '"' and (key in _ENTITY_KEYS or attributes.get(_MIME.get(key, "")) == _JSON):
        inner = embedded(value)
        return inner if isinstance(inner, str) else value
    return container_in(value)


def _unwrapped_output(value: Json) -> Json:
    # Traceloop: {"output": ..., "kwargs": {...}}.
    if isinstance(value, dict) and "kwargs" in value and _ENTITY_OUTPUT.issuperset(value):
        return first_of(value, "outputs", "output")
    return value


def _unwrapped_arguments(value: Json) -> Json:
    # Traceloop: {"inputs": {...}, "input_str": "...", "kwargs": {...}, ...} or {"args": [...], "kwargs": {...}}.
    if not isinstance(value, dict) or "kwargs" not in value or not _ENTITY_INPUT.issuperset(value):
        return value
    if "args" in value:
        return value["kwargs"] or value["args"]
    return first_of(value, "inputs", "input_str")


def _exception(span: Span) -> str | None:
    for event in span.events:
        if event.name == "exception":
            return text_or_none(first_of(event.attributes, "exception.message", "exception.type"))
    return None
