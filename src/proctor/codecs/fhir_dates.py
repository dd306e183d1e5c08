"""FHIR dates as ranges of time, and the comparisons a search asks for.

A partial date means the whole range it leaves open: `2026-11` is all of November. Both sides of a comparison are such
ranges, the end excluded; a Period without an end reaches into all future. A time without an offset is read as UTC. Instants
are whole microseconds counted from the day before year 1, so that the last day of year 9999 has an end too.
`ap` (about) is left to the implementer by FHIR: here the ranges must meet when the stated one is a day wider on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date

import msgspec

from proctor.model.evidence import Json

PREFIXES = ("eq", "ne", "gt", "lt", "ge", "le", "sa", "eb", "ap")

_SECOND = 1_000_000
"""Microseconds: the finest that a FHIR instant is compared by."""
_DAY = 86_400 * _SECOND
_DATE = re.compile(
    r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2})(?:T([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?)?)?"
)


class Range(msgspec.Struct, frozen=True):
    """A stretch of time, the end excluded."""

    start: float
    end: float


_EVER = Range(float("-inf"), float("inf"))


def read_date(text: str) -> Range | None:
    """Return the range of a FHIR date, dateTime or instant, or None for other text."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        start = date(int(year), int(month or 1), int(day or 1)).toordinal() * _DAY
    except ValueError:
        return None
    if month is None:
        return Range(start, _find_first_day(int(year) + 1, 1))
    if day is None:
        return Range(start, _find_first_day(int(year) + (month == "12"), int(month) % 12 + 1))
    if hour is None:
        return Range(start, start + _DAY)
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 60:
        return None
    start += (int(hour) * 3600 + int(minute) * 60 - _read_offset(offset)) * _SECOND
    if second is None:
        return Range(start, start + 60 * _SECOND)
    # A leap second is the last second of its minute.
    start += min(int(second), 59) * _SECOND
    if fraction is None:
        return Range(start, start + _SECOND)
    # A fraction of three digits means a millisecond: what it leaves open is a range, too.
    start += int(fraction[:6].ljust(6, "0"))
    return Range(start, start + 10 ** max(0, 6 - len(fraction)))


def _find_first_day(year: int, month: int) -> int:
    if year > 9999:
        return (date(9999, 12, 31).toordinal() + 1) * _DAY
    return date(year, month, 1).toordinal() * _DAY


def _read_offset(text: str | None) -> int:
    if text is None or text == "Z":
        return 0
    seconds = int(text[1:3]) * 3600 + int(text[4:6]) * 60
    return seconds if text[0] == "+" else -seconds


def iterate_ranges(value: Json) -> Iterator[Range]:
    """Yield the ranges of a date element: a date as text, a Period, or a Timing (its events, else its outer bounds)."""
    if isinstance(value, str):
        found = read_date(value)
        if found is not None:
            yield found
    elif isinstance(value, dict):
        if "start" in value or "end" in value:
            yield _read_period(value)
        for event in value.get("event") or () if isinstance(value.get("event"), list) else ():
            found = read_date(event) if isinstance(event, str) else None
            if found is not None:
                yield found
        repeat = value.get("repeat")
        bounds = repeat.get("boundsPeriod") if isinstance(repeat, dict) else None
        if isinstance(bounds, dict):
            yield _read_period(bounds)


def _read_period(value: dict[str, Json]) -> Range:
    start = read_date(value["start"]) if isinstance(value.get("start"), str) else None
    end = read_date(value["end"]) if isinstance(value.get("end"), str) else None
    return Range((start or _EVER).start, (end or _EVER).end)


def _equal(stated: Range, found: Range) -> bool:
    return stated.start <= found.start and found.end <= stated.end


def _is_about(stated: Range, found: Range) -> bool:
    return found.start < stated.end + _DAY and stated.start - _DAY < found.end


COMPARISONS: dict[str, Callable[[Range, Range], bool]] = {
    "eq": _equal,
    "ne": lambda stated, found: not _equal(stated, found),
    "gt": lambda stated, found: found.end > stated.end,
    "lt": lambda stated, found: found.start < stated.start,
    "ge": lambda stated, found: found.end > stated.end or _equal(stated, found),
    "le": lambda stated, found: found.start < stated.start or _equal(stated, found),
    "sa": lambda stated, found: found.start >= stated.end,
    "eb": lambda stated, found: found.end <= stated.start,
    "ap": _is_about,
}
"""What each prefix asks: (stated range, range found in the resource)."""
