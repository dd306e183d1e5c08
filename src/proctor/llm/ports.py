"""One request shape and one reply shape for all chat models.

One request shape and one reply shape for all providers. The raw request and response are kept beside the reading of them, so that
nothing a provider said is lost.
"""

from typing import Literal, Protocol

import msgspec

from proctor.errors import TargetError
from proctor.model.evidence import Json, Usage

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "tool_calls", "length", "content_filter", "other"]
FaultCode = Literal["rate_limited", "overloaded", "timeout", "transport", "bad_request", "unauthorized", "bad_answer", "too_large"]


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A picture or document that goes with a message: base64 data, or the address of one."""

    media_type: str
    data: str | None = None
    url: str | None = None
    name: str | None = None


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool the model wants called.

    `arguments` is the object it gave; what it gave instead, where that is no JSON object, stays the text it was.
    """

    id: str
    name: str
    arguments: Json = {}


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation."""

    role: Role
    text: str = ""
    tool_calls: tuple[ModelCall, ...] = ()
    """Of an assistant: the tools it wanted called."""
    call_id: str | None = None
    """Of a tool: the call this is the result of."""
    name: str | None = None
    attachments: tuple[Attachment, ...] = ()


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool offered to the model."""

    name: str
    description: str = ""
    schema: dict[str, Json] = {}
    """The JSON Schema of its arguments."""


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a model is told. What is left out is not sent."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolDefinition, ...] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    answer_schema: dict[str, Json] | None = None
    """Ask for an answer in this shape, where the model can be held to one."""
    answer_name: str = "answer"


class ChatReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the model said."""

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
    """What the model said or asked for beside, which is not understood."""
    notes: tuple[str, ...] = ()
    """What was left out of the request or put otherwise, because the model would not take it as asked."""


class ModelFault(TargetError):
    """A model could not be asked, or what it said cannot be used.

    `retry_after_s` is what the provider asked for; `safe` says that the request had no effect and may be sent again.
    """

    def __init__(self, code: FaultCode, message: str, *, retry_after_s: float | None = None, status: int | None = None) -> None:
        safe = code in ("rate_limited", "overloaded", "timeout", "transport")
        super().__init__(message, code=code, safe=safe, retry_after_s=retry_after_s)
        self.status = status


class ChatModel(Protocol):
    """A model that can be talked to."""

    @property
    def provider(self) -> str:
        """The provider's word: `openai`, `anthropic`, `azure`, `scripted`, ..."""
        ...

    @property
    def name(self) -> str:
        """The model's name, as configured."""
        ...

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Ask once. Raises `ModelFault`."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
