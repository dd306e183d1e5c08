"""Points in time as traces write them: ISO 8601 text, milliseconds and nanoseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from proctor.model.evidence import Json
from proctor.model.numbers import is_number

# Without a zone, which is UTC here: adding to it and writing it takes half as long.
_EPOCH = datetime(1970, 1, 1)
# The range a `datetime` can hold, in nanoseconds since 1970.
_LAST_NS = 253_402_300_799 * 10**9


def measure_ms_between(start: Json, end: Json) -> float | None:
    """Return the milliseconds between two ISO texts, or None if either is none."""
    began, ended = _parse_instant(start), _parse_instant(end)
    if began is None or ended is None:
        return None
    return (ended - began) / timedelta(milliseconds=1)


def write_ns_as_iso(nanoseconds: int) -> str | None:
    """Write nanoseconds since 1970 as ISO 8601 in UTC, or None beyond the year 9999 or before 1970."""
    if not 0 < nanoseconds <= _LAST_NS:
        return None
    moment = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    return moment.isoformat() + "Z"


def write_ms_as_iso(milliseconds: Json) -> str | None:
    """Write milliseconds since 1970 as ISO 8601 in UTC, or None if this is no such number."""
    if not is_number(milliseconds) or not 0 < milliseconds <= _LAST_NS // 10**6:
        return None
    return write_ns_as_iso(int(milliseconds * 10**6))


def _parse_instant(value: Json) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    # Both ends are read alike, so that a duration is right whatever zone was meant.
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
