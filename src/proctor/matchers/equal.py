"""Finds the first difference of two JSON values, by the rules of `proctor.model.json_values.equal`."""

from __future__ import annotations

from proctor.matchers.mismatch import Mismatch, absent_mismatch, different_mismatch
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, PairsMet, is_same_scalar
from proctor.model.show import show


def find_difference(expected: Json, actual: Json, path: str = "$") -> Mismatch | None:
    """Return the first difference in reading order, or None if the values are equal."""
    # The stack holds pairs still to compare, the next one on top.
    waiting: list[tuple[Json, Json, str]] = [(expected, actual, path)]
    reached = PairsMet()
    while waiting:
        left, right, at = waiting.pop()
        found: Mismatch | list[tuple[Json, Json, str]] | None = None
        if isinstance(left, (dict, list, tuple)) and reached.add(left, right):
            continue
        if isinstance(left, dict) and isinstance(right, dict):
            found = _compare_members(left, right, at)
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            found = _compare_elements(left, right, at)
        # A list or object that gets here is compared with a value of another kind.
        elif isinstance(left, (dict, list, tuple)) or not is_same_scalar(left, right):
            found = different_mismatch(at, left, right)
        if isinstance(found, Mismatch):
            return found
        if found is not None:
            # Reversed, so that the first pair is on top and the first difference in reading order is reported.
            waiting.extend(reversed(found))
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
    """Return the mismatch for a value that must not be present."""
    return Mismatch(path, "is not expected", repr(MISSING), actual)


def join_path(path: str, key: str) -> str:
    """Return the path of a member: `$.a.b`, with brackets where the key is not a plain word."""
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{show(key, 80)}]"
