"""AI SDK: model messages with `tool-call` and `tool-result` parts; UI messages and Mastra's are read by `messages_ai_sdk_ui`.

Errors, as MCPJam reads them: a part with a non-blank `error`, or an output of type `error-text`, is a `protocol-error`; a result or output
that says `isError` is a `content-error`. An output of type `error-json` is a `protocol-error` too (MCPJam overlooks it). Text that
is only white space counts as none.

The result of a run, and its steps, are opened by `messages_ai_sdk_steps`.

Tried with ai 4, 5, 6 and 7: `response.messages`, `convertToModelMessages`; and @mastra/core 1 `response.messages`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.messages.ai_sdk_ui import is_tool, is_ui, read_ui
from proctor.evidence.messages.builder import Draft, Entries, Fields, iterate_blocks, read_role, require_key
from proctor.evidence.shared.calls import CONTENT_ERROR, PROTOCOL_ERROR, mcp_error, says_error
from proctor.evidence.shared.conversation import Message, Role, describe_failure
from proctor.evidence.shared.usage import read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, find_first, list_of
from proctor.model.evidence import Json, ToolCall

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "system": "system"}
_OUTPUT_TYPES = ("text", "json", "content", "error-text", "error-json", "execution-denied")
_MESSAGE_KEYS = frozenset(
    (
        "id",
        "providerOptions",
        "providerMetadata",
        "experimental_providerMetadata",
        "metadata",
        "createdAt",
        "threadId",
        "resourceId",
        "usage",
        "type",
    )
)
_SILENT = (
    *("reasoning", "redacted-reasoning", "reasoning-file", "image", "file", "source", "tool-approval-request", "tool-approval-response"),
    *("source-url", "source-document"),
)
_PART_KEYS = frozenset(
    (
        *("providerOptions", "providerMetadata", "experimental_providerMetadata", "providerExecuted", "dynamic", "title", "toolMetadata"),
        *("preliminary", "experimental_content", "id", "annotations"),
    )
)
_CALLING = ("tool-call", "tool-result", "tool-error", "tool-approval-request", "tool-approval-response")


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be the AI SDK's."""
    if is_ui(message):
        return True
    parts = [dict_or_empty(part) for part in list_of(message.get("content"))]
    # BeeAI's parts have the same types, with names in snake case.
    own = any((part.get("type") in _CALLING and "tool_name" not in part) or is_tool(part) for part in parts)
    return "role" in message and (
        own or any("providerOptions" in part and "type" in part for part in parts) or "providerOptions" in message
    )


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read model messages or UI messages."""
    return [read_ui(entry, at, unknowns) if is_ui(entry) else _read_message(entry, at, unknowns) for at, entry in entries]


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    require_key(entry, at, "ai-sdk messages", "content")
    fields = Fields(entry, at, unknowns)
    draft = Draft(read_role(fields.take("role"), at, _ROLES, "ai-sdk messages"), at, unknowns)
    content = fields.take("content")
    for part in iterate_blocks(draft, content, f"{at}.content"):
        _add_part(draft, part)
    drop_blank_text(draft)
    draft.usage = read_usage(dict_or_empty(entry.get("metadata")).get("usage")) or read_usage(entry.get("usage"))
    fields.close(_MESSAGE_KEYS, role=draft.role)
    return draft.build()


def drop_blank_text(draft: Draft) -> None:
    """Drop what an assistant says if it is only white space."""
    if draft.role != "user" and not "".join(draft.texts).strip():
        draft.texts.clear()


def _add_part(draft: Draft, part: Fields) -> None:
    kind = part.take("type")
    if kind == "text":
        draft.add_text(part.take("text"), part.at)
        part.close((*_PART_KEYS, "state"), role=draft.role)
    elif kind == "tool-call":
        draft.add_call(part.take("toolName"), part.take("input", "args"), part.at, id=part.take("toolCallId"))
        part.close((*_PART_KEYS, "invalid", "error", "errorText"))
    elif kind in ("tool-result", "tool-error"):
        _add_result(draft, part, failed=kind == "tool-error")
    elif kind not in _SILENT:
        draft.mark_everything(part.at, f"a part of type {kind!r} is not understood")


def _add_result(draft: Draft, part: Fields, *, failed: bool) -> None:
    # Since version 5 an output says of which type it is.
    is_typed = part.left.get("output") is not None
    output = part.take("output", "result")
    wrapped = isinstance(output, dict) and output.get("type") in _OUTPUT_TYPES and ("value" in output or "reason" in output)
    if is_typed and not wrapped:
        part.mark(("tool_results",), f".output: an output of type {dict_or_empty(output).get('type')!r} is not understood")
    value = find_first(output, "value", "reason") if wrapped else output
    error, kind = _read_error(part, output if wrapped else {}, value)
    # JSON writes nothing of an error that was thrown.
    if failed and (error is None or error == {}):
        error, kind = "the call failed", PROTOCOL_ERROR
    draft.add_result(value, part.at, id=part.take("toolCallId"), name=part.take("toolName"), error=error, kind=kind or CONTENT_ERROR)
    part.close((*_PART_KEYS, "args", "input"), role="tool")


def _read_error(part: Fields, wrapper: dict[str, Any], value: Json) -> tuple[Json, str | None]:
    told = part.take("error")
    told = dict_or_empty(told).get("message", told)
    is_error = part.take_flag("isError")
    if says_error(told):
        return told, PROTOCOL_ERROR
    if wrapper.get("type") in ("error-text", "error-json", "execution-denied"):
        return describe_failure(value, "the call failed"), PROTOCOL_ERROR
    if is_error or wrapper.get("isError") is True:
        return mcp_error(value) or describe_failure(value, "the tool reported an error"), CONTENT_ERROR
    error = mcp_error(value)
    return error, CONTENT_ERROR if error is not None else None


def mark_failed_calls(calls: tuple[ToolCall, ...], spans: Json) -> tuple[ToolCall, ...]:
    """Mark calls that a trace's spans of category `tool` report as failed, where the messages did not say it."""
    marked = list(calls)
    for span in map(dict_or_empty, list_of(spans)):
        if span.get("category") == "tool" and span.get("status") == "error":
            index = _call_of_span(marked, span)
            if index is not None and not marked[index].failed():
                marked[index] = msgspec.structs.replace(marked[index], error="the call failed", error_kind=PROTOCOL_ERROR)
    return tuple(marked)


def _call_of_span(calls: list[ToolCall], span: dict[str, Any]) -> int | None:
    wanted = span.get("toolCallId")
    if wanted is not None:
        return next((index for index, call in enumerate(calls) if call.id == wanted), None)
    # A call that is marked already is passed over, so that two failed spans of one tool mark two calls.
    return next((index for index, call in enumerate(calls) if call.name == span.get("toolName") and not call.failed()), None)
