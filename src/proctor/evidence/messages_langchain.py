"""LangChain: messages with a `type` of `human`, `ai`, `tool`, `system`, in each way LangChain writes them down.

Read are the plain form (`{"type": "ai", "content": ...}`), the stored form (`{"type": "ai", "data": {...}}`), the serialized form
(`{"lc": 1, "type": "constructor", "id": [..., "AIMessage"], "kwargs": {...}}`), and messages with a role whose tool calls have `args`.
A tool message of status `error` is a `protocol-error`: the tool raised.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.calls import PROTOCOL_ERROR, read_arguments
from proctor.evidence.conversation import Message, Result, failure
from proctor.evidence.json_bytes import container_in
from proctor.evidence.messages_common import role_of, text_of_content
from proctor.evidence.shape import dict_of, first_of, list_of, text_or_none
from proctor.evidence.usage import read_usage, usage_in
from proctor.model.evidence import ToolCall

_TYPES = {
    "human": "user",
    "HumanMessage": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "tool": "tool",
    "ToolMessage": "tool",
    "ToolMessageChunk": "tool",
    "function": "tool",
    "FunctionMessage": "tool",
    "system": "system",
    "SystemMessage": "system",
    "SystemMessageChunk": "system",
    "remove": "system",
}


def marks(message: dict[str, Any]) -> bool:
    """Whether a message can only be LangChain's."""
    if message.get("lc") is not None and isinstance(message.get("kwargs"), dict):
        return True
    if text_or_none(message.get("type")) in _TYPES and "role" not in message and ("content" in message or "data" in message):
        return True
    calls = [dict_of(call) for call in list_of(message.get("tool_calls"))]
    return "role" in message and any("args" in call and "name" in call for call in calls)


def read(messages: list[dict[str, Any]]) -> list[Message]:
    """LangChain messages in any of their forms."""
    return [_message(message) for message in messages]


def _message(message: dict[str, Any]) -> Message:
    kind = message.get("type") if "role" not in message else message.get("role")
    if isinstance(message.get("kwargs"), dict):
        path = list_of(message.get("id"))
        message, kind = message["kwargs"], path[-1] if path else None
    elif isinstance(message.get("data"), dict):
        message = message["data"]
    role = role_of(_TYPES.get(kind, kind) if isinstance(kind, str) else None)
    text = text_of_content(message.get("content"))
    if role == "tool":
        failed = message.get("status") == "error"
        result = Result(
            id=text_or_none(message.get("tool_call_id")),
            name=text_or_none(message.get("name")),
            value=container_in(text),
            error=failure(text, "the tool raised an error") if failed else None,
            kind=PROTOCOL_ERROR if failed else None,
        )
        return Message(role="tool", results=(result,))
    return Message(
        role=role,
        text=text,
        calls=tuple(_calls(message)),
        usage=read_usage(message.get("usage_metadata")) or usage_in(message),
    )


def _calls(message: dict[str, Any]) -> list[ToolCall]:
    # Arguments that were not JSON are in `invalid_tool_calls`; the model did call.
    given = [*list_of(message.get("tool_calls")), *list_of(message.get("invalid_tool_calls"))]
    given = given or list_of(dict_of(message.get("additional_kwargs")).get("tool_calls"))
    found: list[ToolCall] = []
    for call in map(dict_of, given):
        function = dict_of(call.get("function")) or call
        if isinstance(function.get("name"), str):
            arguments = first_of(function, "args", "arguments")
            found.append(ToolCall(name=function["name"], arguments=read_arguments(arguments), id=text_or_none(call.get("id"))))
    return found
