"""The tool calls of a trace: the calls that models requested, joined with the tools that ran.

One call is recorded in several places: the model's answer requests it, a framework's span runs it, an MCP client and server pass it on, the
next request contains its result. A requested call and a tool span are the same by id, else by name in order, those with equal arguments
first. Calls are in the order in which they were requested; a tool span that no model requested comes where it began. Arguments, results
and errors come from whichever side has them, results also from the messages of the next request.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

import msgspec

from proctor.evidence.shared.call_identity import can_agree, can_be_one_tool, strip_framework_prefix
from proctor.evidence.shared.conversation import ToolResult
from proctor.evidence.traces.request import Exchange
from proctor.evidence.traces.requested_calls import Results, find_requested_calls, make_call_key
from proctor.evidence.traces.step import Step
from proctor.evidence.traces.tool_span import ExecutedTool
from proctor.model.evidence import ToolCall

_HANDOFF = "handoff to "
_NO_NAME = re.compile(r"[^a-zA-Z0-9]")


class ObservedCall(msgspec.Struct, frozen=True):
    """One call, where it was made, and which request asked for it."""

    call: ToolCall
    holder: Step | None
    """The span that it is nested in."""
    start_ns: int
    exchange: int
    """The index of the request that asked for it, or of the last one before it; -1 before any."""
    executed: bool
    """Whether a span shows that it ran."""
    answered: bool
    """Whether its result or its end is recorded."""
    agrees: bool = True
    """Whether the requested arguments and those of the tool span are equal, as far as both are recorded."""
    ended: bool = True
    """Whether it is recorded that it succeeded or failed; a result that only a message repeats may be a refusal."""


class JoinedCalls(msgspec.Struct, frozen=True):
    """The calls of a trace, and the results that answer none of them."""

    calls: list[ObservedCall]
    """Every call once, in the order in which the calls were requested."""
    requested: int
    """How many of them a model requested."""
    strays: list[ToolResult]
    """Results in the input of a model without a call that they answer."""
    has_stray_error: bool
    """Whether a result reports an error and its call is unknown."""


def join_calls(exchanges: Sequence[Exchange], executed: Sequence[ExecutedTool]) -> JoinedCalls:
    """Return every call once, and the results of calls that are missing."""
    requested = find_requested_calls(exchanges)
    if not requested and not any(
        message.results for exchange in exchanges for message in (*(exchange.inputs or ()), *(exchange.outputs or ()))
    ):
        return JoinedCalls(_place_executed(exchanges, executed), 0, [], False)
    pairs = _pair([call for _, call in requested], executed)
    executed = _pair_handoffs(requested, exchanges, executed, pairs)
    results = Results(exchanges, (call for _, call in requested))
    found: list[ObservedCall] = []
    for index, (number, call) in enumerate(requested):
        twin = executed[pairs[index]] if index in pairs else None
        # In order of the requests, with an id or without: results without one are assigned in that order.
        result = results.take_result_of(call)
        found.append(_join_call(call, twin, result, number, exchanges[number].step if number >= 0 else None))
    taken = set(pairs.values())
    # Tools that ran although no recorded answer requested them: the request was not captured.
    alone = [entry for place, entry in enumerate(executed) if place not in taken]
    strays = results.list_strays([entry.call for entry in executed], [entry.call for entry in alone])
    if alone:
        # After everything that was requested before it began; the order of requests stays.
        found = sorted((*found, *_place_executed(exchanges, alone)), key=lambda entry: (entry.exchange, entry.start_ns))
    return JoinedCalls(found, len(requested), strays, results.has_stray_error())


def _place_executed(exchanges: Sequence[Exchange], executed: Sequence[ExecutedTool]) -> list[ObservedCall]:
    """Return tools that no recorded answer requested as calls, each after the last request before it."""
    starts = [exchange.step.span.start_ns for exchange in exchanges]
    return [
        ObservedCall(tool.call, tool.step.holder, start, bisect_right(starts, start) - 1, True, True)
        for tool in executed
        for start in (tool.step.span.start_ns,)
    ]


def _pair_handoffs(
    requested: Sequence[tuple[int, ToolCall]], exchanges: Sequence[Exchange], executed: Sequence[ExecutedTool], pairs: dict[int, int]
) -> Sequence[ExecutedTool]:
    """Pair the tool spans that OpenInference writes for handoffs with the calls that the model requested."""
    handoffs = [place for place, entry in enumerate(executed) if entry.call.name.startswith(_HANDOFF)]
    if not handoffs:
        return executed
    bare = list(executed)
    for place in handoffs:
        entry = executed[place]
        wanted = "transfer_to_" + _NO_NAME.sub("_", entry.call.name.removeprefix(_HANDOFF)).lower()
        siblings = [
            index
            for index, (number, _) in enumerate(requested)
            if index not in pairs and number >= 0 and exchanges[number].step.parent is entry.step.holder
        ]
        # Authors may name the tool of a handoff as they like: then the only sibling call is the one.
        found = next((index for index in siblings if requested[index][1].name == wanted), siblings[0] if len(siblings) == 1 else None)
        if found is not None:
            pairs[found] = place
            # Its input and output are the agents before and after, not arguments and result.
            bare[place] = ExecutedTool(msgspec.structs.replace(entry.call, arguments=None, result=None), entry.step)
    return bare


def _pair(requested: Sequence[ToolCall], executed: Sequence[ExecutedTool]) -> dict[int, int]:
    """Return which tool span is which call: by id, else by name, the earliest with equal arguments first."""
    if not requested or not executed:
        return {}
    pairs = _pair_by_id(requested, executed)
    known = {entry.call.id for entry in executed if entry.call.id}
    taken = set(pairs.values())
    # The surest match first: equal arguments before any, the same name before one with a framework's prefix.
    for with_arguments in (True, False):
        waiting: dict[tuple[str, bytes], list[int]] = {}
        for place, entry in enumerate(executed):
            if place not in taken:
                waiting.setdefault(_make_pairing_key(entry.call, with_arguments), []).append(place)
        for exactly in (True, False):
            for index, call in enumerate(requested) if waiting else ():
                # A call whose id some span has, and that was not paired by it, may only take a span without an id.
                fitting = waiting.get(_make_pairing_key(call, with_arguments)) if index not in pairs else None
                place = _find_first_fitting(call, fitting, executed, exactly=exactly, without_id=call.id in known) if fitting else None
                if fitting and place is not None:
                    fitting.remove(place)
                    pairs[index] = place
                    taken.add(place)
    return pairs


def _pair_by_id(requested: Sequence[ToolCall], executed: Sequence[ExecutedTool]) -> dict[int, int]:
    """Return which tool span has the id of which call; an id used again counts only for spans with the tool's name."""
    pairs: dict[int, int] = {}
    by_id: dict[str, list[int]] = {}
    for place, entry in enumerate(executed):
        if entry.call.id:
            by_id.setdefault(entry.call.id, []).append(place)
    # Some servers give every call the same id; an id is proof only if it is used once on both sides.
    uses = Counter(call.id for call in requested) if by_id else Counter[str | None]()
    for index, call in enumerate(requested) if by_id else ():
        fitting = by_id.get(call.id or "")
        if not fitting:
            continue
        is_unique = len(fitting) == 1 and uses[call.id] == 1
        place = fitting[0] if is_unique else _find_first_fitting(call, fitting, executed, exactly=False)
        if place is not None:
            fitting.remove(place)
            pairs[index] = place
    return pairs


def _find_first_fitting(
    call: ToolCall, places: Sequence[int], executed: Sequence[ExecutedTool], *, exactly: bool, without_id: bool = False
) -> int | None:
    """Return the first tool span that can be the call; with `without_id` only spans that have no id."""
    for place in places:
        other = executed[place].call
        if (other.name == call.name if exactly else can_be_one_tool(other.name, call.name)) and not (without_id and other.id):
            return place
    return None


def _make_pairing_key(call: ToolCall, with_arguments: bool) -> tuple[str, bytes]:
    return strip_framework_prefix(call.name), make_call_key(call)[1] if with_arguments else b""


def _join_call(call: ToolCall, twin: ExecutedTool | None, result: ToolResult | None, number: int, step: Step | None) -> ObservedCall:
    start = step.span.start_ns if step is not None else 0
    # No span shows the tool running; its result is in a later request.
    if twin is None:
        if result is not None:
            call = msgspec.structs.replace(call, result=result.value, error=result.error, error_kind=result.kind)
        holder = step.parent if step is not None and step.span.parent_id is not None else step
        return ObservedCall(call, holder, start, number, False, result is not None, ended=result is None or result.tells_end)
    ran = twin.call
    error, kind = (ran.error, ran.error_kind) if ran.failed() else (result.error, result.kind) if result is not None else (None, None)
    # The name that the model used comes first, as suites ask for it; the framework's name of the tool becomes an alias.
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
    return ObservedCall(joined, twin.step.holder, start, number, True, True, can_agree(call.arguments, ran.arguments))
