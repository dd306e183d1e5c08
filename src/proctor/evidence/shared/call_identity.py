"""Decides whether two records describe one call, and pairs or unites the calls of two records of one run."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import msgspec

from proctor.evidence.shared.calls import read_written_arguments
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json, Node, ToolCall
from proctor.model.show import show

_encode_sorted = msgspec.json.Encoder(order="sorted").encode

_FRONT = re.compile(r"^.*(?:[-.:/]|__)(?=\w)", re.DOTALL)
_SEPARATORS = ("-", ".", ":", "/", "__")
_NO_WORD = re.compile(r"\W|_")
ListKeys = Callable[[ToolCall], Sequence[Hashable]]
Fits = Callable[[ToolCall, ToolCall], bool]


def strip_framework_prefix(name: str) -> str:
    """Return a tool's name without the prefix of a framework; tools whose stripped names differ are different tools."""
    # Nearly all names have no separator, and this check is ten times as fast.
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
    """Return whether two records of arguments can describe one call: a framework may add defaults and omit nulls."""
    if requested is None or given is None or requested == given:
        return True
    if isinstance(requested, dict) and isinstance(given, str):
        if isinstance(written := read_written_arguments(given), dict):
            return can_agree(requested, written)
        # LangChain passes a tool with one argument its bare value.
        return len(requested) > 1 or any(given == as_text(value) or name in given for name, value in requested.items())
    if not isinstance(requested, dict) or not isinstance(given, dict):
        return False
    if given.keys() == {"input"} and "input" not in requested:
        return can_agree(requested, given["input"])  # LangSmith's name for what a tool received
    if len(requested) == 1 and read_written_arguments(requested.get("input")) == given:
        return True
    # One of them may have extra members (added defaults, nulls), but not both.
    return all(requested[key] == given[key] for key in requested.keys() & given.keys()) and (
        requested.keys() <= given.keys() or given.keys() <= requested.keys()
    )


class Pair(NamedTuple):
    """One call in two records; None in a record without it."""

    first: ToolCall | None
    second: ToolCall | None
    agrees: bool = True
    """Whether the arguments are equal; unrecorded arguments count as equal."""

    @property
    def is_one_call(self) -> bool:
        """Whether both certainly describe the same call."""
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
        arguments = one.arguments
        # Recorded arguments are preferred, and an object to its text.
        if not arguments or (not isinstance(arguments, dict) and isinstance(other.arguments, dict) and other.arguments):
            arguments = arguments if other.arguments is None else other.arguments
        return ToolCall(
            name=one.name,
            arguments=arguments if self.agrees else None,
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

    def is_same(one: ToolCall, other: ToolCall) -> bool:
        return _can_be_one_tool(one, other) and _encode_arguments(one) == _encode_arguments(other)

    list_ids: ListKeys = lambda call: [] if call.id is None else [call.id]  # noqa: E731
    match_calls(first, second, partner, list_ids, is_same)
    match_calls(first, second, partner, list_ids, _can_be_one_tool)
    match_calls(first, second, partner, lambda call: list_call_keys(call) if call.arguments else [])
    match_calls(first, second, partner, list_names, lambda one, other: not (one.arguments and other.arguments))
    match_calls(first, second, partner, list_names)
    pairs: list[Pair] = []
    for place, call in enumerate(first):
        other = second[partner[place]] if place in partner else None
        differs = other is not None and call.arguments and other.arguments and _encode_arguments(call) != _encode_arguments(other)
        pairs.append(Pair(call, other, agrees=not differs))
    paired = set(partner.values())
    return [*pairs, *(Pair(None, call) for place, call in enumerate(second) if place not in paired)]


def match_calls(
    first: Sequence[ToolCall], second: Sequence[ToolCall], partner: dict[int, int], keys: ListKeys, fits: Fits = lambda one, other: True
) -> None:
    """Match the remaining calls of both records in `partner`: each with the first fitting call that has an equal key."""
    paired = set(partner.values())
    waiting: dict[Hashable, deque[int]] = {}
    for place, call in enumerate(second):
        for key in keys(call) if place not in paired else ():
            waiting.setdefault(key, deque()).append(place)
    for place, call in enumerate(first) if waiting else ():
        for key in keys(call) if place not in partner else ():
            queue = waiting.get(key, deque())
            while queue and queue[0] in paired:
                queue.popleft()
            found = next((other for other in queue if other not in paired and fits(call, second[other])), None)
            if found is not None:
                partner[place] = found
                paired.add(found)
                break


def _can_be_one_tool(call: ToolCall, other: ToolCall) -> bool:
    pairs = ((one, two) for one in list_names(call) for two in list_names(other))
    return any(can_be_one_tool(one, two) or is_name_at_server(one, two) or is_name_at_server(two, one) for one, two in pairs)


def list_names(call: ToolCall) -> list[str]:
    """Return the names of a call."""
    return [call.name, *call.aliases]


def list_call_keys(call: ToolCall) -> list[tuple[str, bytes]]:
    """Return each name of a call with its arguments, as keys for `match_calls`."""
    return [(name, _encode_arguments(call)) for name in list_names(call)]


def _encode_arguments(call: ToolCall) -> bytes:
    return _encode_sorted(decode_container(call.arguments))


# --- two places of one record (rule d)


def unite_calls(
    known: tuple[ToolCall, ...], others: Sequence[ToolCall], places: tuple[str, str], unknowns: Unknowns, *, both_complete: bool = False
) -> tuple[ToolCall, ...]:
    """Return the calls of two places combined, and mark them if the second place has a call that the first lacks.

    With `both_complete` a call that only the first place has is a contradiction, too.
    """
    partner: dict[int, int] = {}

    def is_same(other: ToolCall, one: ToolCall) -> bool:
        if one is other:
            return True
        if (one.id and other.id and one.id != other.id) or (one.arguments and other.arguments and one.arguments != other.arguments):
            return False
        # A failure that only the second place reports would be lost with its call.
        return one.failed() or not other.failed()

    match_calls(others, known, partner, list_names, is_same)
    lacking = [call for place, call in enumerate(others) if place not in partner]
    matched = set(partner.values())
    extra = lacking[0] if lacking else next((call for place, call in enumerate(known) if both_complete and place not in matched), None)
    if extra is not None:
        here, there = places[::-1] if lacking else places
        unknowns.mark("tool_calls", f"{places[0]} and {places[1]} list different calls: {show(extra.name, 60)} of {here} is not in {there}")
    return (*known, *lacking)


def unite_nodes(known: tuple[Node, ...], others: Sequence[Node], places: tuple[str, str], unknowns: Unknowns) -> tuple[Node, ...]:
    """Return the nodes of two places combined, and mark them if the second place has a node that the first lacks."""
    remaining = Counter(node.name for node in known)  # a node that ran twice is listed twice
    lacking: list[Node] = []
    for node in others:
        remaining[node.name] -= 1
        lacking += [node] if remaining[node.name] < 0 else []
    if lacking:
        unknowns.mark("nodes", f"{places[0]} and {places[1]} list different nodes: {show(lacking[0].name, 60)} is only in {places[1]}")
    return (*known, *lacking)
