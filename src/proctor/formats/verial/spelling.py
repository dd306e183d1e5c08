"""How assertions are spelt: they are read in camelCase and snake_case, and shown in snake_case where Verial's REST speaks.

Only names of the assertion language are turned. Parameters of a search, paths that correlate, columns and expected values belong to the
author and to the systems under test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from proctor.formats.verial.assertions import CORRELATION_WORDS
from proctor.formats.verial.parts import to_snake_case
from proctor.model.evidence import Json

_ROWS = frozenset(("fields", "assertions", "json_fields"))


def spell_in_snake_case(assertion: Mapping[str, Json]) -> dict[str, Json]:
    """Return an assertion with its names in snake_case."""
    return {to_snake_case(name): _spell_member(to_snake_case(name), member) for name, member in assertion.items()}


def _spell_member(name: str, member: Json) -> Json:
    if name == "correlate_by" and isinstance(member, dict):
        stated = cast(dict[str, Json], member)
        return {to_snake_case(key) if to_snake_case(key) in CORRELATION_WORDS else key: value for key, value in stated.items()}
    if name in _ROWS and isinstance(member, list):
        rows = cast(list[Json], member)
        return [{to_snake_case(key): value for key, value in row.items()} if isinstance(row, dict) else row for row in rows]
    return member
