"""A conversation as messages of one common form, and the evidence in it.

Results are attached to calls by id, else to the first unanswered call of that name. The answer is the text of the last assistant message.
A list that ends with a user message, an unanswered call or a tool result ends before the agent finished (rule e).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

import msgspec

from proctor.evidence.shared.calls import CONTENT_ERROR, mcp_error
from proctor.evidence.shared.usage import add_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import is_redacted
from proctor.evidence.values.text import parse_json
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Evidence, EvidenceTurn, Json, ToolCall, Usage
from proctor.model.show import show

Role = Literal["user", "assistant", "tool", "system"]
ENDS_WITH_CALL = "the messages end with a call of a tool, before the agent finished"
ENDS_WITH_RESULT = "the messages end with the result of a tool, before the agent finished"
ENDS_WITH_USER = "the messages end with the user's message, before the agent answered"
WAITS = "the messages end with a request for a person's approval or input, before the agent finished"
NO_AGENT = "no message of the agent is recorded"
NO_BEGINNING = "the messages do not begin with the user's message, so calls before them may be missing"
_EARLIER: tuple[Part, ...] = (*CALL_PARTS, "input", "turns", "usage")
_LATER: tuple[Part, ...] = (*CALL_PARTS, "answer", "usage")


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returned."""

    id: str | None = None
    name: str | None = None
    value: Json = None
    error: Json = None
    kind: str | None = None
    has_ended: bool = False
    """Whether it reports that the call succeeded, or that it failed."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. A user message may carry tool results (Anthropic); then only its text makes it a turn."""

    role: Role
    text: str | None = None
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    body: Json = None
    """The answer in a given form, where the text does not hold it."""
    waits: bool | None = None
    """Whether it asks a person to approve or to enter something, or, if false, answers that."""


class _Exchange:
    """One user message and everything until the next."""

    def __init__(self, input: str | None) -> None:
        self.input = input
        self.text: str | None = None
        self.body: Json = None
        self.end: str | None = ENDS_WITH_USER
        """Why this exchange ends before the agent finished."""
        self.waits = False
        self.calls: list[ToolCall] = []
        self.usage: list[Usage | None] = []
        self.answered: set[int] = set()
        # Open calls by name (None: any name), and whether only those without an id are meant.
        self._open: dict[tuple[str | None, bool], deque[int]] = {}

    def add_message(self, message: Message) -> None:
        """Add a message of the agent, without its calls."""
        # Text next to a call that is still open was written before the tool ran, and cannot be the answer.
        if message.calls and _is_open(message):
            self.end = ENDS_WITH_CALL
        else:
            self.end = ENDS_WITH_RESULT if message.calls and not message.text and message.body is None else None
        self.text = message.text if self.end is None else None
        self.body = None if self.end is not None else message.body if message.body is not None else parse_json(message.text)
        self.usage.append(message.usage)

    def add_call(self, call: ToolCall) -> None:
        """Add a call."""
        index = len(self.calls)
        self.calls.append(call)
        if call.result is not None or call.error is not None:
            self.answered.add(index)
            return
        for key in [(name, bare) for name in (call.name, None) for bare in (False, True) if call.id is None or not bare]:
            self._open.setdefault(key, deque()).append(index)

    def find_open(self, result: ToolResult) -> int | None:
        """Return the first open call that a result without the id of a call can answer, without a look at all calls."""
        # A result with an id that no call has can only answer a call without an id.
        queue = self._open.get((result.name, result.id is not None))
        while queue and queue[0] in self.answered:
            queue.popleft()
        return queue[0] if queue else None

    def answer(self, index: int, result: ToolResult) -> None:
        """Attach a result to its call."""
        self.answered.add(index)
        self.calls[index] = attach_result(self.calls[index], result)


def build_evidence(
    messages: Sequence[Message], unknowns: Unknowns, *, usage: Usage | None = None, results_promised: bool = True
) -> Evidence:
    """Return the evidence of a conversation; `usage` was reported for all of it.

    Without `results_promised` the format may leave out the result of a tool although nothing went wrong.
    """
    exchanges = _split_exchanges(messages, unknowns)
    for exchange in exchanges if results_promised else ():
        for index, call in enumerate(exchange.calls):
            if index not in exchange.answered:
                whose = f"{call.name} ({call.id})" if call.id else call.name
                unknowns.mark("tool_results", f"the call of {whose} has no result in these messages")
    spent = [message.usage for message in messages if message.role == "assistant"]
    if usage is None and None in spent and any(spent):
        unknowns.mark("usage", f"{spent.count(None)} of {len(spent)} answers of the model do not report their tokens")
    # A message that was not read may have spent tokens, too.
    if usage is None and any(spent) and "turns" in unknowns.unknown and not {"answer", "tool_calls"}.isdisjoint(unknowns.unknown):
        unknowns.mark_unrecognised(("usage",), unknowns.unknown["turns"])
    for exchange in exchanges:
        if is_redacted(exchange.text):
            unknowns.mark("answer", f"the answer was removed: {show(exchange.text, 40)}")
    turns = [exchange for exchange in exchanges if exchange.input is not None]
    last = exchanges[-1] if exchanges else _Exchange(None)
    end = (WAITS if last.waits else last.end) if exchanges else NO_AGENT
    if end is not None:
        unknowns.mark_parts(("answer", "tool_calls"), end)
    return Evidence(
        input=turns[0].input if turns else None,
        text=last.text,
        body=last.body,
        tool_calls=tuple(call for exchange in exchanges for call in exchange.calls),
        usage=usage or add_usage(part for exchange in exchanges for part in exchange.usage),
        turns=tuple(map(_make_turn, turns)) if len(turns) > 1 else None,
        model=next((message.model for message in reversed(messages) if message.model is not None), None),
    )


def _make_turn(exchange: _Exchange) -> EvidenceTurn:
    calls, usage = tuple(exchange.calls), add_usage(exchange.usage)
    return EvidenceTurn(input=exchange.input, text=exchange.text, body=exchange.body, tool_calls=calls, usage=usage)


def _split_exchanges(messages: Sequence[Message], unknowns: Unknowns) -> list[_Exchange]:
    exchanges: list[_Exchange] = []
    calling: _Exchange | None = None
    """The newest exchange with a call: a result without an id can only answer this one."""
    by_id: dict[str | None, tuple[_Exchange, int]] = {}
    for message in messages:
        if message.role == "assistant":
            if not exchanges:
                exchanges.append(_Exchange(None))
            current = exchanges[-1]
            current.add_message(message)
            for call in message.calls:
                calling = current
                if call.id is not None:
                    by_id[call.id] = (current, len(current.calls))  # ids may be used again
                current.add_call(call)
        # After the calls: some formats have call and result in one message.
        for result in message.results:
            exchange, index = by_id.get(result.id) or (calling, calling and calling.find_open(result))
            if exchange is None or index is None:
                whose = result.id or result.name
                why = f"a tool result{f' ({whose})' if whose else ''} answers no call in these messages, so a call is missing"
                unknowns.mark_parts(CALL_PARTS, why)
            else:
                exchange.answer(index, result)
        if exchanges:
            exchanges[-1].waits = message.waits if message.waits is not None else exchanges[-1].waits and not message.results
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


def mark_earlier(unknowns: Unknowns, why: str) -> None:
    """Mark what came before the first message (rule c)."""
    unknowns.mark_parts(_EARLIER, why)


def mark_later(unknowns: Unknowns, why: str) -> None:
    """Mark what follows: the run was not over (rule c)."""
    unknowns.mark_parts(_LATER, why)


def mark_end(unknowns: Unknowns, at: str, word: Json) -> None:
    """Mark what follows: this word reports that the run was not over."""
    mark_later(unknowns, f"{at}: {show(word, 40)}, so the run was not over")


def compare_choices(choices: Sequence[Message], at: str, unknowns: Unknowns) -> None:
    """Mark an answer that came in several versions: it is unknown which of them was used."""
    calls = [[(call.name, call.arguments) for call in choice.calls] for choice in choices]
    if any(made != calls[0] for made in calls):
        unknowns.mark_parts(CALL_PARTS, f"{at}: {len(choices)} answers that call different tools; which one was used is unknown")
    if any(choice.text != choices[0].text for choice in choices):
        unknowns.mark("answer", f"{at}: {len(choices)} different answers; which one was used is unknown")
