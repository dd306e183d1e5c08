"""The tool calls of a trace: the calls that models requested, joined with the tools that ran.

A requested call and a tool span are the same by id, else by name in order, those with equal arguments first. Calls are in the order in
which they were requested; a tool span that no model requested comes where it began. Every request repeats the conversation before it,
and some servers give every call the same id, so a list of messages can repeat each known call once; any other call in it is new.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from proctor.evidence.shared.call_identity import can_agree, can_be_one_tool, match_calls, strip_framework_prefix
from proctor.evidence.shared.message import ToolResult
from proctor.evidence.traces.request import Exchange
from proctor.evidence.traces.step import Step
from proctor.evidence.traces.tool_span import ExecutedTool
from proctor.evidence.values.access import dict_or_empty
from proctor.model.evidence import ToolCall

_HANDOFF = "handoff to "
_NO_NAME = re.compile(r"[^a-zA-Z0-9]")


class ObservedCall(NamedTuple):
    """One call, where it was made, and which model request produced it."""

    call: ToolCall
    holder: Step | None
    start_ns: int
    exchange: int
    """The index of the model request that produced it, or of the last one before it; -1 before any."""
    executed: bool
    answered: bool
    agrees: bool = True
    """Whether the requested arguments and those of the tool span are equal, as far as both are recorded."""
    ended: bool = True
    """Whether success or failure is recorded; a result that only a message repeats may be a refusal."""


class JoinedCalls(NamedTuple):
    """The calls of a trace, and the results without a call."""

    calls: list[ObservedCall]
    requested: int
    strays: list[ToolResult]
    """Results in the input of a model without a matching call."""
    has_stray_error: bool


def join_calls(exchanges: Sequence[Exchange], executed: Sequence[ExecutedTool]) -> JoinedCalls:
    """Return every call once, and the results of calls that are missing."""
    sides = [side for exchange in exchanges for side in (exchange.inputs, exchange.outputs) if side]
    if not [message for side in sides for message in side if message.calls or message.results]:
        return JoinedCalls(_place_executed(exchanges, executed), 0, [], False)
    requested = _CallCollector(exchanges).found
    pairs = _pair([call for _, call in requested], [entry.call for entry in executed])
    executed = _pair_handoffs(requested, exchanges, executed, pairs)
    results = _Results(exchanges, (call for _, call in requested))
    found: list[ObservedCall] = []
    for index, (number, call) in enumerate(requested):
        twin = executed[pairs[index]] if index in pairs else None
        # In the order of the requests: results without an id are assigned in that order.
        found.append(_join_call(call, twin, results.take_result_of(call), number, exchanges[number].step if number >= 0 else None))
    paired = set(pairs.values())
    # Tools that ran without a recorded request: the request was not captured.
    unrequested = [entry for place, entry in enumerate(executed) if place not in paired]
    strays = results.list_strays({entry.call.id for entry in executed}, [entry.call for entry in unrequested])
    if unrequested:
        # Inserted after everything requested before it began; the order of requests does not change.
        found = sorted((*found, *_place_executed(exchanges, unrequested)), key=lambda entry: (entry.exchange, entry.start_ns))
    return JoinedCalls(found, len(requested), strays, results.has_stray_error())


def _place_executed(exchanges: Sequence[Exchange], executed: Sequence[ExecutedTool]) -> list[ObservedCall]:
    """Return tools that no recorded answer requested as calls, each after the last request before it."""
    starts = [exchange.step.span.start_ns for exchange in exchanges]
    placed = [(tool, bisect_right(starts, tool.step.span.start_ns) - 1) for tool in executed]
    return [ObservedCall(tool.call, tool.step.holder, tool.step.span.start_ns, place, True, _has_result(tool)) for tool, place in placed]


def _has_result(tool: ExecutedTool) -> bool:
    """Return whether the outcome of a tool is known: for a span without an end, only by a result or an error."""
    return tool.step.has_ended() or tool.call.result is not None or tool.call.failed()


def _pair_handoffs(
    requested: Sequence[tuple[int, ToolCall]], exchanges: Sequence[Exchange], executed: Sequence[ExecutedTool], pairs: dict[int, int]
) -> Sequence[ExecutedTool]:
    """Pair the tool spans that OpenInference writes for handoffs with the calls that the model requested."""
    paired = list(executed)
    for place, entry in enumerate(executed):
        if not entry.call.name.startswith(_HANDOFF):
            continue
        # Its input and output are the agents before and after, not arguments and result.
        paired[place] = ExecutedTool(msgspec.structs.replace(entry.call, arguments=None, result=None), entry.step)
        holder = entry.step.holder
        open_calls = [
            at for at, (number, _) in enumerate(requested) if at not in pairs and number >= 0 and exchanges[number].step.parent is holder
        ]
        name = "transfer_to_" + _NO_NAME.sub("_", entry.call.name.removeprefix(_HANDOFF)).lower()
        # Authors may name the tool of a handoff freely: then it is the only call of its agent.
        found = next((at for at in open_calls if requested[at][1].name == name), open_calls[0] if len(open_calls) == 1 else None)
        if found is not None:
            pairs[found] = place
    return paired


def _pair(requested: Sequence[ToolCall], executed: Sequence[ToolCall]) -> dict[int, int]:
    """Return which tool span is which call: by id, else by name, the earliest with equal arguments first."""
    pairs: dict[int, int] = {}
    if not requested or not executed:
        return pairs
    # Some servers give every call the same id; an id is proof only if it is used once on both sides.
    uses, known = Counter(call.id for call in requested), Counter[str | None](call.id for call in executed if call.id)

    def is_same_id(one: ToolCall, other: ToolCall) -> bool:
        return (uses[one.id] == 1 and known[one.id] == 1) or can_be_one_tool(other.name, one.name)

    # A call whose id occurs on some span but was not paired by it may only take a span without an id.
    def is_named(one: ToolCall, other: ToolCall) -> bool:
        return other.name == one.name and not (one.id in known and other.id)

    def can_be_named(one: ToolCall, other: ToolCall) -> bool:
        return can_be_one_tool(other.name, one.name) and not (one.id in known and other.id)

    if known:
        match_calls(requested, executed, pairs, lambda call: [call.id] if call.id else [], is_same_id)
    # The best match first: equal arguments before others, the same name before one with a framework's prefix.
    for fits in (is_named, can_be_named):
        match_calls(requested, executed, pairs, lambda call: [(strip_framework_prefix(call.name), _make_call_key(call)[1])], fits)
    for fits in (is_named, can_be_named):
        match_calls(requested, executed, pairs, lambda call: [strip_framework_prefix(call.name)], fits)
    return pairs


def _join_call(call: ToolCall, twin: ExecutedTool | None, result: ToolResult | None, number: int, step: Step | None) -> ObservedCall:
    start = step.span.start_ns if step is not None else 0
    # No span records the tool; its result is in a later request.
    if twin is None:
        if result is not None:
            call = msgspec.structs.replace(call, result=result.value, error=result.error, error_kind=result.kind)
        holder = step.parent if step is not None and step.span.parent_id is not None else step
        return ObservedCall(call, holder, start, number, False, result is not None, ended=result is None or result.has_ended)
    ran = twin.call
    error, kind = (ran.error, ran.error_kind) if ran.failed() else (result.error, result.kind) if result is not None else (None, None)
    # The model's name for the tool comes first, because suites use it; the framework's name becomes an alias.
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
    answered = result is not None or _has_result(twin)
    return ObservedCall(joined, twin.step.holder, start, number, True, answered, can_agree(call.arguments, ran.arguments))


# --- requested calls and their results


def _make_call_key(call: ToolCall) -> tuple[str, bytes]:
    """Return the tool and the arguments of a call as a key for calls without an id."""
    # Keys sorted: a repetition may write the same arguments in another order.
    return call.name, msgspec.json.encode(call.arguments, order="deterministic")


class _CallCollector:
    """The requested calls, each once with the index of its request; one that only a later request repeats belongs to the one before."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self.found: list[tuple[int, ToolCall]] = []
        self._by_id: dict[str, list[int]] = {}
        self._by_key: dict[tuple[str | None, str, bytes], list[int]] = {}
        # Calls that no later request has repeated with an id yet: the answer may have no id, or another one (OpenAI's Responses have an id
        # for the item and one for the call).
        self._waiting: dict[tuple[str, bytes], list[int]] = {}
        self._answered: set[int] = set()
        """Calls that come from the answer that requests them."""
        previous: Exchange | None = None
        for number, exchange in enumerate(exchanges):
            self._repeated: set[int] = set()
            """The known calls that the messages of this request have repeated so far."""
            self._searches: dict[object, Iterator[int]] = {}
            # A span may record several requests: calls after a question that the one before did not contain belong to this one.
            is_new = previous is not None and previous.inputs is not None and previous.list_questions() != exchange.list_questions()
            previous = exchange
            for call in (call for message in exchange.list_messages_of_turn() for call in message.calls):
                if not self._recognise_repeat(call):
                    self._add(number if is_new else number - 1, call)
            for call in exchange.calls:
                if not self._recognise_answer(number, call):
                    self._answered.add(self._add(number, call))

    def _add(self, number: int, call: ToolCall) -> int:
        place, key = len(self.found), _make_call_key(call)
        self.found.append((number, call))
        self._repeated.add(place)
        self._by_key.setdefault((None, *key), []).append(place)
        self._waiting.setdefault(key, []).append(place)
        if call.id:
            self._by_id.setdefault(call.id, []).append(place)
            self._by_key.setdefault((call.id, *key), []).append(place)
        return place

    def _repeat_first(self, places: Iterable[int]) -> bool:
        """Return whether one of these calls can still be repeated, and note it."""
        place = next((place for place in places if place not in self._repeated), None)
        if place is not None:
            self._repeated.add(place)
        return place is not None

    def _recognise_repeat(self, call: ToolCall) -> bool:
        """Return whether a request repeats a known call that it has not repeated yet, and take over its id."""
        key = _make_call_key(call)
        # First the same id, tool and arguments, then the id alone (frameworks add defaults), last tool and arguments under a new id.
        exact = (call.id or None, *key)
        # Each search continues where the last one ended: n equal calls cost n steps, not n squared.
        if exact in self._by_key and self._repeat_first(self._searches.setdefault(exact, iter(self._by_key[exact]))):
            return True
        if not call.id:
            return False
        if call.id in self._by_id:
            return self._repeat_first(place for place in self._by_id[call.id] if can_be_one_tool(self.found[place][1].name, call.name))
        place = next((place for place in self._waiting.get(key, ()) if place not in self._repeated), None)
        if place is None:
            return False
        self._waiting[key].remove(place)
        number, known_call = self.found[place]
        self.found[place] = (number, msgspec.structs.replace(known_call, id=call.id))
        self._by_id.setdefault(call.id, []).append(place)
        self._by_key.setdefault(exact, []).append(place)
        self._repeated.add(place)
        return True

    def _recognise_answer(self, number: int, call: ToolCall) -> bool:
        """Return whether the call that an answer requests is already known, from an earlier list of messages or another span."""
        known = [(place, self.found[place][1]) for place in self._by_id.get(call.id or "", ())]
        matching = [place for place, one in known if one.name == call.name and can_agree(one.arguments, call.arguments)]
        # Some record the list only after the answer, and everything that followed, was added to it.
        early = next((place for place in matching if place not in self._answered), None)
        if early is None:
            return self._repeat_first(matching)
        self._answered.add(early)
        self.found[early] = (number, self.found[early][1])
        self._repeated.add(early)
        return True


class _Results:
    """Finds the results of calls in later requests: by id, else in order by name."""

    def __init__(self, exchanges: Sequence[Exchange], requested: Iterable[ToolCall]) -> None:
        self._by_id: dict[str, list[ToolResult]] = {}
        self._loose: dict[str | None, list[tuple[ToolResult, bool]]] = {}
        """Results without a known id by the name of their tool; those after the last text of a user answer calls of this trace."""
        # The ids of calls in the inputs of requests, including turns before the trace.
        self._earlier = {call.id for exchange in exchanges for message in exchange.inputs or () for call in message.calls}
        uses = Counter(call.id for call in requested if call.id)
        # Every later request repeats them; a list that is longer than any before has a new one.
        seen = Counter[tuple[str | None, str | None, bytes, bool]]()
        for exchange in exchanges:
            results = [result for side in (exchange.inputs, exchange.outputs) for message in side or () for result in message.results]
            in_list, used = Counter[tuple[str | None, str | None, bytes, bool]](), Counter[str]()
            recent = {id(result) for message in exchange.list_messages_of_turn() for result in message.results} if results else ()
            for result in results:
                if result.id and result.id in uses:
                    known = self._by_id.setdefault(result.id, [])
                    # An id has as many results as calls; further ones repeat the last.
                    place = min(used[result.id], uses[result.id] - 1)
                    if place == len(known):
                        known.append(result)
                    elif known[place].error is None and result.error is not None:
                        known[place] = result  # Recorded several times, and not always with its error.
                    used[result.id] += 1
                    continue
                key = (result.id or None, result.name, msgspec.json.encode(result.value, order="deterministic"), result.error is not None)
                in_list[key] += 1
                if in_list[key] > seen[key]:
                    seen[key] += 1
                    name = strip_framework_prefix(result.name) if result.name is not None else None
                    self._loose.setdefault(name, []).append((result, id(result) in recent))

    def take_result_of(self, call: ToolCall) -> ToolResult | None:
        """Remove and return the result of a call; if an id has fewer results than calls, the last calls have none."""
        if call.id and self._by_id.get(call.id):
            return self._by_id[call.id].pop(0)
        for name in (strip_framework_prefix(call.name), None) if self._loose else ():
            fitting = self._loose.get(name, [])
            place = next((place for place, (result, _) in enumerate(fitting) if _can_answer(result, call)), None)
            if place is not None:
                return fitting.pop(place)[0]
        return None

    def has_stray_error(self) -> bool:
        """Return whether an error is left after all calls have their results: one of them failed, and it is unknown which."""
        # Errors of calls from turns before the trace are repeated in its messages, and do not affect the calls in it.
        loose = (result for waiting in self._loose.values() for result, _ in waiting)
        return any(result.error is not None and (result.id is None or result.id not in self._earlier) for result in loose)

    def list_strays(self, ran: Collection[str | None], alone: list[ToolCall]) -> list[ToolResult]:
        """Return results that no call explains; `ran` are the ids of tool spans, `alone` those that no model requested."""
        found: list[ToolResult] = []
        for result in (result for waiting in self._loose.values() for result, is_recent in waiting if is_recent):
            answered_call = next((call for call in alone if _can_answer(result, call)), None)
            # Langfuse lists the definitions of tools among the messages.
            value = dict_or_empty(result.value) if not result.id else {}
            if answered_call is not None:
                alone.remove(answered_call)
            elif not (value.get("type") == "function" and isinstance(value.get("function"), dict)) and (
                not result.id or result.id not in ran
            ):
                found.append(result)
        return found


def _can_answer(result: ToolResult, call: ToolCall) -> bool:
    return result.name is None or can_be_one_tool(result.name, call.name)
