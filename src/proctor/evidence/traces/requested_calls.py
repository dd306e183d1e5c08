"""The calls that models requested, each once, and their results in later requests.

Every request repeats the conversation before it, so one call is recorded again and again: in the answer that requests it, and in the input
of every request from then on. Ids are not enough: some servers give every call the same one, or an empty one. So a list of messages is
compared with the known calls, each of which it can repeat once; whatever it has beyond them is another call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from proctor.evidence.shared.call_identity import can_agree, can_be_one_tool, strip_framework_prefix
from proctor.evidence.shared.conversation import ToolResult
from proctor.evidence.traces.request import Exchange
from proctor.evidence.values.access import dict_or_empty
from proctor.model.evidence import ToolCall


def find_requested_calls(exchanges: Sequence[Exchange]) -> list[tuple[int, ToolCall]]:
    """Return each requested call with the index of its request; a call that only a later request repeats belongs to the one before."""
    if not any(message.calls for exchange in exchanges for side in (exchange.inputs, exchange.outputs) for message in side or ()):
        return []
    collector = CallCollector()
    before: Exchange | None = None
    for number, exchange in enumerate(exchanges):
        repeated = RepeatedCalls()
        # A span may record several requests: calls after a question that the one before did not contain belong to this one.
        is_new = before is not None and before.inputs is not None and before.list_questions() != exchange.list_questions()
        before = exchange
        for call in (call for message in exchange.list_messages_of_turn() for call in message.calls):
            if not collector.recognise_repeat(call, repeated):
                repeated.places.add(collector.add(number if is_new else number - 1, call))
        for call in exchange.calls:
            if not collector.recognise_answer(number, call, repeated):
                repeated.places.add(collector.add(number, call, answered=True))
    return collector.found


def make_call_key(call: ToolCall) -> tuple[str, bytes]:
    """Return the tool and the arguments of a call as a key for calls without an id."""
    # Keys sorted: a repetition may write the same arguments in another order.
    return call.name, msgspec.json.encode(call.arguments, order="deterministic")


class RepeatedCalls:
    """The known calls that one list of messages has repeated so far."""

    def __init__(self) -> None:
        self.places: set[int] = set()
        self._passed: dict[object, int] = {}

    def take(self, places: Sequence[int], key: object = None) -> bool:
        """Return whether one of these calls is left to be repeated, and take it; a key continues where its last search ended."""
        # Calls are only ever added to `places`, so a search goes on where the
        # last one of its key ended: n equal calls cost n steps, not n squared.
        at = self._passed.get(key, 0) if key is not None else 0
        while at < len(places) and places[at] in self.places:
            at += 1
        if key is not None:
            self._passed[key] = at
        if at == len(places):
            return False
        self.places.add(places[at])
        return True


class CallCollector:
    """Collects the calls of all requests, each once."""

    def __init__(self) -> None:
        self.found: list[tuple[int, ToolCall]] = []
        self._by_id: dict[str, list[int]] = {}
        self._by_key: dict[tuple[str | None, str, bytes], list[int]] = {}
        # Calls that no later request has repeated under an id yet: the answer may have none, or another one (OpenAI's Responses have an id
        # of the item and one of the call).
        self._waiting: dict[tuple[str, bytes], list[int]] = {}
        self._answered: set[int] = set()

    def add(self, number: int, call: ToolCall, *, answered: bool = False) -> int:
        """Add a new call and return its place; `answered` if it comes from the answer that requests it."""
        place, (name, passed) = len(self.found), make_call_key(call)
        if answered:
            self._answered.add(place)
        self._by_key.setdefault((None, name, passed), []).append(place)
        self._waiting.setdefault((name, passed), []).append(place)
        self.found.append((number, call))
        if call.id:
            self._by_id.setdefault(call.id, []).append(place)
            self._by_key.setdefault((call.id, name, passed), []).append(place)
        return place

    def recognise_repeat(self, call: ToolCall, repeated: RepeatedCalls) -> bool:
        """Return whether a request repeats a known call that it has not repeated yet, and take over its id."""
        key = make_call_key(call)
        # The surest first: the same id, tool and arguments. Then the id alone, as frameworks add
        # defaults to what they repeat. Last the same tool and arguments under an id that is new.
        exact = (call.id or None, *key)
        if repeated.take(self._by_key.get(exact, ()), exact):
            return True
        if not call.id:
            return False
        if call.id in self._by_id:
            return repeated.take([place for place in self._by_id[call.id] if can_be_one_tool(self.found[place][1].name, call.name)])
        waiting = [place for place in self._waiting.get(key, ()) if place not in repeated.places]
        if not waiting:
            return False
        place = waiting[0]
        self._waiting[key].remove(place)
        number, before = self.found[place]
        self.found[place] = (number, msgspec.structs.replace(before, id=call.id))
        self._by_id.setdefault(call.id, []).append(place)
        self._by_key.setdefault(exact, []).append(place)
        return repeated.take([place])

    def recognise_answer(self, number: int, call: ToolCall, repeated: RepeatedCalls) -> bool:
        """Return whether an answer requests a call that is known already, from an earlier list of messages or from another span."""
        same = [place for place in self._by_id.get(call.id or "", ()) if _is_same(self.found[place][1], call)]
        # Some record the list only after the answer, and everything that followed, was added to it.
        early = next((place for place in same if place not in self._answered), None)
        if early is None:
            return repeated.take(same)
        self._answered.add(early)
        self.found[early] = (number, self.found[early][1])
        repeated.places.add(early)
        return True


def _is_same(one: ToolCall, other: ToolCall) -> bool:
    return one.name == other.name and can_agree(one.arguments, other.arguments)


class Results:
    """Finds the results of calls in later requests: by id, else in order by name."""

    def __init__(self, exchanges: Sequence[Exchange], requested: Iterable[ToolCall]) -> None:
        self._by_id: dict[str, list[ToolResult]] = {}
        self._loose: dict[str | None, list[ToolResult]] = {}
        self._recent: set[int] = set()
        """Those after the last text of a user: the calls that they answer were made in this trace."""
        self._earlier: set[str] = set()
        """The ids of calls in the inputs of requests, also those of turns before the trace."""
        if not any(message.results for exchange in exchanges for side in (exchange.inputs, exchange.outputs) for message in side or ()):
            return
        inputs = (message for exchange in exchanges for message in exchange.inputs or ())
        self._earlier |= {call.id for message in inputs for call in message.calls if call.id is not None}
        uses = Counter(call.id for call in requested if call.id)
        # Every later request repeats them. A list with one more than any before it has a new one.
        seen: Counter[tuple[str | None, str | None, bytes, bool]] = Counter()
        for exchange in exchanges:
            messages = (*(exchange.inputs or ()), *(exchange.outputs or ()))
            if not any(message.results for message in messages):
                continue
            here: Counter[tuple[str | None, str | None, bytes, bool]] = Counter()
            used: Counter[str] = Counter()
            recent = {id(result) for message in exchange.list_messages_of_turn() for result in message.results}
            for result in (result for message in messages for result in message.results):
                if result.id and result.id in uses:
                    known = self._by_id.setdefault(result.id, [])
                    # An id has as many results as calls; further ones repeat the last.
                    place = min(used[result.id], uses[result.id] - 1)
                    if place == len(known):
                        known.append(result)
                    elif known[place].error is None and result.error is not None:
                        known[place] = result  # Recorded several times, and not every time with its error.
                    used[result.id] += 1
                    continue
                key = (result.id or None, result.name, msgspec.json.encode(result.value, order="deterministic"), result.error is not None)
                here[key] += 1
                if here[key] > seen[key]:
                    seen[key] += 1
                    name = strip_framework_prefix(result.name) if result.name is not None else None
                    self._loose.setdefault(name, []).append(result)
                    if id(result) in recent:
                        self._recent.add(id(result))

    def take_result_of(self, call: ToolCall) -> ToolResult | None:
        """Return the result of a call and remove it; if an id has fewer results than calls, the last calls have none."""
        if call.id and self._by_id.get(call.id):
            return self._by_id[call.id].pop(0)
        for name in (strip_framework_prefix(call.name), None):
            fitting = self._loose.get(name)
            place = next((place for place, result in enumerate(fitting or ()) if _can_answer(result, call)), None)
            if fitting and place is not None:
                return fitting.pop(place)
        return None

    def has_stray_error(self) -> bool:
        """Return whether an error is left after all calls have their results: one of them failed, and it is unknown which."""
        # Errors of calls from turns before the trace are repeated in its messages, too, and do not concern the calls in it.
        loose = (result for waiting in self._loose.values() for result in waiting)
        return any(result.error is not None and result.id not in self._earlier for result in loose)

    def list_strays(self, ran: Iterable[ToolCall], alone: Sequence[ToolCall]) -> list[ToolResult]:
        """Return results left after all calls have theirs and that no tool span explains; `alone` are spans that no model requested."""
        known, left = {call.id for call in ran if call.id}, list(alone)
        found: list[ToolResult] = []
        for result in (result for loose in self._loose.values() for result in loose if id(result) in self._recent):
            own = next((call for call in left if _can_answer(result, call)), None)
            if own is not None:
                left.remove(own)
            elif (not result.id or result.id not in known) and not _is_definition(result):
                found.append(result)
        return found


def _is_definition(result: ToolResult) -> bool:
    """Return whether this is the definition of a tool, which Langfuse lists among the messages."""
    value = dict_or_empty(result.value)
    return not result.id and value.get("type") == "function" and isinstance(value.get("function"), dict)


def _can_answer(result: ToolResult, call: ToolCall) -> bool:
    return result.name is None or can_be_one_tool(result.name, call.name)
