"""Rule d of evidence coverage: two places of one record that record the same thing agree, or the thing is unknown.

An empty list at one place must not hide the calls at another: the calls of both are read, and the part is marked with both places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import ANSWERS
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.account import Part
from proctor.model.evidence import Json, Node, ToolCall
from proctor.model.show import show


def take_agreeing(entry: Mapping[str, Json], keys: Sequence[str], part: Part, at: str, unknowns: Unknowns) -> Json:
    """Return the first value under these keys that is not null; if two of them differ, the part is unknown."""
    given = [(key, entry[key]) for key in keys if entry.get(key) is not None]
    if len(given) > 1:
        first = decode_container(given[0][1])
        for key, value in given[1:]:
            # Empty text is how exporters write "not recorded".
            if value != "" and first != "" and decode_container(value) != first:
                mark_difference(part, at, (given[0][0], key), unknowns)
    return next((value for _, value in given if value != ""), given[0][1] if given else None)


def find_answers(entry: Mapping[str, Json]) -> dict[str, str]:
    """Return the texts under usual names of the answer, which must agree; a blank one or a `message` counts if there is no other."""
    texts = {key: value for key in ANSWERS if isinstance(value := entry.get(key), str)}
    if len(texts) < 2:
        return texts
    written = {key: text for key, text in texts.items() if text.strip()} or texts
    return {key: text for key, text in written.items() if key != "message"} or written


def mark_difference(part: Part, at: str, keys: tuple[str, str], unknowns: Unknowns) -> None:
    """Mark a part that two fields record differently."""
    unknowns.mark(part, f"{keys[0]!r} and {keys[1]!r} at {at} record the same thing and differ; map the right one, or move one to metadata")


def unite_calls(
    known: tuple[ToolCall, ...], others: Sequence[ToolCall], places: tuple[str, str], unknowns: Unknowns, *, both_complete: bool = False
) -> tuple[ToolCall, ...]:
    """Return the calls of two places together, and mark them if the second place has a call that the first lacks.

    With `both_complete` a call that only the first place has is a contradiction, too.
    """
    # By name, aliases included, so that a call is compared with calls of the same name only.
    by_name: dict[str, list[ToolCall]] = {}
    for call in known:
        for name in (call.name, *call.aliases):
            by_name.setdefault(name, []).append(call)
    # By identity: of two equal calls each accounts for one call of the other place.
    matched: set[int] = set()
    lacking: list[ToolCall] = []
    for call in others:
        candidates = (one for name in (call.name, *call.aliases) for one in by_name.get(name, ()))
        same = next((one for one in candidates if id(one) not in matched and _are_same(one, call)), None)
        if same is None:
            lacking.append(call)
        else:
            matched.add(id(same))
    alone = lacking[0] if lacking else next((call for call in known if both_complete and id(call) not in matched), None)
    if alone is not None:
        here, there = places[::-1] if lacking else places
        unknowns.mark("tool_calls", f"{places[0]} and {places[1]} list different calls: {show(alone.name, 60)} of {here} is not in {there}")
    return (*known, *lacking)


def _are_same(one: ToolCall, other: ToolCall) -> bool:
    if one is other:
        return True
    if (one.id and other.id and one.id != other.id) or (one.arguments and other.arguments and one.arguments != other.arguments):
        return False
    # A failure that only the second place reports would be lost with its call.
    return one.failed() or not other.failed()


def unite_nodes(known: tuple[Node, ...], others: Sequence[Node], places: tuple[str, str], unknowns: Unknowns) -> tuple[Node, ...]:
    """Return the nodes of two places together, and mark them if the second place has a node that the first lacks."""
    left = Counter(node.name for node in known)
    lacking: list[Node] = []
    for node in others:
        if left[node.name]:
            left[node.name] -= 1  # a node that ran twice is listed twice
        else:
            lacking.append(node)
    if lacking:
        unknowns.mark("nodes", f"{places[0]} and {places[1]} list different nodes: {show(lacking[0].name, 60)} is only in {places[1]}")
    return (*known, *lacking)
