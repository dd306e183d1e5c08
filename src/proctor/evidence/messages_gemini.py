"""Gemini: `contents` with `parts`, the answer in `candidates`, tools as `functionCall` and `functionResponse`.

Responses come from role `user` or `function`; such a content is a turn only if it also has text. A response object with an
`error` member is a `content-error` (the API reserves `output` and `error` in it). Thoughts are not part of the text.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.calls import CONTENT_ERROR, read_arguments, says_error
from proctor.evidence.conversation import Message, Result
from proctor.evidence.messages_common import role_of
from proctor.evidence.shape import dict_of, first_of, list_of, text_or_none
from proctor.model.evidence import ToolCall


def is_response(document: dict[str, Any]) -> bool:
    """Whether this is a request, an answer, or both."""
    return isinstance(document.get("candidates"), list) or (
        isinstance(document.get("contents"), list) and any(marks(dict_of(content)) for content in document["contents"])
    )


def marks(content: dict[str, Any]) -> bool:
    """Whether a message can only be Gemini's: parts without a type."""
    parts = content.get("parts")
    return isinstance(parts, list) and all(isinstance(part, dict) and "type" not in part for part in parts)


def contents_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What was sent and the first candidate, in order."""
    candidates = [dict_of(candidate) for candidate in list_of(document.get("candidates"))]
    answer = [{"role": "model", **dict_of(candidates[0].get("content"))}] if candidates else []
    return [content for content in [*list_of(document.get("contents")), *answer] if isinstance(content, dict)]


def read(contents: list[dict[str, Any]]) -> list[Message]:
    """Contents with parts."""
    return [_message(content) for content in contents]


def _message(content: dict[str, Any]) -> Message:
    parts = [dict_of(part) for part in list_of(content.get("parts"))]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str) and part.get("thought") is not True]
    calls = [dict_of(first_of(part, "functionCall", "function_call")) for part in parts]
    results = [dict_of(first_of(part, "functionResponse", "function_response")) for part in parts]
    # A request may leave the role out; it is the user who speaks then.
    return Message(
        role=role_of(content.get("role", "user")),
        text="".join(texts) if texts else None,
        calls=tuple(_call(call) for call in calls if isinstance(call.get("name"), str)),
        results=tuple(_result(result) for result in results if result),
    )


def _call(call: dict[str, Any]) -> ToolCall:
    return ToolCall(name=call["name"], arguments=read_arguments(call.get("args")), id=text_or_none(call.get("id")))


def _result(result: dict[str, Any]) -> Result:
    response = result.get("response")
    error = dict_of(response).get("error")
    failed = says_error(error)
    return Result(
        id=text_or_none(result.get("id")),
        name=text_or_none(result.get("name")),
        value=response,
        error=error if failed else None,
        kind=CONTENT_ERROR if failed else None,
    )
