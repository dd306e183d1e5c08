"""A conversation as messages of one common form, and the evidence it is.

Readers of the providers' formats turn their messages into `Message`s; this puts them together. Results are attached to calls by id,
else to the first unanswered call of that name. The text is that of the last assistant message; none, if that message has no
text. With more than one user message the conversation has turns, one for each. Tools are always observable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from proctor.evidence.calls import CONTENT_ERROR, mcp_error
from proctor.evidence.text import as_text, json_in
from proctor.evidence.usage import add_usage
from proctor.model.evidence import Evidence, EvidenceTurn, Json, ToolCall, Usage

Role = Literal["user", "assistant", "tool", "system"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answered."""

    id: str | None = None
    name: str | None = None
    value: Json = None
    error: Json = None
    kind: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. A user message may carry tool results (Anthropic); only its text makes it a turn."""

    role: Role
    text: str | None = None
    calls: tuple[ToolCall, ...] = ()
    results: tuple[Result, ...] = ()
    usage: Usage | None = None


class _Exchange:
    """One user message and everything until the next."""

    def __init__(self, asked: str | None) -> None:
        self.asked = asked
        self.text: str | None = None
        self.calls: list[ToolCall] = []
        self.usage: list[Usage | None] = []


def evidence_of(messages: Sequence[Message], *, usage: Usage | None = None) -> Evidence:
    """The evidence a conversation is; `usage` is what was reported for all of it."""
    exchanges = _exchanges(messages)
    asked = [exchange for exchange in exchanges if exchange.asked is not None]
    last = exchanges[-1] if exchanges else None
    return Evidence(
        input=asked[0].asked if asked else None,
        text=last.text if last is not None else None,
        body=json_in(last.text) if last is not None else None,
        tool_calls=tuple(call for exchange in exchanges for call in exchange.calls),
        usage=usage or add_usage(part for exchange in exchanges for part in exchange.usage),
        turns=tuple(_turn(exchange) for exchange in asked) if len(asked) > 1 else None,
    )


def _exchanges(messages: Sequence[Message]) -> list[_Exchange]:
    exchanges: list[_Exchange] = []
    for message in messages:
        if message.role == "assistant":
            if not exchanges:
                exchanges.append(_Exchange(None))
            current = exchanges[-1]
            current.text = message.text
            current.calls.extend(message.calls)
            current.usage.append(message.usage)
        # After the calls: some formats keep call and result in one message.
        _attach(exchanges, message.results)
        if message.role == "user" and message.text is not None:
            exchanges.append(_Exchange(message.text))
    return exchanges


def _turn(exchange: _Exchange) -> EvidenceTurn:
    return EvidenceTurn(
        input=exchange.asked,
        text=exchange.text,
        body=json_in(exchange.text),
        tool_calls=tuple(exchange.calls),
        usage=add_usage(exchange.usage),
    )


def _attach(exchanges: list[_Exchange], results: tuple[Result, ...]) -> None:
    for result in results:
        place = _place(exchanges, result)
        if place is not None:
            exchange, index = place
            exchange.calls[index] = answered(exchange.calls[index], result)


def _place(exchanges: list[_Exchange], result: Result) -> tuple[_Exchange, int] | None:
    # Newest exchange first: ids may repeat over a long conversation.
    for exchange in reversed(exchanges):
        for index, call in enumerate(exchange.calls):
            if result.id is not None and call.id is not None:
                if call.id == result.id:
                    return exchange, index
            elif call.result is None and call.error is None and result.name in (None, call.name):
                return exchange, index
    return None


def answered(call: ToolCall, result: Result) -> ToolCall:
    """The call with what came of it."""
    error, kind = result.error, result.kind
    if error is None:
        error = mcp_error(result.value)
        kind = CONTENT_ERROR if error is not None else None
    return msgspec.structs.replace(call, result=result.value, error=error, error_kind=kind)


def failure(value: Json, otherwise: str) -> str:
    """What a failed call says, in words."""
    return as_text(value) or otherwise
