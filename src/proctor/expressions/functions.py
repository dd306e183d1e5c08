"""The functions of expressions, by name: arguments, result and purpose. The reference pages are generated from this table.

Every kind of argument is a function that converts a value for the function that uses it. It raises `Unfit` with a sentence. A literal
argument is converted when the suite is read, so a misspelt unit is reported with its column before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, tzinfo
from typing import Any, Protocol

import msgspec

from proctor.expressions.moments import (
    DIRECTIVES,
    INSTANT_UNITS,
    LONGEST_FORMAT,
    UNITS,
    Moment,
    find_unknown_directive,
    format_moment,
    move_to_zone,
    read_clock,
    read_moment,
    set_clock_time,
    shift_moment,
)
from proctor.expressions.text_form import write_text_form
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, NotJson, is_finite, is_integer, is_number, read_json
from proctor.model.show import describe_value, kind_of, nearest, show
from proctor.paths.dotted import find_dotted


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
    """Return a date: the result of another function, or ISO text (not yet in a zone)."""
    if isinstance(value, date):
        return value
    moment = read_moment(value) if isinstance(value, str) else None
    if moment is None:
        raise Unfit(f"expected a date, found {_describe_found(value)}")
    return moment


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
    clock = read_clock(value) if isinstance(value, str) else None
    if clock is None:
        raise Unfit(f"expected a time such as '14:30', '09:00:00' or '3:30 PM', found {_describe_found(value)}")
    return clock


def take_date_format(value: Json) -> str:
    """Return a format whose directives we know."""
    if not isinstance(value, str):
        raise Unfit(f"expected a format such as '%Y-%m-%d', found {_describe_found(value)}")
    if len(value) > LONGEST_FORMAT:
        raise Unfit(f"the format has {len(value)} characters; at most {LONGEST_FORMAT} are allowed")
    unknown = find_unknown_directive(value)
    if unknown is not None:
        raise Unfit(f"unknown directive {unknown!r} in the format; known: {' '.join(DIRECTIVES)}")
    return value


def take_path(value: Json) -> str:
    """Return a dot path; a whole number indexes a list."""
    if is_integer(value):
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


class Machine(Protocol):
    """The services that an evaluation offers to its functions."""

    def read_clock(self) -> datetime:
        """Return the current time in the zone of the case."""
        ...

    def read_zone(self) -> tzinfo:
        """Return the zone of the case."""
        ...

    def spend(self, characters: int) -> None:
        """Count text that is about to be created or read; ends an evaluation that uses too much."""
        ...


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """One function and its documentation."""

    name: str
    signature: str
    summary: str
    example: str
    kinds: tuple[Kind, ...]
    """The kind of each argument; with `variadic` the last one repeats."""
    variadic: bool = False
    bare: bool = False
    """Whether the bare name, without parentheses, is a call."""
    apply: Callable[..., Json]

    def kind_at(self, index: int) -> Kind:
        """Return the kind of the argument at `index`."""
        return self.kinds[min(index, len(self.kinds) - 1)]

    def accepts(self, given: int) -> bool:
        """Return whether this many arguments may be given."""
        return given >= len(self.kinds) if self.variadic else given == len(self.kinds)


FUNCTIONS: dict[str, Function] = {}
"""Every function, by its upper-case name."""


def _function(
    signature: str, summary: str, example: str, kinds: Sequence[Kind] = (), **more: bool
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(apply: Callable[..., Any]) -> Callable[..., Any]:
        name = signature.partition("(")[0]
        FUNCTIONS[name] = Function(
            name=name, signature=signature, summary=summary, example=example, kinds=tuple(kinds), apply=apply, **more
        )
        return apply

    return register


@_function("TODAY()", "The current date in the zone of the case; `TODAY` alone is the same.", "TODAY()", bare=True)
def _today(machine: Machine) -> Json:
    return machine.read_clock().date()


@_function("NOW()", "The current date and time in the zone of the case; `NOW` alone is the same.", "NOW()", bare=True)
def _now(machine: Machine) -> Json:
    return machine.read_clock()


@_function(
    "DATE_ADD(date, count, unit)",
    "A later date. Days and larger units keep the clock time, hours and smaller move the instant; month ends clamp.",
    "DATE_ADD(TODAY(), 3, 'days')",
    (take_moment, count, take_unit),
)
def _date_add(machine: Machine, date: Moment, count: float, unit: str) -> Json:
    # `shift_moment` moves by whole days and months and would silently drop the fraction.
    if unit not in INSTANT_UNITS and count != int(count):
        raise Unfit(f"expected a whole number of {unit}, found {show(count)}")
    zone = machine.read_zone()
    return shift_moment(move_to_zone(date, zone), count, unit, zone)


@_function(
    "DATE_SUB(date, count, unit)",
    "An earlier date, by the same rules as `DATE_ADD`.",
    "DATE_SUB(TODAY(), 1, 'week')",
    (take_moment, count, take_unit),
)
def _date_sub(machine: Machine, date: Moment, count: float, unit: str) -> Json:
    return _date_add(machine, date, -count, unit)


@_function(
    "AT_TIME(date, time)",
    "The date at a clock time: `'14:30'`, `'09:00:00'`, `'3:30 PM'`.",
    "AT_TIME(DATE_ADD(TODAY(), 1, 'days'), '09:00')",
    (take_moment, take_clock),
)
def _at_time(machine: Machine, date: Moment, clock: time) -> Json:
    zone = machine.read_zone()
    return set_clock_time(move_to_zone(date, zone), clock, zone)


@_function(
    "FORMAT_DATE(date, format)",
    "A date as text, by `strftime` directives, in English whatever the locale.",
    "FORMAT_DATE(TODAY(), '%Y-%m-%d')",
    (take_moment, take_date_format),
)
def _format_date(machine: Machine, date: Moment, form: str) -> Json:
    zone = machine.read_zone()
    local = move_to_zone(date, zone)
    # Directives write more characters than they take: `%A` becomes `Wednesday`.
    machine.spend(len(form) * 4)
    return format_moment(local if isinstance(local, datetime) else set_clock_time(local, time(), zone), form)


@_function(
    "CONCAT(a, b, ...)",
    "Any number of values joined to one text; null is empty.",
    "CONCAT('order-', ORDER_ID)",
    (take_anything,),
    variadic=True,
)
def _concat(machine: Machine, *values: Json) -> Json:
    parts: list[str] = []
    for value in values:
        part = write_text_form(value)
        # Before joining: nested calls that double their text must end here, before memory runs out.
        machine.spend(len(part))
        parts.append(part)
    return "".join(parts)


@_function("UPPER(text)", "The text in upper case.", "UPPER(CITY)", (take_anything,))
def _upper(machine: Machine, value: Json) -> Json:
    return _concat(machine, value).upper()


@_function("LOWER(text)", "The text in lower case.", "LOWER(EMAIL)", (take_anything,))
def _lower(machine: Machine, value: Json) -> Json:
    return _concat(machine, value).lower()


@_function(
    "JSON_EXTRACT(data, path)",
    "A value out of an object, a list or JSON text, by dot path; a path that leads nowhere gives null.",
    "JSON_EXTRACT(ORDER_DATA, 'items.0.sku')",
    (take_anything, take_path),
)
def _json_extract(machine: Machine, data: Json, path: str) -> Json:
    if isinstance(data, str):
        machine.spend(len(data))
        try:
            data = read_json(data)
        except NotJson:
            raise Unfit(f"expected JSON text, found text {show(data, 80)}") from None
    if not isinstance(data, (dict, list)):
        raise Unfit(f"expected an object, a list or JSON text, found {kind_of(data)}")
    found = find_dotted(data, path)
    return None if found is MISSING else found
