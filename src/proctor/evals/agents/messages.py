"""Translates messages between MCPJam's form (that of the AI SDK) and the form of our models.

`{role, content}` where content is text, or parts: `text`, `tool-call` (`toolCallId`, `toolName`, `input`), `tool-result` (`toolCallId`,
`toolName`, `output`). The results of one step are one message. An output is `{type: json, value: the result}`, `text` for a tool that
returned text, and `error-text` for a call that failed; a result with `isError` is `json` like any other.

Spans of a prompt are written as MCPJam shows them: steps, and in each step the model and the tools it called.

    step    one answer of the model and the calls it requested
    llm     waiting for the model
    tool    waiting for a tool; status `error` if the call itself failed
    error   the error that ended the prompt

Times are milliseconds from the start of the prompt; a span ends after it begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast, get_args

import msgspec

from proctor.evidence.values.text import as_text
from proctor.llm.ports import ChatMessage, ChatReply, ModelCall, Role
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import show
from proctor.targets.mcp.results import text_for_model

Message = dict[str, Json]
_ERROR: Final = "Error: "


def write_sdk_messages(messages: Iterable[ChatMessage], calls: Iterable[ToolCall] = ()) -> list[Message]:
    """Return our messages as the AI SDK writes them; `calls` are the calls that the tool messages answer, in order."""
    unanswered = list(calls)
    written: list[Message] = []
    for message in messages:
        if message.role != "tool":
            written.append(_write_message(message))
            continue
        call = unanswered[0] if unanswered else None
        # By id, or by name if there is no id.
        if call is not None and (call.name == message.name if call.id is None else call.id == message.call_id):
            output = _write_output(unanswered.pop(0))
        else:
            failed = message.text.startswith(_ERROR)
            output = {"type": "error-text" if failed else "text", "value": message.text.removeprefix(_ERROR)}
        part = {"type": "tool-result", "toolCallId": message.call_id, "toolName": message.name, "output": output}
        if written and written[-1]["role"] == "tool":
            written[-1]["content"].append(part)
        else:
            written.append({"role": "tool", "content": [part]})
    return written


def _write_message(message: ChatMessage) -> Message:
    if not message.tool_calls:
        return {"role": message.role, "content": message.text}
    parts: list[Json] = [{"type": "text", "text": message.text}] if message.text else []
    parts += [
        {"type": "tool-call", "toolCallId": call.id, "toolName": call.name, "input": {} if call.arguments is None else call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": parts}


def _write_output(call: ToolCall) -> Message:
    if call.failed() and call.failure_kind() != "content-error":
        return {"type": "error-text", "value": as_text(call.failure()) or ""}
    return {"type": "text" if isinstance(call.result, str) else "json", "value": call.result}


def compose_messages(prompt: str, text: str, calls: Iterable[ToolCall]) -> list[Message]:
    """Return the messages of a result without any: the prompt, the calls and the answer."""
    messages = [ChatMessage(role="user", text=prompt)]
    calls_with_ids = [msgspec.structs.replace(call, id=call.id or f"call_{number}") for number, call in enumerate(calls)]
    if calls_with_ids:
        model_calls = tuple(ModelCall(id=str(call.id), name=call.name, arguments=call.arguments) for call in calls_with_ids)
        messages.append(ChatMessage(role="assistant", tool_calls=model_calls))
        messages += [ChatMessage(role="tool", call_id=call.id, name=call.name) for call in calls_with_ids]
    if text or not calls_with_ids:
        messages.append(ChatMessage(role="assistant", text=text))
    return write_sdk_messages(messages, calls_with_ids)


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
    """Return indented JSON; values that JSON cannot represent become text."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()


_SHORTEST_MS: Final = 1.0


class ModelSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the model."""

    started: float
    ended: float
    reply: ChatReply | None = None
    """None if there was no reply."""


class ToolSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool."""

    tool: str
    server: str
    started: float
    ended: float
    ok: bool
    id: str | None = None


def write_spans(
    model_spans: Sequence[ModelSpan],
    called: Iterable[ToolSpan],
    *,
    began: float,
    error: str | None,
    provider: str | None,
    model: str | None,
) -> list[Message]:
    """Return all spans: each step with its model and tool calls, and the error at the end."""
    spans: list[Message] = []

    def add(category: str, name: str, start: float, end: float, ok: bool, **more: object) -> str:
        id = f"span-{len(spans)}"
        first, last = round((start - began) * 1000, 3), round((end - began) * 1000, 3)
        known = {key: value for key, value in more.items() if value is not None}
        times = {"startMs": first, "endMs": last if last > first else first + _SHORTEST_MS}
        spans.append({"id": id, "name": name, "category": category, **times, "promptIndex": 0, **known, "status": "ok" if ok else "error"})
        return id

    waiting = sorted(called, key=lambda call: call.started)
    # The user's message comes first.
    end, place = began, 1
    for number, step in enumerate(model_spans):
        until = model_spans[number + 1].started if number + 1 < len(model_spans) else float("inf")
        step_calls = [call for call in waiting if step.started <= call.started < until]
        end = max([step.ended, *(call.ended for call in step_calls)])
        reply = step.reply
        of_model: Message = {"modelId": model, "provider": provider}
        if reply is not None:
            of_model["finishReason"] = reply.finish or None
        if reply is not None and (usage := reply.usage) is not None:
            of_model |= {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens, "totalTokens": usage.total()}
        step_fields: Message = {"stepIndex": number}
        if reply is not None and error is None:
            step_fields |= {"messageStartIndex": place, "messageEndIndex": place + bool(reply.tool_calls)}
            place += 1 + bool(reply.tool_calls)
        parent = add("step", f"Step {number + 1}", step.started, end, reply is not None, **step_fields, **of_model)
        step_fields["parentId"] = parent
        add("llm", "Model", step.started, step.ended, reply is not None, **step_fields, **of_model)
        for call in step_calls:
            call_fields = {"toolName": call.tool, "toolCallId": call.id, "serverId": call.server}
            add("tool", call.tool, call.started, call.ended, call.ok, **step_fields, **call_fields)
    if error is not None:
        add("error", error.strip()[:200] or "error", end, end, False)
    return spans
