"""Attributes decoded: structures out of their JSON text, texts out of their quotes, lists out of names with numbers."""

from __future__ import annotations

import re

from proctor.evidence.values.access import list_of
from proctor.evidence.values.json_bytes import decode_container, decode_embedded
from proctor.model.evidence import Json
from proctor.model.missing import MISSING

_INDEX = re.compile(r"^(\d{1,4})(?:\.(.+))?$", re.DOTALL)
_MAX_SEGMENTS = 16
"""How deep a flattened name may nest; the conventions need eight."""


def decode_attribute(attributes: dict[str, Json], key: str) -> Json:
    """Decode an attribute: a structure from its JSON text, a text without its quotes."""
    value = attributes.get(key)
    if isinstance(value, str):
        return unquote(decode_container(value))
    return value


def unquote(value: Json) -> Json:
    """Return a text without its quotes: MLflow writes every attribute as JSON."""
    if isinstance(value, str) and value[:1] == '"':
        inner = decode_embedded(value)
        return value if inner is MISSING else inner
    return value


def unflatten(attributes: dict[str, Json], prefix: str) -> list[Json]:
    """Build a list of nested objects from attributes such as `prefix.0.message.role`."""
    start = f"{prefix}."
    if not has_beginning(attributes, start):
        return []
    flat = {key[len(start) :]: value for key, value in attributes.items() if key.startswith(start)}
    return list_of(_nest(flat, 0)) if flat else []


def has_beginning(attributes: dict[str, Json], starts: str | tuple[str, ...]) -> bool:
    """Return whether the name of an attribute begins so; hardly a span has such names, and a plain loop finds that out soonest."""
    for key in attributes:  # noqa: SIM110 - a generator takes twice as long
        if key.startswith(starts):
            return True
    return False


def _nest(flat: dict[str, Json], depth: int) -> Json:
    """Build nested values from names with dots: numbers index lists, everything else is a member."""
    # A name may have thousands of dots, and whoever writes one must not exhaust the stack.
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
    inner: dict[str, Json] = {**leaves, **{head: _nest(group, depth + 1) for head, group in groups.items()}}
    # By number: exporters write attributes in any order, and as texts "10" comes before "2".
    if inner and all(_INDEX.match(head) for head in inner):
        return [inner[head] for head in sorted(inner, key=int)]
    # OpenInference puts each message and each part under one more name (`0.message.role`).
    for wrapper in ("message", "tool_call", "message_content", "completion", "prompt"):
        if set(inner) == {wrapper} and isinstance(inner[wrapper], dict):
            return inner[wrapper]
    return inner
