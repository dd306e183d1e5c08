"""Messages as MCPJam shows them (those of the AI SDK), and as our models are told them.

`{role, content}` where content is text, or parts: `text`, `tool-call` (`toolCallId`, `toolName`, `input`), `tool-result` (`toolCallId`,
`toolName`, `output`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast, get_args

import msgspec

from proctor.evidence.text import as_text
from proctor.llm.ports import ChatMessage, ModelCall, Role
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import show

Message = dict[str, Json]


def shown(message: ChatMessage) -> Message:
    """A message of ours as the AI SDK writes it."""
    if message.role == "tool":
        failed = message.text.startswith("Error: ")
        output = {"type": "error-text" if failed else "text", "value": message.text.removeprefix("Error: ") if failed else message.text}
        return {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": message.call_id, "toolName": message.name, "output": output}],
        }
    if not message.tool_calls:
        return {"role": message.role, "content": message.text}
    parts: list[Json] = [{"type": "text", "text": message.text}] if message.text else []
    parts += [
        {"type": "tool-call", "toolCallId": call.id, "toolName": call.name, "input": {} if call.arguments is None else call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": parts}


def supposed(prompt: str, text: str, calls: Iterable[ToolCall]) -> list[Message]:
    """The messages of a result that was given without any: the prompt, the calls and the answer."""
    messages = [ChatMessage(role="user", text=prompt)]
    made = list(calls)
    if made:
        ids = [call.id or f"call_{number}" for number, call in enumerate(made)]
        wanted = tuple(ModelCall(id=id, name=call.name, arguments=call.arguments) for id, call in zip(ids, made, strict=True))
        messages.append(ChatMessage(role="assistant", tool_calls=wanted))
        for id, call in zip(ids, made, strict=True):
            failure = call.failure()
            told = as_text(call.result) or "" if failure is None else f"Error: {as_text(failure)}"
            messages.append(ChatMessage(role="tool", text=told, call_id=id, name=call.name))
    if text or not made:
        messages.append(ChatMessage(role="assistant", text=text))
    return [shown(message) for message in messages]


def told(messages: Iterable[Mapping[str, Json]]) -> tuple[ChatMessage, ...]:
    """Messages of the AI SDK as a model of ours is told them. Raises `ValueError` for what is none."""
    return tuple(each for message in messages for each in _told(message))


def _told(message: Mapping[str, Json]) -> list[ChatMessage]:
    role: Json = message.get("role")
    content: Json = message.get("content")
    if role not in get_args(Role):
        raise ValueError(f"not a message: its role is {show(role)}")
    if not isinstance(content, list):
        return [ChatMessage(role=role, text=as_text(content) or "")]
    parts = [cast("dict[str, Json]", part) for part in content if isinstance(part, dict)]
    if role == "tool":
        return [
            ChatMessage(role="tool", text=_output(part.get("output")), call_id=part.get("toolCallId"), name=part.get("toolName"))
            for part in parts
            if part.get("type") == "tool-result"
        ]
    text = "".join(part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str))
    calls = tuple(
        ModelCall(id=str(part.get("toolCallId")), name=str(part.get("toolName")), arguments=part.get("input") or {})
        for part in parts
        if part.get("type") == "tool-call"
    )
    return [ChatMessage(role=role, text=text, tool_calls=calls)]


def _output(output: Json) -> str:
    if isinstance(output, dict) and "value" in output:
        value = as_text(output["value"]) or ""
        return f"Error: {value}" if str(output.get("type", "")).startswith("error") else value
    return as_text(output) or ""


def plain_json(value: Json) -> str:
    """Indented JSON; what JSON cannot hold is shown as text."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
