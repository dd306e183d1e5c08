"""Looking into decoded JSON with errors that name the place.

Readers of formats that users write by hand use these: a value of the wrong kind is an `EvidenceError` such as
`$.tool_calls[0].name: expected text, found number 3`. Readers of what a platform wrote are lenient instead and use `dict_of`,
`list_of` and `text_or_none`, which answer with an empty value.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.model.evidence import Json
from proctor.model.show import kind_of, show

SHOWN = 80


def wrong(path: str, expected: str, found: Json) -> EvidenceError:
    """The error for a value of the wrong kind."""
    shown = "" if found is None else f" {show(found, SHOWN)}"
    return EvidenceError(f"{path}: expected {expected}, found {kind_of(found)}{shown}")


def text_at(value: Json, path: str) -> str | None:
    """A text, or nothing where it is null."""
    if value is None or isinstance(value, str):
        return value
    raise wrong(path, "text", value)


def object_at(value: Json, path: str) -> dict[str, Any]:
    """An object."""
    if isinstance(value, dict):
        return value
    raise wrong(path, "an object", value)


def list_at(value: Json, path: str) -> list[Any]:
    """A list."""
    if isinstance(value, (list, tuple)):
        return list(value)
    raise wrong(path, "a list", value)


def number_at(value: Json, path: str) -> float | None:
    """A number that is not true/false, or nothing where it is null."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(path, "a number", value)
    return value


def integer_at(value: Json, path: str) -> int | None:
    """A whole number (`200.0` is one), or nothing where it is null."""
    number = number_at(value, path)
    if number is None or isinstance(number, int):
        return number
    if number.is_integer():
        return int(number)
    raise wrong(path, "a whole number", value)


def dict_of(value: Json) -> dict[str, Any]:
    """The object itself; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: Json) -> list[Any]:
    """The list itself; anything else is an empty one."""
    return value if isinstance(value, list) else []


def text_or_none(value: Json) -> str | None:
    """The text itself; anything else is nothing."""
    return value if isinstance(value, str) else None


def first_of(document: dict[str, Any], *keys: str) -> Json:
    """The value of the first of these keys that is there and not null."""
    for key in keys:
        value = document.get(key)
        if value is not None:
            return value
    return None
