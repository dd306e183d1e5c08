"""The names of kinds of values, ours and those of JSON Schema."""

from __future__ import annotations

from collections.abc import Callable

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.numbers import is_number
from proctor.model.show import nearest, show


def _is_integer(value: Json) -> bool:
    return is_number(value) and (isinstance(value, int) or value.is_integer())


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _list(value: Json) -> bool:
    return isinstance(value, (list, tuple))


def _is_object(value: Json) -> bool:
    return isinstance(value, dict)


KINDS: dict[str, Callable[[Json], bool]] = {
    "text": _is_text,
    "string": _is_text,
    "number": is_number,
    "integer": _is_integer,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "list": _list,
    "array": _list,
    "object": _is_object,
}
"""A test for each name; a whole number written `1.0` is an integer."""


def read_kinds(value: Json, field: str) -> tuple[str, ...]:
    """Return one name or a list of names, all known."""
    names = value if isinstance(value, list) else [value]
    for name in names:
        if not isinstance(name, str) or name not in KINDS:
            raise SpecError(
                f"unknown type {show(name, 60)}; expected one of {', '.join(KINDS)}",
                field=field,
                nearest=nearest(name, KINDS) if isinstance(name, str) else (),
            )
    if not names:
        raise SpecError("a list of types needs at least one", field=field)
    return tuple(names)
