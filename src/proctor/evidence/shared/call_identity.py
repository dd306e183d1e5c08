"""Whether two records can be of one call, and the calls of two records of one run in pairs.

A framework may put the name of a plugin or a server in front of a tool's name (`Shop-refund`, `shop__refund`), add defaults to the
arguments, and leave out nulls.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Sequence

import msgspec

from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json, ToolCall

_encode_sorted = msgspec.json.Encoder(order="sorted").encode

_FRONT = re.compile(r"^.*(?:[-.:/]|__)(?=\w)", re.DOTALL)
_SEPARATORS = ("-", ".", ":", "/", "__")
_NO_WORD = re.compile(r"\W|_")
ListKeys = Callable[[ToolCall], Sequence[Hashable]]
Fits = Callable[[ToolCall, ToolCall], bool]


def strip_framework_prefix(name: str) -> str:
    """Return a tool's name without the prefix of a framework; tools whose stripped names differ are different tools."""
    # Nearly all names are words without a separator, and this check is ten times as fast.
    if name.isidentifier() and "__" not in name:
        return name
    return _FRONT.sub("", name) or name


def can_be_one_tool(one: str, other: str) -> bool:
    """Return whether two names can mean one tool: they are equal, or one has the prefix of a plugin or a server."""
    if one == other:
        return True
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return bool(shorter) and longer.endswith(shorter) and longer[: -len(shorter)].endswith(_SEPARATORS)


def is_name_at_server(name: str, own: str) -> bool:
    """Return whether a framework's name for a tool can mean its name at the MCP server; some join the two by `_`."""
    one, other = _NO_WORD.sub("", name).lower(), _NO_WORD.sub("", own).lower()
    # A separator must precede the tool's own name, or `refund` would be found in `prerefund`.
    return one == other or (bool(other) and one.endswith(other) and not name[: -len(own)][-1:].isalnum())


def can_agree(requested: Json, given: Json) -> bool:
    """Return whether two records of arguments can be of one call: a framework may add defaults and leave out nulls."""
    if requested is None or given is None or requested == given:
        return True
    if isinstance(requested, dict) and isinstance(given, str):
        # LangChain passes a tool with one argument its bare value.
        return len(requested) == 1 and given in requested.values()
    if not isinstance(requested, dict) or not isinstance(given, dict):
        return False
    # One of them may have more than the other (defaults added, nulls left out), but not each something of its own.
    return all(requested[key] == given[key] for key in requested.keys() & given.keys()) and (
        requested.keys() <= given.keys() or given.keys() <= requested.keys()
    )


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
        one, other = self.first or self.second, self.second or self.first
        assert one is not None and other is not None
        if one is other:
            return one
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
        texts = as_text(one) or "", as_text(other) or ""
        return one != other and texts[0] not in texts[1] and texts[1] not in texts[0]


def pair_calls(first: Sequence[ToolCall], second: Sequence[ToolCall]) -> list[Pair]:
    """Return every call of two records once: those of the first in order, then those that only the second has.

    Two calls are the same by id if their names can mean one tool (servers restart the numbering in each conversation), else by name and
    arguments, else by name if one has no arguments. The remaining calls of one tool are paired in order: their arguments differ.
    """
    partner: dict[int, int] = {}

    def match(keys: ListKeys, fits: Fits = lambda one, other: True) -> None:
        match_calls(first, second, partner, keys, fits)

    match(_list_ids, lambda one, other: _can_be_one_tool(one, other) and _encode_arguments(one) == _encode_arguments(other))
    match(_list_ids, _can_be_one_tool)
    match(lambda call: [(name, _encode_arguments(call)) for name in _list_names(call)] if call.arguments else [])
    match(_list_names, lambda one, other: not (one.arguments and other.arguments))
    match(_list_names)
    pairs = [_make_pair(call, second[partner[place]] if place in partner else None) for place, call in enumerate(first)]
    taken = set(partner.values())
    return [*pairs, *(Pair(None, call) for place, call in enumerate(second) if place not in taken)]


def match_calls(first: Sequence[ToolCall], second: Sequence[ToolCall], partner: dict[int, int], keys: ListKeys, fits: Fits) -> None:
    """Add to `partner` which calls of the second record are the remaining ones of the first: the first one with an equal key that fits."""
    taken = set(partner.values())
    waiting: dict[Hashable, deque[int]] = {}
    for place, call in enumerate(second):
        for key in keys(call) if place not in taken else ():
            waiting.setdefault(key, deque()).append(place)
    for place, call in enumerate(first) if waiting else ():
        for key in keys(call) if place not in partner else ():
            queue = waiting.get(key, deque())
            while queue and queue[0] in taken:
                queue.popleft()
            found = next((other for other in queue if other not in taken and fits(call, second[other])), None)
            if found is not None:
                partner[place] = found
                taken.add(found)
                break


def _can_be_one_tool(call: ToolCall, other: ToolCall) -> bool:
    pairs = ((one, two) for one in _list_names(call) for two in _list_names(other))
    return any(can_be_one_tool(one, two) or is_name_at_server(one, two) or is_name_at_server(two, one) for one, two in pairs)


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


def _list_ids(call: ToolCall) -> list[str]:
    return [] if call.id is None else [call.id]


def _encode_arguments(call: ToolCall) -> bytes:
    return _encode_sorted(decode_container(call.arguments))
