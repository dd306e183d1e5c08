"""Dates and times: how they are read, moved, compared and written.

A calendar day is a `datetime.date`; a time of day is an aware `datetime` in the zone of the case. The rules:

- Text is read as ISO 8601: a day, or a day and a clock time with `T` or a space between, seconds and fractions optional, offset
  optional. A value with an offset is brought into the zone, one without is read in it.
- Days, weeks, months and years keep the clock time over a change to or from summer time; hours, minutes and seconds move the
  instant. The end of a month clamps: a month after 31 January is the last of February.
- A clock time that does not exist (spring) moves forward by the gap; one that exists twice (autumn) is the first.
- Hours added to a day give a time of day, counted from its midnight.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from proctor.errors import CheckFault

Moment = date | datetime
"""A day, or a time of day; beware that `datetime` is a subclass of `date`."""

UNITS: dict[str, str] = {
    "second": "seconds",
    "seconds": "seconds",
    "minute": "minutes",
    "minutes": "minutes",
    "hour": "hours",
    "hours": "hours",
    "day": "days",
    "days": "days",
    "week": "weeks",
    "weeks": "weeks",
    "month": "months",
    "months": "months",
    "year": "years",
    "years": "years",
}
"""Every spelling of a unit; months, years and seconds are ours."""

INSTANT_UNITS = ("hours", "minutes", "seconds")
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FARTHEST = 10_000 * 366 * 86_400  # No count beyond this can lead to a year from 1 to 9999.

# Hours up to 23 and minutes of an offset up to 59: `fromisoformat` would take `+01:75`, and newer Pythons `24:00`.
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ](?:[01]\d|2[0-3]):\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:[Zz]|[+-]\d\d(?::?[0-5]\d)?))?)?", re.ASCII
)
_CLOCK = re.compile(r"(\d{1,2})(?::(\d{2}))?(?::(\d{2}))?(?: ?([AaPp])[Mm])?", re.ASCII)


def read_moment(text: str) -> Moment | None:
    """Return a day or a time from ISO 8601 text; a time without an offset stays naive. Nothing when it is neither."""
    if len(text) > 64 or _MOMENT.fullmatch(text) is None:
        return None
    try:
        if len(text) == 10:
            return date.fromisoformat(text)
        # `fromisoformat` of Python 3.11 refuses a small `z`.
        return datetime.fromisoformat(f"{text[:10]}T{text[11:].replace(' ', '').upper()}")
    except ValueError:
        return None


def parse_moment(text: str) -> Moment:
    """Read a moment as `read_moment` does, but raise `ValueError` if the text is neither a day nor a time."""
    moment = read_moment(text)
    if moment is None:
        raise ValueError(f"no ISO 8601 date or time: {text[:80]!r}")
    return moment


def read_clock(text: str) -> time | None:
    """Return a clock time: `14:30`, `09:00:00`, `3:30 PM`, `3:30pm`, `3 PM`. Nothing when it is none."""
    match = _CLOCK.fullmatch(text.strip()) if len(text) <= 20 else None
    if match is None:
        return None
    hour, minute, second, half = match.groups()
    if minute is None and half is None:
        return None  # A bare number is ambiguous.
    number = int(hour)
    if half is not None:
        if not 1 <= number <= 12:
            return None
        number = number % 12 + (12 if half in "Pp" else 0)
    try:
        return time(number, int(minute or 0), int(second or 0))
    except ValueError:
        return None


@functools.lru_cache(maxsize=256)
def find_zone(name: str) -> tzinfo:
    """Return the IANA zone of that name; an unknown one is a fault that names it."""
    if name in ("UTC", "Z"):
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # reads the time zone database; most suites never need it

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # A path out of the database, a folder of it, an odd character: all the same to the user.
        raise CheckFault("expression_error", f"unknown time zone {name[:80]!r}; expected an IANA name such as 'Europe/Berlin'") from None


def move_to_zone(moment: Moment, zone: tzinfo) -> Moment:
    """Return a day as it is; a time as an aware time in `zone`. Raises `OverflowError` at the edges of the calendar."""
    if not isinstance(moment, datetime):
        return moment
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    # Through UTC, because that is what moves a clock time that does not exist.
    return moment.astimezone(UTC).astimezone(zone)


def set_clock_time(day: Moment, clock: time, zone: tzinfo) -> datetime:
    """Return the calendar day of `day` at a clock time."""
    calendar = day.date() if isinstance(day, datetime) else day
    # Through UTC and back, as in `move_to_zone`: a clock time that spring leaves out moves forward.
    return datetime.combine(calendar, clock, tzinfo=zone).astimezone(UTC).astimezone(zone)


def to_instant(moment: Moment, zone: tzinfo) -> datetime:
    """Return the moment in UTC; a day is its midnight in `zone`."""
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time(), tzinfo=zone)
    return moment.astimezone(UTC)


def count_minutes_apart(one: Moment, other: Moment) -> float:
    """Return how far apart two moments of the same zone are, in minutes, never negative.

    When either has no time of day, calendar days are compared and a day counts 1440 minutes.
    """
    if isinstance(one, datetime) and isinstance(other, datetime):
        # In UTC: two times of one zone are subtracted by their clock faces, ignoring summer time.
        return abs((one.astimezone(UTC) - other.astimezone(UTC)).total_seconds()) / 60
    return abs((_read_day(one) - _read_day(other)).days) * 1440.0


def order(one: Moment, other: Moment) -> int:
    """Return -1, 0 or 1, as `one` lies before, at or after `other`; compare calendar days when either has no time of day."""
    if isinstance(one, datetime) and isinstance(other, datetime):
        # In UTC: Python compares two times of one zone by their clock faces, and in autumn an hour comes twice.
        left, right = one.astimezone(UTC), other.astimezone(UTC)
        return (left > right) - (left < right)
    first, second = _read_day(one), _read_day(other)
    return (first > second) - (first < second)


def _read_day(moment: Moment) -> date:
    return moment.date() if isinstance(moment, datetime) else moment


def shift_moment(moment: Moment, count: float, unit: str, zone: tzinfo) -> Moment:
    """Move `moment` by `count` of `unit` (a plural name). Raises `OverflowError` when it leaves the calendar."""
    if abs(count) > _FARTHEST:
        raise OverflowError("out of the calendar")
    if unit in INSTANT_UNITS:
        moved = to_instant(moment, zone) + timedelta(**{unit: count})
        return moved.astimezone(zone)
    whole = int(count)
    day = _read_day(moment)
    if unit in ("days", "weeks"):
        day += timedelta(**{unit: whole})
    else:
        day = _add_months(day, whole if unit == "months" else whole * 12)
    if isinstance(moment, datetime):
        return set_clock_time(day, moment.time(), zone)
    return day


def _add_months(day: date, months: int) -> date:
    index = day.year * 12 + day.month - 1 + months
    year, month = divmod(index, 12)
    if not 1 <= year <= 9999:
        raise OverflowError("out of the calendar")
    leap = month == 1 and ((year % 4 == 0 and year % 100 != 0) or year % 400 == 0)
    last = 29 if leap else _MONTH_DAYS[month]
    return date(year, month + 1, min(day.day, last))
