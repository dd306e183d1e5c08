"""AI SDK: model messages with `tool-call` and `tool-result` parts, and UI messages with `parts` that hold call and result together.

Errors, as MCPJam reads them: a part with a non-blank `error`, or an output of type `error-text`, is a `protocol-error`; a result or output
that says `isError` is a `content-error`. An output of type `error-json` is a `protocol-error` too (MCPJam overlooks it). Text that
is only white space counts as none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.calls import CONTENT_ERROR, PROTOCOL_ERROR, mcp_error, read_arguments, says_error
from proctor.evidence.conversation import Message, Result, failure
from proctor.evidence.messages_common import role_of, text_of_content
from proctor.evidence.shape import dict_of, first_of, list_of, text_or_none
from proctor.evidence.usage import read_usage
from proctor.model.evidence import Json, ToolCall

_OUTPUT_TYPES = ("text", "json", "content", "error-text", "error-json", "execution-denied")


def marks(message: dict[str, Any]) -> bool:
    """Whether a message can only be the AI SDK's."""
    parts = [dict_of(part) for part in [*list_of(message.get("content")), *list_of(message.get("parts"))]]
    return any(part.get("type") in ("tool-call", "tool-result", "step-start") or _is_ui_tool(part) for part in parts) or (
        isinstance(message.get("parts"), list)
        and "role" in message
        and any(part.get("type") == "text" and "text" in part for part in parts)
    )


def read(messages: list[dict[str, Any]]) -> list[Message]:
    """Model messages or UI messages."""
    return [_message(message) for message in messages]


def _is_ui_tool(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and "toolCallId" in part and (kind.startswith("tool-") or kind == "dynamic-tool")


def _message(message: dict[str, Any]) -> Message:
    content = message["parts"] if isinstance(message.get("parts"), list) else message.get("content")
    parts = [dict_of(part) for part in list_of(content)]
    calls: list[ToolCall] = []
    results: list[Result] = []
    for part in parts:
        kind = part.get("type")
        if kind == "tool-result":
            results.append(_result(part))
        elif kind == "tool-call" or _is_ui_tool(part):
            calls.append(_call(part))
            if kind != "tool-call" and part.get("state") in ("output-available", "output-error"):
                results.append(_ui_result(part))
    text = text_of_content(content)
    role = role_of(message.get("role"))
    return Message(
        role=role,
        text=text if role == "user" or (text is not None and text.strip()) else None,
        calls=tuple(calls),
        results=tuple(results),
        usage=read_usage(dict_of(message.get("metadata")).get("usage")) or read_usage(message.get("usage")),
    )


def _call(part: dict[str, Any]) -> ToolCall:
    name = text_or_none(part.get("toolName")) or str(part.get("type")).removeprefix("tool-")
    return ToolCall(name=name, arguments=read_arguments(first_of(part, "input", "args")), id=text_or_none(part.get("toolCallId")))


def _result(part: dict[str, Any]) -> Result:
    output = first_of(part, "output", "result")
    wrapped = isinstance(output, dict) and output.get("type") in _OUTPUT_TYPES and ("value" in output or "reason" in output)
    value = first_of(output, "value", "reason") if wrapped else output
    error, kind = _error(part, output if wrapped else {}, value)
    return Result(id=text_or_none(part.get("toolCallId")), name=text_or_none(part.get("toolName")), value=value, error=error, kind=kind)


def _error(part: dict[str, Any], wrapper: dict[str, Any], value: Json) -> tuple[Json, str | None]:
    told = part.get("error")
    told = dict_of(told).get("message", told)
    if says_error(told):
        return told, PROTOCOL_ERROR
    if wrapper.get("type") in ("error-text", "error-json", "execution-denied"):
        return failure(value, "the call failed"), PROTOCOL_ERROR
    if part.get("isError") is True or wrapper.get("isError") is True:
        return mcp_error(value) or failure(value, "the tool reported an error"), CONTENT_ERROR
    error = mcp_error(value)
    return error, CONTENT_ERROR if error is not None else None


def _ui_result(part: dict[str, Any]) -> Result:
    if part.get("state") == "output-error":
        error = failure(part.get("errorText"), "the call failed")
        return Result(id=text_or_none(part.get("toolCallId")), error=error, kind=PROTOCOL_ERROR)
    return Result(id=text_or_none(part.get("toolCallId")), value=part.get("output"))


def with_failed_spans(calls: tuple[ToolCall, ...], spans: Json) -> tuple[ToolCall, ...]:
    """Calls that a trace's spans of category `tool` report as failed, marked so where the messages did not say it."""
    marked = list(calls)
    for span in map(dict_of, list_of(spans)):
        if span.get("category") == "tool" and span.get("status") == "error":
            index = _call_of_span(marked, span)
            if index is not None and not marked[index].failed():
                marked[index] = msgspec.structs.replace(marked[index], error="the call failed", error_kind=PROTOCOL_ERROR)
    return tuple(marked)


def _call_of_span(calls: list[ToolCall], span: dict[str, Any]) -> int | None:
    wanted = span.get("toolCallId")
    if wanted is not None:
        return next((index for index, call in enumerate(calls) if call.id == wanted), None)
    return next((index for index, call in enumerate(calls) if call.name == span.get("toolName") and not call.failed()), None)
