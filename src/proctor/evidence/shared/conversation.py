"""A conversation as messages of one common form, and the evidence it is.

Readers of the providers' formats turn their messages into `Message`s; this puts them together. Results are attached to calls by id,
else to the first unanswered call of that name. The answer is the text of the last assistant message. With more than one user message the
conversation has turns, one for each.

A list that ends with a user message, an unanswered call or a tool result, or has no message of the agent at all, ends before the agent
finished (rule e): the answer and further calls are unknown, and no earlier answer takes their place. A result that answers no call shows
that a call is missing; how a call without a result ended is unknown; tokens that only some answers report make no sum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

import msgspec

from proctor.evidence.shared.calls import CONTENT_ERROR, mcp_error
from proctor.evidence.shared.usage import add_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.text import as_text, parse_json
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Evidence, EvidenceTurn, Json, ToolCall, Usage

Role = Literal["user", "assistant", "tool", "system"]
ENDS_WITH_CALL = "the messages end with a call of a tool, before the agent finished"
ENDS_WITH_RESULT = "the messages end with the result of a tool, before the agent finished"
ENDS_WITH_USER = "the messages end with what was said to the agent, before it answered"
NO_AGENT = "no message of the agent is recorded"
ENDS_EARLY = frozenset((ENDS_WITH_CALL, ENDS_WITH_RESULT, ENDS_WITH_USER, NO_AGENT))
"""Reasons that no longer hold where an answer is recorded elsewhere, or the run is known to be over."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returned."""

    id: str | None = None
    name: str | None = None
    value: Json = None
    error: Json = None
    kind: str | None = None
    tells_end: bool = False
    """Whether it reports that the call succeeded, or that it failed."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. A user message may carry tool results (Anthropic); then only its text makes it a turn."""

    role: Role
    text: str | None = None
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    """The model that wrote it, where the message names it."""
    body: Json = None
    """The answer in a given form, where the text does not hold it."""


class _Exchange:
    """One user message and everything until the next."""

    def __init__(self, asked: str | None) -> None:
        self.asked = asked
        self.text: str | None = None
        self.body: Json = None
        self.end: str | None = ENDS_WITH_USER
        """Why this exchange ends before the agent finished."""
        self.calls: list[ToolCall] = []
        self.usage: list[Usage | None] = []


class _Pairing:
    """Finds the call that a result answers without a look at all calls: the newest of its id, else the first open one of its name."""

    def __init__(self, unknowns: Unknowns) -> None:
        self._unknowns = unknowns
        self._by_id: dict[str, tuple[_Exchange, int]] = {}
        self._waiting: dict[tuple[int, int], ToolCall] = {}
        self._exchange: _Exchange | None = None
        # Open calls of the newest exchange, by name (nothing: any name), and whether only those without an id are meant.
        self._open: dict[tuple[str | None, bool], deque[int]] = {}
        self._closed: set[int] = set()

    def add(self, exchange: _Exchange, call: ToolCall) -> None:
        """Add a call that was made."""
        if exchange is not self._exchange:
            # A result without an id can only answer the newest exchange: older ones ended with their answer.
            self._exchange, self._open, self._closed = exchange, {}, set()
        index = len(exchange.calls)
        exchange.calls.append(call)
        if call.result is None and call.error is None:
            self._waiting[id(exchange), index] = call
        if call.id is not None:
            # Ids may be used again, even within one exchange.
            self._by_id[call.id] = (exchange, index)
        if call.result is None and call.error is None:
            for key in [(name, bare) for name in (call.name, None) for bare in (False, True) if call.id is None or not bare]:
                self._open.setdefault(key, deque()).append(index)

    def answer(self, result: ToolResult) -> None:
        """Attach a result to its call; a result without a call shows that a call is missing."""
        place = self._by_id.get(result.id) if result.id is not None else None
        exchange, index = place or (self._exchange, self._find_first_open(result))
        if exchange is None or index is None:
            whose = result.id or result.name
            why = f"a tool result{f' ({whose})' if whose else ''} answers no call in these messages, so a call is missing"
            self._unknowns.mark_parts(CALL_PARTS, why)
            return
        self._waiting.pop((id(exchange), index), None)
        # An index means something only within its own exchange; older exchanges have no queue of open calls any more.
        if exchange is self._exchange:
            self._closed.add(index)
        exchange.calls[index] = attach_result(exchange.calls[index], result)

    def close(self) -> None:
        """Mark how calls without a result ended: nothing more comes."""
        for call in self._waiting.values():
            self._unknowns.mark(
                "tool_results", f"the call of {call.name}{f' ({call.id})' if call.id else ''} has no result in these messages"
            )

    def _find_first_open(self, result: ToolResult) -> int | None:
        # A result with an id that no call has can only answer a call without an id: a call with another id is another call.
        waiting = self._open.get((result.name, result.id is not None))
        # Calls that were answered by id stay in the queue until they are met here, so that answering costs nothing for each call.
        while waiting:
            index = waiting.popleft()
            if index not in self._closed:
                return index
        return None


def build_evidence(
    messages: Sequence[Message], unknowns: Unknowns, *, usage: Usage | None = None, results_promised: bool = True
) -> Evidence:
    """Return the evidence of a conversation; `usage` was reported for all of it.

    Without `results_promised` the format may leave out the result of a tool although nothing went wrong.
    """
    pairing = _Pairing(unknowns)
    exchanges = _split_exchanges(messages, pairing)
    if results_promised:
        pairing.close()
    if usage is None:
        _mark_partial_usage(messages, unknowns)
    asked = [exchange for exchange in exchanges if exchange.asked is not None]
    last = exchanges[-1] if exchanges else None
    end = last.end if last is not None else NO_AGENT
    if end is not None:
        unknowns.mark_parts(("answer", "tool_calls"), end)
    return Evidence(
        input=asked[0].asked if asked else None,
        text=last.text if last is not None else None,
        body=last.body if last is not None else None,
        tool_calls=tuple(call for exchange in exchanges for call in exchange.calls),
        usage=usage or add_usage(part for exchange in exchanges for part in exchange.usage),
        turns=tuple(_turn(exchange) for exchange in asked) if len(asked) > 1 else None,
        model=next((message.model for message in reversed(messages) if message.model is not None), None),
    )


def _mark_partial_usage(messages: Sequence[Message], unknowns: Unknowns) -> None:
    spoken = [message.usage for message in messages if message.role == "assistant"]
    if None in spoken and any(usage is not None for usage in spoken):
        unknowns.mark("usage", f"{spoken.count(None)} of {len(spoken)} answers of the model do not report their tokens")


def _split_exchanges(messages: Sequence[Message], pairing: _Pairing) -> list[_Exchange]:
    exchanges: list[_Exchange] = []
    for message in messages:
        if message.role == "assistant":
            if not exchanges:
                exchanges.append(_Exchange(None))
            current = exchanges[-1]
            # Text next to a call that is still open was said before the tool ran, and cannot be the answer.
            is_open = bool(message.calls) and _is_open(message)
            current.end = (
                ENDS_WITH_CALL if is_open else ENDS_WITH_RESULT if message.calls and not message.text and message.body is None else None
            )
            current.text = message.text if current.end is None else None
            current.body = None if current.end is not None else message.body if message.body is not None else parse_json(message.text)
            for call in message.calls:
                pairing.add(current, call)
            current.usage.append(message.usage)
        # After the calls: some formats keep call and result in one message.
        for result in message.results:
            pairing.answer(result)
        if message.results and message.role != "assistant" and exchanges:
            exchanges[-1].end, exchanges[-1].text, exchanges[-1].body = ENDS_WITH_RESULT, None, None
        if message.role == "user" and (message.text is not None or not message.results):
            exchanges.append(_Exchange(message.text or ""))
    return exchanges


def _is_open(message: Message) -> bool:
    """Return whether a message calls a tool whose result may still come."""
    ids = {result.id for result in message.results if result.id is not None}
    names = {result.name for result in message.results}
    return any(
        call.result is None and call.error is None and call.id not in ids and not (call.name in names or (names and call.id is None))
        for call in message.calls
    )


def _turn(exchange: _Exchange) -> EvidenceTurn:
    return EvidenceTurn(
        input=exchange.asked,
        text=exchange.text,
        body=exchange.body,
        tool_calls=tuple(exchange.calls),
        usage=add_usage(exchange.usage),
    )


def attach_result(call: ToolCall, result: ToolResult) -> ToolCall:
    """Return the call with its result or its error."""
    error, kind = result.error, result.kind
    if error is None and call.error is not None:
        # Recorded twice: a failure stays one.
        error, kind = call.error, call.error_kind
    if error is None:
        error = mcp_error(result.value)
        kind = CONTENT_ERROR if error is not None else None
    return msgspec.structs.replace(call, result=result.value, error=error, error_kind=kind)


def describe_failure(value: Json, otherwise: str) -> str:
    """Return the words of a failed call, or `otherwise` if it has none."""
    return as_text(value) or otherwise
