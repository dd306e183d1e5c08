"""Attributes decoded: structures out of their JSON text, texts out of their quotes, lists out of names with numbers."""

from __future__ import annotations

import re

from proctor.evidence.json_bytes import container_in, embedded
from proctor.evidence.shape import list_of
from proctor.model.evidence import Json
from proctor.model.missing import MISSING

_INDEX = re.compile(r"^(\d{1,4})(?:\.(.+))?$", re.DOTALL)
_MAX_SEGMENTS = 16
"""How deep a flattened name may nest; the conventions need eight."""


def attribute_value(attributes: dict[str, Json], key: str) -> Json:
    """Return an attribute decoded: a structure out of its JSON text, a text out of its quotes."""
    value = attributes.get(key)
    if isinstance(value, str):
        return unquoted(container_in(value))
    return value


def unquoted(value: Json) -> Json:
    """Return a text out of its quotes: MLflow writes every attribute as JSON."""
    if isinstance(value, str) and value[:1] == '"':
        inner = embedded(value)
        return value if inner is MISSING else inner
    return value


def unflattened(attributes: dict[str, Json], prefix: str) -> list[Json]:
    """Return `prefix.0.message.role` and the like as a list of nested objects."""
    start = f"{prefix}."
    flat = {key[len(start) :]: value for key, value in attributes.items() if key.startswith(start)}
    return list_of(_nested(flat, 0)) if flat else []


def _nested(flat: dict[str, Json], depth: int) -> Json:
    """Put names with dots together again: numbers index lists, everything else is a member."""
    if depth > _MAX_SEGMENTS:
        return flat
    groups: dict[str, dict[str, Json]] = {}
    leaves: dict[str, Json] = {}
    for key, value in flat.items():
        head, dot, rest = key.partition(".")
        if dot:
            groups.setdefault(head, {})[rest] = value
        else:
            leaves[head] = value
    inner: dict[str, Json] = {**leaves, **{head: _nested(group, depth + 1) for head, group in groups.items()}}
    if inner and all(_INDEX.match(head) for head in inner):
        return [inner[head] for head in sorted(inner, key=int)]
    for wrapper in ("message", "tool_call", "message_content", "completion", "prompt"):
        if set(inner) == {wrapper} and isinstance(inner[wrapper], dict):
            return inner[wrapper]
    return inner
