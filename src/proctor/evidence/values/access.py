"""Access to decoded JSON. In formats that users write by hand a value of the wrong kind is an `EvidenceError` that names its place.

Readers of what a platform wrote are lenient instead and use `dict_or_empty`, `list_of` and `text_or_none`.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.model.evidence import Json
from proctor.model.json_values import is_finite, is_number
from proctor.model.show import kind_of, show

SHOWN = 80
"""Characters of a value from the record in an error or a reason."""


def wrong_kind_error(path: str, expected: str, found: Json) -> EvidenceError:
    """Return the error for a value of the wrong kind."""
    shown = "" if found is None else f" {show(found, SHOWN)}"
    return EvidenceError(f"{path}: expected {expected}, found {kind_of(found)}{shown}")


def read_text(value: Json, path: str) -> str | None:
    """Return a text, or None if it is null."""
    if value is None or isinstance(value, str):
        return value
    raise wrong_kind_error(path, "text", value)


def read_object(value: Json, path: str) -> dict[str, Any]:
    """Return an object."""
    if isinstance(value, dict):
        return value
    raise wrong_kind_error(path, "an object", value)


def list_at(value: Json, path: str) -> list[Any]:
    """Return a list."""
    if isinstance(value, (list, tuple)):
        return list(value)
    raise wrong_kind_error(path, "a list", value)


def list_texts(value: Json, path: str) -> tuple[str, ...]:
    """Return the texts of a list, without those that are null."""
    texts = [read_text(entry, f"{path}[{index}]") for index, entry in enumerate(list_at(value, path))]
    return tuple(text for text in texts if text is not None)


def read_number(value: Json) -> float | int | None:
    """Return a number, also one that is written as text; None for anything else."""
    if isinstance(value, str):
        try:
            value = float(value) if not value.strip().lstrip("-").isdigit() else int(value)
        except ValueError:
            return None
    return value if is_number(value) and is_finite(value) else None


def number_at(value: Json, path: str) -> float | None:
    """Return a number that is not true/false, also one that is written as text, or None if it is null."""
    if value is None or is_number(value):
        return value
    if isinstance(value, str) and (number := read_number(value)) is not None:
        return number
    raise wrong_kind_error(path, "a number", value)


def duration_at(value: Json, path: str) -> float | None:
    """Return a number that is not negative, or None if it is null."""
    number = number_at(value, path)
    if number is not None and number < 0:
        raise wrong_kind_error(path, "a duration", value)
    return number


def read_integer(value: Json, path: str) -> int | None:
    """Return a whole number (`200.0` is one), or None if it is null."""
    number = number_at(value, path)
    if isinstance(number, float) and not number.is_integer():
        raise wrong_kind_error(path, "a whole number", value)
    return None if number is None else int(number)


def dict_or_empty(value: Json) -> dict[str, Any]:
    """Return the object itself, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def list_of(value: Json) -> list[Any]:
    """Return the list itself, or an empty one for anything else."""
    return value if isinstance(value, list) else []


def text_or_none(value: Json) -> str | None:
    """Return the text itself, or None for anything else."""
    return value if isinstance(value, str) else None


def find_first(document: dict[str, Any], *keys: str) -> Json:
    """Return the value of the first of these keys that is there and not null."""
    for key in keys:
        if (value := document.get(key)) is not None:
            return value
    return None


def split_words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())
