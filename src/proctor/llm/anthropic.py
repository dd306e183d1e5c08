"""Speaks Anthropic's messages API.

System messages go into `system`, wherever they are, and are always sent. Results of tools are blocks of a user message; consecutive
messages of one side become one, results first, as the API requires. `max_tokens` is required: 1024 by default. A schema for the answer is
sent as `output_config`; a model without support gets a tool of that schema instead, which it must call, and whose input is the answer.
There is no `seed`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.llm.client import ConcededParts, Dialect
from proctor.llm.ports import Attachment, ChatMessage, ChatReply, ChatRequest, FaultCode, Finish, ModelCall
from proctor.llm.reading import (
    build_reply,
    classify_attachment,
    list_objects,
    list_unread_kinds,
    make_reported_fault,
    read_call,
    read_finish,
    read_text_attachment,
    refuse_answer,
    refuse_attachment,
)
from proctor.llm.settings import ModelSettings, join_url
from proctor.model.evidence import Json

DEFAULT_BASE = "https://api.anthropic.com"
DEFAULT_VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 1024
"""The default: the API rejects a request without it."""

_FINISH: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


_KNOWN_BLOCKS = ("text", "tool_use", "thinking", "redacted_thinking")


def _make_url(settings: ModelSettings) -> str:
    base = settings.base_url or DEFAULT_BASE
    # Both forms are in use: the base address with and without the version.
    return join_url(base, "messages" if base.partition("?")[0].rstrip("/").endswith("/v1") else "v1/messages")


def _write_body(request: ChatRequest, settings: ModelSettings, conceded: ConcededParts) -> dict[str, Json]:
    out: dict[str, Json] = {"model": settings.model, "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS}
    system = "\n\n".join(message.text for message in request.messages if message.role == "system" and message.text)
    if system:
        out["system"] = system
    sides: list[tuple[str, list[dict[str, Any]]]] = []
    for message in request.messages:
        if message.role == "system":
            continue
        side = "assistant" if message.role == "assistant" else "user"
        # Messages of one side are joined: the API requires the results of all calls of a reply in the next message.
        if not sides or sides[-1][0] != side:
            sides.append((side, []))
        sides[-1][1].extend(_write_blocks(message))
    # Tool results must come first in their message.
    out["messages"] = [
        {"role": side, "content": sorted(blocks, key=lambda block: block["type"] != "tool_result")} for side, blocks in sides
    ]
    tools: list[Json] = [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in request.tools]
    if request.answer_schema is not None and "answer_schema" not in conceded:
        out["output_config"] = {"format": {"type": "json_schema", "schema": request.answer_schema}}
    elif request.answer_schema is not None:
        description = "Give your answer by calling this tool."
        tools.append({"name": request.answer_name, "description": description, "input_schema": request.answer_schema})
        # If there are other tools, the model may need those first; it must call one of them, or answer with ours.
        out["tool_choice"] = {"type": "any"} if request.tools else {"type": "tool", "name": request.answer_name}
    if tools:
        out["tools"] = tools
    if request.temperature is not None and "temperature" not in conceded:
        out["temperature"] = request.temperature
    return out


def _write_blocks(message: ChatMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.call_id or ""}
        # An empty text block is rejected, a result without content is not.
        return [{**result, "content": message.text} if message.text else result]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text else []
    blocks.extend(_write_attachment(attachment) for attachment in message.attachments)
    for call in message.tool_calls:
        # Text that is not an object is wrapped, because the API accepts only objects here.
        arguments = call.arguments if isinstance(call.arguments, dict) else {"text": call.arguments}
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return blocks


def _write_attachment(attachment: Attachment) -> dict[str, Any]:
    kind = classify_attachment(attachment)
    if kind == "audio":
        raise refuse_attachment(attachment)
    if kind == "text":
        return {"type": "text", "text": read_text_attachment(attachment)}
    if attachment.data is not None:
        source = {"type": "base64", "media_type": attachment.media_type, "data": attachment.data}
    else:
        source = {"type": "url", "url": attachment.url}
    return {"type": kind, "source": source}


def _read_reply(answer: dict[str, Json], request: ChatRequest, conceded: ConcededParts) -> ChatReply:
    if answer.get("type") == "error":
        codes: dict[str, FaultCode] = {"rate_limit_error": "rate_limited", "overloaded_error": "overloaded", "api_error": "overloaded"}
        raise make_reported_fault(answer.get("error"), "the model", {**codes, "*": "bad_request"}, key="type")
    if not isinstance(answer.get("content"), list):
        raise refuse_answer(answer, "it has no content")
    forced = request.answer_name if request.answer_schema is not None and "answer_schema" in conceded else None
    texts: list[str] = []
    calls: list[ModelCall] = []
    answered: str | None = None
    for block in list_objects(answer["content"]):
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif block.get("type") == "tool_use" and forced is not None and block.get("name") == forced:
            answered = msgspec.json.encode(block.get("input")).decode()
        elif block.get("type") == "tool_use":
            calls.append(read_call(block.get("id"), block.get("name"), block.get("input"), len(calls)))
    finish = read_finish(answer.get("stop_reason"), _FINISH, tuple(calls))
    if answered is not None and not calls and finish == "tool_calls":
        finish = "stop"
    unread = list_unread_kinds(answer["content"], _KNOWN_BLOCKS, "a block")
    return build_reply(answer, "".join(texts) if answered is None else answered, calls, finish, unread)


DIALECT = Dialect(
    provider="anthropic",
    url=_make_url,
    headers=lambda settings: {
        **({"x-api-key": settings.api_key} if settings.api_key else {}),
        "anthropic-version": settings.api_version or DEFAULT_VERSION,
    },
    body=_write_body,
    reply=_read_reply,
    lacks=("seed",),
    instead={"answer_schema": "was sent as a tool"},
)
