"""Values of Arrow columns in Python: one that Python cannot hold is a matter of its own row and of no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CANNOT_HOLD = (ValueError, KeyError, OverflowError)
"""What is raised for one value: text that is not UTF-8, a time zone or a key that stands twice, a moment beyond the years of Python."""


def list_values(array: Any, in_place: Callable[[Any, Exception], Any] | None = None) -> list[Any]:
    """Return the values of a column; `in_place` gives what stands in the place of one that Python cannot hold, else its nearest text."""
    try:
        return array.to_pylist(maps_as_pydicts="strict")
    except CANNOT_HOLD:
        return [_read_value(array[number], in_place or _write_nearest) for number in range(len(array))]


def _read_value(scalar: Any, in_place: Callable[[Any, Exception], Any]) -> Any:
    try:
        return scalar.as_py(maps_as_pydicts="strict")
    except CANNOT_HOLD as error:
        return in_place(scalar, error)


def _write_nearest(scalar: Any, error: Exception) -> str | None:
    """Return text with a mark for each byte that is none; None for anything else."""
    if not isinstance(error, UnicodeDecodeError) or not hasattr(scalar, "as_buffer"):
        return None
    return bytes(scalar.as_buffer()).decode("utf-8", "replace")
