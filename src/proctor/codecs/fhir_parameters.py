"""The search parameters of FHIR R4, as a table in `fhir_parameters.txt`: resource type, kind, parameter and where its values are.

Taken from the SearchParameter resources of FHIR 4.0.1 (HL7, CC0) for the types that clinical and administrative agents work
with. A row reads `name=path,path`; a bare `name` is found under its own name. `path>Type` keeps references to that type only,
`telecom[system=phone]` the elements with that member. A path names a choice element (`effective[x]`) by its stem.
Left out: composite parameters, `near`, `phonetic`, and those defined by extensions.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from datetime import date
from pkgutil import get_data
from typing import Literal, cast

import msgspec

from proctor.model.evidence import Json

Kind = Literal["token", "reference", "date", "string", "uri", "quantity", "number"]


class Place(msgspec.Struct, frozen=True):
    """The location of a parameter's values: member names from the resource down, and filters."""

    steps: tuple[str, ...]
    target: str | None = None
    """Only references to this type."""
    member: tuple[str, str] | None = None
    """Only elements whose member (first) is the text (second)."""


class Parameter(msgspec.Struct, frozen=True):
    """One search parameter of one resource type."""

    name: str
    kind: Kind
    places: tuple[Place, ...]


def list_parameters(resource_type: str) -> dict[str, Parameter]:
    """Return all parameters of a type by name; a type outside the table only has the common ones."""
    return _list_known(resource_type) if resource_type in _split_blocks() else _list_common()


# Parsed on first use: a search needs one type of the whole table. Types outside it are not cached, since callers choose them.
@functools.cache
def _list_known(resource_type: str) -> dict[str, Parameter]:
    return {**_list_common(), **_parse_rows(_split_blocks()[resource_type])}


def list_resource_types() -> tuple[str, ...]:
    """Return the types in the table."""
    return tuple(_split_blocks())


@functools.cache
def _list_common() -> dict[str, Parameter]:
    return _parse_rows(
        [
            "token: _id=id _tag=meta.tag _security=meta.security",
            "date: _lastUpdated=meta.lastUpdated",
            "uri: _profile=meta.profile _source=meta.source",
            "token: identifier",
        ]
    )


@functools.cache
def _split_blocks() -> dict[str, list[str]]:
    """Return the table split at its headings, wrapped lines joined."""
    by_type: dict[str, list[str]] = {}
    rows: list[str] = []
    table = get_data("proctor.codecs", "fhir_parameters.txt")
    assert table is not None, "part of the package"
    for line in table.decode().splitlines():
        if not line.startswith(" "):
            rows = by_type.setdefault(line, []) if line else []
        elif line.startswith("    "):
            rows[-1] += " " + line.strip()
        else:
            rows.append(line.strip())
    return by_type


def _parse_rows(rows: list[str]) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for row in rows:
        kind, _, entries = row.partition(": ")
        for entry in entries.split():
            name, _, paths = entry.partition("=") if "=" in entry else (entry, "", entry)
            parameters[name] = Parameter(name, cast(Kind, kind), tuple(_parse_place(path) for path in paths.split(",")))
    return parameters


def _parse_place(path: str) -> Place:
    path, _, target = path.partition(">")
    path, _, condition = path.partition("[")
    member = None
    if condition:
        key, _, wanted = condition.rstrip("]").partition("=")
        member = (key, wanted)
    return Place(tuple(path.split(".")), target or None, member)


# FHIR dates as ranges of time, and the comparisons of a search.
# A partial date means the whole range it leaves open: `2026-11` is all of November. Both sides of a comparison are such ranges, the end
# excluded; a Period without an end is unlimited. A time without an offset is read as UTC. Instants are whole microseconds counted from
# the day before year 1, so that the last day of year 9999 has an end too. FHIR leaves `ap` (about) to the implementer: here the ranges
# must overlap after the stated one is widened by a day on both sides.

PREFIXES = ("eq", "ne", "gt", "lt", "ge", "le", "sa", "eb", "ap")

_SECOND = 1_000_000
"""Microseconds, the finest resolution of FHIR instants."""
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
    if (match := _DATE.fullmatch(text)) is None:
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
    # A fraction of three digits means a millisecond, which is a range too.
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


def _equal(stated: Range, actual: Range) -> bool:
    return stated.start <= actual.start and actual.end <= stated.end


def _is_about(stated: Range, actual: Range) -> bool:
    return actual.start < stated.end + _DAY and stated.start - _DAY < actual.end


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
"""The comparison of each prefix: (stated range, range found in the resource)."""
