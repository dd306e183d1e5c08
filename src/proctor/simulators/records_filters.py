"""Which rows of a collection a query asks for: filters on members, order, and a part of what is found.

`status=open` compares the text of a value; repeated, any of the values will do. `total__gte=10` compares numbers as numbers and texts as
texts. `customer.city=Ulm` looks into an object. `_sort=-total,id` orders, `_limit` and `_offset` cut. What is unknown is refused with 400:
a list that leaves out a condition would show too much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import cast

from proctor.expressions.text_form import write_text_form
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, read_digits
from proctor.model.show import nearest, show
from proctor.paths.dotted import find_dotted
from proctor.simulators.exchange import refuse
from proctor.work import spend

Row = dict[str, Json]
MOST_ROWS = 1_000
"""Maximum and default number of rows in one answer."""
MOST_FILTERS, MOST_SORT_KEYS = 100, 20
"""Parameters and sort keys of one request."""


def select_rows(rows: Sequence[Row], query: Sequence[tuple[str, str]]) -> tuple[list[Row], int]:
    """Return the rows that a query asks for, and how many there are in all. Raises `Refused` (400) for a query that is not understood."""
    wanted: dict[str, list[str]] = {}
    for name, value in query:
        wanted.setdefault(name, []).append(value)
    limit, offset = (_read_number(name, wanted.pop(name, None), default) for name, default in (("_limit", MOST_ROWS), ("_offset", 0)))
    order = wanted.pop("_sort", [""])[-1]
    unknown = next((name for name in wanted if name.startswith("_")), None)
    if unknown is not None:
        raise refuse(400, "unknown_parameter", f"unknown parameter {show(unknown)}; there are _sort, _limit and _offset")
    keys = [key for key in order.split(",") if key]
    for what, count, most in (("filters", len(query), MOST_FILTERS), ("sort keys", len(keys), MOST_SORT_KEYS)):
        if count > most:
            raise refuse(400, "too_costly", f"{count} {what} in one request; at most {most} are allowed")
    # Names are paths and values may be lists: the longer they are, the longer each row takes.
    spend(len(rows) * (len(keys) + sum(1 + (len(name) + len(value)) // 8 for name, value in query)))
    found = [row for row in rows if all(_fits(row, name, values) for name, values in wanted.items())]
    for key in reversed(keys):
        found = _sort(found, key.lstrip("-"), descending=key.startswith("-"))
    return found[offset : offset + min(limit, MOST_ROWS)], len(found)


def _read_number(name: str, values: list[str] | None, default: int) -> int:
    if values is None:
        return default
    number = read_digits(values[-1], 9)
    if number is None:
        raise refuse(400, "wrong_parameter", f"{name}: expected a whole number, found {show(values[-1])}")
    return number


def _fits(row: Row, name: str, values: list[str]) -> bool:
    path, _, word = name.partition("__")
    compare = _COMPARISONS.get(word)
    if compare is None:
        near = nearest(word, _COMPARISONS)
        more = f"; nearest: {', '.join(near)}" if near else ""
        raise refuse(400, "unknown_parameter", f"unknown comparison {show(word)} in {show(name)}{more}")
    found = find_dotted(row, path)
    if word == "exists":
        return all((found is not MISSING and found is not None) is (value == "true") for value in values)
    if word in ("", "in", "contains"):
        return found is not MISSING and any(compare(found, value) for value in values)
    return found is not MISSING and all(compare(found, value) for value in values)


def _is_equal(found: Json, value: str) -> bool:
    if isinstance(found, list):
        spend(len(cast("list[Json]", found)))
        return any(_is_equal(item, value) for item in found)
    number = _read_decimal(found)
    return number == _read_decimal(value) if number is not None and not isinstance(found, str) else write_text_form(found) == value


def _write_counted(found: Json) -> str:
    text = write_text_form(found)
    spend(1 + len(text) // 8)
    return text


def _read_decimal(value: Json) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) < 400 else None


def _compare(found: Json, value: str, holds: Callable[[Json, Json], bool]) -> bool:
    one, other = _read_decimal(found), _read_decimal(value)
    if one is not None and other is not None:
        return holds(one, other)
    return isinstance(found, str) and holds(found, value)


_COMPARISONS: dict[str, Callable[[Json, str], bool]] = {
    "": _is_equal,
    "ne": lambda found, value: not _is_equal(found, value),
    "gt": lambda found, value: _compare(found, value, lambda one, other: one > other),
    "gte": lambda found, value: _compare(found, value, lambda one, other: one >= other),
    "lt": lambda found, value: _compare(found, value, lambda one, other: one < other),
    "lte": lambda found, value: _compare(found, value, lambda one, other: one <= other),
    "in": lambda found, value: any(_is_equal(found, one) for one in value.split(",")),
    "contains": lambda found, value: value.casefold() in _write_counted(found).casefold(),
    "exists": lambda found, value: True,
}


def _sort(rows: list[Row], path: str, *, descending: bool) -> list[Row]:
    """Return rows in order, those without a value last; numbers come before texts."""

    def make_key(row: Row) -> tuple[int, Json]:
        value = find_dotted(row, path)
        number = _read_decimal(value) if not isinstance(value, str) else None
        return (0, number) if number is not None else (1, write_text_form(value))

    with_value = [row for row in rows if find_dotted(row, path) not in (MISSING, None)]
    without = [row for row in rows if find_dotted(row, path) in (MISSING, None)]
    return sorted(with_value, key=make_key, reverse=descending) + without
