"""The functions of expressions, by name: what each takes, gives and is for. The reference pages are made from this table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, time, tzinfo
from typing import Any, Protocol

import msgspec

from proctor.expressions import arguments
from proctor.expressions.arguments import Kind, Unfit
from proctor.expressions.date_format import format_moment
from proctor.expressions.moments import INSTANT_UNITS, Moment, move_to_zone, set_clock_time, shift_moment
from proctor.expressions.text_form import write_text_form
from proctor.model.evidence import Json
from proctor.model.show import kind_of, show


class Machine(Protocol):
    """What a function may ask of the evaluation it runs in."""

    def read_clock(self) -> datetime:
        """Return the current time in the zone of the case."""
        ...

    def read_zone(self) -> tzinfo:
        """Return the zone of the case."""
        ...

    def spend(self, characters: int) -> None:
        """Account for text that is about to be made or read; ends an evaluation that uses too much."""
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
    """Whether the name alone, without parentheses, is a call."""
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
    (arguments.take_moment, arguments.count, arguments.take_unit),
)
def _date_add(machine: Machine, date: Moment, count: float, unit: str) -> Json:
    # `shift_moment` moves by whole days and months and would cut off the rest without a word.
    if unit not in INSTANT_UNITS and count != int(count):
        raise Unfit(f"expected a whole number of {unit}, found {show(count)}")
    zone = machine.read_zone()
    return shift_moment(move_to_zone(date, zone), count, unit, zone)


@_function(
    "DATE_SUB(date, count, unit)",
    "An earlier date, by the same rules as `DATE_ADD`.",
    "DATE_SUB(TODAY(), 1, 'week')",
    (arguments.take_moment, arguments.count, arguments.take_unit),
)
def _date_sub(machine: Machine, date: Moment, count: float, unit: str) -> Json:
    return _date_add(machine, date, -count, unit)


@_function(
    "AT_TIME(date, time)",
    "The date at a clock time: `'14:30'`, `'09:00:00'`, `'3:30 PM'`.",
    "AT_TIME(DATE_ADD(TODAY(), 1, 'days'), '09:00')",
    (arguments.take_moment, arguments.take_clock),
)
def _at_time(machine: Machine, date: Moment, clock: time) -> Json:
    zone = machine.read_zone()
    return set_clock_time(move_to_zone(date, zone), clock, zone)


@_function(
    "FORMAT_DATE(date, format)",
    "A date as text, by `strftime` directives, in English whatever the locale.",
    "FORMAT_DATE(TODAY(), '%Y-%m-%d')",
    (arguments.take_moment, arguments.take_date_format),
)
def _format_date(machine: Machine, date: Moment, form: str) -> Json:
    zone = machine.read_zone()
    local = move_to_zone(date, zone)
    # Directives write more than they take: `%A` becomes `Wednesday`.
    machine.spend(len(form) * 4)
    return format_moment(local if isinstance(local, datetime) else set_clock_time(local, time(), zone), form)


@_function(
    "CONCAT(a, b, ...)",
    "Any number of values joined to one text; null is empty.",
    "CONCAT('order-', ORDER_ID)",
    (arguments.take_anything,),
    variadic=True,
)
def _concat(machine: Machine, *values: Json) -> Json:
    parts: list[str] = []
    for value in values:
        part = write_text_form(value)
        # Before anything is joined: nested calls that double their text end here and not when memory does.
        machine.spend(len(part))
        parts.append(part)
    return "".join(parts)


@_function("UPPER(text)", "The text in upper case.", "UPPER(CITY)", (arguments.take_anything,))
def _upper(machine: Machine, value: Json) -> Json:
    text = write_text_form(value)
    machine.spend(len(text))
    return text.upper()


@_function("LOWER(text)", "The text in lower case.", "LOWER(EMAIL)", (arguments.take_anything,))
def _lower(machine: Machine, value: Json) -> Json:
    text = write_text_form(value)
    machine.spend(len(text))
    return text.lower()


@_function(
    "JSON_EXTRACT(data, path)",
    "A value out of an object, a list or JSON text, by dot path; a path that leads nowhere gives null.",
    "JSON_EXTRACT(ORDER_DATA, 'items.0.sku')",
    (arguments.take_anything, arguments.take_path),
)
def _json_extract(machine: Machine, data: Json, path: str) -> Json:
    if isinstance(data, str):
        machine.spend(len(data))
        try:
            data = msgspec.json.decode(data)
        # Text with half a surrogate pair cannot be encoded for the decoder, and that is no `MsgspecError`.
        except (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError):
            raise Unfit(f"expected JSON text, found text {show(data, 80)}") from None
    if not isinstance(data, (dict, list)):
        raise Unfit(f"expected an object, a list or JSON text, found {kind_of(data)}")
    for part in path.split("."):
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(data):
            data = data[int(part)]
        else:
            return None
    return data
