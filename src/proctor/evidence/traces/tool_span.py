"""The tools that ran: each tool span as a call with its name, arguments, result and error, and each call once.

An agent framework, an MCP client and an MCP server may each write a span for one call.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Any

from proctor.evidence.shared.call_identity import Pair, can_agree, can_be_one_tool, is_name_at_server, strip_framework_prefix
from proctor.evidence.shared.calls import CONTENT_ERROR, PROTOCOL_ERROR, read_written_arguments
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.attribute_shapes import decode_attribute, find_value, unquote
from proctor.evidence.traces.message_reader import read_result
from proctor.evidence.traces.request import MAX_PARALLEL, is_within
from proctor.evidence.traces.step import Step
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.unknowns.markers import is_redacted
from proctor.evidence.unknowns.statuses import find_failure
from proctor.evidence.values.access import dict_or_empty, find_first, is_misspelt, list_of, split_words, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json, ToolCall, find_result_error

_SPAN_NAME = re.compile(r"^(?:Tool\.|(?:execute_tool|MCP send tools/call|tools/call|running tool|Function|tool)[ :]+(?=\S))", re.IGNORECASE)
_SPAN_SUFFIX = re.compile(r"\.(?:__call__|run|_run|call|acall|tool|task)$")
_ANY_TOOL = {"", "running tool", "running tools", "mcp send tools/call"} | split_words("""
    ai.toolcall execute_tool tool tools/call function tool_call mcp_tool_call toolinvoker haystack.agent.step.tool haystack.tool.invoke
    call_tool tool.call
    """)
"""Span names that conventions use for any tool."""
_CLASSES = split_words("DynamicStructuredTool DynamicTool StructuredTool FunctionTool BaseTool Tool SimpleTool")
"""Framework classes that an instrumentation may write instead of the tool's name."""
_ENTITY_INPUT = split_words("inputs input_str args kwargs tags metadata sanitize_inputs_outputs")
_ARGUMENT_WRAPPERS = _ENTITY_INPUT | {"tool_name", "request", "input"}
_ENTITY_OUTPUT = frozenset(("outputs", "output", "kwargs"))
_PLACEHOLDERS = ("N/A", "<not serializable>", "[Scrubbed due to ")
"""Placeholders for values that could not be recorded."""
_MESSAGE_MARKS = frozenset(("tool_call_id", "status", "type", "additional_kwargs"))
_WRAPPERS = split_words("data response kwargs output outputs tool_output raw_output blocks error content")
_SCHEMA, _TYPED = frozenset(("properties", "$schema")), frozenset(("type", "$defs"))
_STRUCTURED = ("[", "{", '"', "<")


@dataclass(slots=True, eq=False)
class ExecutedTool:
    """A tool that ran, and the first span that records it."""

    call: ToolCall
    step: Step


def find_tools(tree: SpanTree) -> list[ExecutedTool]:
    """Return the tools that ran, each once although several spans may record it."""
    steps = tree.list_kind("tool")
    found: list[ExecutedTool] = []
    if all(step.span.scope == steps[0].span.scope and "tool" not in step.above for step in steps):
        # No span records the call of another one.
        return [ExecutedTool(read_tool_call(step), step) for step in steps]
    of_step: dict[Step, ExecutedTool] = {}
    by_name: dict[str, deque[ExecutedTool]] = {}
    for step in steps:
        call = read_tool_call(step)
        # Only the latest few are compared: all of them would cost the square of the calls of one tool.
        recent = by_name.setdefault(strip_framework_prefix(call.name), deque(maxlen=MAX_PARALLEL))
        known_tool = _find_outer_record(step, call, of_step) if "tool" in step.above else None
        if known_tool is None:
            spans = ((tool, tool.step.span) for tool in reversed(recent) if can_be_one_tool(tool.call.name, call.name))
            known_tool = next((tool for tool, span in spans if is_within(span, step.span) or is_within(step.span, span)), None)
        if known_tool is None:
            known_tool = ExecutedTool(call, step)
            found.append(known_tool)
            recent.append(known_tool)
        else:
            # The outermost span records the agent's intent; inner spans only fill in missing fields.
            known_tool.call = Pair(known_tool.call, call).merge()
        of_step[step] = known_tool
    return found


def _find_outer_record(step: Step, inner: ToolCall, of_step: dict[Step, ExecutedTool]) -> ExecutedTool | None:
    """Return the tool of the enclosing tool span if both record the same call, for example an MCP span inside a framework's span."""
    outer_step = step.above["tool"]
    outer_tool = of_step.get(outer_step)
    # An agent between two tool spans means that the outer tool ran it, and the inner call is the inner agent's own.
    if outer_tool is None or step.find_above("tool", "model", "agent") is not outer_step:
        return None
    outer = outer_tool.call
    if not can_agree(outer.arguments, inner.arguments) and not can_agree(inner.arguments, outer.arguments):
        return None
    if outer.name == inner.name or ("mcp.method.name" in step.attributes and is_name_at_server(outer.name, inner.name)):
        return outer_tool
    return outer_tool if step.span.scope != outer_tool.step.span.scope and can_be_one_tool(outer.name, inner.name) else None


def find_output_tools(tree: SpanTree) -> tuple[set[str], set[str]]:
    """Return the tools that only return the answer: by the name of their spans, and as models list them."""
    spans = {find_tool_name(step) for step in tree.list_kind("tool") if step.span.name in vocabulary.OUTPUT_TOOLS}
    listed = {
        str(dict_or_empty(tool).get("name"))
        for step in tree.list_kind("model")
        if vocabulary.OUTPUT_LISTS in step.attributes
        for tool in list_of(dict_or_empty(decode_attribute(step.attributes, vocabulary.OUTPUT_LISTS)).get("output_tools"))
    }
    return spans, listed


def read_tool_call(step: Step) -> ToolCall:
    """Return the call of a tool span; its arguments are None if they were not captured."""
    span, names, attributes, holder = step.span, step.names, step.attributes, step.holder
    result, error = _read_result(step)
    message = _find_message(step)
    error, kind = (error if error is not None else find_result_error(result)), CONTENT_ERROR
    raised = [event.attributes for event in span.events if event.name in vocabulary.FAILED_EVENTS] if span.events else ()
    outcomes = {key.rpartition(".")[2]: attributes[key] for key in names["tool_outcome"]}
    # The span's own error comes before that of its result. LangSmith does not change the status of a tool that raised.
    if (
        step.failed
        or raised
        or (outcomes and find_failure(outcomes, own=True) is not None)
        or attributes.get("langfuse.observation.level") == "ERROR"
    ):
        thrown = text_or_none(find_first(raised[0], "exception.message", "exception.type", "message")) if raised else None
        error = span.message or thrown or as_text(find_value(attributes, names["tool_errors"]) or outcomes.get("error")) or error
        error = error or as_text(result) or "the call failed"
        kind = CONTENT_ERROR if attributes.get(vocabulary.ERROR_TYPE) == vocabulary.TOOL_ERROR else PROTOCOL_ERROR
    return ToolCall(
        name=text_or_none(message.get("name")) or find_tool_name(step),
        arguments=_read_arguments(step),
        result=result,
        error=error,
        error_kind=kind if error is not None else None,
        duration_ms=step.find_duration_ms(),
        node=holder.node_name if holder is not None else None,
        server=text_or_none(find_value(attributes, names["tool_server"])) if names["tool_server"] else None,
        id=text_or_none(find_value(attributes, names["tool_call_id"]) or message.get("tool_call_id")),
    )


def _find_message(step: Step) -> dict[str, Any]:
    """Return the message that LangChain's tools return; it names the tool and the call better than the span around it."""
    for key in step.names["tool_result"]:
        written = step.attributes[key]
        # The text of such a message contains the call; an escape could hide the name. A search is far cheaper than decoding.
        if isinstance(written, str) and "tool_call_id" not in written and "\\" not in written:
            return {}
        value = decode_attribute(step.attributes, key)
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


def find_tool_name(step: Step) -> str:
    """Return the name of the tool of a span."""
    return _find_recorded_name(step) or _SPAN_SUFFIX.sub("", _SPAN_NAME.sub("", step.span.name))


def _find_recorded_name(step: Step) -> str | None:
    if isinstance(step.tool_name, bool):
        step.tool_name = text_or_none(step.attributes.get("name")) if "{name}" in step.span.name else None
        for key in step.names["tool_name"]:
            value = unquote(step.attributes[key])
            if isinstance(value, str) and value and key != "fastmcp.component.key" and not is_redacted(value):
                step.tool_name = _SPAN_SUFFIX.sub("", value) if key == vocabulary.TOOL_ENTITY else value
                break
    return step.tool_name


def is_named_tool(step: Step) -> bool:
    """Return whether a span names its tool: in an attribute, or by a span name that is neither generic nor a class."""
    named = _find_recorded_name(step)
    if named is None or named in _CLASSES:
        named = text_or_none(_find_message(step).get("name")) or named
    if named is not None:
        return named not in _CLASSES
    # MLflow names the span of a callable object after its class.
    is_class = step.span.name.endswith(".__call__") and step.span.scope.startswith("mlflow.")
    return step.span.name.strip().lower() not in _ANY_TOOL and not is_class and not is_redacted(step.span.name)


def _read_arguments(step: Step) -> Json:
    for key in step.names["tool_arguments"]:
        value = decode_attribute(step.attributes, key)
        # In OpenInference, `tool.parameters` is the declared schema; only a value that is not a schema can be the arguments.
        is_schema = key == "tool.parameters" and isinstance(value, dict) and not _SCHEMA.isdisjoint(value) and not _TYPED.isdisjoint(value)
        if value is None or is_schema or _is_placeholder(value):
            continue
        if isinstance(value, dict) and _ARGUMENT_WRAPPERS.isdisjoint(value):
            return value
        if isinstance(value, dict) and value.keys() == {"input"} and "langsmith.span.kind" in step.attributes:
            given = read_written_arguments(value["input"])  # the text that LangChain's tool received
            return given if isinstance(given, dict) and value["input"] else value
        return read_written_arguments(_unwrap_arguments(value))
    for event in step.span.events:
        if event.name == "gen_ai.tool.message":
            value = decode_container(find_first(event.attributes, "content", "body"))
            return read_written_arguments(value) if value is not None else None
    return None


def has_damaged_arguments(step: Step) -> bool:
    """Return whether the wrapper that Traceloop puts around arguments is incomplete, or has fields that it never has."""
    value = dict_or_empty(decode_attribute(step.attributes, "traceloop.entity.input"))
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


def _read_result(step: Step) -> tuple[Json, str | None]:
    for key in step.names["tool_result"]:
        value = decode_attribute(step.attributes, key)
        if value is not None and not _is_placeholder(value):
            return _unwrap_result(value)
    for event in step.span.events:
        if event.name == "gen_ai.choice":
            value = decode_container(find_first(event.attributes, "message", "body", "content"))
            if value is not None:
                return _unwrap_result({"content": value})
    return None, None


def _unwrap_result(value: Json) -> tuple[Json, str | None]:
    """Return the result of a tool without the framework's wrapper, and the error that the wrapper reports."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], bool) and isinstance(value[1], dict) and "content" in value[1]:
        # AG2 before 0.10: whether it succeeded, and the message.
        inner, _ = _read(value[1], value[1]["content"])
        return inner, None if value[0] else as_text(inner) or "the call failed"
    if not isinstance(value, dict):
        return (value if isinstance(value, str) and value[:1] not in _STRUCTURED else read_result({"content": value}).value), None
    if _WRAPPERS.isdisjoint(value):
        return value, None
    if "kwargs" in value and value.get("lc") is None and _ENTITY_OUTPUT.issuperset(value):
        return _unwrap_result(find_first(value, "outputs", "output"))
    if "response" in value and {"id", "name", "response", "will_continue", "scheduling", "parts"}.issuperset(value):
        return _unwrap_result(value["response"])
    for key, is_wrapper in (
        ("data", value.get("type") == "tool"),
        ("kwargs", "lc" in value),
        ("output", len(value) == 1),
        ("tool_output", True),
    ):
        if is_wrapper and isinstance(value.get(key), dict):
            return _unwrap_result(value[key])
    if "raw_output" in value and "is_error" in value:
        return value["raw_output"], (as_text(value["raw_output"]) or "the tool reported an error") if value["is_error"] is True else None
    if "blocks" in value and "tool_name" in value:
        return _read(value, value["blocks"])
    if set(value) == {"error"} and isinstance(value["error"], str) and value["error"]:
        return value, value["error"]  # How ADK and Gemini return an exception.
    if "content" in value and (not _MESSAGE_MARKS.isdisjoint(value) or set(value) == {"content"}) and "isError" not in value:
        return _read(value, value["content"])
    return value, None


def _read(value: dict[str, Any], content: Json) -> tuple[Json, str | None]:
    result = read_result({"content": content, "status": value.get("status"), "is_error": value.get("is_error")})
    return result.value, None if result.error is None else as_text(result.error)


def _is_placeholder(value: Json) -> bool:
    return isinstance(value, str) and (value.startswith(_PLACEHOLDERS) or is_redacted(value))
