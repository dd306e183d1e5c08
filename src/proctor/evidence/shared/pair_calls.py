"""Pairs the calls of two records of one run.

Two calls are the same by id if their names can mean one tool (servers number the calls of each conversation anew), else by name and
arguments, else by name if one record has no arguments. The remaining calls of one tool are paired in order: their arguments differ.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

import msgspec

from proctor.evidence.shared.call_identity import can_be_one_tool, is_name_at_server
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json, ToolCall

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class Pair(msgspec.Struct, frozen=True):
    """One call in two records; None in a record without it."""

    first: ToolCall | None
    second: ToolCall | None
    agrees: bool = True
    """Whether the arguments are equal, as far as both are recorded."""

    @property
    def is_one_call(self) -> bool:
        """Whether both are certainly the same call."""
        if self.first is None or self.second is None:
            return False
        return self.agrees or (self.first.id is not None and self.first.id == self.second.id)

    def merge(self) -> ToolCall:
        """Return the call with the fields of both records; arguments that differ are unknown."""
        one, other = self.first, self.second
        if one is None or other is None:
            found = one or other
            assert found is not None
            return found
        failure = one if one.failed() or not other.failed() else other
        return ToolCall(
            name=one.name,
            arguments=_choose_arguments(one.arguments, other.arguments) if self.agrees else None,
            result=one.result if one.result is not None else other.result,
            error=failure.failure(),
            error_kind=failure.failure_kind(),
            duration_ms=one.duration_ms if one.duration_ms is not None else other.duration_ms,
            node=one.node or other.node,
            server=one.server or other.server,
            id=one.id or other.id,
            aliases=tuple(name for name in dict.fromkeys((*one.aliases, other.name, *other.aliases)) if name != one.name),
        )

    def has_two_results(self) -> bool:
        """Return whether the results differ, and neither contains the other."""
        if self.first is None or self.second is None or self.first.result is None or self.second.result is None:
            return False
        one, other = decode_container(self.first.result), decode_container(self.second.result)
        if one == other:
            return False
        texts = as_text(one) or "", as_text(other) or ""
        return texts[0] not in texts[1] and texts[1] not in texts[0]


def pair_calls(first: Sequence[ToolCall], second: Sequence[ToolCall]) -> list[Pair]:
    """Return every call of two records once: those of the first in order, then those that only the second has."""
    partner: dict[int, int] = {}
    taken: set[int] = set()

    def match(keys: Callable[[ToolCall], Iterable[Hashable]]) -> None:
        waiting: dict[Hashable, list[int]] = {}
        for place in reversed(range(len(second))):
            if place not in taken:
                for key in keys(second[place]):
                    waiting.setdefault(key, []).append(place)
        for place, call in enumerate(first):
            if place in partner:
                continue
            for key in keys(call):
                while waiting.get(key) and waiting[key][-1] in taken:
                    waiting[key].pop()
                if waiting.get(key):
                    partner[place] = waiting[key].pop()
                    taken.add(partner[place])
                    break

    _match_ids(first, second, partner, taken)
    match(lambda call: [(name, _encode_arguments(call)) for name in _list_names(call)] if call.arguments else [])
    _match_without_arguments(first, second, partner, taken)
    match(_list_names)
    pairs = [_make_pair(call, second[partner[place]] if place in partner else None) for place, call in enumerate(first)]
    return [*pairs, *(Pair(None, call) for place, call in enumerate(second) if place not in taken)]


def _match_ids(first: Sequence[ToolCall], second: Sequence[ToolCall], partner: dict[int, int], taken: set[int]) -> None:
    """Pair calls of one id whose names can mean one tool, those with the same arguments first."""
    waiting: dict[str, list[int]] = {}
    for place, call in enumerate(second):
        if call.id is not None:
            waiting.setdefault(call.id, []).append(place)
    for is_exact in (True, False):
        for place, call in enumerate(first):
            if place in partner or call.id is None:
                continue
            fitting = (
                other
                for other in waiting.get(call.id, ())
                if other not in taken
                and _can_be_one_tool(call, second[other])
                and (not is_exact or _encode_arguments(call) == _encode_arguments(second[other]))
            )
            found = next(fitting, None)
            if found is not None:
                partner[place] = found
                taken.add(found)


def _can_be_one_tool(call: ToolCall, other: ToolCall) -> bool:
    pairs = ((one, two) for one in _list_names(call) for two in _list_names(other))
    return any(can_be_one_tool(one, two) or is_name_at_server(one, two) or is_name_at_server(two, one) for one, two in pairs)


def _match_without_arguments(first: Sequence[ToolCall], second: Sequence[ToolCall], partner: dict[int, int], taken: set[int]) -> None:
    """Pair calls of one tool of which at least one record has no arguments."""
    waiting: dict[str, list[int]] = {}
    for place, call in enumerate(second):
        if place not in taken:
            for name in _list_names(call):
                waiting.setdefault(name, []).append(place)
    for place, call in enumerate(first):
        if place in partner:
            continue
        fitting = (
            other
            for name in _list_names(call)
            for other in waiting.get(name, ())
            if other not in taken and not (call.arguments and second[other].arguments)
        )
        found = next(fitting, None)
        if found is not None:
            partner[place] = found
            taken.add(found)


def _make_pair(call: ToolCall, other: ToolCall | None) -> Pair:
    if other is None or not call.arguments or not other.arguments:
        return Pair(call, other)
    return Pair(call, other, agrees=_encode_arguments(call) == _encode_arguments(other))


def _choose_arguments(one: Json, other: Json) -> Json:
    """Return the arguments of one of two calls that agree: those that are recorded, and an object before its text."""
    if not one or (not isinstance(one, dict) and isinstance(other, dict) and other):
        return other if other is not None else one
    return one


def _list_names(call: ToolCall) -> list[str]:
    return [call.name, *call.aliases]


def _encode_arguments(call: ToolCall) -> bytes:
    arguments: Json = decode_container(call.arguments)
    return _encode_sorted(arguments)
