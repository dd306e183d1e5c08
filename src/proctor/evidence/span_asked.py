"""The calls that models asked for, each once, and what later requests tell of their results.

Every request repeats the talk before it, so one call is told again and again: in the answer that asks for it, and in whatever the model is
given from then on. An id tells calls apart only as far as it goes: some servers give every call the same one, or an empty one. So a list
of messages is held against the calls that are known, each of which it can repeat once; what it tells beyond them is another call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from proctor.evidence.conversation import Result
from proctor.evidence.shape import dict_of
from proctor.evidence.span_names import agree, can_be_one_tool, plain_name
from proctor.evidence.span_request import Exchange
from proctor.model.evidence import ToolCall


def find_asked(exchanges: Sequence[Exchange]) -> list[tuple[int, ToolCall]]:
    """Return the calls that were asked for, each with its request; what only a later one remembers belongs to the one before it."""
    asked = _Asked()
    before: Exchange | None = None
    for number, exchange in enumerate(exchanges):
        told = _Told()
        # A span may tell of several requests: what followed a question that the one before had not seen was asked for in this one.
        is_new = before is not None and before.given is not None and before.asked() != exchange.asked()
        before = exchange
        for call in exchange.remembered():
            if not asked.repeats(call, told):
                told.places.add(asked.add(number if is_new else number - 1, call))
        for call in exchange.calls():
            if not asked.answers(number, call, told):
                told.places.add(asked.add(number, call, answered=True))
    return asked.found


def key_of(call: ToolCall) -> tuple[str, bytes]:
    """Return what tells calls apart where they have no id: the tool, and what was passed."""
    return call.name, msgspec.json.encode(call.arguments, order="deterministic")


class _Told:
    """The known calls that one list of messages has repeated so far."""

    def __init__(self) -> None:
        self.places: set[int] = set()
        self._passed: dict[object, int] = {}

    def take(self, places: Sequence[int], key: object = None) -> bool:
        """Whether one of these is left to be repeated; where they are those of a key, the search goes on where it ended."""
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
    """Calls as they are told one after the other, each kept once."""

    def __init__(self) -> None:
        self.found: list[tuple[int, ToolCall]] = []
        self._by_id: dict[str, list[int]] = {}
        self._by_key: dict[tuple[str | None, str, bytes], list[int]] = {}
        # Calls that no later request has repeated under an id yet: an answer may have none, or another one than the request that repeats
        # it (OpenAI's Responses have an id of the item and one of the call).
        self._waiting: dict[tuple[str, bytes], list[int]] = {}
        self._answered: set[int] = set()

    def add(self, number: int, call: ToolCall, *, answered: bool = False) -> int:
        """Keep a call that was not told before, and return its place; `answered`: it is told by the answer that asks for it."""
        place, (name, passed) = len(self.found), key_of(call)
        if answered:
            self._answered.add(place)
        self._by_key.setdefault((None, name, passed), []).append(place)
        self._waiting.setdefault((name, passed), []).append(place)
        self.found.append((number, call))
        if call.id:
            self._by_id.setdefault(call.id, []).append(place)
            self._by_key.setdefault((call.id, name, passed), []).append(place)
        return place

    def repeats(self, call: ToolCall, told: _Told) -> bool:
        """Whether a request repeats a call that is known and that it has not told yet; its id is then the one that results go by."""
        key = key_of(call)
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

    def answers(self, number: int, call: ToolCall, told: _Told) -> bool:
        """Whether an answer asks for what is known already: a list of messages remembered it before, or another span tells the same."""
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
    return one.name == other.name and agree(one.arguments, other.arguments)


class Results:
    """What later requests tell of the results of calls: by id, else in order by name."""

    def __init__(self, exchanges: Sequence[Exchange], asked: Iterable[ToolCall]) -> None:
        self._by_id: dict[str, list[Result]] = {}
        self._loose: dict[str | None, list[Result]] = {}
        self._recent: set[int] = set()
        """Which of them were given after the last thing a user said: the calls they answer were made in this trace."""
        given = (message for exchange in exchanges for message in exchange.given or ())
        self._earlier = {call.id for message in given for call in message.calls if call.id is not None}
        """The ids of calls that requests were given, also those of turns before the trace."""
        uses = Counter(call.id for call in asked if call.id)
        # Every later request repeats them. A list that tells one more than any before it tells a new one.
        seen: Counter[tuple[str | None, str | None, bytes, bool]] = Counter()
        for exchange in exchanges:
            here: Counter[tuple[str | None, str | None, bytes, bool]] = Counter()
            told: Counter[str] = Counter()
            recent = {id(result) for message in exchange.of_this_turn() for result in message.results}
            for result in (result for message in (*(exchange.given or ()), *(exchange.said or ())) for result in message.results):
                if result.id and result.id in uses:
                    known = self._by_id.setdefault(result.id, [])
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
                    name = plain_name(result.name) if result.name is not None else None
                    self._loose.setdefault(name, []).append(result)
                    if id(result) in recent:
                        self._recent.add(id(result))

    def of(self, call: ToolCall) -> Result | None:
        """Return the result of a call, each only once; the last of an id that tells fewer results than calls is none of theirs."""
        if call.id and self._by_id.get(call.id):
            return self._by_id[call.id].pop(0)
        for name in (plain_name(call.name), None):
            fitting = self._loose.get(name)
            place = next((place for place, result in enumerate(fitting or ()) if _fits(result, call)), None)
            if fitting and place is not None:
                return fitting.pop(place)
        return None

    def has_stray_error(self) -> bool:
        """Return whether an error is left when all calls have their results: one of them failed, and nobody knows which."""
        loose = (result for waiting in self._loose.values() for result in waiting)
        return any(result.error is not None and result.id not in self._earlier for result in loose)

    def strays(self, ran: Iterable[ToolCall], alone: Sequence[ToolCall]) -> list[Result]:
        """Return results that are left when all calls have theirs, and that no tool span is the call of; `alone` nobody asked for."""
        known, left = {call.id for call in ran if call.id}, list(alone)
        found: list[Result] = []
        for result in (result for loose in self._loose.values() for result in loose if id(result) in self._recent):
            own = next((call for call in left if _fits(result, call)), None)
            if own is not None:
                left.remove(own)
            elif (not result.id or result.id not in known) and not _is_definition(result):
                found.append(result)
        return found


def _is_definition(result: Result) -> bool:
    """Whether this is no result: Langfuse lists the tools a model may use among the messages, as if they were tools that speak."""
    value = dict_of(result.value)
    return not result.id and value.get("type") == "function" and isinstance(value.get("function"), dict)


def _fits(result: Result, call: ToolCall) -> bool:
    return result.name is None or can_be_one_tool(result.name, call.name)
