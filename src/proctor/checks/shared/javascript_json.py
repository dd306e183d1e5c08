"""JSON text as JavaScript's `JSON.stringify` writes it, without spaces.

Claims about tool inputs search this text, so it must look as it did in the system the claim was written for: no space after `,` and `:`,
non-ASCII characters unescaped, `1.0` as `1`, large numbers as `1e+21`, keys that look like list indexes first and ascending. One
improvement on the original: integers below 10^21 keep all their digits.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence

from proctor.errors import CheckFault
from proctor.matchers.mismatch import join_path
from proctor.model.evidence import Json
from proctor.model.json_values import quote_javascript_text, write_javascript_number
from proctor.model.show import kind_of

_LARGEST_INDEX = 2**32 - 2
"""The largest key that JavaScript orders as a list index."""
_MOST_DEPTH = 10_000
"""Maximum nesting; a stack of our own is used, so this only bounds memory."""


def write_javascript_json(value: Json) -> str:
    """Return the compact JSON text of a value. A value that JSON cannot carry raises `CheckFault`."""
    pieces: list[str] = []
    # Iterators of containers that are still open, and the character that closes each.
    open_containers: list[tuple[Iterator[tuple[str | None, Json]], str]] = []
    current: Json = value
    while True:
        if isinstance(current, dict):
            pieces.append("{")
            open_containers.append((iter(_order_members(current)), "}"))
        elif isinstance(current, (list, tuple)):
            pieces.append("[")
            open_containers.append((((None, item) for item in current), "]"))
        else:
            pieces.append(_write_scalar(current))
        if len(open_containers) > _MOST_DEPTH:
            raise CheckFault("value_too_deep", f"a tool input is nested more than {_MOST_DEPTH} levels deep")
        while open_containers:
            entries, closing = open_containers[-1]
            entry = next(entries, None)
            if entry is None:
                open_containers.pop()
                pieces.append(closing)
                continue
            if pieces[-1] not in "{[":
                pieces.append(",")
            if entry[0] is not None:
                pieces.append(f"{quote_javascript_text(entry[0])}:")
            current = entry[1]
            break
        else:
            return "".join(pieces)


def iterate_texts(value: Json, path: str, at: int = 0) -> Generator[tuple[int, str, str], None, int]:
    """Yield the position of each text in the JSON text, its path, and the text; returns the end of the JSON text."""
    # Recursive, unlike the writer above: this only finds places to mark, and `report/words/ranges.py` skips values that are too deep.
    if isinstance(value, dict):
        for key, item in _order_members(value):
            # One character for the brace or comma before, one for the colon after.
            at += 1 + len(quote_javascript_text(key or "")) + 1
            at = yield from iterate_texts(item, join_path(path, key or ""), at)
        return at + (1 if value else 2)
    if isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            at = yield from iterate_texts(item, f"{path}[{number}]", at + 1)
        return at + (1 if value else 2)
    if isinstance(value, str):
        yield at + 1, path, value
    return at + len(_write_scalar(value))


def _order_members(value: dict[str, Json]) -> Sequence[tuple[str | None, Json]]:
    """Return the members in JavaScript's order: index-like keys ascending, then the others in insertion order."""
    indexes = sorted((key for key in value if _is_index(key)), key=int)
    if not indexes:
        return list(value.items())
    return [(key, value[key]) for key in indexes] + [(key, item) for key, item in value.items() if not _is_index(key)]


def _is_index(key: str) -> bool:
    if not key.isascii() or not key.isdigit() or len(key) > 10 or (len(key) > 1 and key[0] == "0"):
        return False
    return int(key) <= _LARGEST_INDEX


def _write_scalar(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote_javascript_text(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**21 else _write_large_integer(value)
    if isinstance(value, float):
        return write_javascript_number(value) if math.isfinite(value) else "null"
    raise CheckFault("not_json", f"a tool input holds a {kind_of(value)}, which has no JSON text")


def _write_large_integer(value: int) -> str:
    try:
        return write_javascript_number(float(value))
    except OverflowError:
        # JavaScript reads such a large number as `Infinity`, which `JSON.stringify` writes as null.
        return "null"
