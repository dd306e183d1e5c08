"""The call a tool span is: its name, what was passed, what came back, and whether it failed."""

from __future__ import annotations

import re
from typing import Any

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.calls import CONTENT_ERROR, PROTOCOL_ERROR, mcp_error, read_arguments
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces.attribute_values import decode_attribute
from proctor.evidence.traces.message_reader import read_result
from proctor.evidence.traces.model_span import find_duration_ms
from proctor.evidence.values.access import dict_or_empty, find_first, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.near_miss import is_misspelt
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json, ToolCall

_SPAN_NAME = re.compile(r"^(?:Tool\.|(?:execute_tool|MCP send tools/call|tools/call|running tool|Function|tool)[ :]+(?=\S))", re.IGNORECASE)
_SPAN_SUFFIX = re.compile(r"\.(?:__call__|run|_run|call|acall|tool|task)$")
_EVERY_TOOL = frozenset(
    (
        *("", "ai.toolcall", "execute_tool", "running tool", "running tools", "tool", "tools/call", "mcp send tools/call", "function"),
        *("tool_call", "mcp_tool_call", "toolinvoker", "haystack.agent.step.tool", "haystack.tool.invoke", "call_tool", "tool.call"),
    )
)
"""Names of spans that conventions give to the call of any tool."""
_CLASSES = frozenset(("DynamicStructuredTool", "DynamicTool", "StructuredTool", "FunctionTool", "BaseTool", "Tool", "SimpleTool"))
"""Classes of frameworks that an instrumentation may name in place of the tool."""
_ENTITY_INPUT = frozenset(("inputs", "input_str", "args", "kwargs", "tags", "metadata", "sanitize_inputs_outputs"))
_ENTITY_OUTPUT = frozenset(("outputs", "output", "kwargs"))
_PLACEHOLDERS = ("N/A", "<not serializable>", "[REDACTED]", "__REDACTED__", "[Scrubbed due to ")
"""What instrumentations write where a value could not, or must not, be recorded."""
_NAMING = (*names.TOOL_NAME, names.TOOL_ENTITY)
_MESSAGE_MARKS = frozenset(("tool_call_id", "status", "type", "additional_kwargs"))


def read_tool_call(span: Span, node: str | None) -> ToolCall:
    """Return the call a tool span is; `arguments` is `None` where they were not captured."""
    attributes = span.attributes
    result, told = _read_result(span)
    message = _find_message(span)
    error, kind = (told, CONTENT_ERROR) if told is not None else (mcp_error(result), CONTENT_ERROR)
    # What the span itself says of its failure comes before what its result says.
    if _has_failed(span):
        error = span.message or _find_exception(span) or as_text(find_first(attributes, *names.TOOL_ERRORS, names.ERROR_TYPE)) or error
        error = error or as_text(result) or "the call failed"
        kind = CONTENT_ERROR if attributes.get(names.ERROR_TYPE) == names.TOOL_ERROR else PROTOCOL_ERROR
    return ToolCall(
        name=text_or_none(message.get("name")) or find_tool_name(span),
        arguments=_read_arguments(span),
        result=result,
        error=error,
        error_kind=kind if error is not None else None,
        duration_ms=find_duration_ms(span),
        node=node,
        server=text_or_none(find_first(attributes, *names.TOOL_SERVER)),
        id=text_or_none(find_first(attributes, *names.TOOL_CALL_ID) or message.get("tool_call_id")),
    )


def _find_message(span: Span) -> dict[str, Any]:
    """Return the message LangChain's tools give back; it knows the tool and the call better than the span around it."""
    for key in names.TOOL_RESULT:
        if key not in span.attributes:  # nearly always, and many times as fast as decoding nothing
            continue
        written = span.attributes[key]
        # The text of such a message names the call; an escape could hide the name. To look is far cheaper than to decode.
        if isinstance(written, str) and "tool_call_id" not in written and "\\" not in written:
            return {}
        value = decode_attribute(span.attributes, key)
        if value is None:
            continue
        for _ in range(3):
            if not isinstance(value, dict):
                return {}
            if isinstance(value.get("tool_call_id"), str) and "content" in value:
                return value
            value = find_first(value, "kwargs", "output", "data")
        return {}
    return {}


def find_tool_name(span: Span) -> str:
    """Return the name of the tool a span called."""
    told = _find_told_name(span)
    if told is not None:
        return told
    return _SPAN_SUFFIX.sub("", _SPAN_NAME.sub("", span.name))


def _find_told_name(span: Span) -> str | None:
    attributes = span.attributes
    for key in _NAMING:
        if key not in attributes:
            continue
        value = decode_attribute(attributes, key)
        if isinstance(value, str) and value and key != "fastmcp.component.key":
            return _SPAN_SUFFIX.sub("", value) if key == names.TOOL_ENTITY else value
    if "{name}" in span.name and isinstance(attributes.get("name"), str):
        return attributes["name"]
    return None


def is_named_tool(span: Span) -> bool:
    """Return whether a span tells which tool it called: in an attribute, or by a name that is not that of every tool or of a class."""
    told = text_or_none(_find_message(span).get("name")) or _find_told_name(span)
    if told is not None:
        return told not in _CLASSES
    # MLflow calls the span of a callable object by its class.
    is_class = span.name.endswith(".__call__") and span.scope.startswith("mlflow.")
    return span.name.strip().lower() not in _EVERY_TOOL and not is_class


def _has_failed(span: Span) -> bool:
    attributes = span.attributes
    return (
        span.failed
        or str(find_first(attributes, *names.TOOL_STATUS)).lower() in ("error", "failed", "failure")
        or attributes.get("langfuse.observation.level") == "ERROR"
        # LangSmith leaves the status of a tool that raised as it was.
        or (bool(span.events) and any(event.name == "exception" for event in span.events))
    )


def _read_arguments(span: Span) -> Json:
    for key in names.TOOL_ARGUMENTS:
        if key not in span.attributes:
            continue
        value = decode_attribute(span.attributes, key)
        # `tool.parameters` is what a tool declares by OpenInference; only where it is no schema can it be what was passed.
        if value is None or _is_placeholder(value) or (key == "tool.parameters" and _is_schema(value)):
            continue
        return read_arguments(_unwrap_arguments(value))
    for event in span.events:
        if event.name == "gen_ai.tool.message":
            value = decode_container(find_first(event.attributes, "content", "body"))
            return read_arguments(value) if value is not None else None
    return None


def has_torn_arguments(span: Span) -> bool:
    """Return whether a part of what Traceloop wraps around arguments is there, beside things it never puts there."""
    value = dict_or_empty(decode_attribute(span.attributes, "traceloop.entity.input"))
    if _ENTITY_INPUT.issuperset(value):
        return False
    return not _ENTITY_INPUT.isdisjoint(value) or any(is_misspelt(key, ("kwargs", "input_str")) for key in value)


def _unwrap_arguments(value: Json) -> Json:
    # Traceloop: {"inputs": {...}, "input_str": "...", "kwargs": {...}, ...}; Langfuse: {"args": [...], "kwargs": {...}}.
    if isinstance(value, dict) and value and _ENTITY_INPUT.issuperset(value):
        given = find_first(value, "inputs")
        if given is not None:
            return decode_container(given)
        if "kwargs" in value and (value["kwargs"] or not value.get("args")):
            inner = value["kwargs"]
            return inner if inner or "input_str" not in value else decode_container(value["input_str"])
        given = find_first(value, "args", "input_str")
        return decode_container(given[0]) if isinstance(given, list) and len(given) == 1 else given
    if isinstance(value, dict) and set(value) == {"tool_name", "arguments"}:
        return value["arguments"]
    if isinstance(value, dict) and isinstance(value.get("request"), dict):
        return dict_or_empty(value["request"].get("tool_call")).get("args", value)
    return value


def _read_result(span: Span) -> tuple[Json, str | None]:
    for key in names.TOOL_RESULT:
        if key not in span.attributes:
            continue
        value = decode_attribute(span.attributes, key)
        if value is not None and not _is_placeholder(value):
            return _unwrap_result(value)
    for event in span.events:
        if event.name == "gen_ai.choice":
            value = decode_container(find_first(event.attributes, "message", "body", "content"))
            if value is not None:
                return _unwrap_result({"content": value})
    return None, None


def _unwrap_result(value: Json) -> tuple[Json, str | None]:
    """Return the value a tool gave, out of what a framework wraps around it, and its error where the wrapping tells one."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], bool) and isinstance(value[1], dict) and "content" in value[1]:
        # AG2 before 0.10: whether it went well, and the message.
        inner, _ = _read(value[1], value[1]["content"])
        return inner, None if value[0] else as_text(inner) or "the call failed"
    if not isinstance(value, dict):
        return read_result({"content": value}).value, None
    if isinstance(value.get("data"), dict) and value.get("type") == "tool":
        return _unwrap_result(value["data"])
    if "response" in value and {"id", "name", "response", "will_continue", "scheduling", "parts"}.issuperset(value):
        return _unwrap_result(value["response"])
    if "kwargs" in value and isinstance(value["kwargs"], dict) and value.get("lc") is not None:
        return _unwrap_result(value["kwargs"])
    if "kwargs" in value and _ENTITY_OUTPUT.issuperset(value):
        return _unwrap_result(find_first(value, "outputs", "output"))
    if set(value) == {"output"} and isinstance(value["output"], dict):
        return _unwrap_result(value["output"])
    if isinstance(value.get("tool_output"), dict):
        return _unwrap_result(value["tool_output"])
    if "raw_output" in value and "is_error" in value:
        return value["raw_output"], (as_text(value["raw_output"]) or "the tool reported an error") if value["is_error"] is True else None
    if "blocks" in value and "tool_name" in value:
        return _read(value, value["blocks"])
    if set(value) == {"error"} and isinstance(value["error"], str) and value["error"]:
        return value, value["error"]  # How ADK and Gemini hand an exception back.
    if "content" in value and (not _MESSAGE_MARKS.isdisjoint(value) or set(value) == {"content"}) and "isError" not in value:
        return _read(value, value["content"])
    return value, None


def _read(value: dict[str, Any], content: Json) -> tuple[Json, str | None]:
    result = read_result({"content": content, "status": value.get("status"), "is_error": value.get("is_error")})
    return result.value, None if result.error is None else as_text(result.error)


def _is_schema(value: Json) -> bool:
    return isinstance(value, dict) and ("properties" in value or "$schema" in value) and ("type" in value or "$defs" in value)


def _is_placeholder(value: Json) -> bool:
    return isinstance(value, str) and value.startswith(_PLACEHOLDERS)


def _find_exception(span: Span) -> str | None:
    for event in span.events:
        if event.name == "exception":
            return text_or_none(find_first(event.attributes, "exception.message", "exception.type"))
    return None
