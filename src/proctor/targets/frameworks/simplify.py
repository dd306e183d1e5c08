"""Turns the fields of a framework's object into JSON, within limits.

Frameworks keep messages as pydantic models or dataclasses whose fields are values of Python: enumerations, times, paths, decimals. These
have one obvious form in JSON. A value without a JSON form (a function, a client, a socket) is rejected with an error that shows its path
and type, as for any other return value (`proctor.targets.local.callable`).
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import MAX_DEPTH
from proctor.model.show import exception_text, shorten
from proctor.targets.answers.plain_values import Unreadable, plain_value, type_name

MAX_VALUES = 500_000
MAX_BYTES = 32 * 1024 * 1024
"""Maximum bytes of text and binary content of one answer."""


class Budget:
    """The remaining limits of one answer."""

    __slots__ = ("bytes", "values")

    def __init__(self) -> None:
        self.values = MAX_VALUES
        self.bytes = MAX_BYTES

    def spend(self, size: int = 0) -> None:
        """Count one value of this size. Raises `Unreadable` if it exceeds the limits."""
        self.values -= 1
        self.bytes -= size
        if self.values < 0:
            raise Unreadable(f"it holds more than {MAX_VALUES} values")
        if self.bytes < 0:
            raise Unreadable(f"it holds more than {MAX_BYTES} bytes")


def simplify(value: object, budget: Budget, path: str = "$", *, without: frozenset[str] = frozenset(), depth: int = 0) -> Json:
    """Return a value in plain types, recursively; members named in `without` are left out of objects."""
    budget.spend(len(value) if isinstance(value, (str, bytes, bytearray)) else 0)
    if depth > MAX_DEPTH:
        raise Unreadable(f"{shorten(path, 80)} lies more than {MAX_DEPTH} levels deep; does it contain itself?")
    # Before numbers and texts: members of `IntEnum` or `StrEnum` are also numbers or texts.
    if isinstance(value, enum.Enum):
        return simplify(value.value, budget, path, depth=depth + 1)
    if value is None or isinstance(value, (bool, int, float, str)):
        return plain_value(value, path)
    if isinstance(value, (list, tuple, set, frozenset)):
        items = cast("list[object]", value)
        return [simplify(item, budget, f"{path}[{index}]", without=without, depth=depth + 1) for index, item in enumerate(items)]
    members = list_fields(value)
    if members is None:
        if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
            return value.isoformat()
        if isinstance(value, datetime.timedelta):
            return value.total_seconds()
        if isinstance(value, (uuid.UUID, decimal.Decimal, pathlib.PurePath)):
            return str(value)
        if isinstance(value, (bytes, bytearray)):
            return base64.b64encode(value).decode()
        if isinstance(value, BaseException):
            return f"{type(value).__name__}: {exception_text(value)}"
        raise Unreadable(f"{shorten(path, 80)} is of the type {type_name(value)}")
    document: dict[str, Json] = {}
    for key, member in members:
        name = _name_key(key, path)
        if name in document:
            raise Unreadable(f"{shorten(path, 80)} has two keys that are {name!r} in JSON")
        if name not in without:
            document[name] = simplify(member, budget, f"{path}.{name}", without=without, depth=depth + 1)
    return document


def list_fields(value: object) -> list[tuple[object, object]] | None:
    """Return the members of a mapping, or the fields of a pydantic model, a dataclass or a struct; None for other values."""
    if isinstance(value, Mapping):
        return list(cast("Mapping[object, object]", value).items())
    # A class declares the fields of its objects (`is_dataclass` is true for it, too) but has no values for them.
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    if any(isinstance(getattr(type(value), name, None), dict) for name in ("__pydantic_fields__", "model_fields")):
        extra: Any = getattr(value, "__pydantic_extra__", None)
        return [*vars(value).items(), *(cast("dict[str, object]", extra).items() if isinstance(extra, dict) else ())]
    return None


def _name_key(key: object, path: str) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, (bool, int, float)):
        return str(key)
    if not isinstance(key, str):
        raise Unreadable(f"{shorten(path, 80)} has a key of the type {type_name(key)}, expected text")
    return str(plain_value(key, f"a key of {path}"))
