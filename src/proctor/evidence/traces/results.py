"""What a tool gave back, as messages tell it in any provider's words."""

from __future__ import annotations

from typing import Any

from proctor.evidence.shared.calls import CONTENT_ERROR, says_error
from proctor.evidence.shared.conversation import ToolResult
from proctor.evidence.traces.message_vocabulary import GOOD, NAME, RESULT_ID, VALUE
from proctor.evidence.values.access import dict_or_empty, find_first, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json


def read_result(part: dict[str, Any]) -> ToolResult:
    """Read what a tool gave back, in any provider's words."""
    value = find_first(part, *VALUE)
    whole = dict_or_empty(decode_container(value))
    if str(whole.get("type")).endswith("tool_result") and "content" in whole:
        return read_result(whole)  # The whole part, written where its text should be.
    origin = dict_or_empty(part.get("origin"))
    failed = bool(part.get("is_error")) or bool(part.get("isError")) or _is_bad(part.get("status")) or part.get("error") is True
    told = part.get("error")
    error: Json = None
    if says_error(told) and told is not True:
        error = told
    elif isinstance(value, dict) and set(value) == {"error"} and isinstance(value["error"], str) and value["error"]:
        error = value["error"]
    # Pydantic AI hands a call that failed back to the model as a prompt to try again.
    elif failed or part.get("type") == "retry-prompt" or part.get("part_kind") == "retry-prompt":
        error = as_text(_read_plain_text(value)) or "the tool reported an error"
    return ToolResult(
        id=text_or_none(find_first(part, *RESULT_ID) or origin.get("id")),
        name=text_or_none(find_first(part, *NAME) or origin.get("tool_name")),
        value=_read_result_value(value),
        error=error,
        kind=CONTENT_ERROR if error is not None else None,
        tells_end=error is not None or any(part.get(key) is not None for key in _ENDINGS),
    )


_ENDINGS = ("is_error", "isError", "status", "error", "outcome", "tool_call_error")
"""Members by which a result says whether the call went well."""


def read_tool_message(message: dict[str, Any]) -> ToolResult:
    """Read a whole message of a tool as its result."""
    value = decode_container(find_first(message, "content", "parts", "text", "blocks", "response", "result", "output"))
    failed = _is_bad(message.get("status")) or bool(message.get("is_error")) or bool(message.get("tool_call_error"))
    error = as_text(_read_plain_text(value)) or "the tool reported an error" if failed else None
    if error is None and isinstance(value, dict) and set(value) == {"error"} and isinstance(value["error"], str):
        error = value["error"]
    # LlamaIndex keeps the id of the call and the name of the tool in here.
    extra = dict_or_empty(message.get("additional_kwargs"))
    return ToolResult(
        id=text_or_none(find_first(message, "tool_call_id", "toolCallId", "call_id") or extra.get("tool_call_id") or message.get("id")),
        name=text_or_none(find_first(message, "name", "tool_name") or extra.get("name")),
        value=_read_result_value(value),
        error=error,
        kind=CONTENT_ERROR if error is not None else None,
        tells_end=error is not None or any(message.get(key) is not None for key in _ENDINGS),
    )


def _is_bad(status: Json) -> bool:
    """Return whether a status tells a failure; an unknown word does not count as success."""
    return status is not None and str(status).lower() not in GOOD


def _read_result_value(value: Json) -> Json:
    value = decode_container(value)
    if isinstance(value, list) and value and all(_is_text_part(entry) for entry in value):
        return decode_container(_read_plain_text(value))
    if isinstance(value, dict) and value.get("type") == "document":
        return decode_container(dict_or_empty(value.get("document")).get("data"))  # Cohere
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        if set(value[0]) == {"json"}:
            return value[0]["json"]  # Bedrock
        if value[0].get("type") == "document":
            return decode_container(dict_or_empty(value[0].get("document")).get("data"))  # Cohere
    if isinstance(value, dict) and value.get("type") in ("json", "text", "content") and "value" in value:
        return value["value"]
    return value


def _read_plain_text(value: Json) -> Json:
    if isinstance(value, list) and all(_is_text_part(entry) for entry in value):
        return "".join(
            str(find_first(dict_or_empty(dict_or_empty(entry).get("message_content")) or dict_or_empty(entry), "text", "content"))
            for entry in value
        )
    return value


def _is_text_part(entry: Json) -> bool:
    part = dict_or_empty(dict_or_empty(entry).get("message_content")) or dict_or_empty(entry)
    return isinstance(find_first(part, "text", "content"), str) and set(part) <= {"text", "content", "type", "block_type", "annotations"}
