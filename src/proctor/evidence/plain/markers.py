"""Signs in plain records and in the answers of agents: members beside the calls and the text that contradict them (`signs.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from proctor.evidence.shared.usage import HOLDERS
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import STOP_FIELDS, find_failure, to_snake_case
from proctor.evidence.unknowns.markers import RUN, Marker, find_marker, find_stop_marker
from proctor.evidence.unknowns.members import HARMLESS
from proctor.evidence.values.text import HTTP_KEYS
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import shorten, show

_DEPTH = 4
"""How deep a count of calls stands in what was spent, and a reason why the model stopped in the answer of a provider."""


def mark_members(entry: dict[str, Any], keys: Iterable[str], calls: Sequence[ToolCall] | None, path: str, unknowns: Unknowns) -> None:
    """Doubt a record whose members say that it is not whole, or that more calls were made than it lists."""
    for key in keys:
        _mark(key, find_marker(key, entry[key], calls or ()), calls, path, unknowns)


def mark_usage(entry: dict[str, Any], calls: Sequence[ToolCall] | None, path: str, unknowns: Unknowns) -> None:
    """Doubt the calls if more are counted beside the tokens than are listed."""
    for holder in HOLDERS:
        if calls is not None and isinstance(entry.get(holder), dict):
            _look_into(entry[holder], calls, f"{path}.{holder}", unknowns, _DEPTH)


def mark_answer(body: Json, calls: Sequence[ToolCall] | None, path: str, unknowns: Unknowns) -> None:
    """Doubt what an answer says about itself: one with a text in it, or the answer of a provider as it came.

    Where the whole answer is a document, its members are what the agent was asked for, and a `status` is the status of an order.
    """
    if not isinstance(body, dict):
        return
    mark_usage(body, calls, path, unknowns)
    if all(body.get(key) is None for key in HTTP_KEYS):
        _mark_ends(body, calls, path, unknowns, _DEPTH)
        return
    for key, value in body.items():
        if key not in HTTP_KEYS and key not in HARMLESS and not key.startswith("x-"):
            _mark(key, find_marker(key, value, calls or ()) or _find_failure(key, value), calls, path, unknowns)


def _look_into(entry: dict[str, Any], calls: Sequence[ToolCall], path: str, unknowns: Unknowns, depth: int) -> None:
    for key, value in entry.items():
        if isinstance(value, dict) and depth:
            _look_into(value, calls, f"{path}.{shorten(key, 60)}", unknowns, depth - 1)
        else:
            _mark(key, find_marker(key, value, calls), calls, path, unknowns)


def _mark_ends(value: Json, calls: Sequence[ToolCall] | None, path: str, unknowns: Unknowns, depth: int) -> None:
    """Doubt the answer of a provider that says why its model stopped early."""
    if isinstance(value, list):
        # A bound, as every answer without a text is looked through: providers list a handful of choices.
        for index, member in enumerate(value[:100] if depth else ()):
            _mark_ends(member, calls, f"{path}[{index}]", unknowns, depth - 1)
    elif isinstance(value, dict):
        for key, member in value.items():
            if to_snake_case(key) in STOP_FIELDS:
                _mark(key, find_stop_marker(member, calls or ()), calls, path, unknowns)
            elif depth and isinstance(member, (list, dict)):
                _mark_ends(member, calls, f"{path}.{shorten(key, 60)}", unknowns, depth - 1)


def _mark(key: str, sign: Marker | None, calls: Sequence[ToolCall] | None, path: str, unknowns: Unknowns) -> None:
    for part in sign.parts if sign is not None else ():
        # Of calls that nobody recorded nothing is known anyway.
        if sign is not None and (calls is not None or part not in CALL_PARTS):
            unknowns.mark(part, f"{show(shorten(key, 60))} at {path}: {sign.why}")


def _find_failure(key: str, value: Json) -> Marker | None:
    why = find_failure({key: value}, status=False)
    return None if why is None else Marker(RUN, f"the run failed ({why})")
