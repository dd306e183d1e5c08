"""The fields of a request: read by a table per noun, every mistake named at once.

A table maps names to `Field`s. Creating wants the required ones and fills in defaults; updating takes what is there, and null clears what
may be null. Names come in snake_case; a door that speaks camelCase translates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import msgspec

from proctor.model.evidence import Json
from proctor.model.numbers import is_finite
from proctor.model.show import kind_of, nearest, show
from proctor.service.plain_secrets import list_plain_secrets
from proctor.service.refusals import Refusal

LONGEST_TEXT = 10_000
_LONGEST_TAG, _MOST_TAGS = 200, 100
T = TypeVar("T")


class Field(msgspec.Struct, frozen=True):
    """One field: how its value is read (`ValueError` says what is wrong with it), and what happens without it."""

    read: Callable[[Json], Json]
    required: bool = False
    default: Json = None
    null: bool = True


Table = Mapping[str, Field]


def read_fields(table: Table, given: Mapping[str, Json], what: str, *, partial: bool = False) -> dict[str, Json]:
    """The fields in `given`; with `partial` only those that are there. Raises a `Refusal` that names every mistake."""
    wrong: dict[str, list[str]] = {}
    found: dict[str, Json] = {}
    for name in given:
        if name not in table:
            near = nearest(name, table)
            wrong[name] = [f"unknown field of a {what}" + (f"; nearest: {', '.join(near)}" if near else "")]
    for name, field in table.items():
        value = given.get(name)
        if value is None and (name not in given or not field.null):
            if name in given or (field.required and not partial):
                wrong[name] = ["required" if name not in given else "expected a value, got null"]
            elif not partial:
                found[name] = field.default
            continue
        try:
            found[name] = None if value is None else field.read(value)
        except ValueError as error:
            wrong[name] = [str(error)]
    if wrong:
        raise invalid(what, wrong)
    return found


def invalid(what: str, fields: Mapping[str, list[str]]) -> Refusal:
    """A request whose fields cannot be used."""
    return Refusal("VALIDATION_ERROR", f"the {what} cannot be kept: {told(fields)}", fields=fields)


def told(fields: Mapping[str, list[str]]) -> str:
    """The first mistake in words, and how many more there are."""
    name, texts = next(iter(fields.items()))
    more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
    return f"{name}: {texts[0]}{more}"


# --- kinds of values --------------------------------------------------------------------------------------------------


def text(longest: int = 200, shortest: int = 1) -> Callable[[Json], str]:
    """A text of so many characters."""

    def read(value: Json) -> str:
        if not isinstance(value, str):
            raise ValueError(f"expected text, got {kind_of(value)}")
        if not shortest <= len(value) <= longest or (shortest and not value.strip()):
            raise ValueError(f"expected {shortest} to {longest} characters, got {len(value)}")
        return _keepable(value)

    return read


def number(*, above: float = 0.0, most: float = 1e9) -> Callable[[Json], float]:
    """A number above a bound."""

    def read(value: Json) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"expected a number, got {kind_of(value)}")
        if not is_finite(value) or not above < value <= most:
            raise ValueError(f"expected a number above {above:g} and at most {most:g}, got {show(value, 40)}")
        return value

    return read


def whole(*, least: int = 1, most: int = 1_000) -> Callable[[Json], int]:
    """A whole number in a range."""

    def read(value: Json) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) > 1e15 or int(value) != value:
            raise ValueError(f"expected a whole number, got {show(value, 40)}")
        if not least <= value <= most:
            raise ValueError(f"expected {least} to {most}, got {int(value)}")
        return int(value)

    return read


def flag(value: Json) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {kind_of(value)}")
    return value


def an_object(value: Json) -> dict[str, Json]:
    """An object, whatever is in it."""
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {kind_of(value)}")
    return _keepable(cast(dict[str, Json], value))


def a_config(value: Json) -> dict[str, Json]:
    """An object with settings, in which no secret stands in plain."""
    config = an_object(value)
    wrong = list_plain_secrets(config, "config")
    if wrong:
        raise ValueError(f"{wrong[0]} looks like a secret; write ${{NAME}} in its place")
    return config


def an_object_or_list(value: Json) -> Json:
    """An object or a list, whatever is in it."""
    if not isinstance(value, (dict, list)):
        raise ValueError(f"expected an object or a list, got {kind_of(value)}")
    return _keepable(cast(Json, value))


def texts(value: Json) -> list[str]:
    """A list of short texts."""
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in cast(list[Json], value)):
        raise ValueError(f"expected a list of texts, got {kind_of(value)}")
    found = cast(list[str], value)
    if len(found) > _MOST_TAGS or any(not 1 <= len(entry) <= _LONGEST_TAG for entry in found):
        raise ValueError(f"expected at most {_MOST_TAGS} texts of 1 to {_LONGEST_TAG} characters")
    return list(dict.fromkeys(_keepable(found)))


def one_of(*words: str, aliases: Mapping[str, str] | None = None) -> Callable[[Json], str]:
    """One of some words, in any case and with or without punctuation."""
    known = {_bare(word): word for word in words} | {_bare(word): meant for word, meant in (aliases or {}).items()}

    def read(value: Json) -> str:
        if not isinstance(value, str):
            raise ValueError(f"expected one of {', '.join(words)}, got {kind_of(value)}")
        if (found := known.get(_bare(value))) is None:
            near = nearest(value, words)
            raise ValueError(
                f"expected one of {', '.join(words)}, got {show(value, 60)}" + (f"; nearest: {', '.join(near)}" if near else "")
            )
        return found

    return read


def _bare(word: str) -> str:
    return "".join(letter for letter in word[:100].lower() if letter.isalnum())


def _keepable(value: T) -> T:
    """The same value; what no encoding and no other program can carry is refused."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it cannot be kept as JSON: {error}") from None
    return value
