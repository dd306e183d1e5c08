"""Writes one canonical text per value, and its digest, by which MCPJam compares how runs were graded.

Members are sorted by their UTF-16 units, numbers have the shortest form that JavaScript writes (`1` for 1.0, `0` for -0.0, `1e+21`), text
is escaped only where JSON demands it. Values that JSON cannot hold are rejected. A whole
number of any size keeps all its digits, where JavaScript would round it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Final, cast

from proctor.model.json_values import quote_javascript_text, write_javascript_number
from proctor.model.show import kind_of

DEEPEST: Final = 200
"""Levels of lists and objects inside each other; what is deeper (or holds itself) is refused."""


def canonical_json(value: object) -> str:
    """Return the one text of a value. Raises `ValueError` or `TypeError` for what has none."""
    return _write_value(value, 0)


def canonical_digest(value: object) -> str:
    """Return the SHA-256 of that text, in hexadecimal."""
    return text_digest(canonical_json(value))


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    # Half of a surrogate pair has no UTF-8, and a text with one must have a digest, too.
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def _write_value(value: object, depth: int) -> str:
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    # Before the test for whole numbers: in Python true is one.
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return quote_javascript_text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"not a number JSON can hold: {value}")
        return write_javascript_number(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, object]", value)
        for key in members:
            if not isinstance(key, str):
                raise TypeError(f"the name of a member must be text, found {kind_of(key)}")
        return (
            "{"
            + ",".join(f"{quote_javascript_text(key)}:{_write_value(members[key], depth + 1)}" for key in sorted(members, key=_sort_key))
            + "}"
        )
    if isinstance(value, (list, tuple)):
        items = cast("list[object]", value)
        return "[" + ",".join(_write_value(item, depth + 1) for item in items) + "]"
    raise TypeError(f"expected plain values, lists and objects, found {kind_of(value)}")


def _sort_key(key: str) -> bytes:
    """Return the key by which JavaScript's `sort` orders: a character beyond the basic plane counts as its two surrogates."""
    return key.encode("utf-16-be", "surrogatepass")
