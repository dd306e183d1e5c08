"""Verial's assertions about what was done to simulated systems, and the fields of entities that assertions refer to.

The members of such an assertion are the fields of our own spec, in snake_case or camelCase.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol, cast

import msgspec

from proctor.checks.requests import RequestMade, RequestNotMade
from proctor.checks.unchanged import Unchanged
from proctor.formats.located import Located
from proctor.model.evidence import Json
from proctor.model.missing import MISSING
from proctor.paths.dotted import find_dotted

SYSTEM_CLAIMS: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "unchanged": ("unchanged", Unchanged),
    "request-made": ("request_made", RequestMade),
    "request-not-made": ("request_not_made", RequestNotMade),
}
"""Kinds of assertion about systems, each with its check and spec."""

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LISTS = ("besides", "allowed", "then")
"""Members that are lists; one value alone is a list of one."""


class Parts(Protocol):
    """The members of an assertion, asked for by name."""

    def take(self, *names: str) -> Located | None:
        """Return a member, or None where it is left out."""
        ...

    def resolve(self, node: Located) -> Json:
        """Return its value, with placeholders replaced."""
        ...


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
        return msgspec.convert(given, spec)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _name_members(entry: Json) -> Json:
    if not isinstance(entry, dict):
        return entry
    return {_HUMPS.sub("_", key).lower(): value for key, value in cast("dict[str, Json]", entry).items()}


def find_entity_field(entity: Mapping[str, Json], name: str) -> Json:
    """Return a field of an entity by dot path: beside its id, or inside `data` or `fields`; `MISSING` when it has none."""
    for holder in (entity, entity.get("data"), entity.get("fields")):
        if isinstance(holder, dict):
            found = find_dotted(holder, name)
            if found is not MISSING:
                return found
    return MISSING


def write_plain_text(value: Json) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
