"""Texts with names in braces, as in `Order {id}`: cut into parts once, joined for every set of values. `{{` and `}}` are literal braces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from proctor.errors import SpecError
from proctor.expressions.text_form import write_text_form
from proctor.model.evidence import Json

Part = str | tuple[str]
"""A literal text, or the name of a placeholder."""


def compile_braces(name: str) -> re.Pattern[str]:
    """Return what finds double braces, placeholders whose names match the pattern `name`, and lone braces."""
    return re.compile(r"\{\{|\}\}|\{(" + name + r")\}|[{}]")


def split_braces(text: str, braces: re.Pattern[str], *, example: str, field: str | None = None) -> list[Part]:
    """Return the literal texts and names in order; raises `SpecError`, which shows the example, for a lone brace."""
    parts: list[Part] = []
    at = 0
    for found in braces.finditer(text):
        if found.start() > at:
            parts.append(text[at : found.start()])
        at = found.end()
        if found[0] in ("{", "}"):
            raise SpecError(
                f"a lone {found[0]!r} is not a placeholder",
                field=field,
                offset=found.start(),
                hint=f"a placeholder is {example}; a literal brace is doubled: {{{{ and }}}}",
            )
        parts.append((found[1].strip(),) if found[1] else found[0][0])
    if at < len(text):
        parts.append(text[at:])
    return parts


def find_whole_name(parts: Sequence[Part]) -> str | None:
    """Return the name of a placeholder that is the whole text, whose value then keeps its type."""
    return parts[0][0] if len(parts) == 1 and isinstance(parts[0], tuple) else None


def find_whole_text(parts: Sequence[Part]) -> str | None:
    """Return the text of parts without any placeholder, which is the same for all values."""
    return None if any(isinstance(part, tuple) for part in parts) else "".join(part for part in parts if isinstance(part, str))


def join_parts(parts: Sequence[Part], values: Mapping[str, Json]) -> str:
    """Return the text with every value written as text."""
    return "".join([part if isinstance(part, str) else write_text_form(values[part[0]]) for part in parts])
