"""Translates messages between MCPJam's form (that of the AI SDK) and the form of our models.

`{role, content}` where content is text, or parts: `text`, `tool-call` (`toolCallId`, `toolName`, `input`), `tool-result` (`toolCallId`,
`toolName`, `output`). The results of one step are one message. An output is `{type: json, value: the result}`, `text` for a tool that gave
text, and `error-text` for a call that failed; a result with `isError` is `json` like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast, get_args

import msgspec

from proctor.evidence.values.text import as_text
from proctor.llm.ports import ChatMessage, ModelCall, Role
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import show
from proctor.targets.mcp.results import text_for_model

Message = dict[str, Json]
_ERROR: Final = "Error: "


def write_sdk_messages(messages: Iterable[ChatMessage], calls: Iterable[ToolCall] = ()) -> list[Message]:
    """Return our messages as the AI SDK writes them; `calls` are those that the tool messages answer, in order."""
    made = list(calls)
    found: list[Message] = []
    for message in messages:
        if message.role != "tool":
            found.append(_write_message(message))
            continue
        call = made.pop(0) if made and _is_answer_to(message, made[0]) else None
        part = {"type": "tool-result", "toolCallId": message.call_id, "toolName": message.name, "output": _write_output(message, call)}
        if found and found[-1]["role"] == "tool":
            found[-1]["content"].append(part)
        else:
            found.append({"role": "tool", "content": [part]})
    return found


def _is_answer_to(message: ChatMessage, call: ToolCall) -> bool:
    """Return whether a tool message answers a call; without an id their names must do."""
    return call.name == message.name if call.id is None else call.id == message.call_id


def _write_message(message: ChatMessage) -> Message:
    if not message.tool_calls:
        return {"role": message.role, "content": message.text}
    parts: list[Json] = [{"type": "text", "text": message.text}] if message.text else []
    parts += [
        {"type": "tool-call", "toolCallId": call.id, "toolName": call.name, "input": {} if call.arguments is None else call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": parts}


def _write_output(message: ChatMessage, call: ToolCall | None) -> Message:
    if call is None:
        failed = message.text.startswith(_ERROR)
        return {"type": "error-text" if failed else "text", "value": message.text.removeprefix(_ERROR)}
    if call.failed() and call.failure_kind() != "content-error":
        return {"type": "error-text", "value": as_text(call.failure()) or ""}
    return {"type": "text" if isinstance(call.result, str) else "json", "value": call.result}


def compose_messages(prompt: str, text: str, calls: Iterable[ToolCall]) -> list[Message]:
    """Return the messages of a result that was given without any: the prompt, the calls and the answer."""
    messages = [ChatMessage(role="user", text=prompt)]
    made = [msgspec.structs.replace(call, id=call.id or f"call_{number}") for number, call in enumerate(calls)]
    if made:
        wanted = tuple(ModelCall(id=str(call.id), name=call.name, arguments=call.arguments) for call in made)
        messages.append(ChatMessage(role="assistant", tool_calls=wanted))
        messages += [ChatMessage(role="tool", call_id=call.id, name=call.name) for call in made]
    if text or not made:
        messages.append(ChatMessage(role="assistant", text=text))
    return write_sdk_messages(messages, made)


def read_sdk_messages(messages: Iterable[Mapping[str, Json]]) -> tuple[ChatMessage, ...]:
    """Return messages of the AI SDK as messages of our models. Raises `ValueError` for anything else."""
    return tuple(each for message in messages for each in _read_message(message))


def _read_message(message: Mapping[str, Json]) -> list[ChatMessage]:
    role: Json = message.get("role")
    content: Json = message.get("content")
    if role not in get_args(Role):
        raise ValueError(f"not a message: its role is {show(role)}")
    if not isinstance(content, list):
        return [ChatMessage(role=role, text=as_text(content) or "")]
    parts = [cast("dict[str, Json]", part) for part in content if isinstance(part, dict)]
    if role == "tool":
        return [
            ChatMessage(role="tool", text=_read_output(part.get("output")), call_id=part.get("toolCallId"), name=part.get("toolName"))
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


def _read_output(output: Json) -> str:
    if not isinstance(output, dict) or "value" not in output:
        return as_text(output) or ""
    value: Json = output["value"]
    if str(output.get("type", "")).startswith("error"):
        return f"{_ERROR}{as_text(value) or ''}"
    # As the loop sent it when the tool was called.
    return text_for_model(value) if isinstance(value, dict) and "content" in value else as_text(value) or ""


def write_indented(value: Json) -> str:
    """Return indented JSON; what JSON cannot hold is shown as text."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
