"""Turns the return value of a Python function into JSON values.

A function can return anything: a framework object, a generator, a list that contains itself, half a surrogate pair. Evidence is decided,
stored and decided again, so every value must be the same after a round trip through JSON. Any other value is rejected with an error that
shows its path and type. Nothing is guessed: a set has no order, `bytes` have no encoding, and the fields of an object are not an interface.

Accepted are text, numbers, true, false, null, lists, tuples and mappings with text keys; subclasses are converted to the plain type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import msgspec

from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MAX_DEPTH
from proctor.model.show import shorten
from proctor.model.typed import convert_to


class Unreadable(Exception):
    """A value that cannot be evidence; the message has its path and type."""


def type_name(value: object) -> str:
    """Return the type of a value, with its package."""
    kind = type(value)
    module = getattr(kind, "__module__", "builtins")
    name = str(getattr(kind, "__qualname__", "object"))
    return name if module == "builtins" else f"{module}.{name}"


def plain_value(value: object, path: str = "$", depth: int = 0) -> Json:
    """Return the value in plain types, recursively. Raises `Unreadable`."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _plain_text(value, path)
    if isinstance(value, int):
        # For a subclass such as `IntEnum`, the plain number, regardless of its own methods.
        return int.__index__(value)
    if isinstance(value, float):
        number = float.__float__(value)
        if not math.isfinite(number):
            raise Unreadable(f"{path} is {number}, which is not a JSON number")
        return number
    if depth > MAX_DEPTH:
        raise Unreadable(f"{shorten(path, 80)} lies more than {MAX_DEPTH} levels deep; does it contain itself?")
    if isinstance(value, (list, tuple)):
        items = cast("list[object]", value)
        return [plain_value(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(items)]
    if isinstance(value, Mapping):
        members = list(cast("Mapping[object, object]", value).items())
        for key, _ in members:
            if not isinstance(key, str):
                raise Unreadable(f"{path} has a key of the type {type_name(key)}, expected text")
        texts = [(_plain_text(cast(str, key), f"a key of {path}"), member) for key, member in members]
        return {key: plain_value(member, f"{path}.{key}", depth + 1) for key, member in texts}
    raise Unreadable(f"{path} is of the type {type_name(value)}")


def plain_evidence(evidence: Evidence) -> Evidence:
    """Return the evidence in plain types, with each field of its declared type. Raises `Unreadable`."""
    fields = plain_value(_unpack_structs(evidence))
    try:
        return convert_to(fields, Evidence)
    except msgspec.ValidationError as error:
        raise Unreadable(str(error)) from None


def _unpack_structs(value: object) -> object:
    """Return structs as mappings of their fields; leave everything else for `plain_value`."""
    if isinstance(value, msgspec.Struct):
        return {name: _unpack_structs(getattr(value, name)) for name in value.__struct_fields__}
    if type(value) is tuple:
        return [_unpack_structs(item) for item in cast("tuple[object, ...]", value)]
    return value


def _plain_text(value: str, path: str) -> str:
    text = "".join((value,))  # for a subclass, the text itself
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Unreadable(f"{path} contains a lone surrogate (\\u{ord(text[error.start]):04x}), which is no text") from None
    return text
