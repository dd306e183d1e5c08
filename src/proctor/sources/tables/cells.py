"""Values of sheets and Arrow tables as JSON: times as ISO 8601, decimal numbers as text that keeps every digit."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from proctor.model.evidence import Json


def make_json(value: Any) -> Json:
    """Return a value that JSON can hold; raises `ValueError` saying why there is none."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} is no number that a case can hold")
        return value
    if isinstance(value, datetime) and value.time() == time(0) and value.tzinfo is None:
        return value.date().isoformat()
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {str(key): make_json(member) for key, member in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - comes from a library without types
    if isinstance(value, (list, tuple)):
        return [make_json(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - as above
    raise ValueError(f"{type(value).__name__} is no value that a case can hold")
