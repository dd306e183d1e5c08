"""Equality of JSON values, strict and explained.

Lists are ordered. A boolean never equals a number, text never equals a number; `1` equals `1.0`; integers of any size are
exact; NaN equals nothing. Both functions keep their own stack, so hostile nesting cannot exhaust ours.

JSON has no cycles, but Python values from test code can: they contain themselves, or one part so often that writing them out would never
end. Beyond some thousand parts every pair of parts is compared once; a pair that is met again differs only if it did the first time.
"""

from __future__ import annotations

from collections.abc import Callable

from proctor.matchers.mismatch import Mismatch, absent_mismatch, different_mismatch
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING
from proctor.model.show import show

_MANY_PARTS = 5_000
"""From here on parts are remembered; below, which is nearly always, that would cost more than it saves."""


def deep_equal(a: Json, b: Json) -> bool:
    """Return whether two JSON values are equal."""
    return equal_by(a, b, is_same_scalar)


def equal_by(a: Json, b: Json, same: Callable[[Json, Json], bool]) -> bool:
    """Return whether two JSON values are equal; `same` compares values that are neither list nor object."""
    waiting = [(a, b)]
    budget = _MANY_PARTS
    seen: set[tuple[int, int]] | None = None
    while waiting:
        left, right = waiting.pop()
        if isinstance(left, dict):
            # The same number of members, and every member of the one in the other: then neither has one more.
            if not isinstance(right, dict) or len(left) != len(right):
                return False
            if seen is not None and _has_met(left, right, seen):
                continue
            for key, value in left.items():
                if key not in right:
                    return False
                waiting.append((value, right[key]))
        elif isinstance(left, (list, tuple)):
            if not isinstance(right, (list, tuple)) or len(left) != len(right):
                return False
            if seen is not None and _has_met(left, right, seen):
                continue
            waiting.extend(zip(left, right, strict=True))
        elif not same(left, right):
            return False
        else:
            continue
        budget -= 1
        if not budget:
            # Only now: ordinary values never have so many parts, and what was compared until here is bounded.
            seen = set()
    return True


def _has_met(left: Json, right: Json, seen: set[tuple[int, int]]) -> bool:
    """Return whether this pair has been compared before. Both values stay alive meanwhile, so their ids stay theirs."""
    pair = (id(left), id(right))
    if pair in seen:
        return True
    seen.add(pair)
    return False


def is_same_scalar(a: Json, b: Json) -> bool:
    """Return whether two values are equal that are neither list nor object."""
    # In Python `True == 1`; in JSON a boolean is no number.
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return a == b


def find_difference(expected: Json, actual: Json, path: str = "$") -> Mismatch | None:
    """Return the first difference in reading order, or None when the values are equal."""
    # The stack holds pairs still to compare, the next one on top.
    waiting: list[tuple[Json, Json, str]] = [(expected, actual, path)]
    budget = _MANY_PARTS
    seen: set[tuple[int, int]] | None = None
    while waiting:
        left, right, at = waiting.pop()
        found: Mismatch | list[tuple[Json, Json, str]] | None = None
        if seen is not None and isinstance(left, (dict, list, tuple)) and _has_met(left, right, seen):
            continue
        if isinstance(left, dict) and isinstance(right, dict):
            found = _compare_members(left, right, at)
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            found = _compare_elements(left, right, at)
        # A list or object that gets here is compared with something of another kind.
        elif isinstance(left, (dict, list, tuple)) or not is_same_scalar(left, right):
            found = different_mismatch(at, left, right)
        if isinstance(found, Mismatch):
            return found
        if found is not None:
            # Reversed, so that the first pair is on top: the difference that is reported is the first in reading order.
            waiting.extend(reversed(found))
            budget -= 1
            if not budget:
                seen = set()
    return None


def _compare_members(left: dict[str, Json], right: dict[str, Json], at: str) -> Mismatch | list[tuple[Json, Json, str]]:
    for key in left:
        if key not in right:
            return absent_mismatch(join_path(at, key), show(left[key]))
    for key in right:
        if key not in left:
            return unexpected_mismatch(join_path(at, key), right[key])
    return [(value, right[key], join_path(at, key)) for key, value in left.items()]


def _compare_elements(
    left: list[Json] | tuple[Json, ...], right: list[Json] | tuple[Json, ...], at: str
) -> Mismatch | list[tuple[Json, Json, str]]:
    if len(left) != len(right):
        return Mismatch(at, f"has {len(right)} elements instead of {len(left)}", show(left), right)
    return [(one, other, f"{at}[{index}]") for index, (one, other) in enumerate(zip(left, right, strict=True))]


def unexpected_mismatch(path: str, actual: Json) -> Mismatch:
    """Return the mismatch of a value where none may be."""
    return Mismatch(path, "is not expected", repr(MISSING), actual)


def join_path(path: str, key: str) -> str:
    """Return the path of a member: `$.a.b`, with brackets where the key is not a plain word."""
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{show(key, 80)}]"
