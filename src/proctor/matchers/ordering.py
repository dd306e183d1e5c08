"""Matchers with an order: `date`, and the bounds `gt`, `gte`, `lt`, `lte` over numbers and dates.

Text is read as ISO 8601; a value with an offset is converted to the zone of the case, one without is read in it. If either side has no
time of day, calendar days are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from proctor.errors import CheckFault, SpecError
from proctor.expressions.moments import Moment, count_minutes_apart, find_zone, move_to_zone, order, read_moment
from proctor.expressions.text_form import Scope
from proctor.matchers.expected import Expected
from proctor.matchers.form import Form, Matcher, Operand
from proctor.matchers.mismatch import Mismatch, absent_mismatch
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing, is_number
from proctor.model.show import describe_value, kind_of, show


def moment_of(value: Json, scope: Scope) -> Moment | None:
    """Return a date, or ISO text read in the zone, or None for anything else."""
    moment = read_moment(value) if isinstance(value, str) else value
    if not isinstance(moment, date):
        return None
    try:
        return move_to_zone(moment, find_zone(scope.zone))
    except OverflowError:  # The zone moved the first or last day of the calendar out of range.
        return None


def _read_computed_moment(operand: Operand, value: Json, scope: Scope) -> Moment:
    moment = moment_of(value, scope)
    if moment is None:
        source = operand.expression.text if operand.expression is not None else show(value)
        raise CheckFault("expression_error", f"expression {source!r} gives {describe_value(value, 60)}, which is not a date")
    return moment


class _DateNear(Expected):
    """A date within some minutes of another."""

    __slots__ = ("_operand", "_tolerance")

    def __init__(self, form: Form) -> None:
        self._operand = form.read_operand()
        constant = self._operand.constant
        if self._operand.expression is None and (not isinstance(constant, str) or read_moment(constant) is None):
            raise SpecError(
                f"matcher 'date': expected a date such as '2026-11-15' or '2026-11-15T09:00', found {show(constant, 60)}",
                field=form.place("value"),
            )
        # Also for a constant: a date without an offset is read in the zone of the case.
        super().__init__(form.raw, dynamic=True, uses=self._operand.uses)
        self._tolerance = form.number("tolerance_minutes", 0)

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        value = self._operand.value(scope)
        wanted = _read_computed_moment(self._operand, value, scope)
        within = f" within {self._tolerance:g} minutes" if self._tolerance else ""
        shown = self._operand.describe(value) + within
        if actual is MISSING:
            return absent_mismatch(path, shown)
        if (found := moment_of(actual, scope)) is None:
            return Mismatch(path, f"is {kind_of(actual)} that does not read as a date", shown, actual)
        apart = count_minutes_apart(found, wanted)
        if apart <= self._tolerance:
            return None
        return Mismatch(path, f"lies {_write_duration(apart)} away", shown, actual)


def _write_duration(minutes: float) -> str:
    if minutes and minutes % 1440 == 0:
        days = int(minutes // 1440)
        return f"{days} day{'s' if days != 1 else ''}"
    return f"{minutes:g} minute{'s' if minutes != 1 else ''}"


class _Bound(Expected):
    """A number or date, compared with a bound."""

    __slots__ = ("_operand", "_phrase", "_test")

    def __init__(self, form: Form, phrase: str, test: Callable[[int], bool]) -> None:
        self._operand = form.read_operand()
        constant = self._operand.constant
        is_date = isinstance(constant, str) and read_moment(constant) is not None
        if self._operand.expression is None and not is_date and not is_number(constant):
            raise SpecError(f"matcher {form.name!r}: expected a number or a date, found {show(constant, 60)}", field=form.place("value"))
        # A date without an offset is read in the zone of the case, which is known only with the evidence.
        super().__init__(form.raw, dynamic=is_date or self._operand.expression is not None, uses=self._operand.uses)
        self._phrase = phrase
        self._test = test

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        value = self._operand.value(scope)
        shown = f"{self._phrase} {self._operand.describe(value)}"
        if actual is MISSING:
            return absent_mismatch(path, shown)
        if is_number(value):
            if not is_number(actual):
                return Mismatch(path, f"is {kind_of(actual)} instead of number", shown, actual)
            # NaN is on neither side: it must not pass `gte` just because it is not less.
            side = (actual > value) - (actual < value) if actual == actual and value == value else None
        else:
            wanted = _read_computed_moment(self._operand, value, scope)
            if (found := moment_of(actual, scope)) is None:
                return Mismatch(path, f"is {kind_of(actual)} that does not read as a date", shown, actual)
            side = order(found, wanted)
        return None if side is not None and self._test(side) else Mismatch(path, "is out of bounds", shown, actual)


_BOUND_KEYS = {"value": "a number, or a date in ISO 8601", "expression": "an expression that gives it"}


def _bound_matcher(name: str, summary: str, phrase: str, test: Callable[[int], bool]) -> Matcher:
    return Matcher(
        name=name,
        summary=summary,
        keys=_BOUND_KEYS,
        example={"matcher": name, "value": 10},
        short={f"${name}": 10},
        build=lambda form, nested: _Bound(form, phrase, test),
    )


ORDER_MATCHERS: tuple[Matcher, ...] = (
    Matcher(
        name="date",
        summary="The value is a date or time, give or take `tolerance_minutes`; calendar days are compared where either side has no time "
        "of day.",
        keys={
            "value": "the date, ISO 8601",
            "expression": "an expression that gives it",
            "tolerance_minutes": "how far it may be away; 0 by default, a day counts 1440",
        },
        example={"matcher": "date", "expression": "AT_TIME(DATE_ADD(TODAY(), 1, 'day'), '09:00')", "tolerance_minutes": 5},
        short={"$date": {"$expr": "TODAY()"}, "$tolerance_minutes": 5},
        build=lambda form, nested: _DateNear(form),
    ),
    _bound_matcher("gt", "The value is greater (a date: later).", "more than", lambda side: side > 0),
    _bound_matcher("gte", "The value is greater or equal (a date: not earlier).", "at least", lambda side: side >= 0),
    _bound_matcher("lt", "The value is less (a date: earlier).", "less than", lambda side: side < 0),
    _bound_matcher("lte", "The value is less or equal (a date: not later).", "at most", lambda side: side <= 0),
)
