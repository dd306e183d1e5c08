"""Points in time as traces write them: ISO 8601 text, and numbers since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from proctor.model.evidence import Json
from proctor.model.json_values import is_number, read_digits

# Without a zone, which is UTC here: adding to it and writing it takes half as long.
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=UTC)
# The range a `datetime` can hold, in nanoseconds since 1970.
_LAST_NS = 253_402_300_799 * 10**9
_UNITS = ((10**17, 1), (10**14, 10**3), (10**11, 10**6), (10**8, 10**9))
"""From which number on times are nanoseconds, microseconds, milliseconds and seconds since 1970; no trace is older than 1973."""


def read_time_ns(value: Json) -> int:
    """Return nanoseconds since 1970 of ISO 8601 text or a number; 0 for anything else."""
    number = read_digits(value, 20) if isinstance(value, str) else value
    moment = _parse_instant(value) if number is None else None
    if moment is not None:
        return max(0, (moment - _EPOCH_UTC) // timedelta(microseconds=1) * 1000)
    if not is_number(number) or not 0 < number < 2**63:
        return 0
    return next((int(number * factor) for least, factor in _UNITS if number >= least), 0)


def measure_ms_between(start: Json, end: Json) -> float | None:
    """Return the milliseconds between two ISO texts, or None if either is none."""
    began, ended = _parse_instant(start), _parse_instant(end)
    return None if began is None or ended is None else (ended - began) / timedelta(milliseconds=1)


def write_ns_as_iso(nanoseconds: int) -> str | None:
    """Write nanoseconds since 1970 as ISO 8601 in UTC, or None beyond the year 9999 or before 1970."""
    return (_EPOCH + timedelta(microseconds=nanoseconds // 1000)).isoformat() + "Z" if 0 < nanoseconds <= _LAST_NS else None


def write_ms_as_iso(milliseconds: Json) -> str | None:
    """Write milliseconds since 1970 as ISO 8601 in UTC, or None if this is no such number."""
    if not is_number(milliseconds) or not 0 < milliseconds <= _LAST_NS // 10**6:
        return None
    return write_ns_as_iso(int(milliseconds * 10**6))


def _parse_instant(value: Json) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    # A text without a zone is UTC.
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)
