"""Supports the OpenAI Responses API.

A conversation is a list of items here: messages, `function_call`, `function_call_output`. Nothing is stored with the provider
(`store: false`): the whole conversation is sent each time, as with chat completions. There is no `seed`.
"""

from __future__ import annotations

from proctor.llm.client import ConcededParts, Dialect
from proctor.llm.openai import DEFAULT_BASE, make_bearer_headers
from proctor.llm.ports import Attachment, ChatMessage, ChatReply, ChatRequest, FaultCode, Finish, ModelCall
from proctor.llm.reading import (
    build_reply,
    classify_attachment,
    is_closed_schema,
    list_objects,
    list_unread_kinds,
    make_data_url,
    make_reported_fault,
    read_call,
    read_text,
    read_text_attachment,
    refuse_answer,
    refuse_attachment,
)
from proctor.llm.settings import ModelSettings, join_url
from proctor.model.evidence import Json
from proctor.model.json_values import write_as_text

_KNOWN_ITEMS = ("message", "function_call", "reasoning")
_KNOWN_PARTS = ("output_text", "text", "refusal", "reasoning_text", "summary_text")


def _write_body(request: ChatRequest, settings: ModelSettings, conceded: ConcededParts) -> dict[str, Json]:
    items: list[Json] = [item for message in request.messages for item in _write_items(message)]
    # `store` defaults to true: the provider would store the conversation, which we send each time anyway.
    out: dict[str, Json] = {"model": settings.model, "input": items, "store": False}
    if request.tools:
        out["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                # The default is true, which rejects most schemas of MCP tools.
                "strict": False,
            }
            for tool in request.tools
        ]
    if request.temperature is not None and "temperature" not in conceded:
        out["temperature"] = request.temperature
    if request.max_tokens is not None and "max_tokens" not in conceded:
        out["max_output_tokens"] = request.max_tokens
    if request.answer_schema is not None and "answer_schema" not in conceded:
        strict = is_closed_schema(request.answer_schema)
        form: dict[str, Json] = {"type": "json_schema", "name": request.answer_name, "schema": request.answer_schema, "strict": strict}
        out["text"] = {"format": form}
    return out


def _write_items(message: ChatMessage) -> list[dict[str, Json]]:
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": message.call_id or "", "output": message.text}]
    if message.role != "assistant":
        text: list[Json] = [{"type": "input_text", "text": message.text}] if message.text or not message.attachments else []
        return [{"role": message.role, "content": [*text, *(_write_attachment(attachment) for attachment in message.attachments)]}]
    items: list[dict[str, Json]] = []
    if message.text or not message.tool_calls:
        items.append({"role": "assistant", "content": [{"type": "output_text", "text": message.text}]})
    items.extend(
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": write_as_text(call.arguments)}
        for call in message.tool_calls
    )
    return items


def _write_attachment(attachment: Attachment) -> dict[str, Json]:
    match classify_attachment(attachment):
        case "image":
            return {"type": "input_image", "image_url": make_data_url(attachment)}
        case "text":
            return {"type": "input_text", "text": read_text_attachment(attachment)}
        case "document":
            if attachment.data is None:
                return {"type": "input_file", "file_url": attachment.url}
            return {"type": "input_file", "filename": attachment.name or "document.pdf", "file_data": make_data_url(attachment)}
        case "audio":
            raise refuse_attachment(attachment)


def _read_reply(answer: dict[str, Json], request: ChatRequest, conceded: ConcededParts) -> ChatReply:
    if answer.get("status") == "failed" or (answer.get("error") and not answer.get("output")):
        codes: dict[str, FaultCode] = {"rate_limit_exceeded": "rate_limited", "server_error": "overloaded", "*": "bad_request"}
        raise make_reported_fault(answer.get("error"), "the model", codes)
    if not isinstance(answer.get("output"), list):
        raise refuse_answer(answer, "it has no output")
    texts: list[str] = []
    calls: list[ModelCall] = []
    refused = False
    for item in list_objects(answer["output"]):
        if item.get("type") == "message":
            texts.append(read_text(item.get("content")))
            refusals = [part.get("refusal") for part in list_objects(item.get("content")) if part.get("type") == "refusal"]
            texts.extend(refusal for refusal in refusals if isinstance(refusal, str))
            refused = refused or bool(refusals)
        elif item.get("type") == "function_call":
            # `id` identifies the item; the result of a call is matched by `call_id`.
            calls.append(read_call(item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments"), len(calls)))
    finish: Finish = "tool_calls" if calls else "stop"
    if answer.get("status") == "incomplete":
        details: Json = answer.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        finish = "length" if reason == "max_output_tokens" else "content_filter" if reason == "content_filter" else "other"
    output = answer["output"]
    parts = [part for item in list_objects(output) for part in list_unread_kinds(item.get("content"), _KNOWN_PARTS, "a part")]
    unread = [*list_unread_kinds(output, _KNOWN_ITEMS, "an item"), *parts]
    return build_reply(answer, "".join(texts), calls, finish, unread, refused=refused)


DIALECT = Dialect(
    provider="openai_responses",
    url=lambda settings: join_url(settings.base_url or DEFAULT_BASE, "responses"),
    headers=make_bearer_headers,
    body=_write_body,
    reply=_read_reply,
    lacks=("seed",),
)
