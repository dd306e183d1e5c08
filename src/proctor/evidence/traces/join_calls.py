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
from collections import Counter
from collections.abc import Sequence

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.call_identity import can_agree, can_be_one_tool, strip_framework_prefix
from proctor.evidence.shared.conversation import ToolResult
from proctor.evidence.traces.request import Exchange
from proctor.evidence.traces.requested_calls import Results, find_asked, make_call_key
from proctor.model.evidence import ToolCall


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
    ended: bool = True
    """Whether it is told that it went well or that it failed; a result that only a message repeats may be the words of a refusal."""


class Ran(msgspec.Struct, frozen=True):
    """A tool that ran, as its spans tell it."""

    call: ToolCall
    holder: str | None
    start_ns: int


class Joined(msgspec.Struct, frozen=True):
    """The calls of a trace, and the results that answer none of them."""

    made: list[Made]
    """Every call once, in the order in which the calls were asked for."""
    strays: list[ToolResult]
    """Results that a model was given for calls that nothing tells of."""
    has_stray_error: bool
    """Whether there is an error among the results of which nobody knows whose it is."""


def join_calls(exchanges: Sequence[Exchange], ran: Sequence[Ran]) -> Joined:
    """Return every call once, and the results of calls that are missing."""
    asked = find_asked(exchanges)
    pairs = _pair([call for _, call in asked], ran)
    ran = _without_handoffs(asked, exchanges, ran, pairs)
    results = Results(exchanges, (call for _, call in asked))
    made: list[Made] = []
    for index, (number, call) in enumerate(asked):
        twin = ran[pairs[index]] if index in pairs else None
        # In order of asking, whatever was given an id or not: results without one are handed out in that order.
        result = results.take_result_of(call)
        made.append(_join_call(call, twin, result, number, exchanges[number].span if number >= 0 else None))
    taken = set(pairs.values())
    # Tools that ran although no recorded answer asked for them: the asking was not captured, the running was.
    alone = [entry for place, entry in enumerate(ran) if place not in taken]
    strays = results.list_strays([entry.call for entry in ran], [entry.call for entry in alone])
    failed = results.has_stray_error()
    if not alone:
        return Joined(made, strays, failed)
    starts = [exchange.span.start_ns for exchange in exchanges]
    lone = [Made(entry.call, entry.holder, entry.start_ns, bisect_right(starts, entry.start_ns) - 1, True, True) for entry in alone]
    # Behind everything that was asked for before it began; the order of asking stays as it is.
    return Joined(sorted((*made, *lone), key=lambda entry: (entry.exchange, entry.start_ns)), strays, failed)


def _without_handoffs(
    asked: Sequence[tuple[int, ToolCall]], exchanges: Sequence[Exchange], ran: Sequence[Ran], pairs: dict[int, int]
) -> Sequence[Ran]:
    """Pair the tool spans that OpenInference writes for handoffs with the calls the model asked for."""
    handoffs = [place for place, entry in enumerate(ran) if entry.call.name.startswith(_HANDOFF)]
    if not handoffs:
        return ran
    bare = list(ran)
    for place in handoffs:
        entry = ran[place]
        wanted = "transfer_to_" + _NO_NAME.sub("_", entry.call.name.removeprefix(_HANDOFF)).lower()
        beside = [
            index
            for index, (number, _) in enumerate(asked)
            if index not in pairs and number >= 0 and exchanges[number].span.parent_id == entry.holder
        ]
        # Authors may name the tool of a handoff as they like: then the only call beside the span is the one.
        found = next((index for index in beside if asked[index][1].name == wanted), beside[0] if len(beside) == 1 else None)
        if found is not None:
            pairs[found] = place
            # It tells the agents before and after in place of what was passed and what came back.
            bare[place] = msgspec.structs.replace(entry, call=msgspec.structs.replace(entry.call, arguments=None, result=None))
    return bare


_HANDOFF = "handoff to "
_NO_NAME = re.compile(r"[^a-zA-Z0-9]")


def _pair(asked: Sequence[ToolCall], ran: Sequence[Ran]) -> dict[int, int]:
    """Return which tool span is which call: by id, else by name, the earliest with the same arguments first."""
    if not asked or not ran:
        return {}
    pairs = _pair_by_id(asked, ran)
    known = {entry.call.id for entry in ran if entry.call.id}
    taken = set(pairs.values())
    # The surest evidence first: the same arguments before any, the same name before one with a framework's prefix. Each round only takes
    # what the rounds before left over.
    for with_arguments in (True, False):
        waiting: dict[tuple[str, bytes], list[int]] = {}
        for place, entry in enumerate(ran):
            if place not in taken:
                waiting.setdefault(_make_pairing_key(entry.call, with_arguments), []).append(place)
        for exactly in (True, False):
            for index, call in enumerate(asked):
                # A call whose id some span has, and that was not paired by it, may
                # only take a span without an id: one with another id is another call.
                fitting = waiting.get(_make_pairing_key(call, with_arguments)) if index not in pairs else None
                place = _find_first_fitting(call, fitting, ran, exactly=exactly, without_id=call.id in known) if fitting else None
                if fitting and place is not None:
                    fitting.remove(place)
                    pairs[index] = place
                    taken.add(place)
    return pairs


def _pair_by_id(asked: Sequence[ToolCall], ran: Sequence[Ran]) -> dict[int, int]:
    """Return which tool span has the id of which call; an id used again counts only for spans with the tool's name."""
    pairs: dict[int, int] = {}
    by_id: dict[str, list[int]] = {}
    for place, entry in enumerate(ran):
        if entry.call.id:
            by_id.setdefault(entry.call.id, []).append(place)
    if not by_id:
        return pairs
    # Some servers give every call the same id; an id is proof only where it is used once on both sides.
    uses = Counter(call.id for call in asked)
    for index, call in enumerate(asked):
        fitting = by_id.get(call.id or "")
        if not fitting:
            continue
        place = fitting[0] if len(fitting) == 1 and uses[call.id] == 1 else _find_first_fitting(call, fitting, ran, exactly=False)
        if place is not None:
            fitting.remove(place)
            pairs[index] = place
    return pairs


def _find_first_fitting(
    call: ToolCall, places: Sequence[int], ran: Sequence[Ran], *, exactly: bool, without_id: bool = False
) -> int | None:
    """Return the first tool span that can be the call; with `without_id` only spans that have no id."""
    for place in places:
        told = ran[place].call
        if (told.name == call.name if exactly else can_be_one_tool(told.name, call.name)) and not (without_id and told.id):
            return place
    return None


def _make_pairing_key(call: ToolCall, with_arguments: bool) -> tuple[str, bytes]:
    return strip_framework_prefix(call.name), make_call_key(call)[1] if with_arguments else b""


def _join_call(call: ToolCall, twin: Ran | None, result: ToolResult | None, number: int, span: Span | None) -> Made:
    holder, start = (span.parent_id or span.id, span.start_ns) if span is not None else (None, 0)
    # No span shows the tool running; its result is what a later request was given.
    if twin is None:
        if result is not None:
            call = msgspec.structs.replace(call, result=result.value, error=result.error, error_kind=result.kind)
        return Made(call, holder, start, number, False, result is not None, ended=result is None or result.tells_end)
    ran = twin.call
    error, kind = (ran.error, ran.error_kind) if ran.failed() else (result.error, result.kind) if result is not None else (None, None)
    # The name that the model used comes first, as suites ask for it; what the framework calls the tool stays as an alias.
    joined = msgspec.structs.replace(
        ran,
        name=call.name,
        aliases=tuple(name for name in (ran.name, *ran.aliases) if name != call.name),
        arguments=call.arguments if call.arguments is not None else ran.arguments,
        result=ran.result if ran.result is not None else result.value if result is not None else None,
        error=error,
        error_kind=kind,
        id=call.id or ran.id,
        server=call.server or ran.server,
    )
    return Made(joined, twin.holder, start, number, True, True, can_agree(call.arguments, ran.arguments))
