"""Dot paths: `items.0.sku`.

Each part between dots is a literal key; for a list, a part of digits is a position counted from 0. There are no wildcards, no quoting and
no negative positions; a key that itself contains a dot cannot be reached.
"""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing

_LONGEST_POSITION = 9
"""The maximum number of digits of a list position; no list is longer, and `int` of a longer text is slow."""


def find_dotted(document: Json, path: str) -> Json | Missing:
    """Return the value at `path`, or `MISSING`. Never raises."""
    value = document
    for part in path.split("."):
        if isinstance(value, dict):
            if part not in value:
                return MISSING
            value = value[part]
        elif isinstance(value, (list, tuple)):
            # `isdigit` also accepts `²`, which `int` rejects.
            if not (part.isascii() and part.isdigit() and len(part) <= _LONGEST_POSITION) or int(part) >= len(value):
                return MISSING
            value = value[int(part)]
        else:
            return MISSING
    return value


def trace_dotted(document: Json, path: str) -> tuple[str | int, ...] | None:
    """Return the keys and positions along `path`, or None if there is no value."""
    keys: list[str | int] = []
    value = document
    for part in path.split("."):
        following = find_dotted(value, part)
        if following is MISSING:
            return None
        keys.append(part if isinstance(value, dict) else int(part))
        value = following
    return tuple(keys)
