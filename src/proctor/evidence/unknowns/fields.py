"""Checks one object of a record against a table of its fields: rule b for the unrecognised ones, and the types of the others.

A recognised field of another type is lost data, and the parts it carries are unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import FieldTable, check_object
from proctor.evidence.values.access import list_of
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json
from proctor.model.show import kind_of

CONTENT_PARTS: tuple[Part, ...] = (*CALL_PARTS, "answer", "input", "turns", "usage")
"""What an object of a conversation may carry."""
_TYPE_NAMES = {str: "text", list: "a list", dict: "an object", bool: "true or false", float: "a number"}


def check_record(
    entry: Mapping[str, Json],
    fields: FieldTable,
    types: Mapping[str, type],
    at: str,
    unknowns: Unknowns,
    *,
    listed: Collection[str] | None = (),
    has_answer: bool = False,
) -> None:
    """Apply rule b to an object, and mark the parts of recognised fields that are of another type."""
    check_object(entry, fields, at, unknowns, listed=listed, has_answer=has_answer)
    for key in fields.keys() & types.keys() & entry.keys():
        value, expected, parts = entry[key], types[key], fields[key] or ()
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) if expected is float else isinstance(value, expected)
        if value is not None and not fits:
            why = f"{at}.{key}: expected {_TYPE_NAMES[expected]}, found {kind_of(value)}"
            unknowns.mark_parts((parts,) if isinstance(parts, str) else parts, why)


def list_objects(value: Json, parts: tuple[Part, ...], at: str, unknowns: Unknowns) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects in a list with their paths; any other entry that is not null is lost data."""
    found: list[tuple[str, dict[str, Any]]] = []
    for index, entry in enumerate(list_of(value)):
        if isinstance(entry, dict):
            found.append((f"{at}[{index}]", entry))
        elif entry is not None:
            unknowns.mark_parts(parts, f"{at}[{index}]: expected an object, found {kind_of(entry)}")
    return found
