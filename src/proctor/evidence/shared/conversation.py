"""A conversation as messages of one common form, and the evidence in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from proctor.evidence.shared.calls import CONTENT_ERROR
from proctor.evidence.shared.message import Message, ToolResult
from proctor.evidence.shared.usage import add_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import mark_removed
from proctor.evidence.values.text import parse_json
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Evidence, EvidenceTurn, Json, ToolCall, Usage, find_result_error
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import show

ENDS_WITH_CALL = "the messages end with a call of a tool, before the agent finished"
ENDS_WITH_RESULT = "the messages end with the result of a tool, before the agent finished"
ENDS_WITH_REASONING = "the messages end with the agent's reasoning, before it answered"
ENDS_EMPTY = "the messages end with a message of the agent without content"
ENDS_WITH_USER = "the messages end with the user's message, before the agent answered"
WAITS = "the messages end with a request for a person's approval or input, before the agent finished"
NO_AGENT = "no message of the agent is recorded"
NO_BEGINNING = "the messages do not begin with the user's message, so calls before them may be missing"
_OMITTED = lazy_pattern(  # `[12 messages omitted]`
    r"(?i)[\[(<{*.\u2026-]+(?=.*\b(omitted|truncated|removed|trimmed|dropped|pruned|cleared|elided|skipped)\b)[\w ,+]*"
    r"\b(messages?|turns?|history|conversation|transcript|tool calls?)\b[\w ,+]*[\])>}*.\u2026-]+\s*$"
)  # fmt: skip
_EARLIER: tuple[Part, ...] = (*CALL_PARTS, "input", "turns", "usage")
_LATER: tuple[Part, ...] = (*CALL_PARTS, "answer", "usage")


class _Exchange:
    """One user message and everything until the next."""

    def __init__(self, input: str | None) -> None:
        self.input = input
        self.text: str | None = None
        self.body: Json = None
        self.end: str | None = ENDS_WITH_USER
        self.waits = False
        self.calls: list[ToolCall] = []
        self.usage: list[Usage | None] = []
        self.answered: set[int] = set()
        # Open calls by name (None: any name), and whether only those without an id are meant.
        self._open: dict[tuple[str | None, bool], deque[int]] = {}

    def add_message(self, message: Message) -> None:
        # Text next to a call that is still open was written before the tool ran, and cannot be the answer.
        is_silent = not message.text and message.body is None
        if message.calls and _is_open(message):
            self.end = ENDS_WITH_CALL
        elif message.calls and is_silent:
            self.end = ENDS_WITH_RESULT
        else:
            self.end = message.end if message.body is None else None
        # Text before further reasoning remains recorded.
        self.text = message.text if self.end in (None, ENDS_WITH_REASONING) else None
        self.body = None if self.end is not None else message.body if message.body is not None else parse_json(message.text)
        self.usage.append(message.usage)

    def add_call(self, call: ToolCall) -> None:
        index = len(self.calls)
        self.calls.append(call)
        if call.result is not None or call.error is not None:
            self.answered.add(index)
            return
        for key in [(name, bare) for name in (call.name, None) for bare in (False, True) if call.id is None or not bare]:
            self._open.setdefault(key, deque()).append(index)

    def find_open(self, result: ToolResult) -> int | None:
        """Return the first open call that a result without a call id can answer, without scanning all calls."""
        # A result with an id that no call has can only answer a call without an id.
        queue = self._open.get((result.name, result.id is not None))
        while queue and queue[0] in self.answered:
            queue.popleft()
        return queue[0] if queue else None

    def answer(self, index: int, result: ToolResult) -> None:
        self.answered.add(index)
        call, error, kind = self.calls[index], result.error, result.kind
        if error is None and call.error is not None:
            # Recorded twice: a reported failure is preserved.
            error, kind = call.error, call.error_kind
        if error is None and (error := find_result_error(result.value)) is not None:
            kind = CONTENT_ERROR
        kind = kind if error is not None else None
        self.calls[index] = msgspec.structs.replace(call, result=result.value, error=error, error_kind=kind)

    def build(self) -> EvidenceTurn:
        calls, usage = tuple(self.calls), add_usage(self.usage)
        return EvidenceTurn(input=self.input, text=self.text, body=self.body, tool_calls=calls, usage=usage)


def build_evidence(
    messages: Sequence[Message], unknowns: Unknowns, *, usage: Usage | None = None, results_promised: bool = True
) -> Evidence:
    """Return the evidence of a conversation; `usage` is the reported total.

    Without `results_promised` the format may leave out the result of a tool although nothing went wrong.
    """
    for message in messages:
        if message.role in ("system", "user") and message.text and _OMITTED.match(message.text[:100]):
            mark_earlier(unknowns, f"messages are missing from the list: {show(message.text, 60)}")
    exchanges = _split_exchanges(messages, unknowns)
    for exchange in exchanges if results_promised else ():
        for index, call in enumerate(exchange.calls):
            if index not in exchange.answered:
                whose = f"{call.name} ({call.id})" if call.id else call.name
                unknowns.mark("tool_results", f"the call of {whose} has no result in these messages")
    spent = [message.usage for message in messages if message.role == "assistant"]
    if usage is None and None in spent and any(spent):
        unknowns.mark("usage", f"{spent.count(None)} of {len(spent)} answers of the model do not report their tokens")
    # An unread message may have used tokens, too.
    if usage is None and any(spent) and "turns" in unknowns.unknown and not {"answer", "tool_calls"}.isdisjoint(unknowns.unknown):
        unknowns.mark_unrecognised(("usage",), unknowns.unknown["turns"])
    for exchange in exchanges:
        mark_removed(exchange.text, "answer", "the answer", unknowns)
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
        turns=tuple(turn.build() for turn in turns) if len(turns) > 1 else None,
        model=next((message.model for message in reversed(messages) if message.model is not None), None),
    )


def _split_exchanges(messages: Sequence[Message], unknowns: Unknowns) -> list[_Exchange]:
    exchanges: list[_Exchange] = []
    calling: _Exchange | None = None
    """The newest exchange with a call, the only one that a result without an id can answer."""
    by_id: dict[str | None, tuple[_Exchange, int]] = {}
    for message in messages:
        if not exchanges and (message.role == "assistant" or message.calls):
            exchanges.append(_Exchange(None))
        if message.role == "assistant":
            current = exchanges[-1]
            current.add_message(message)
            for call in message.calls:
                calling = current
                if call.id is not None:
                    by_id[call.id] = (current, len(current.calls))  # ids may be reused
                current.add_call(call)
        elif message.calls:
            for call in message.calls:
                # The message of a result may repeat its call.
                if (call.name, call.id or call.arguments) not in [(made.name, made.id or made.arguments) for made in exchanges[-1].calls]:
                    unknowns.mark_parts(CALL_PARTS, f"a call of {show(call.name, 40)} is in a message of the role {message.role}")
                    exchanges[-1].add_call(call)
        # After the calls: some formats have call and result in one message.
        for result in message.results:
            exchange, index = by_id.get(result.id) or (calling, calling.find_open(result) if calling is not None else None)
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


def mark_earlier(unknowns: Unknowns, why: str) -> None:
    """Mark the parts that messages before the first one may contain (rule c)."""
    unknowns.mark_parts(_EARLIER, why)


def mark_later(unknowns: Unknowns, why: str) -> None:
    """Mark the parts that later messages may contain, because the run was not over (rule c)."""
    unknowns.mark_parts(_LATER, why)


def mark_end(unknowns: Unknowns, at: str, word: Json) -> None:
    """Mark the parts that later messages may contain, because this word reports that the run was not over."""
    mark_later(unknowns, f"{at}: {show(word, 40)}, so the run was not over")


def compare_choices(choices: Sequence[Message], at: str, unknowns: Unknowns) -> None:
    """Mark an answer with several versions: it is unknown which one was used."""
    calls = [[(call.name, call.arguments) for call in choice.calls] for choice in choices]
    if any(choice_calls != calls[0] for choice_calls in calls):
        unknowns.mark_parts(CALL_PARTS, f"{at}: {len(choices)} answers that call different tools; which one was used is unknown")
    if any(choice.text != choices[0].text for choice in choices):
        unknowns.mark("answer", f"{at}: {len(choices)} different answers; which one was used is unknown")
