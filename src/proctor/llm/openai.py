"""Supports OpenAI chat completions, and every server with that API (vLLM, llama.cpp, Ollama, OpenRouter, gateways).

`max_tokens` is sent first, since all of them know it; a newer OpenAI model that rejects it gets `max_completion_tokens`. A key is sent if
there is one. The name of the model is sent as configured.
"""

from __future__ import annotations

from proctor.llm.client import ConcededParts, Dialect
from proctor.llm.ports import Attachment, ChatMessage, ChatReply, ChatRequest, Finish, ModelCall
from proctor.llm.reading import (
    build_reply,
    classify_attachment,
    is_closed_schema,
    list_objects,
    list_unread_kinds,
    make_data_url,
    make_reported_fault,
    read_call,
    read_finish,
    read_text,
    read_text_attachment,
    refuse_answer,
    refuse_attachment,
)
from proctor.llm.settings import ModelSettings, join_url
from proctor.model.evidence import Json
from proctor.model.json_values import write_as_text
from proctor.model.show import kind_of

DEFAULT_BASE = "https://api.openai.com/v1"

_FINISH: dict[str, Finish] = {
    "stop": "stop",
    # Extensions of servers with a chat completions API.
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "complete": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
_KNOWN_PARTS = ("text", "output_text", "refusal", "thinking", "reasoning")
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def make_bearer_headers(settings: ModelSettings) -> dict[str, str]:
    """Return the headers of a request, with the key if there is one."""
    return {"authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}


def write_body(request: ChatRequest, settings: ModelSettings, conceded: ConcededParts) -> dict[str, Json]:
    """Return a request as chat completions."""
    out: dict[str, Json] = {"model": settings.model, "messages": [_write_message(message) for message in request.messages]}
    if request.tools:
        out["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
    if request.temperature is not None and "temperature" not in conceded:
        out["temperature"] = request.temperature
    if request.max_tokens is not None:
        out["max_completion_tokens" if "max_tokens" in conceded else "max_tokens"] = request.max_tokens
    if request.seed is not None and "seed" not in conceded:
        out["seed"] = request.seed
    if request.answer_schema is not None and "answer_schema" not in conceded:
        strict = is_closed_schema(request.answer_schema)
        schema_format: dict[str, Json] = {"name": request.answer_name, "schema": request.answer_schema, "strict": strict}
        out["response_format"] = {"type": "json_schema", "json_schema": schema_format}
    return out


def read_reply(answer: dict[str, Json], request: ChatRequest, conceded: ConcededParts) -> ChatReply:
    """Return a chat completion as a reply."""
    error = answer.get("error")
    choices = list_objects(answer.get("choices"))
    if error and not choices:
        # Gateways report the failure of their provider with status 200.
        raise make_reported_fault(error, "the provider", {"*": "bad_answer"})
    if not choices:
        raise refuse_answer(answer, "it has no choices")
    message: Json = choices[0].get("message")
    if not isinstance(message, dict):
        raise refuse_answer(answer, "its first choice has no message")
    found: list[ModelCall] = []
    for position, call in enumerate(list_objects(message.get("tool_calls"))):
        function: Json = call.get("function")
        if isinstance(function, dict):
            found.append(read_call(call.get("id"), function.get("name"), function.get("arguments"), position))
    # The older form of chat completions without tools, which has one call and no id.
    old: Json = message.get("function_call")
    if not found and isinstance(old, dict):
        found.append(read_call(None, old.get("name"), old.get("arguments"), 0))
    calls = tuple(found)
    refusal: Json = message.get("refusal")
    refused = isinstance(refusal, str) and bool(refusal)
    finish = read_finish(choices[0].get("finish_reason"), _FINISH, calls)
    audio: Json = message.get("audio")
    transcript = audio.get("transcript") if isinstance(audio, dict) else None
    text = read_text(message.get("content")) or (refusal if refused else "") or (transcript if isinstance(transcript, str) else "")
    return build_reply(answer, text, calls, finish, _list_unread(message, text), refused=refused)


DIALECT = Dialect(
    provider="openai",
    url=lambda settings: join_url(settings.base_url or DEFAULT_BASE, "chat/completions"),
    headers=make_bearer_headers,
    body=write_body,
    reply=read_reply,
    instead={"max_tokens": "was sent as max_completion_tokens"},
)


def _write_message(message: ChatMessage) -> dict[str, Json]:
    out: dict[str, Json] = {"role": message.role, "content": message.text}
    if message.role == "tool":
        out["tool_call_id"] = message.call_id or ""
        return out
    if message.attachments:
        text: list[Json] = [{"type": "text", "text": message.text}] if message.text else []
        out["content"] = [*text, *(_write_attachment(attachment) for attachment in message.attachments)]
    if message.tool_calls:
        out["content"] = message.text or None
        out["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": write_as_text(call.arguments)}}
            for call in message.tool_calls
        ]
    if message.name:
        out["name"] = message.name
    return out


def _write_attachment(attachment: Attachment) -> dict[str, Json]:
    match classify_attachment(attachment):
        case "image":
            return {"type": "image_url", "image_url": {"url": make_data_url(attachment)}}
        case "text":
            return {"type": "text", "text": read_text_attachment(attachment)}
        case "audio" if attachment.data is not None and attachment.media_type in _AUDIO:
            return {"type": "input_audio", "input_audio": {"data": attachment.data, "format": _AUDIO[attachment.media_type]}}
        case "document" if attachment.data is not None:
            return {"type": "file", "file": {"filename": attachment.name or "document.pdf", "file_data": make_data_url(attachment)}}
        case _:
            raise refuse_attachment(attachment)


def _list_unread(message: dict[str, Json], text: str) -> list[str]:
    calls: Json = message.get("tool_calls")
    listed = calls if isinstance(calls, list) else []
    unknown_calls = [call for call in listed if not (isinstance(call, dict) and isinstance(call.get("function"), dict))]
    unread = [*list_unread_kinds(unknown_calls, (), "a tool call"), *list_unread_kinds(message.get("content"), _KNOWN_PARTS, "a part")]
    if calls and not isinstance(calls, list):
        unread.append(f"tool calls that are not a list but {kind_of(calls)}")
    if message.get("audio") and not text:
        unread.append("an answer that is spoken, without its words")
    return unread
