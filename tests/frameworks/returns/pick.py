"""Checks that parts of a real stream, list or state, picked by a program, are still read correctly.

Programs often pass on only part of a framework's output: events of one kind, those with text, the last ones. Such a part must show a
call of a tool that ran, or leave the calls unknown.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from proctor.evidence.unknowns.account import find_part_states
from proctor.model.evidence import Evidence
from proctor.targets.frameworks.streams import Streamed
from proctor.targets.shared.faults import TargetFault
from tests.frameworks.returns import model

MOST_KINDS, MOST_TAILS = 10, 25
Read = Callable[[object], Evidence]


def list_untrue_parts(answer: object, read: Read) -> list[str]:
    """Return the parts of an answer that show no call of the shop and claim to show every call."""
    return [name for name, part in list_parts(answer) if _hides_calls(part, read)]


def _hides_calls(part: object, read: Read) -> bool:
    try:
        evidence = read(part)
    except TargetFault:
        return False  # the reason names the type of the returned value
    seen = any(model.is_shop(call.name) for call in evidence.tool_calls or ())
    return not seen and find_part_states(evidence)["tool_calls"].status != "unknown"


def list_parts(answer: object) -> Iterator[tuple[str, object]]:
    """Return the parts of a stream by kind, by text and from an index on; of messages, which belong together, only the last ones."""
    if isinstance(answer, Streamed):
        yield from ((name, Streamed(items)) for name, items in _pick(list(answer.items)))
    elif isinstance(answer, list):
        parts = _list_tails(answer) if _is_message(answer[-1] if answer else None) else _pick(answer)
        yield from parts
    elif isinstance(answer, dict) and isinstance(answer.get("messages"), list):
        yield from ((name, {**answer, "messages": items}) for name, items in _list_tails(answer["messages"]))


def _is_message(item: object) -> bool:
    return isinstance(item, dict) or type(item).__name__.endswith("Message") or type(item).__name__ in ("ModelRequest", "ModelResponse")


def _pick(items: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    kinds = list(dict.fromkeys(_name_kind(item) for item in items))
    for size in range(1, len(kinds)):
        # All kinds but a few, and a few of them, as programs often filter.
        if len(kinds) <= MOST_KINDS or size in (1, len(kinds) - 1):
            for chosen in itertools.combinations(kinds, size):
                yield f"only {', '.join(chosen)}", [item for item in items if _name_kind(item) in chosen]
    spoken = [item for item in items[:-1] if _has_text(item)]
    yield "with text", [item for item in items if _has_text(item)]
    yield "with text, and the last", [*spoken, *items[-1:]]
    yield from _list_tails(items)


def _list_tails(items: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    for size in range(1, min(len(items), MOST_TAILS)):
        yield f"the last {size}", items[-size:]


def _name_kind(item: object) -> str:
    """Return how a program would distinguish this item: its class, and the type or event that it names."""
    if isinstance(item, tuple):
        return "/".join(part if isinstance(part, str) else type(part).__name__ for part in item)
    if isinstance(item, dict):
        return "/".join(sorted(map(str, item))[:6])
    kind = next((value for name in ("name", "event", "type") if isinstance(value := getattr(item, name, None), str)), "")
    return f"{type(item).__name__}/{kind}"


def _has_text(item: object) -> bool:
    if isinstance(item, (tuple, list)):
        return any(_has_text(part) for part in item if not isinstance(part, (str, dict)))
    values = [item.get(name) if isinstance(item, dict) else getattr(item, name, None) for name in ("content", "delta", "text", "data")]
    return any(isinstance(value, str) and value for value in values)
