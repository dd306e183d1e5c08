"""Numbers as JSON has them: whole ones can be larger than any that Python's floats hold, and asking those raises an error."""

from __future__ import annotations

import math
from typing import TypeGuard

from proctor.model.evidence import Json


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number; true and false are none, whatever Python says."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_finite(value: float) -> bool:
    """Return whether a number is one that a double can hold: no infinity, no NaN, and no whole number beyond."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def read_digits(text: str | None, most: int) -> int | None:
    """Return the number that a text of up to `most` digits is; None for any other text."""
    # `isdigit` alone is also true of `²`, which `int` refuses.
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= most else None


def to_whole_number(value: Json) -> Json:
    """Return `3.0` as `3`, and anything else as it is."""
    # Beyond 2**53 a float does not name one integer any more, and stays as it is.
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def to_whole_numbers(value: Json) -> Json:
    """Return a document with its numbers as JavaScript writes them: `3.0` as `3`."""
    if isinstance(value, dict):
        return {key: to_whole_numbers(member) for key, member in value.items()}
    return [to_whole_numbers(item) for item in value] if isinstance(value, (list, tuple)) else to_whole_number(value)
