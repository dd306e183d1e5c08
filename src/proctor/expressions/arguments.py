"""The kinds of arguments that functions take, and the errors for others.

Every kind is a function from a value to what the function works with. It raises `Unfit` with a sentence. A literal argument is
put through its kind when the suite is read, so a misspelt unit is reported with its column before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, time

from proctor.expressions.date_format import DIRECTIVES, LONGEST_FORMAT, find_unknown_directive
from proctor.expressions.moments import UNITS, Moment, read_clock, read_moment
from proctor.model.evidence import Json
from proctor.model.json_values import is_finite, is_number
from proctor.model.show import describe_value, kind_of, nearest


class Unfit(Exception):
    """An argument that a function cannot work with."""

    def __init__(self, message: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.nearest = nearest


Kind = Callable[[Json], Json]


def take_anything(value: Json) -> Json:
    """Accept any value."""
    return value


def take_moment(value: Json) -> Moment:
    """Return a date: one that another function gave, or ISO text (then not yet in a zone)."""
    if isinstance(value, date):
        return value
    read = read_moment(value) if isinstance(value, str) else None
    if read is None:
        raise Unfit(f"expected a date, found {_describe_found(value)}")
    return read


def count(value: Json) -> float | int:
    """Return a finite number."""
    if not is_number(value) or not is_finite(value):
        raise Unfit(f"expected a number, found {_describe_found(value)}")
    return value


def take_unit(value: Json) -> str:
    """Return the plural name of a unit of time."""
    name = UNITS.get(value.strip().lower()) if isinstance(value, str) else None
    if name is None:
        known = ", ".join(sorted(set(UNITS.values())))
        raise Unfit(f"expected a unit ({known}), found {_describe_found(value)}", nearest(value, UNITS) if isinstance(value, str) else ())
    return name


def take_clock(value: Json) -> time:
    """Return a clock time."""
    read = read_clock(value) if isinstance(value, str) else None
    if read is None:
        raise Unfit(f"expected a time such as '14:30', '09:00:00' or '3:30 PM', found {_describe_found(value)}")
    return read


def take_date_format(value: Json) -> str:
    """Return a format whose directives we know."""
    if not isinstance(value, str):
        raise Unfit(f"expected a format such as '%Y-%m-%d', found {_describe_found(value)}")
    if len(value) > LONGEST_FORMAT:
        raise Unfit(f"the format has {len(value)} characters; at most {LONGEST_FORMAT} are allowed")
    unknown = find_unknown_directive(value)
    if unknown is not None:
        raise Unfit(f"unknown directive {unknown[0]!r} in the format; known: {' '.join(DIRECTIVES)}")
    return value


def take_path(value: Json) -> str:
    """Return a dot path; a whole number indexes a list."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise Unfit(f"expected a path such as 'items.0.sku', found {_describe_found(value)}")
    return value


def _describe_found(value: Json) -> str:
    if value is None or isinstance(value, (dict, list)):
        return kind_of(value)
    if isinstance(value, date):
        return f"the date {value.isoformat()}"
    return describe_value(value, 60)
