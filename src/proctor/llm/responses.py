"""The OpenAI Responses API.

A conversation is a list of items here: messages, `function_call`, `function_call_output`. Nothing is stored with the provider
(`store: false`): the whole conversation is sent each time, as with chat completions. There is no `seed`.
"""

from __future__ import annotations

from proctor.evidence.usage import read_usage
from proctor.llm.attachments import data_url, not_taken, sort_of, text_in
from proctor.llm.client import Conceded, Dialect
from proctor.llm.openai import DEFAULT_BASE, bearer
from proctor.llm.ports import Attachment, ChatMessage, ChatReply, ChatRequest, Finish, ModelCall, ModelFault
from proctor.llm.reading import arguments_text, call_of, full_usage, is_closed, name_of, objects, text_of, unread_kinds, unusable
from proctor.llm.settings import ModelSettings, joined
from proctor.model.evidence import Json
from proctor.model.show import show

_KNOWN_ITEMS = ("message", "function_call", "reasoning")
_KNOWN_PARTS = ("output_text", "text", "refusal", "reasoning_text", "summary_text")


def _url(settings: ModelSettings) -> str:
    return joined(settings.base_url or DEFAULT_BASE, "responses")


def _body(request: ChatRequest, settings: ModelSettings, conceded: Conceded) -> dict[str, Json]:
    items: list[Json] = [item for message in request.messages for item in _items(message)]
    out: dict[str, Json] = {"model": settings.model, "input": items, "store": False}
    if request.tools:
        out["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema or {"type": "object", "properties": {}},
                # Left out it would mean true here, and most schemas of MCP tools are refused then.
                "strict": False,
            }
            for tool in request.tools
        ]
    if request.temperature is not None and "temperature" not in conceded:
        out["temperature"] = request.temperature
    if request.max_tokens is not None and "max_tokens" not in conceded:
        out["max_output_tokens"] = request.max_tokens
    if request.answer_schema is not None and "answer_schema" not in conceded:
        strict = is_closed(request.answer_schema)
        held: dict[str, Json] = {"type": "json_schema", "name": request.answer_name, "schema": request.answer_schema, "strict": strict}
        out["text"] = {"format": held}
    return out


def _items(message: ChatMessage) -> list[dict[str, Json]]:
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": message.call_id or "", "output": message.text}]
    if message.role != "assistant":
        text: list[Json] = [{"type": "input_text", "text": message.text}] if message.text or not message.attachments else []
        return [{"role": message.role, "content": [*text, *(_part(attachment) for attachment in message.attachments)]}]
    items: list[dict[str, Json]] = []
    if message.text or not message.tool_calls:
        items.append({"role": "assistant", "content": [{"type": "output_text", "text": message.text}]})
    items.extend(
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments_text(call.arguments)}
        for call in message.tool_calls
    )
    return items


def _part(attachment: Attachment) -> dict[str, Json]:
    match sort_of(attachment):
        case "image":
            return {"type": "input_image", "image_url": data_url(attachment)}
        case "text":
            return {"type": "input_text", "text": text_in(attachment)}
        case "document":
            if attachment.data is None:
                return {"type": "input_file", "file_url": attachment.url}
            return {"type": "input_file", "filename": attachment.name or "document.pdf", "file_data": data_url(attachment)}
        case "audio":
            raise not_taken(attachment)


def _reply(answer: dict[str, Json], request: ChatRequest, conceded: Conceded) -> ChatReply:
    if answer.get("status") == "failed" or (answer.get("error") and not answer.get("output")):
        raise _failed(answer.get("error"))
    if not isinstance(answer.get("output"), list):
        raise unusable(answer, "it has no output")
    texts: list[str] = []
    calls: list[ModelCall] = []
    refused = False
    for item in objects(answer["output"]):
        if item.get("type") == "message":
            texts.append(text_of(item.get("content")))
            refusals = [part.get("refusal") for part in objects(item.get("content")) if part.get("type") == "refusal"]
            texts.extend(refusal for refusal in refusals if isinstance(refusal, str))
            refused = refused or bool(refusals)
        elif item.get("type") == "function_call":
            calls.append(call_of(item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments"), len(calls)))
    finish = _finish(answer, bool(calls))
    return ChatReply(
        text="".join(texts),
        tool_calls=tuple(calls),
        finish="content_filter" if refused else finish,
        unread=(
            *unread_kinds(answer["output"], _KNOWN_ITEMS, "an item"),
            *(part for item in objects(answer["output"]) for part in unread_kinds(item.get("content"), _KNOWN_PARTS, "a part")),
            *(("an answer that a content filter has cut",) if finish == "content_filter" else ()),
        ),
        usage=full_usage(read_usage(answer.get("usage"))),
        model=name_of(answer.get("model")),
    )


def _finish(answer: dict[str, Json], called: bool) -> Finish:
    if answer.get("status") == "incomplete":
        details: Json = answer.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        return "length" if reason == "max_output_tokens" else "content_filter" if reason == "content_filter" else "other"
    return "tool_calls" if called else "stop"


def _failed(error: Json) -> ModelFault:
    code = error.get("code") if isinstance(error, dict) else None
    said = error.get("message") if isinstance(error, dict) else None
    message = f"the model reported a failure: {said if isinstance(said, str) else show(error)}"
    if code == "rate_limit_exceeded":
        return ModelFault("rate_limited", message)
    return ModelFault("overloaded" if code == "server_error" else "bad_request", message)


DIALECT = Dialect(provider="openai_responses", url=_url, headers=bearer, body=_body, reply=_reply, lacks=("seed",))
