"""A difference between an expected and an actual value.

Finds the first difference of two JSON values, by the rules of `proctor.model.json_values.equal`.
"""

from __future__ import annotations

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing, PairsMet, is_same_scalar
from proctor.model.show import explain_alike, kind_of, show


class Mismatch(msgspec.Struct, frozen=True):
    """One difference between an expected and an actual value."""

    path: str
    """The path in the evidence: `$.tool_calls[2].arguments.id`."""
    why: str
    """The rest of a sentence that begins with the path: `is different`."""
    expected: str
    """The expected value, as text for people."""
    actual: Json | Missing

    def describe(self) -> str:
        """Return one sentence with the path and both values."""
        return f"{self.path} {self.why}: expected {self.expected}, found {show_value(self.actual)}"

    def to_record(self) -> dict[str, Json]:
        """Return the mismatch for machines, with values as shortened JSON text; an absent value is `nothing`, without quotes."""
        return {"path": self.path, "why": self.why, "expected": self.expected, "actual": show_value(self.actual)}


def show_value(value: Json | Missing) -> str:
    """Return a value as text for people; an absent one is `nothing`."""
    return "nothing" if value is MISSING else show(value)


def absent_mismatch(path: str, expected: str) -> Mismatch:
    """Return the mismatch for an absent value."""
    return Mismatch(path, "is missing", expected, MISSING)


def different_mismatch(path: str, expected: Json, actual: Json | Missing) -> Mismatch:
    """Return the mismatch of two plain values, with a note if they would be equal after conversion."""
    if actual is MISSING:
        return absent_mismatch(path, show(expected))
    return Mismatch(path, _describe_how(expected, actual), show(expected), actual)


def _describe_how(expected: Json, actual: Json) -> str:
    kinds = kind_of(expected), kind_of(actual)
    if kinds[0] == kinds[1]:
        alike = explain_alike(expected, actual) if isinstance(expected, str) and isinstance(actual, str) else None
        return "is different" if alike is None else f"is different ({alike})"
    if "text" in kinds and equal_after_conversion(expected, actual):
        return f"is equal only after conversion ({kinds[1]} instead of {kinds[0]}; equal after conversion)"
    return f"is {kinds[1]} instead of {kinds[0]}"


def equal_after_conversion(text: Json, value: Json) -> bool:
    """Return whether a text would equal a number or boolean after conversion."""
    if isinstance(value, str):
        text, value = value, text
    # Python alone reads `1_000` as a number, and converting many digits takes quadratic time.
    if not isinstance(text, str) or len(text) > 400 or "_" in text:
        return False
    if isinstance(value, bool):
        return text.strip().lower() == ("true" if value else "false")
    if isinstance(value, (int, float)):
        try:
            is_float = isinstance(value, float) or "." in text or "e" in text.lower()
            return float(text) == value if is_float else int(text) == value
        except (ValueError, OverflowError):
            return False
    return False


def find_difference(expected: Json, actual: Json, path: str = "$") -> Mismatch | None:
    """Return the first difference in reading order, or None if the values are equal."""
    # The stack holds pairs still to compare, the next one on top.
    waiting: list[tuple[Json, Json, str]] = [(expected, actual, path)]
    reached = PairsMet()
    while waiting:
        left, right, at = waiting.pop()
        if isinstance(left, (dict, list, tuple)) and reached.add(left, right):
            continue
        if isinstance(left, dict) and isinstance(right, dict):
            for key in left:
                if key not in right:
                    return absent_mismatch(join_path(at, key), show(left[key]))
            for key in right:
                if key not in left:
                    return unexpected_mismatch(join_path(at, key), right[key])
            pairs = [(value, right[key], join_path(at, key)) for key, value in left.items()]
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            if len(left) != len(right):
                return Mismatch(at, f"has {len(right)} elements instead of {len(left)}", show(left), right)
            pairs = [(one, other, f"{at}[{index}]") for index, (one, other) in enumerate(zip(left, right, strict=True))]
        # A list or object that gets here is compared with a value of another kind.
        elif isinstance(left, (dict, list, tuple)) or not is_same_scalar(left, right):
            return different_mismatch(at, left, right)
        else:
            continue
        # Reversed, so that the first pair is on top and the first difference in reading order is reported.
        waiting.extend(reversed(pairs))
    return None


def unexpected_mismatch(path: str, actual: Json) -> Mismatch:
    """Return the mismatch for a value that must not be present."""
    return Mismatch(path, "is not expected", repr(MISSING), actual)


def join_path(path: str, key: str) -> str:
    """Return the path of a member: `$.a.b`, with brackets where the key is not a plain word."""
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{show(key, 80)}]"
