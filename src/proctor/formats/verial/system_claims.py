"""Verial's assertions about what was done to simulated systems.

The members of such an assertion are the fields of our own spec, in snake_case or camelCase.
"""

from __future__ import annotations

from typing import cast

import msgspec

from proctor.checks.run.requests import RequestMade, RequestNotMade
from proctor.checks.systems.unchanged import Unchanged
from proctor.formats.verial.parts import Parts, to_snake_case
from proctor.model.evidence import Json
from proctor.model.typed import convert_to

SYSTEM_CLAIMS: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "unchanged": ("unchanged", Unchanged),
    "request-made": ("request_made", RequestMade),
    "request-not-made": ("request_not_made", RequestNotMade),
}
"""Kinds of assertion about systems, each with its check and spec."""

_LISTS = ("besides", "allowed", "then")
"""Members that are lists; one value alone is a list of one."""


def read_spec(parts: Parts, spec: type[msgspec.Struct]) -> msgspec.Struct:
    """Return the spec that an assertion writes out. Raises `ValueError` for a member of the wrong form."""
    given: dict[str, Json] = {}
    for name in spec.__struct_fields__:
        node = parts.take(name)
        if node is not None:
            value = parts.resolve(node)
            if name in _LISTS:
                value = [_name_members(entry) for entry in (cast("list[Json]", value) if isinstance(value, list) else [value])]
            given[name] = value
    try:
        return convert_to(given, spec)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _name_members(entry: Json) -> Json:
    if not isinstance(entry, dict):
        return entry
    named: dict[str, Json] = {}
    for key, value in cast("dict[str, Json]", entry).items():
        if to_snake_case(key) in named:
            raise ValueError(f"{to_snake_case(key)!r} and {key!r} are two spellings of one key")
        named[to_snake_case(key)] = value
    return named
