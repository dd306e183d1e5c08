"""The calls that models asked for, each once, and what later requests tell of their results.

Every request repeats the talk before it, so one call is told again and again: in the answer that asks for it, and in whatever the model is
given from then on. An id tells calls apart only as far as it goes: some servers give every call the same one, or an empty one. So a list
of messages is held against the calls that are known, each of which it can repeat once; what it tells beyond them is another call.
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


def find_asked(exchanges: Sequence[Exchange]) -> list[tuple[int, ToolCall]]:
    """Return each call that a model asked for with its request; a call that only a later request repeats belongs to the one before."""
    if not any(message.calls for exchange in exchanges for side in (exchange.given, exchange.said) for message in side or ()):
        return []
    asked = _Asked()
    before: Exchange | None = None
    for number, exchange in enumerate(exchanges):
        told = _Told()
        # A span may tell of several requests: what followed a question that the one before had not seen was asked for in this one.
        is_new = before is not None and before.given is not None and before.list_questions() != exchange.list_questions()
        before = exchange
        for call in exchange.list_remembered_calls():
            if not asked.recognise_repeat(call, told):
                told.places.add(asked.add(number if is_new else number - 1, call))
        for call in exchange.list_calls():
            if not asked.recognise_answer(number, call, told):
                told.places.add(asked.add(number, call, answered=True))
    return asked.found


def make_call_key(call: ToolCall) -> tuple[str, bytes]:
    """Return the tool and the arguments of a call as a key for calls without an id."""
    # Keys sorted: a repetition may write the same arguments in another order.
    return call.name, msgspec.json.encode(call.arguments, order="deterministic")


class _Told:
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


class _Asked:
    """Collects calls as requests repeat them, each kept once."""

    def __init__(self) -> None:
        self.found: list[tuple[int, ToolCall]] = []
        self._by_id: dict[str, list[int]] = {}
        self._by_key: dict[tuple[str | None, str, bytes], list[int]] = {}
        # Calls that no later request has repeated under an id yet: an answer may have none, or another one than the request that repeats
        # it (OpenAI's Responses have an id of the item and one of the call).
        self._waiting: dict[tuple[str, bytes], list[int]] = {}
        self._answered: set[int] = set()

    def add(self, number: int, call: ToolCall, *, answered: bool = False) -> int:
        """Keep a new call and return its place; `answered` if the answer that asks for it told it."""
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

    def recognise_repeat(self, call: ToolCall, told: _Told) -> bool:
        """Return whether a request repeats a known call that it has not repeated yet, and take over its id."""
        key = make_call_key(call)
        # The surest first: the same id, tool and arguments. Then the id alone, as frameworks add
        # defaults to what they repeat. Last the same tool and arguments under an id that is new.
        exact = (call.id or None, *key)
        if told.take(self._by_key.get(exact, ()), exact):
            return True
        if not call.id:
            return False
        if call.id in self._by_id:
            return told.take([place for place in self._by_id[call.id] if can_be_one_tool(self.found[place][1].name, call.name)])
        waiting = [place for place in self._waiting.get(key, ()) if place not in told.places]
        if not waiting:
            return False
        place = waiting[0]
        self._waiting[key].remove(place)
        number, before = self.found[place]
        self.found[place] = (number, msgspec.structs.replace(before, id=call.id))
        self._by_id.setdefault(call.id, []).append(place)
        self._by_key.setdefault(exact, []).append(place)
        return told.take([place])

    def recognise_answer(self, number: int, call: ToolCall, told: _Told) -> bool:
        """Return whether an answer asks for a call that is known already, from an earlier list of messages or from another span."""
        same = [place for place in self._by_id.get(call.id or "", ()) if _is_same(self.found[place][1], call)]
        # Some write the list down only when it has grown by the answer, and by all that came after it.
        early = next((place for place in same if place not in self._answered), None)
        if early is None:
            return told.take(same)
        self._answered.add(early)
        self.found[early] = (number, self.found[early][1])
        told.places.add(early)
        return True


def _is_same(one: ToolCall, other: ToolCall) -> bool:
    return one.name == other.name and can_agree(one.arguments, other.arguments)


class Results:
    """Finds the results of calls in later requests: by id, else in order by name."""

    def __init__(self, exchanges: Sequence[Exchange], asked: Iterable[ToolCall]) -> None:
        self._by_id: dict[str, list[ToolResult]] = {}
        self._loose: dict[str | None, list[ToolResult]] = {}
        self._recent: set[int] = set()
        """Which of them were given after the last thing a user said: the calls they answer were made in this trace."""
        self._earlier: set[str] = set()
        """The ids of calls that requests were given, also those of turns before the trace."""
        if not any(message.results for exchange in exchanges for side in (exchange.given, exchange.said) for message in side or ()):
            return
        given = (message for exchange in exchanges for message in exchange.given or ())
        self._earlier |= {call.id for message in given for call in message.calls if call.id is not None}
        uses = Counter(call.id for call in asked if call.id)
        # Every later request repeats them. A list that tells one more than any before it tells a new one.
        seen: Counter[tuple[str | None, str | None, bytes, bool]] = Counter()
        for exchange in exchanges:
            messages = (*(exchange.given or ()), *(exchange.said or ()))
            if not any(message.results for message in messages):
                continue
            here: Counter[tuple[str | None, str | None, bytes, bool]] = Counter()
            told: Counter[str] = Counter()
            recent = {id(result) for message in exchange.list_messages_of_turn() for result in message.results}
            for result in (result for message in messages for result in message.results):
                if result.id and result.id in uses:
                    known = self._by_id.setdefault(result.id, [])
                    # An id has as many results as calls; what is told beyond them repeats the last.
                    place = min(told[result.id], uses[result.id] - 1)
                    if place == len(known):
                        known.append(result)
                    elif known[place].error is None and result.error is not None:
                        known[place] = result  # Told several times, and not every time with how it ended.
                    told[result.id] += 1
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
        """Return whether an error is left after all calls have their results: one of them failed, and nobody knows which."""
        # Errors of calls from turns before the trace are repeated in its messages, too, and say nothing of the calls in it.
        loose = (result for waiting in self._loose.values() for result in waiting)
        return any(result.error is not None and result.id not in self._earlier for result in loose)

    def list_strays(self, ran: Iterable[ToolCall], alone: Sequence[ToolCall]) -> list[ToolResult]:
        """Return results left after all calls have theirs and that no tool span explains; `alone` are spans nobody asked for."""
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
    """Return whether this is the definition of a tool, which Langfuse lists among the messages as if the tool had spoken."""
    value = dict_or_empty(result.value)
    return not result.id and value.get("type") == "function" and isinstance(value.get("function"), dict)


def _can_answer(result: ToolResult, call: ToolCall) -> bool:
    return result.name is None or can_be_one_tool(result.name, call.name)
