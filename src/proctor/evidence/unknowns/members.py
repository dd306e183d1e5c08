"""The former rule for unrecognised fields, which only HTTP targets still use; `unrecognised.py` replaces it."""

from __future__ import annotations

from typing import Any

from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json

_NAMES = ("name", "toolName", "tool_name", "tool", "function")
_CALL_WORDS = ("tool", "call", "function", "action")
_MAX_SEARCHED = 10_000


def may_hold_call(key: str, value: Json) -> bool:
    """Return whether a field of an answer could record tool calls: by its name, or as an object inside has a name."""
    value = decode_container(value)
    if not value or not isinstance(value, (list, dict)):
        return False
    if any(word in key.lower() for word in _CALL_WORDS):
        return True
    waiting: list[Any] = [value]
    for _ in range(_MAX_SEARCHED):
        if not waiting:
            return False
        current = waiting.pop()
        if isinstance(current, dict):
            if any(isinstance(current.get(name), (str, dict)) for name in _NAMES):
                return True
            waiting.extend(current.values())
        elif isinstance(current, list):
            waiting.extend(current)
    return True
