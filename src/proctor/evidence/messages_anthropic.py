"""Anthropic: messages whose content is a list of blocks, tools as `tool_use` and `tool_result`.

Results stand in user messages; such a message is a turn only if it also has text. `is_error` is a `content-error`. Tools the
provider runs itself (`server_tool_use`, `mcp_tool_use`) are calls too, with results in blocks that end in `_tool_result`.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.calls import CONTENT_ERROR, read_arguments
from proctor.evidence.conversation import Message, Result, failure
from proctor.evidence.json_bytes import container_in
from proctor.evidence.messages_common import role_of, text_of_content
from proctor.evidence.shape import dict_of, list_of, text_or_none
from proctor.evidence.usage import read_usage
from proctor.model.evidence import Json, ToolCall

_USES = ("tool_use", "server_tool_use", "mcp_tool_use")


def is_message(document: dict[str, Any]) -> bool:
    """Whether this is the answer of the messages endpoint."""
    return document.get("type") == "message" and document.get("role") == "assistant" and "stop_reason" in document


def marks(message: dict[str, Any]) -> bool:
    """Whether a message can only be Anthropic's; LangChain keeps such blocks too, in messages that have a type instead of a role."""
    return "role" in message and any(_is_tool_block(dict_of(block)) for block in list_of(message.get("content")))


def read(messages: list[dict[str, Any]]) -> list[Message]:
    """Messages with content blocks."""
    return [_message(message) for message in messages]


def _is_tool_block(block: dict[str, Any]) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and (kind in _USES or kind.endswith("tool_result") or kind in ("thinking", "redacted_thinking"))


def _message(message: dict[str, Any]) -> Message:
    blocks = [dict_of(block) for block in list_of(message.get("content"))]
    calls = [_call(block) for block in blocks if block.get("type") in _USES and isinstance(block.get("name"), str)]
    results = [_result(block) for block in blocks if str(block.get("type")).endswith("tool_result")]
    return Message(
        role=role_of(message.get("role")),
        text=text_of_content(message.get("content")),
        calls=tuple(calls),
        results=tuple(results),
        usage=read_usage(message.get("usage")),
    )


def _call(block: dict[str, Any]) -> ToolCall:
    return ToolCall(
        name=block["name"],
        arguments=read_arguments(block.get("input")),
        server=text_or_none(block.get("server_name")),
        id=text_or_none(block.get("id")),
    )


def _result(block: dict[str, Any]) -> Result:
    content: Json = block.get("content")
    text = text_of_content(content) if isinstance(content, (str, list)) else None
    value = container_in(text) if text is not None else content
    # Tools the provider runs itself fail with a content of their own: {"type": "web_search_tool_result_error", "error_code": ...}.
    told = dict_of(value).get("error_code") if str(dict_of(value).get("type")).endswith("tool_result_error") else None
    failed = block.get("is_error") is True or told is not None
    return Result(
        id=text_or_none(block.get("tool_use_id")),
        value=value,
        error=failure(told or value, "the tool reported an error") if failed else None,
        kind=CONTENT_ERROR if failed else None,
    )
