"""What a tool gave back, as messages tell it in any provider's words."""

from __future__ import annotations

from typing import Any

from proctor.evidence.calls import CONTENT_ERROR, says_error
from proctor.evidence.conversation import Result
from proctor.evidence.json_bytes import container_in
from proctor.evidence.shape import dict_of, first_of, text_or_none
from proctor.evidence.span_words import GOOD, NAME, RESULT_ID, VALUE
from proctor.evidence.text import as_text
from proctor.model.evidence import Json


def read_result(part: dict[str, Any]) -> Result:
    """Read what a tool gave back, in any provider's words."""
    value = first_of(part, *VALUE)
    whole = dict_of(container_in(value))
    if str(whole.get("type")).endswith("tool_result") and "content" in whole:
        return read_result(whole)  # The whole part, written where its text should be.
    origin = dict_of(part.get("origin"))
    failed = bool(part.get("is_error")) or bool(part.get("isError")) or _is_bad(part.get("status")) or part.get("error") is True
    told = part.get("error")
    error: Json = None
    if says_error(told) and told is not True:
        error = told
    elif isinstance(value, dict) and set(value) == {"error"} and isinstance(value["error"], str) and value["error"]:
        error = value["error"]
    elif failed or part.get("type") == "retry-prompt" or part.get("part_kind") == "retry-prompt":
        error = as_text(_plain_text(value)) or "the tool reported an error"
    return Result(
        id=text_or_none(first_of(part, *RESULT_ID) or origin.get("id")),
        name=text_or_none(first_of(part, *NAME) or origin.get("tool_name")),
        value=_result_value(value),
        error=error,
        kind=CONTENT_ERROR if error is not None else None,
        tells_end=error is not None or any(part.get(key) is not None for key in _ENDINGS),
    )


_ENDINGS = ("is_error", "isError", "status", "error", "outcome", "tool_call_error")
"""Members by which a result says whether the call went well."""


def tool_message(message: dict[str, Any]) -> Result:
    """Read a whole message of a tool as its result."""
    value = container_in(first_of(message, "content", "parts", "text", "blocks", "response", "result", "output"))
    failed = _is_bad(message.get("status")) or bool(message.get("is_error")) or bool(message.get("tool_call_error"))
    error = as_text(_plain_text(value)) or "the tool reported an error" if failed else None
    if error is None and isinstance(value, dict) and set(value) == {"error"} and isinstance(value["error"], str):
        error = value["error"]
    extra = dict_of(message.get("additional_kwargs"))
    return Result(
        id=text_or_none(first_of(message, "tool_call_id", "toolCallId", "call_id") or extra.get("tool_call_id") or message.get("id")),
        name=text_or_none(first_of(message, "name", "tool_name") or extra.get("name")),
        value=_result_value(value),
        error=error,
        kind=CONTENT_ERROR if error is not None else None,
        tells_end=error is not None or any(message.get(key) is not None for key in _ENDINGS),
    )


def _is_bad(status: Json) -> bool:
    """Whether a status tells a failure; a word nobody knows is none of success."""
    return status is not None and str(status).lower() not in GOOD


def _result_value(value: Json) -> Json:
    value = container_in(value)
    if isinstance(value, list) and value and all(_is_text_part(entry) for entry in value):
        return container_in(_plain_text(value))
    if isinstance(value, dict) and value.get("type") == "document":
        return container_in(dict_of(value.get("document")).get("data"))  # Cohere
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        if set(value[0]) == {"json"}:
            return value[0]["json"]  # Bedrock
        if value[0].get("type") == "document":
            return container_in(dict_of(value[0].get("document")).get("data"))  # Cohere
    if isinstance(value, dict) and value.get("type") in ("json", "text", "content") and "value" in value:
        return value["value"]
    return value


def _plain_text(value: Json) -> Json:
    if isinstance(value, list) and all(_is_text_part(entry) for entry in value):
        return "".join(
            str(first_of(dict_of(dict_of(entry).get("message_content")) or dict_of(entry), "text", "content")) for entry in value
        )
    return value


def _is_text_part(entry: Json) -> bool:
    part = dict_of(dict_of(entry).get("message_content")) or dict_of(entry)
    return isinstance(first_of(part, "text", "content"), str) and set(part) <= {"text", "content", "type", "block_type", "annotations"}
