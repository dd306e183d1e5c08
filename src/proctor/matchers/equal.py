"""Equality of JSON values, strict and explained.

Lists are ordered. A boolean never equals a number, text never equals a number; `1` equals `1.0`; integers of any size are
exact; NaN equals nothing. Both functions keep their own stack, so hostile nesting cannot exhaust ours.

JSON has no cycles, but Python values from test code can: they contain themselves, or one part so often that writing them out would never
end. Beyond some thousand parts every pair of parts is compared once; a pair that is met again differs only if it did the first time.
"""

from __future__ import annotations

from collections.abc import Callable

from proctor.matchers.mismatch import Mismatch, absent, different
from proctor.model.evidence import Json
from proctor.model.missing import MISSING
from proctor.model.show import show

_MANY_PARTS = 5_000
"""From here on parts are remembered; below, which is nearly always, that would cost more than it saves."""


def deep_equal(a: Json, b: Json) -> bool:
    """Whether two JSON values are equal."""
    return equal_by(a, b, same_scalar)


def equal_by(a: Json, b: Json, same: Callable[[Json, Json], bool]) -> bool:
    """Whether two JSON values are equal, where `same` says so of values that are neither list nor object."""
    waiting = [(a, b)]
    room = _MANY_PARTS
    seen: set[tuple[int, int]] | None = None
    while waiting:
        left, right = waiting.pop()
        if isinstance(left, dict):
            if not isinstance(right, dict) or len(left) != len(right):
                return False
            if seen is not None and _met(left, right, seen):
                continue
            for key, value in left.items():
                if key not in right:
                    return False
                waiting.append((value, right[key]))
        elif isinstance(left, (list, tuple)):
            if not isinstance(right, (list, tuple)) or len(left) != len(right):
                return False
            if seen is not None and _met(left, right, seen):
                continue
            waiting.extend(zip(left, right, strict=True))
        elif not same(left, right):
            return False
        else:
            continue
        room -= 1
        if not room:
            seen = set()
    return True


def _met(left: Json, right: Json, seen: set[tuple[int, int]]) -> bool:
    """Whether this pair has been compared before. Both values stay alive meanwhile, so their ids stay theirs."""
    pair = (id(left), id(right))
    if pair in seen:
        return True
    seen.add(pair)
    return False


def same_scalar(a: Json, b: Json) -> bool:
    """Equality of values that are neither list nor object."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return a == b


def difference(expected: Json, actual: Json, path: str = "$") -> Mismatch | None:
    """The first difference in reading order, or nothing when the values are equal."""
    # The stack holds pairs still to compare, the next one on top.
    waiting: list[tuple[Json, Json, str]] = [(expected, actual, path)]
    room = _MANY_PARTS
    seen: set[tuple[int, int]] | None = None
    while waiting:
        left, right, at = waiting.pop()
        found: Mismatch | list[tuple[Json, Json, str]] | None = None
        if seen is not None and isinstance(left, (dict, list, tuple)) and _met(left, right, seen):
            continue
        if isinstance(left, dict) and isinstance(right, dict):
            found = _members(left, right, at)
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            found = _elements(left, right, at)
        elif isinstance(left, (dict, list, tuple)) or not same_scalar(left, right):
            found = different(at, left, right)
        if isinstance(found, Mismatch):
            return found
        if found is not None:
            waiting.extend(reversed(found))
            room -= 1
            if not room:
                seen = set()
    return None


def _members(left: dict[str, Json], right: dict[str, Json], at: str) -> Mismatch | list[tuple[Json, Json, str]]:
    for key in left:
        if key not in right:
            return absent(child(at, key), show(left[key]))
    for key in right:
        if key not in left:
            return unexpected(child(at, key), right[key])
    return [(value, right[key], child(at, key)) for key, value in left.items()]


def _elements(
    left: list[Json] | tuple[Json, ...], right: list[Json] | tuple[Json, ...], at: str
) -> Mismatch | list[tuple[Json, Json, str]]:
    if len(left) != len(right):
        return Mismatch(at, f"has {len(right)} elements instead of {len(left)}", show(left), right)
    return [(one, other, f"{at}[{index}]") for index, (one, other) in enumerate(zip(left, right, strict=True))]


def unexpected(path: str, actual: Json) -> Mismatch:
    """The mismatch of a value where none may be."""
    return Mismatch(path, "is not expected", repr(MISSING), actual)


def child(path: str, key: str) -> str:
    """The path of a member: `$.a.b`, with brackets where the key is not a plain word."""
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{show(key, 80)}]"
