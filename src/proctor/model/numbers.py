"""Numbers as JSON has them: whole ones can be larger than any that Python's floats hold, and asking those raises an error."""

from __future__ import annotations

import math


def is_finite(value: float) -> bool:
    """Return whether a number is one that a double can hold: no infinity, no NaN, and no whole number beyond."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
