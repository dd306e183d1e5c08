"""MCPLab `trace.jsonl`: one `scenario_run` per line, after a `trace_meta` line that is no evidence.

The final text is that of the last assistant message without a tool call: text beside tool calls never counts. A run that reached
its turn limit has the final text "", which our own traces say with `final_text`. A run that ended in an error is recorded without
messages: its text and calls are not known, so nothing about them can pass. `is_error` means that the call raised, a `protocol-error`; a
result that itself says `isError` is a `content-error` (MCPLab counts it as a success, and has no check that looks). Lines of other types
are skipped.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.calls import CONTENT_ERROR, PROTOCOL_ERROR, mcp_error, read_arguments
from proctor.evidence.json_bytes import container_in
from proctor.evidence.shape import dict_of, list_at, list_of, object_at, text_at, text_or_none
from proctor.evidence.text import as_text, json_in
from proctor.evidence.times import iso_ms_between
from proctor.evidence.usage import add_usage, read_usage
from proctor.model.account import UNSEEN_IN_A_PAGE, Account
from proctor.model.evidence import Evidence, Json, ToolCall

_READ_FROM_OUTSIDE = "external"
"""What MCPLab writes for the model of a browser agent."""
_KEPT = ("agent", "provider", "model", "run_index", "request_id", "pass", "outcome", "trace_version")


def sniff(document: Json) -> bool:
    """Whether this is a line of a trace."""
    if not isinstance(document, dict):
        return False
    return document.get("type") == "trace_meta" or (document.get("type") == "scenario_run" and "scenario_id" in document)


def read(document: Json) -> list[Evidence]:
    """The run of one line; nothing for a `trace_meta` line."""
    entry = object_at(document, "$")
    if entry.get("type") == "trace_meta":
        return []
    messages = [
        object_at(message, f"$.messages[{index}]") for index, message in enumerate(list_at(entry.get("messages", []), "$.messages"))
    ]
    error = as_text(entry.get("error")) or None
    text = _final_text(messages)
    if text is None:
        text = text_or_none(entry.get("final_text"))
    calls = _calls(messages)
    # A chat page in a browser is read from outside: of its tools nothing is known.
    unseen = entry.get("model") == _READ_FROM_OUTSIDE
    if text is None and error is None:
        text = ""
    return [
        Evidence(
            case=text_at(entry.get("scenario_id"), "$.scenario_id"),
            input=next((_text(message) for message in messages if message.get("role") == "user"), None),
            text=text,
            body=json_in(text),
            tool_calls=calls if calls or (error is None and not unseen) else None,
            duration_ms=iso_ms_between(entry.get("ts_start"), entry.get("ts_end")),
            usage=add_usage(read_usage(message.get("usage")) for message in messages),
            now=text_or_none(entry.get("ts_start")),
            error=error,
            account=Account("mcplab", {"tool_calls": UNSEEN_IN_A_PAGE}) if unseen and not calls else None,
            metadata={key: entry[key] for key in _KEPT if entry.get(key) is not None},
        )
    ]


def _blocks(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [block for block in list_of(message.get("content")) if isinstance(block, dict) and block.get("type") == kind]


def _text(message: dict[str, Any]) -> str:
    if isinstance(message.get("content"), str):
        return message["content"]
    return "".join(block["text"] for block in _blocks(message, "text") if isinstance(block.get("text"), str))


def _final_text(messages: list[dict[str, Any]]) -> str | None:
    for message in reversed(messages):
        if message.get("role") == "assistant" and not _blocks(message, "tool_use"):
            return _text(message)
    return None


def _calls(messages: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
    results = {text_or_none(block.get("tool_use_id")): block for message in messages for block in _blocks(message, "tool_result")}
    used = [block for message in messages for block in _blocks(message, "tool_use")]
    return tuple(_call(block, results.get(text_or_none(block.get("id")))) for block in used)


def _call(block: dict[str, Any], result: dict[str, Any] | None) -> ToolCall:
    call = ToolCall(
        name=as_text(block.get("name")) or "",
        arguments=read_arguments(block.get("input")),
        server=text_or_none(block.get("server")),
        id=text_or_none(block.get("id")),
    )
    if result is None:
        return call
    texts = [part["text"] for part in list_of(result.get("content")) if isinstance(part, dict) and isinstance(part.get("text"), str)]
    # The text is the compact JSON of the whole MCP result, or {"error": ...}; a long one is cut and no longer JSON.
    value = container_in("".join(texts)) if texts else result.get("content")
    error, kind = mcp_error(value), CONTENT_ERROR
    if result.get("is_error") is True:
        error, kind = as_text(dict_of(value).get("error")) or as_text(value) or "the call failed", PROTOCOL_ERROR
    duration = result.get("duration_ms")
    return msgspec.structs.replace(
        call,
        result=value,
        error=error,
        error_kind=kind if error is not None else None,
        duration_ms=duration if isinstance(duration, (int, float)) and not isinstance(duration, bool) else None,
    )
