"""Translates our conversation for pydantic-ai, and its answer back.

* Messages between two of the assistant make one request of pydantic-ai, in order: system prompts, user messages, tool results.
* Assistant messages are sent back part by part as the provider sent them, if this process received them: some providers sign a model's
  reasoning and want the signature back. Otherwise they are built from text and tool calls.
* A schema for the answer is sent natively if the model supports JSON Schema, else as a tool whose arguments are the answer.

pydantic-ai is an optional part that is slow to load; this module is only imported where it is used.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, cast

from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition as OfferedTool

from proctor.llm.ports import Attachment, ChatMessage, ChatReply, ChatRequest, Finish, ModelCall, ModelFault
from proctor.llm.reading import (
    FILTERED,
    classify_attachment,
    complete_usage,
    read_call,
    read_finish,
    read_text_attachment,
    refuse_attachment,
)
from proctor.model.evidence import Json, Usage
from proctor.model.json_values import drop_nulls, write_as_text
from proctor.model.show import show

_FINISH: Final[dict[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "tool_call": "tool_calls",
    "content_filter": "content_filter",
    "error": "other",
}
_MOST_REMEMBERED: Final = 1000


class EarlierResponses:
    """The latest responses with tool calls, by the ids of the calls, so that they can be sent back unchanged."""

    def __init__(self) -> None:
        self._responses: OrderedDict[tuple[str, ...], ModelResponse] = OrderedDict()

    def keep(self, reply: ChatReply, response: ModelResponse) -> None:
        """Store a response."""
        if reply.tool_calls:
            self._responses[tuple(call.id for call in reply.tool_calls)] = response
            if len(self._responses) > _MOST_REMEMBERED:
                self._responses.popitem(last=False)

    def find(self, message: ChatMessage) -> ModelResponse | None:
        """Return the response that an assistant message was read from, if the content is equal."""
        response = self._responses.get(tuple(call.id for call in message.tool_calls)) if message.tool_calls else None
        if response is None:
            return None
        # Ids may repeat between conversations; only a message with the same content is sent back unchanged.
        text, calls = _read_output(response)
        return response if text == message.text and calls == message.tool_calls else None


def write_messages(request: ChatRequest, earlier: EarlierResponses) -> list[ModelMessage]:
    """Return the conversation. Raises `ModelFault` for an unsupported attachment."""
    names = {call.id: call.name for message in request.messages for call in message.tool_calls}
    out: list[ModelMessage] = []
    waiting: list[ModelRequestPart] = []
    for message in request.messages:
        if message.role == "assistant":
            if waiting:
                out.append(ModelRequest(parts=waiting))
                waiting = []
            parts: list[ModelResponsePart] = [TextPart(content=message.text)] if message.text else []
            for call in message.tool_calls:
                # Providers that accept an object get one; other text is wrapped.
                arguments = call.arguments if isinstance(call.arguments, dict) else {"text": call.arguments}
                parts.append(ToolCallPart(tool_name=call.name, args=arguments, tool_call_id=call.id))
            out.append(earlier.find(message) or ModelResponse(parts=parts))
        else:
            waiting.append(_write_part(message, names))
    if waiting:
        out.append(ModelRequest(parts=waiting))
    return out


def write_parameters(request: ChatRequest, *, native: bool) -> ModelRequestParameters:
    """Return the offered tools and the schema of the answer; `native` means that the model supports JSON Schema."""
    tools = [
        OfferedTool(name=tool.name, description=tool.description or None, parameters_json_schema=tool.parameters) for tool in request.tools
    ]
    schema = request.answer_schema
    if schema is None:
        return ModelRequestParameters(function_tools=tools)
    if native:
        shape = OutputObjectDefinition(json_schema=schema, name=request.answer_name)
        return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=shape)
    answer = OfferedTool(name=request.answer_name, description="Give the answer.", parameters_json_schema=schema, kind="output")
    # The model must use it, unless it may need other tools first.
    return ModelRequestParameters(function_tools=tools, output_mode="tool", output_tools=[answer], allow_text_output=bool(tools))


def read_reply(response: ModelResponse, request: ChatRequest, *, native: bool) -> ChatReply:
    """Return the model's reply."""
    text, calls = _read_output(response)
    notes: tuple[str, ...] = ()
    if request.answer_schema is not None and not native:
        answer_call = next((call for call in calls if call.name == request.answer_name), None)
        calls = tuple(call for call in calls if call.name != request.answer_name)
        if answer_call is not None:
            text = write_as_text(answer_call.arguments)
        notes = ("answer_schema was sent as a tool: the model does not support JSON Schema",)
    # An answer given through a tool ends the turn, whatever finish reason the provider reports.
    reason = "stop" if response.finish_reason == "tool_call" and not calls else response.finish_reason
    return ChatReply(
        text=text,
        tool_calls=calls,
        finish=read_finish(reason, _FINISH, calls),
        usage=_read_usage(response),
        model=response.model_name or "",
        unread=_list_unread(response),
        notes=notes,
    )


def write_json(messages: Sequence[ModelMessage]) -> list[Json]:
    """Return messages for storage, without empty members."""
    return cast("list[Json]", drop_nulls(ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")))


def _write_part(message: ChatMessage, names: Mapping[str, str]) -> ModelRequestPart:
    if message.role == "system":
        return SystemPromptPart(content=message.text)
    if message.role == "tool":
        ident = message.call_id or ""
        return ToolReturnPart(tool_name=message.name or names.get(ident, ""), content=message.text, tool_call_id=ident)
    if not message.attachments:
        return UserPromptPart(content=message.text)
    content: list[UserContent] = [message.text] if message.text else []
    content.extend(_write_attachment(attachment) for attachment in message.attachments)
    return UserPromptPart(content=content)


def _write_attachment(attachment: Attachment) -> UserContent:
    kind = classify_attachment(attachment)
    if kind == "text":
        return read_text_attachment(attachment)
    if attachment.data is not None:
        try:
            data = base64.b64decode(attachment.data, validate=True)
        except (binascii.Error, ValueError):
            raise ModelFault("bad_request", "an attachment is not base64") from None
        return BinaryContent(data=data, media_type=attachment.media_type)
    # Fetched by the provider, or by pydantic-ai, which rejects local addresses.
    url = attachment.url or ""
    match kind:
        case "image":
            return ImageUrl(url=url, media_type=attachment.media_type)
        case "document":
            return DocumentUrl(url=url, media_type=attachment.media_type)
        case _:
            raise refuse_attachment(attachment)


def _read_output(response: ModelResponse) -> tuple[str, tuple[ModelCall, ...]]:
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    call_parts = [part for part in response.parts if isinstance(part, ToolCallPart)]
    return text, tuple(read_call(part.tool_call_id, part.tool_name, part.args, at) for at, part in enumerate(call_parts))


def _list_unread(response: ModelResponse) -> tuple[str, ...]:
    unknown_parts = [part for part in response.parts if not isinstance(part, (TextPart, ToolCallPart, ThinkingPart))]
    cut = (FILTERED,) if response.finish_reason == "content_filter" else ()
    return (*dict.fromkeys(f"a part of the kind {show(part.part_kind, 60)}" for part in unknown_parts), *cut)


def _read_usage(response: ModelResponse) -> Usage | None:
    usage = response.usage
    if usage.unmeasured_requests or not (usage.input_tokens or usage.output_tokens):
        return None
    return complete_usage(
        Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_input_tokens=usage.cache_read_tokens or None,
            cache_write_tokens=usage.cache_write_tokens or None,
        )
    )
