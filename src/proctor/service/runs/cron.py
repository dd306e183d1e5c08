"""Cron expressions: when a schedule is due.

    minute hour day-of-month month day-of-week       0 6 * * MON-FRI

A field is `*`, or a list of numbers, names (`JAN`, `MON`) and ranges, each with an optional step: `*/15`, `8-18/2`, `1,15`. `5/10` means
5 to the end, every 10. Sunday is 0 or 7. As in cron, a day matches if the day of the month *or* the day of the week does, unless one of
these fields has every value. `@hourly`, `@daily` (`@midnight`), `@weekly`, `@monthly` and `@yearly` (`@annually`) are short forms.

Times are local times of a zone. A local time that daylight saving skips is due at the next valid moment; one that it repeats is due
the first time only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from proctor.errors import InputError
from proctor.model.show import nearest, show

LONGEST = 200
"""Characters of an expression."""
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_PART = re.compile(r"(\*|[A-Za-z0-9]+)(?:-([A-Za-z0-9]+))?(?:/([0-9]+))?")
# 29 February may be eight years away: 1896 to 1904, 2096 to 2104.
_HORIZON_DAYS = 8 * 366 + 31


class _Field(msgspec.Struct, frozen=True):
    """A field of an expression, and the limits of its values."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    """Names of the values from `least` on."""


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


class Cron(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed expression: the values of each field, in order."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""

    def find_next(self, after: datetime, zone: ZoneInfo) -> datetime:
        """Return the first due time after a moment; both are in UTC."""
        return next(self.iterate(after, zone))

    def iterate(self, after: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """Yield the due times after a moment, in UTC."""
        # The clock shows the second of two equal local times: times between them were due the first time.
        local = after.astimezone(zone).replace(tzinfo=None, fold=0)
        for local_time in self._iterate_local(local):
            moment = _to_utc(local_time, zone)
            # Several skipped local times are due at the same moment.
            if moment > after:
                yield moment
                after = moment

    def _iterate_local(self, after: datetime) -> Iterator[datetime]:
        day = after.replace(hour=0, minute=0, second=0, microsecond=0)
        end = day + timedelta(days=_HORIZON_DAYS)
        while day < end:
            if day.month not in self.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self.matches_day(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        local_time = day.replace(hour=hour, minute=minute)
                        if local_time > after:
                            end = day + timedelta(days=_HORIZON_DAYS)
                            yield local_time
            day += timedelta(days=1)

    def matches_day(self, day: datetime) -> bool:
        """Return whether a local day is selected."""
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        either = len(self.days) < 31 and len(self.weekdays) < 7
        return of_month or of_week if either else of_month and of_week


def _to_utc(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment of a local time: of a repeated one the first, of a skipped one the end of the gap."""
    moment = local.replace(tzinfo=zone).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == local:
        return moment
    # Skipped: read with the offset before the gap, the moment is after it, and with the other one before it.
    before, after = local.replace(tzinfo=zone, fold=1).astimezone(UTC), moment
    offset = after.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) / 2
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after.replace(microsecond=0)


@lru_cache(maxsize=1_000)
def parse_cron(text: str) -> Cron:
    """Return the parsed expression. Raises `InputError` that names the field and the part."""
    expression = text.strip()
    if len(expression) > LONGEST:
        raise InputError(f"expected at most {LONGEST} characters")
    if expression.startswith("@"):
        if expression.lower() not in _MACROS:
            raise InputError(f"unknown short form {show(expression, 40)}; expected one of {', '.join(_MACROS)}")
        expression = _MACROS[expression.lower()]
    words = expression.split()
    if len(words) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        more = "; seconds and years are not supported" if len(words) > len(_FIELDS) else ""
        raise InputError(f"expected 5 fields ({names}), found {len(words)}{more}")
    minutes, hours, days, months, weekdays = (_read_field(word, field) for word, field in zip(words, _FIELDS, strict=True))
    weekdays = frozenset(day % 7 for day in weekdays)
    cron = Cron(minutes=tuple(sorted(minutes)), hours=tuple(sorted(hours)), days=days, months=months, weekdays=weekdays)
    # A leap year: 29 February exists.
    if not any(month.month in months and cron.matches_day(month) for month in _LEAP_YEAR):
        raise InputError(f"never due: no selected month has day {', '.join(map(str, sorted(days)))}")
    return cron


_LEAP_YEAR = tuple(datetime(2028, 1, 1) + timedelta(days=number) for number in range(366))


def _read_field(word: str, field: _Field) -> frozenset[int]:
    values: set[int] = set()
    for part in word.split(","):
        matched = _PART.fullmatch(part)
        if matched is None or (matched[1] == "*" and matched[2]):
            expected = "expected *, a value, a range such as 1-5, or one of these with a step such as */2"
            special = "; L, W, # and ? are not supported" if set(part.upper()) & set("LW#?") else ""
            raise InputError(f"{field.name}: {show(part, 40)} cannot be read; {expected}{special}")
        first, last, step = matched.groups()
        # Only the last value of a range may be 7; as a day, `*` must not count Sunday twice.
        most = 6 if field.most == 7 else field.most
        if first == "*":
            start, end = field.least, most
        else:
            start = _read_value(first, field)
            end = _read_value(last, field) if last else (most if step else start)
            if last and field.most == 7:
                # Sunday ends a week, and begins one.
                start, end = start % 7, end or 7 if start % 7 else end
        if start > end:
            raise InputError(
                f"{field.name}: the range {show(part, 40)} runs backwards; write two, such as {first}-{most},{field.least}-{last}"
            )
        if step and int(step) < 1:
            raise InputError(f"{field.name}: the step of {show(part, 40)} must be at least 1")
        if step and int(step) > field.most:
            raise InputError(f"{field.name}: the step of {show(part, 40)} is larger than {field.most}")
        values.update(range(start, end + 1, int(step or 1)))
    return frozenset(values)


def _read_value(word: str, field: _Field) -> int:
    if word.isascii() and word.isdigit():
        if field.least <= int(word) <= field.most:
            return int(word)
    elif word.upper() in field.names:
        return field.names.index(word.upper()) + field.least
    names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    close = nearest(word, field.names)
    hint = f"; nearest: {', '.join(close)}" if close else ""
    raise InputError(f"{field.name}: expected {field.least} to {field.most}{names}, found {show(word, 40)}{hint}")


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone of the IANA database. Raises `InputError` with the nearest names."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        known = sorted(available_timezones())
        close = nearest(name, known)
        hint = f"; nearest: {', '.join(close)}" if close else "" if known else "; this machine has no time zones: pip install tzdata"
        raise InputError(f"unknown time zone {show(name, 60)}; expected a name such as Europe/Berlin{hint}") from None
