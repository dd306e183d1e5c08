"""Plain values as expected ones: no wildcard, no matcher, lists in any order. What expressions give is compared this way."""

from __future__ import annotations

from proctor.errors import SpecError
from proctor.matchers.expected import Boolean, Expected, Number, Object, Scalar
from proctor.matchers.lists import DEEPEST, PlainList
from proctor.model.evidence import Json


def compile_plain(value: Json, field: str = "value", depth: int = 0) -> Expected:
    """Return a value that is equal only to itself, lists in any order."""
    if depth > DEEPEST:
        raise SpecError(f"nested more than {DEEPEST} deep", field=field)
    if isinstance(value, dict):
        return Object(value, {key: compile_plain(item, f"{field}.{key}", depth + 1) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        elements = tuple(compile_plain(item, f"{field}.{index}", depth + 1) for index, item in enumerate(value))
        return PlainList(list(value), elements)
    return compile_scalar(value)


def compile_scalar(value: Json) -> Expected:
    """Return text, number, boolean or null."""
    if isinstance(value, bool):
        return Boolean(value, plain=True)
    if isinstance(value, (int, float)):
        return Number(value, plain=True)
    return Scalar(value, plain=True)
