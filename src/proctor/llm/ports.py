"""One request shape and one reply shape for all chat models.

The raw request and response are stored with the parsed reply, so that nothing is lost.
"""

from typing import Literal, Protocol

import msgspec

from proctor.errors import TargetError
from proctor.model.evidence import Json, Usage

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "tool_calls", "length", "content_filter", "other"]
FaultCode = Literal["rate_limited", "overloaded", "timeout", "transport", "bad_request", "unauthorized", "bad_answer", "too_large"]


def classify_status(status: int) -> FaultCode:
    """Return the code for a status of HTTP that reports a failure."""
    known: dict[int, FaultCode] = {429: "rate_limited", 408: "timeout", 401: "unauthorized", 403: "unauthorized"}
    return known.get(status, "overloaded" if status >= 500 else "bad_request")


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A picture or document of a message: base64 data, or an address."""

    media_type: str
    data: str | None = None
    url: str | None = None
    name: str | None = None


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call that the model requests.

    `arguments` is an object, or the original text if the model did not write a JSON object.
    """

    id: str
    name: str
    arguments: Json = {}


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation."""

    role: Role
    text: str = ""
    tool_calls: tuple[ModelCall, ...] = ()
    """For an assistant: the requested tool calls."""
    call_id: str | None = None
    """For a tool: the id of the call with this result."""
    name: str | None = None
    attachments: tuple[Attachment, ...] = ()


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool offered to the model."""

    name: str
    description: str = ""
    schema: dict[str, Json] = {}
    """The JSON Schema of its arguments."""

    @property
    def parameters(self) -> dict[str, Json]:
        """The schema for a provider, which requires one."""
        return self.schema or {"type": "object", "properties": {}}


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The input of a model. Unset fields are not sent."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolDefinition, ...] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    answer_schema: dict[str, Json] | None = None
    """The schema of the answer, if the model supports one."""
    answer_name: str = "answer"


class ChatReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The model's reply."""

    text: str = ""
    tool_calls: tuple[ModelCall, ...] = ()
    finish: Finish = "stop"
    usage: Usage | None = None
    model: str = ""
    """The model that answered, as the provider names it."""
    raw_request: Json = None
    raw_response: Json = None
    duration_ms: float | None = None
    unread: tuple[str, ...] = ()
    """Unrecognised parts of the reply."""
    notes: tuple[str, ...] = ()
    """Parts of the request that were dropped or changed because the model rejected them."""


class ModelFault(TargetError):
    """A model could not be called, or its reply cannot be used.

    `retry_after_s` is the wait that the provider requests; `safe` means that the request had no effect and may be sent again.
    """

    def __init__(self, code: FaultCode, message: str, *, retry_after_s: float | None = None, status: int | None = None) -> None:
        safe = code in ("rate_limited", "overloaded", "timeout", "transport")
        super().__init__(message, code=code, safe=safe, retry_after_s=retry_after_s)
        self.status = status


class ChatModel(Protocol):
    """A chat model."""

    @property
    def provider(self) -> str:
        """The name of the provider: `openai`, `anthropic`, `azure`, `scripted`, ..."""
        ...

    @property
    def name(self) -> str:
        """The model's name, as configured."""
        ...

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `ModelFault`."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
