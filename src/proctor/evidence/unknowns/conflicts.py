"""Two places of one record that tell of the same thing: they agree, or the thing is unknown.

A run lists its calls at its root, in its turns, in its nodes, in its answer, and under names that others use. Mostly that is the same list
told twice. Where it is not, an empty list at one place must not hide what stands at another: all calls of both are kept, so that what was
done is seen, and the part is doubted with both places named, so that nothing counts as not done.

Calls are the same where their names agree, their ids (where both have one) and their arguments (where both tell any), and where the second
did not fail while the first says nothing of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.members import CALL_LISTS, MOST_LOOKED_AT, speaks_of_calls, split_words
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.account import Part
from proctor.model.evidence import Json, Node, ToolCall
from proctor.model.show import shorten, show

_TOOL_NAMES = ("tool", "tool_name", "toolName", "function", "action")
_PASSED = split_words("arguments args input toolInput tool_input")
_DECLARED = split_words("description inputSchema input_schema parameters schema")
_KINDS = split_words("type kind event event_type eventType role")
_SAYS_CALL = re.compile(
    r"(?:\w+[._:-])?(?:tool|function|mcp)[._:-]?(?:call|use|invo|request|execut|result|start|end|output|response)\w*$|tool$", re.IGNORECASE
)
"""Kinds of entries, in a list of anything, that tell of a call."""
_UNNAMED = ""
"""Stands for the name of a call that does not tell it."""


def unify_spellings(entry: dict[str, Any], spellings: dict[str, str], path: str) -> dict[str, Any]:
    """Return an object under our own names. Raises `EvidenceError` if two names tell different things."""
    if not any(key in entry for key in spellings):
        return dict(entry)
    ours = {key: value for key, value in entry.items() if key not in spellings}
    for key in spellings.keys() & entry.keys():
        own, value = spellings[key], entry[key]
        # Null is how exporters write "not told", so a null under one name does not contradict a value under the other.
        if ours.get(own) is None:
            ours[own] = value
        elif value is not None and ours[own] != value:
            raise contradiction_error(path, own, key)
    return ours


def contradiction_error(path: str, one: str, other: str) -> EvidenceError:
    """Return the error for a thing that stands under two names with different values."""
    return EvidenceError(f"{path}: {one!r} and {other!r} are two names of one thing, and tell different things")


def read_only_one(entry: dict[str, Any], path: str, *keys: str) -> Json:
    """Return the first value under these keys that is not null. Raises `EvidenceError` if two of them differ."""
    given = [(key, entry[key]) for key in keys if entry.get(key) is not None]
    for key, value in given[1:]:
        if value != given[0][1]:
            raise contradiction_error(path, given[0][0], key)
    return given[0][1] if given else None


def unite_calls(
    known: tuple[ToolCall, ...], told: Sequence[ToolCall], places: tuple[str, str], unknowns: Unknowns, *, all_told: bool = False
) -> tuple[ToolCall, ...]:
    """Return the calls of two places together, and doubt them if the second place has a call that the first lacks.

    With `all_told` the second place tells of all calls as the first does, so one that only the first has is a doubt too.
    """
    # By name, aliases included, so that a call is compared with its namesakes alone and not with every call of a long run.
    waiting: dict[str, list[ToolCall]] = {}
    for call in known:
        for name in (call.name, *call.aliases):
            waiting.setdefault(name, []).append(call)
    # By identity: two equal calls are two calls, and each can account for one call of the other place only.
    met: set[int] = set()
    lacking: list[ToolCall] = []
    for call in told:
        candidates = (one for name in (call.name, *call.aliases) for one in waiting.get(name, ()))
        same = next((one for one in candidates if id(one) not in met and _are_same(one, call)), None)
        if same is None:
            lacking.append(call)
        else:
            met.add(id(same))
    alone = lacking[0] if lacking else next((call for call in known if all_told and id(call) not in met), None)
    if alone is not None:
        here, there = places[::-1] if lacking else places
        unknowns.mark(
            "tool_calls", f"{places[0]} and {places[1]} tell of different calls: {show(alone.name, 60)} of {here} is not in {there}"
        )
    return (*known, *lacking)


def _are_same(one: ToolCall, other: ToolCall) -> bool:
    if one is other:
        return True
    if one.id is not None and other.id is not None and one.id != other.id:
        return False
    if one.arguments and other.arguments and one.arguments != other.arguments:
        return False
    # A failure that only the second place tells would be lost with its call, so it makes the two different and both are kept.
    return one.failed() or not other.failed()


def unite_nodes(known: tuple[Node, ...], told: Sequence[Node], places: tuple[str, str], unknowns: Unknowns) -> tuple[Node, ...]:
    """Return the nodes of two places together, and doubt them if the second place has a node that the first lacks."""
    left = Counter(node.name for node in known)
    lacking: list[Node] = []
    for node in told:
        # Each name is struck off once: a node that ran twice must stand twice at the first place, too.
        if left[node.name]:
            left[node.name] -= 1
        else:
            lacking.append(node)
    if lacking:
        mark_difference("nodes", places, f"{show(lacking[0].name, 60)} is only in {places[1]}", unknowns)
    return (*known, *lacking)


def mark_difference(part: Part, places: tuple[str, str], how: str, unknowns: Unknowns) -> None:
    """Doubt a part of which two places tell different things."""
    unknowns.mark(part, f"{places[0]} and {places[1]} tell different things: {how}")


def mark_other_calls(
    entry: dict[str, Any], calls: Sequence[ToolCall] | None, path: str, unknowns: Unknowns, free: frozenset[str] | set[str] = frozenset()
) -> None:
    """Doubt the calls of an object if one of its members tells of a call that its list of calls lacks."""
    if calls is None:
        return
    names = {name for call in calls for name in (call.name, *call.aliases)}
    for key, value in entry.items():
        if key not in free and tells_of_other_calls(key, value, names):
            unknowns.mark("tool_calls", f"{show(shorten(key, 60))} at {path} may tell of tool calls that are not in the list of calls")


def tells_of_other_calls(key: str, value: Json, names: set[str]) -> bool:
    """Return whether a member of an object could record a call of a tool that is not among `names`."""
    value = decode_container(value)
    if not value or not isinstance(value, (list, dict)):
        return False
    speaks = speaks_of_calls(key)
    found = _find_tool_names(value, speaks)
    # Too much to look through, or a list of calls without names: what was not looked at may hold a call.
    if found is None:
        return True
    # A call without a name, beside known ones, is taken for one of them
    # told again. Where no call is known at all it is one that is missing.
    if _UNNAMED in found:
        found.discard(_UNNAMED)
        if not names and not found:
            return True
    # Without any name inside, only a member that speaks of tools is suspect,
    # and only where no call is listed: a list of offered tools is not.
    return not names.issuperset(found) if found else speaks and not names and not _only_declares(value)


def _find_tool_names(value: Json, speaks: bool) -> set[str] | None:
    """Return the names of tools in a value that looks like calls, or None if that cannot be said."""
    found: set[str] = set()
    waiting: list[tuple[Any, bool]] = [(value, speaks)]
    for _ in range(MOST_LOOKED_AT):
        if not waiting:
            return found
        current, within = waiting.pop()
        if isinstance(current, list):
            # A list of nothing but texts, where calls are told, is a list of tool names. Texts among other values are something else.
            names = {member for member in current if isinstance(member, str)}
            found.update(names if within and len(names) == len(set(map(str, current))) else ())
            waiting.extend((member, within) for member in current)
        elif isinstance(current, dict):
            says = _says_call(current)
            found.update(_list_own_names(current, within or says) or ((_UNNAMED,) if says else ()))
            for key, member in current.items():
                inner = decode_container(member)
                if key in CALL_LISTS and inner and not _are_calls(inner):
                    return None  # It says that these are calls, and does not say of what.
                # Only inside a known list of calls does a bare `name` name a tool; anywhere else it may name a customer or a city.
                if inner:
                    waiting.append((inner, key in CALL_LISTS))
    return None


def _are_calls(value: Json) -> bool:
    """Return whether everything in what is called a list of calls has a name, or declares a tool."""
    members = value if isinstance(value, list) else [value]
    return all(
        isinstance(member, str) or (isinstance(member, dict) and (_list_own_names(member, True) or _only_declares(member)))
        for member in members
    )


def _list_own_names(entry: dict[str, Any], within: bool) -> set[str]:
    """Return the names an object gives a tool: by a word for tools, or by `name` where something is passed or calls are listed."""
    if not (_DECLARED.isdisjoint(entry) and _DECLARED.isdisjoint(_read_function(entry))):
        return set()  # a tool that was offered
    given = [entry.get(key) for key in _TOOL_NAMES]
    if within or not _PASSED.isdisjoint(entry):
        given.append(entry.get("name"))
    named = {name if isinstance(name, str) else name.get("name") for name in given if isinstance(name, (str, dict))}
    return {name for name in named if isinstance(name, str)}


def _says_call(entry: dict[str, Any]) -> bool:
    """Return whether an object says of itself that it is a call, or what came of one."""
    if _KINDS.isdisjoint(entry):
        return False  # nearly always, and this is asked of every object of an answer
    for key in _KINDS:
        word = entry.get(key)
        if isinstance(word, str) and _SAYS_CALL.match(word) is not None:
            return True
    return False


def _only_declares(value: Json) -> bool:
    """Return whether a list declares tools: each of its members has a description or a schema."""
    members = value if isinstance(value, list) else [value]
    return all(isinstance(member, dict) and not _DECLARED.isdisjoint({*member, *_read_function(member)}) for member in members)


def _read_function(member: dict[str, Any]) -> dict[str, Any]:
    inner = member.get("function")
    return inner if isinstance(inner, dict) else {}
