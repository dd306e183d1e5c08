"""One message and one tool result, in the common form of every reader."""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.model.evidence import Json, ToolCall, Usage

Role = Literal["user", "assistant", "tool", "system"]


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returned."""

    id: str | None = None
    name: str | None = None
    value: Json = None
    error: Json = None
    kind: str | None = None
    has_ended: bool = False
    """Whether it reports that the call succeeded or failed."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. A user message may carry tool results (Anthropic); then only its text makes it a turn."""

    role: Role
    text: str | None = None
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    body: Json = None
    """The structured answer, if the text does not contain it."""
    waits: bool | None = None
    """Whether it requests an approval or an input from a person; false if it answers such a request."""
    end: str | None = None
    """Why the agent had not finished with it: nothing but reasoning, or no content at all."""
