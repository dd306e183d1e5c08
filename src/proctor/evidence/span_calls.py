"""The tool calls of a trace: what models asked for, joined with the spans of the tools that ran.

One call is told of in several places: the model's answer asks for it, a framework's span runs it, an MCP client and server see it pass,
the next request brings its result back. Rules:

- Requests to a model are put in order of their start. Spans of one request (nested, of the same response, or a span that only sees
  a stream begin and one that sees it end) are one `Exchange`.
- A call asked for and a tool span are the same by id, else by name in order, arguments that agree first.
- Calls stand in the order in which they were asked for; a tool span that nobody asked for stands where it began.
- Arguments, results and errors come from whichever side has them, results also from the messages of the next request.
- A tool span inside another of the same tool, and what MCP sees of it, is the same call.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from proctor.evidence.account import Doubts
from proctor.evidence.conversation import Message, Result
from proctor.evidence.span_step import Step, spoken
from proctor.evidence.spans import Span
from proctor.model.evidence import Json, ToolCall, Usage

_FRONT = re.compile(r"^.*(?:[-.:/]|__)(?=\w)", re.DOTALL)
"""What stands before a tool's own name: `Shop-`, `server:`, `server__`."""


class Exchange:
    """One request to a model and its answer, seen by one or more spans."""

    __slots__ = ("nested", "steps")

    def __init__(self, step: Step, *, nested: bool) -> None:
        self.steps = [step]
        self.nested = nested
        """Whether it happened inside a tool: another agent's talk."""

    @property
    def span(self) -> Span:
        """The outermost span of it."""
        return self.steps[0].span

    @property
    def given(self) -> list[Message] | None:
        """The messages the model was given, from the span that tells most of them."""
        return max((step.given for step in self.steps if step.given is not None), key=_told, default=None)

    @property
    def said(self) -> list[Message] | None:
        """What the model answered, from the span that tells most."""
        known = [step for step in self.steps if step.said is not None]
        best = next((step for step in known if step.calls), None) or next((step for step in known if step.text()), None)
        return (best or known[0]).said if known else None

    def calls(self) -> list[ToolCall]:
        """The calls the model asked for."""
        return [call for message in self.said or () for call in message.calls]

    def text(self) -> str | None:
        """What the model said to the user."""
        return spoken(self.said or ())

    def asked(self) -> list[str]:
        """What users said in the messages the model was given, oldest first."""
        return [message.text for message in self.given or () if message.role == "user" and message.text and message.text.strip()]

    def knows_calls(self) -> bool:
        """Whether it is known which tools the model asked for."""
        if any(step.strange for step in self.steps):
            return False
        if any(step.hides_hosted_tools() or step.loses_calls() for step in self.steps):
            return False
        if self.calls():
            return True
        if any(step.says_tools() for step in self.steps):
            return False
        return any(step.knows_calls() for step in self.steps)

    def tells_anything(self) -> bool:
        """Whether it is more than the name of a model: some frameworks write a span for preparing a request."""
        return any(step.given is not None or step.said is not None or step.finish for step in self.steps)

    def says_tools(self) -> bool:
        """Whether a reason to stop says that tools were called."""
        return any(step.says_tools() for step in self.steps)

    def usage(self, usage_of: Callable[[Span], Usage | None]) -> Usage | None:
        """The tokens of the request, once: as the span nearest to the provider tells them."""
        return next((found for step in reversed(self.steps) if (found := usage_of(step.span)) is not None), None)


def _told(messages: list[Message]) -> tuple[int, int]:
    """How much messages tell: a text that must not be recorded leaves an empty one."""
    return sum(bool(message.text or message.calls or message.results) for message in messages), len(messages)


class Made(msgspec.Struct, frozen=True):
    """One call, where it was made, and which request asked for it."""

    call: ToolCall
    holder: str | None
    """The id of the span it is nested in."""
    start_ns: int
    exchange: int
    """The index of the request that asked for it; the last one before it where none did, -1 before any."""
    executed: bool
    """Whether a span shows that it ran."""
    answered: bool
    """Whether anything tells what came of it."""
    agrees: bool = True
    """Whether what the model asked for and what the tool was given are the same, as far as both are told."""


class Ran(msgspec.Struct, frozen=True):
    """A tool that ran, as its spans tell it."""

    call: ToolCall
    holder: str | None
    start_ns: int


def join_calls(exchanges: Sequence[Exchange], ran: Sequence[Ran], doubts: Doubts) -> list[Made]:
    """Return every call once, in the order in which the calls were asked for."""
    asked = _asked(exchanges)
    pairs = _pair([call for _, call in asked], ran)
    results = _Results(exchanges)
    made: list[Made] = []
    for index, (number, call) in enumerate(asked):
        twin = ran[pairs[index]] if index in pairs else None
        # In order of asking, whatever was given an id or not: results without one are handed out in that order.
        result = results.of(call)
        made.append(_made(call, twin, result, number, exchanges[number].span if number >= 0 else None))
    if results.left() is not None:
        doubts.doubt("tool_results", "a result that tells an error answers no call in the trace")
    taken = set(pairs.values())
    alone = [entry for place, entry in enumerate(ran) if place not in taken]
    if not alone:
        return made
    starts = [exchange.span.start_ns for exchange in exchanges]
    lone = [Made(entry.call, entry.holder, entry.start_ns, bisect_right(starts, entry.start_ns) - 1, True, True) for entry in alone]
    # Behind everything that was asked for before it began; the order of asking stays as it is.
    return sorted((*made, *lone), key=lambda entry: (entry.exchange, entry.start_ns))


def _asked(exchanges: Sequence[Exchange]) -> list[tuple[int, ToolCall]]:
    """The calls that were asked for, each with its request; what only a later request remembers belongs to the one before it."""
    asked = _Asked()
    before: Exchange | None = None
    for number, exchange in enumerate(exchanges):
        # A span may tell of several requests: what followed a question that the one before had not seen was asked for in this one.
        is_new = before is not None and before.given is not None and before.asked() != exchange.asked()
        for call in _remembered(exchange):
            if not asked.confirm(call):
                asked.add(number if is_new else number - 1, call)
        before = exchange
        for call in exchange.calls():
            if call.id is None or call.id not in asked.places:
                asked.add(number, call)
    return asked.found


class _Asked:
    """Calls as they are told one after the other, each kept once."""

    def __init__(self) -> None:
        self.found: list[tuple[int, ToolCall]] = []
        self.places: dict[str, int] = {}
        self._seen: set[tuple[str, bytes]] = set()
        # Calls that no later request has repeated yet, by what is told of them beside their id: an answer may have none, or another
        # one than the request that repeats it (OpenAI's Responses have an id of the item and one of the call).
        self._open: dict[tuple[str, bytes], deque[int]] = {}

    def add(self, number: int, call: ToolCall) -> None:
        """Keep a call that was not told before."""
        key = _key(call)
        self._seen.add(key)
        self._open.setdefault(key, deque()).append(len(self.found))
        if call.id is not None:
            self.places[call.id] = len(self.found)
        self.found.append((number, call))

    def confirm(self, call: ToolCall) -> bool:
        """Whether a request repeats a call that is known; its id is then the one that results go by."""
        key = _key(call)
        waiting = self._open.get(key)
        if call.id is None:
            return key in self._seen
        if call.id in self.places:
            if waiting and self.places[call.id] in waiting:
                waiting.remove(self.places[call.id])
            return True
        if not waiting:
            return False
        place = waiting.popleft()
        number, known = self.found[place]
        self.found[place] = (number, msgspec.structs.replace(known, id=call.id))
        self.places[call.id] = place
        return True


def _key(call: ToolCall) -> tuple[str, bytes]:
    """What tells calls apart where they have no id: the tool, and what was passed."""
    return call.name, msgspec.json.encode(call.arguments, order="deterministic")


def _remembered(exchange: Exchange) -> list[ToolCall]:
    """Calls in what a model was given, after the last thing a user said: the model made them in this turn."""
    given = exchange.given or []
    last = max((index for index, message in enumerate(given) if message.role == "user" and message.text), default=-1)
    return [call for message in given[last + 1 :] for call in message.calls]


def _pair(asked: Sequence[ToolCall], ran: Sequence[Ran]) -> dict[int, int]:
    """Which tool span is which call: by id, else by name, the earliest with the same arguments first."""
    pairs: dict[int, int] = {}
    by_id = {entry.call.id: place for place, entry in enumerate(ran) if entry.call.id is not None}
    known = set(by_id)
    for index, call in enumerate(asked):
        if call.id is not None and call.id in by_id:
            pairs[index] = by_id.pop(call.id)
    taken = set(pairs.values())
    for with_arguments in (True, False):
        waiting: dict[tuple[str, bytes], deque[int]] = {}
        for place, entry in enumerate(ran):
            if place not in taken:
                waiting.setdefault(_pairing_key(entry.call, with_arguments), deque()).append(place)
        for index, call in enumerate(asked):
            fitting = waiting.get(_pairing_key(call, with_arguments))
            if index in pairs or not fitting or (call.id in known and ran[fitting[0]].call.id is not None):
                continue
            pairs[index] = fitting.popleft()
            taken.add(pairs[index])
    return pairs


def _pairing_key(call: ToolCall, with_arguments: bool) -> tuple[str, bytes]:
    return plain_name(call.name), _key(call)[1] if with_arguments else b""


def plain_name(name: str) -> str:
    """Return a tool's name without what a framework puts in front of it: the name of a plugin or of a server."""
    return _FRONT.sub("", name) or name


def _made(call: ToolCall, twin: Ran | None, result: Result | None, number: int, span: Span | None) -> Made:
    holder, start = (span.parent_id or span.id, span.start_ns) if span is not None else (None, 0)
    if twin is None:
        if result is not None:
            call = msgspec.structs.replace(call, result=result.value, error=result.error, error_kind=result.kind)
        return Made(call, holder, start, number, False, result is not None)
    ran = twin.call
    error, kind = (ran.error, ran.error_kind) if ran.failed() else (result.error, result.kind) if result is not None else (None, None)
    joined = msgspec.structs.replace(
        ran,
        name=call.name,
        aliases=(ran.name,) if ran.name != call.name else (),
        arguments=call.arguments if call.arguments is not None else ran.arguments,
        result=ran.result if ran.result is not None else result.value if result is not None else None,
        error=error,
        error_kind=kind,
        id=call.id or ran.id,
        server=call.server or ran.server,
    )
    return Made(joined, twin.holder, start, number, True, True, _agree(call.arguments, ran.arguments))


def _agree(asked: Json, given: Json) -> bool:
    """Whether two tellings of the arguments can be of one call: a framework may add defaults, and may leave out nulls."""
    if asked is None or given is None or asked == given:
        return True
    if not isinstance(asked, dict) or not isinstance(given, dict):
        return False
    return all(asked[key] == given[key] for key in asked.keys() & given.keys()) and (
        asked.keys() <= given.keys() or given.keys() <= asked.keys()
    )


class _Results:
    """What later requests tell of the results of calls: by id, else in order by name."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self._by_id: dict[str, Result] = {}
        self._loose: dict[str | None, deque[Result]] = {}
        seen: set[tuple[str | None, str | None, bytes, bool]] = set()
        asked = {call.id for exchange in exchanges for call in (*exchange.calls(), *_remembered(exchange))}
        given = (message for exchange in exchanges for message in exchange.given or ())
        self._earlier = {call.id for message in given for call in message.calls if call.id is not None}
        """The ids of calls that requests were given, also those of turns before the trace."""
        for exchange in exchanges:
            for message in (*(exchange.given or ()), *(exchange.said or ())):
                for result in message.results:
                    if result.id is not None and result.id in asked:
                        # Told several times, and not every time with how it ended.
                        if result.id not in self._by_id or (self._by_id[result.id].error is None and result.error is not None):
                            self._by_id[result.id] = result
                        continue
                    # Every later request repeats it.
                    key = (result.id, result.name, msgspec.json.encode(result.value, order="deterministic"), result.error is not None)
                    if key not in seen:
                        seen.add(key)
                        name = plain_name(result.name) if result.name is not None else None
                        self._loose.setdefault(name, deque()).append(result)

    def left(self) -> Result | None:
        """Return an error that no call was given: one of them failed, and nobody knows which."""
        loose = (result for waiting in self._loose.values() for result in waiting)
        return next((result for result in loose if result.error is not None and result.id not in self._earlier), None)

    def of(self, call: ToolCall) -> Result | None:
        """Return the result of a call, each only once where it has no id."""
        if call.id is not None and call.id in self._by_id:
            return self._by_id[call.id]
        for name in (plain_name(call.name), None):
            if self._loose.get(name):
                return self._loose[name].popleft()
        return None
