"""Dates and times: how they are read, moved, compared and written.

A calendar day is a `datetime.date`; a time of day is an aware `datetime` in the zone of the case. The rules:

- Text is read as ISO 8601: a day, or a day and a clock time with `T` or a space between, seconds and fractions optional, offset
  optional. A value with an offset is brought into the zone, one without is read in it.
- Days, weeks, months and years keep the clock time over a change to or from summer time; hours, minutes and seconds move the
  instant. The end of a month clamps: a month after 31 January is the last of February.
- A clock time that does not exist (spring) moves forward by the gap; one that exists twice (autumn) is the first.
- Hours added to a day give a time of day, counted from its midnight.

The portable `strftime` directives are implemented here. The C library depends on the platform and on the locale; these give the same
English text everywhere. A directive outside the table is rejected when the suite is read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from proctor.errors import CheckFault
from proctor.model.lazy_pattern import lazy_pattern

Moment = date | datetime
"""A day, or a time of day; beware that `datetime` is a subclass of `date`."""

_UNIT_NAMES = ("second", "minute", "hour", "day", "week", "month", "year")
UNITS = {spelling: f"{unit}s" for unit in _UNIT_NAMES for spelling in (unit, f"{unit}s")}
"""Every spelling of a unit; months, years and seconds are ours."""

INSTANT_UNITS = ("hours", "minutes", "seconds")
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FARTHEST = 10_000 * 366 * 86_400  # A larger count always leads outside the years 1 to 9999.

# Hours up to 23 and offset minutes up to 59: `fromisoformat` would accept `+01:75`, and newer Pythons `24:00`.
_MOMENT = lazy_pattern(
    r"\d{4}-\d\d-\d\d(?:[Tt ](?:[01]\d|2[0-3]):\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:[Zz]|[+-]\d\d(?::?[0-5]\d)?))?)?", re.ASCII
)
_CLOCK = lazy_pattern(r"(\d{1,2})(?::(\d{2}))?(?::(\d{2}))?(?: ?([AaPp])[Mm])?", re.ASCII)


def read_moment(text: str) -> Moment | None:
    """Return a day or a time from ISO 8601 text, or None; a time without an offset stays naive."""
    if len(text) > 64 or _MOMENT.fullmatch(text) is None:
        return None
    try:
        if len(text) == 10:
            return date.fromisoformat(text)
        # `fromisoformat` of Python 3.11 rejects a lower-case `z`.
        return datetime.fromisoformat(f"{text[:10]}T{text[11:].replace(' ', '').upper()}")
    except ValueError:
        return None


def read_clock(text: str) -> time | None:
    """Return a clock time: `14:30`, `09:00:00`, `3:30 PM`, `3:30pm`, `3 PM`; None for any other text."""
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
    """Return the IANA zone of that name; an unknown name is a fault."""
    if name in ("UTC", "Z"):
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # reads the time zone database; most suites never need it

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # A path out of the database, a folder in it, an invalid character: all mean an unknown zone.
        raise CheckFault("expression_error", f"unknown time zone {name[:80]!r}; expected an IANA name such as 'Europe/Berlin'") from None


def move_to_zone(moment: Moment, zone: tzinfo) -> Moment:
    """Return a day unchanged, or a time as an aware time in `zone`. Raises `OverflowError` at the limits of the calendar."""
    if not isinstance(moment, datetime):
        return moment
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    # Via UTC, which moves a clock time that does not exist.
    return moment.astimezone(UTC).astimezone(zone)


def set_clock_time(day: Moment, clock: time, zone: tzinfo) -> datetime:
    """Return the calendar day of `day` at a clock time."""
    calendar = day.date() if isinstance(day, datetime) else day
    # Via UTC and back, as in `move_to_zone`: a clock time skipped in spring moves forward.
    return datetime.combine(calendar, clock, tzinfo=zone).astimezone(UTC).astimezone(zone)


def to_instant(moment: Moment, zone: tzinfo) -> datetime:
    """Return the moment in UTC; a day is its midnight in `zone`."""
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time(), tzinfo=zone)
    return moment.astimezone(UTC)


def count_minutes_apart(one: Moment, other: Moment) -> float:
    """Return the absolute difference of two moments of the same zone in minutes.

    If either has no time of day, calendar days are compared and a day counts 1440 minutes.
    """
    if isinstance(one, datetime) and isinstance(other, datetime):
        # In UTC: Python subtracts two times of one zone by their clock faces, ignoring summer time.
        return abs((one.astimezone(UTC) - other.astimezone(UTC)).total_seconds()) / 60
    return abs((_read_day(one) - _read_day(other)).days) * 1440.0


def order(one: Moment, other: Moment) -> int:
    """Return -1, 0 or 1 if `one` is before, at or after `other`; compare calendar days if either has no time of day."""
    if isinstance(one, datetime) and isinstance(other, datetime):
        # In UTC: Python compares two times of one zone by their clock faces, and in autumn one hour occurs twice.
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


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
_PIECE = lazy_pattern(r"%-.?|%.?|[^%]", re.DOTALL)
"""A directive, or any other character."""
LONGEST_FORMAT = 1_000
"""The maximum length of a format in characters; a longer one is not a mistake but an attempt to cost time."""


def _write_hour12(at: datetime) -> int:
    return at.hour % 12 or 12


def _write_offset(at: datetime) -> str:
    if (delta := at.utcoffset()) is None:
        return ""
    minutes = int(delta.total_seconds()) // 60
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}{abs(minutes) % 60:02d}"


def _count_week_of_year(at: datetime, first: int) -> int:
    """Count the weeks since the first Sunday (`first` 6) or Monday (0) of the year; days before it are week 0."""
    return (at.timetuple().tm_yday + 6 - (at.weekday() - first) % 7) // 7


DIRECTIVES: dict[str, Callable[[datetime], str]] = {
    "%Y": lambda at: f"{at.year:04d}",
    "%y": lambda at: f"{at.year % 100:02d}",
    "%m": lambda at: f"{at.month:02d}",
    "%-m": lambda at: str(at.month),
    "%B": lambda at: MONTHS[at.month - 1],
    "%b": lambda at: MONTHS[at.month - 1][:3],
    "%h": lambda at: MONTHS[at.month - 1][:3],
    "%d": lambda at: f"{at.day:02d}",
    "%-d": lambda at: str(at.day),
    "%e": lambda at: f"{at.day:2d}",
    "%j": lambda at: f"{at.timetuple().tm_yday:03d}",
    "%-j": lambda at: str(at.timetuple().tm_yday),
    "%A": lambda at: DAYS[at.weekday()],
    "%a": lambda at: DAYS[at.weekday()][:3],
    "%u": lambda at: str(at.isoweekday()),
    "%w": lambda at: str(at.isoweekday() % 7),
    "%G": lambda at: f"{at.isocalendar().year:04d}",
    "%V": lambda at: f"{at.isocalendar().week:02d}",
    "%U": lambda at: f"{_count_week_of_year(at, 6):02d}",
    "%W": lambda at: f"{_count_week_of_year(at, 0):02d}",
    "%H": lambda at: f"{at.hour:02d}",
    "%-H": lambda at: str(at.hour),
    "%I": lambda at: f"{_write_hour12(at):02d}",
    "%-I": lambda at: str(_write_hour12(at)),
    "%M": lambda at: f"{at.minute:02d}",
    "%-M": lambda at: str(at.minute),
    "%S": lambda at: f"{at.second:02d}",
    "%-S": lambda at: str(at.second),
    "%f": lambda at: f"{at.microsecond:06d}",
    "%p": lambda at: "AM" if at.hour < 12 else "PM",
    "%z": _write_offset,
    "%Z": lambda at: at.tzname() or "",
    "%F": lambda at: f"{at.year:04d}-{at.month:02d}-{at.day:02d}",
    "%T": lambda at: f"{at.hour:02d}:{at.minute:02d}:{at.second:02d}",
    "%R": lambda at: f"{at.hour:02d}:{at.minute:02d}",
    "%D": lambda at: f"{at.month:02d}/{at.day:02d}/{at.year % 100:02d}",
    "%%": lambda at: "%",
}
"""The function that writes each directive."""


def find_unknown_directive(form: str) -> str | None:
    """Return the first directive that is not in the table."""
    return next((piece for piece in _PIECE.findall(form) if piece[0] == "%" and piece not in DIRECTIVES), None)


def format_moment(at: datetime, form: str) -> str:
    """Write `at` by a format whose directives are all known."""
    return "".join(DIRECTIVES[piece](at) if piece in DIRECTIVES else piece for piece in _PIECE.findall(form))
