"""Reads one object of a record field by field; `close` applies rule b (`unrecognised.py`) to the fields that were not taken.

A recognised field of the wrong type is lost data, and the part it carries is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import check_field, list_unrecognised
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json
from proctor.model.show import kind_of

CONTENT_PARTS: tuple[Part, ...] = (*CALL_PARTS, "answer", "input", "turns", "usage")
"""What an object of a conversation may carry."""


class Fields:
    """One object of a record, and the fields that were taken from it."""

    __slots__ = ("_taken", "at", "unknowns", "value")

    def __init__(self, value: dict[str, Any], at: str, unknowns: Unknowns) -> None:
        self.value = value
        self.at = at
        self.unknowns = unknowns
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def take(self, *keys: str) -> Json:
        """Take these fields, and return the first value that is not null."""
        found: Json = None
        # All spellings are taken: a value that is recorded twice must not be left over as unrecognised.
        for key in keys:
            if key in self.value:
                self._taken.add(key)
                if found is None:
                    found = self.value[key]
        return found

    def take_text(self, *keys: str, parts: Iterable[Part] = CONTENT_PARTS) -> str | None:
        """Take a text."""
        value = self.take(*keys)
        if value is None or isinstance(value, str):
            return value
        self.mark_wrong_type(keys[0], "text", value, parts)
        return None

    def take_list(self, *keys: str, parts: Iterable[Part] = CONTENT_PARTS) -> list[Any]:
        """Take a list."""
        value = self.take(*keys)
        if value is None or isinstance(value, list):
            return value or []
        self.mark_wrong_type(keys[0], "a list", value, parts)
        return []

    def take_object(self, *keys: str, parts: Iterable[Part] = CONTENT_PARTS) -> Fields | None:
        """Take an object, to read its fields."""
        value = self.take(*keys)
        if value is None or isinstance(value, dict):
            return None if value is None else Fields(value, f"{self.at}.{keys[0]}", self.unknowns)
        self.mark_wrong_type(keys[0], "an object", value, parts)
        return None

    def take_objects(self, *keys: str, parts: Iterable[Part] = CONTENT_PARTS) -> Iterator[Fields]:
        """Take a list of objects, to read their fields."""
        for index, value in enumerate(self.take_list(*keys, parts=parts)):
            at = f"{self.at}.{keys[0]}[{index}]"
            if isinstance(value, dict):
                yield Fields(value, at, self.unknowns)
            elif value is not None:
                self.unknowns.mark_parts(parts, f"{at}: expected an object, found {kind_of(value)}")

    def mark(self, parts: Iterable[Part], why: str) -> None:
        """Mark parts as unknown because of something in this object."""
        self.unknowns.mark_parts(parts, self.at + why)

    def mark_wrong_type(self, key: str, expected: str, value: Json, parts: Iterable[Part]) -> None:
        """Mark parts as unknown because a recognised field cannot be read."""
        self.mark(parts, f".{key}: expected {expected}, found {kind_of(value)}")

    def close(self, *known: str, listed: Collection[str] | None = (), has_answer: bool = False) -> None:
        """Apply the rule for unrecognised fields to what was not taken; `known` are fields that need no examination."""
        if len(self._taken) == len(self.value):
            return
        for key in list_unrecognised(self.value, {*self._taken, *known}):
            check_field(key, self.value[key], self.at, self.unknowns, listed=listed, has_answer=has_answer)
