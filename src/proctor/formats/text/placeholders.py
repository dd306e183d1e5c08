"""Placeholders in the texts of a document: `{column}`.

A placeholder that is a whole text keeps the type of its value; inside a longer text the value is written as text. `{{` and `}}` are
literal braces. Keys of objects are not changed. Texts without a placeholder are reused: a tree that is filled a hundred thousand times
shares all constant parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from proctor.expressions.text_form import Part, compile_braces, find_whole_name, find_whole_text, join_parts, split_braces
from proctor.formats.text.located import Located, locate_value, replace_value
from proctor.model.evidence import Json

_T = TypeVar("_T")
Fill = Callable[[Mapping[str, Json]], _T]
"""Builds the filled value from the values of the placeholders."""

_BRACES = compile_braces(r"[^{}]+")


class LocatedTemplate:
    """A tree whose texts contain placeholders."""

    def __init__(self, node: Located, *, only: frozenset[str] | None = None) -> None:
        """Raises `SpecError` for a brace that is neither a placeholder nor doubled.

        With `only`, just these names are placeholders, and every other brace is literal.
        """
        names: dict[str, Located] = {}

        def split(text_node: Located) -> list[Part]:
            parts = split_placeholders(text_node.value) if only is None else split_known(text_node.value, only)
            for part in parts:
                if isinstance(part, tuple):
                    names.setdefault(part[0], text_node)
            return parts

        self.node = node
        self._fill: Fill[Located] | None = _compile(
            node,
            split,
            keep=lambda member: member,
            place=locate_value,
            hold=lambda value, at: replace_value(at, value),
        )
        self.placeholders: Mapping[str, Located] = names
        """The names in use, each with the first text that uses it."""

    def fill(self, values: Mapping[str, Json]) -> Located:
        """Return the tree with every placeholder replaced; parts without any are the same nodes."""
        return self.node if self._fill is None else self._fill(values)


def make_filler(node: Located) -> Fill[Json] | None:
    """Return a function that builds the plain value of a node with strict placeholders; None if it has none and is constant."""
    return _compile(
        node,
        lambda text_node: split_placeholders(text_node.value),
        keep=Located.plain,
        place=lambda value, at: value,
        hold=lambda value, at: value,
    )


def _compile(
    node: Located,
    split: Callable[[Located], list[Part]],
    *,
    keep: Callable[[Located], Any],
    place: Callable[[Json, Located], Any],
    hold: Callable[[Json, Located], Any],
) -> Fill[Any] | None:
    """Return a function that fills a node; None if there is nothing to fill.

    `keep` gives a constant member, `place` the value of a text, and `hold` a list or an object of filled members.
    """
    if node.is_object:
        members = [(key, keep(member), _compile(member, split, keep=keep, place=place, hold=hold)) for key, member in node.members()]
        if not any(fill for _, _, fill in members):
            return None
        return lambda values: hold({key: constant if fill is None else fill(values) for key, constant, fill in members}, node)
    if node.is_list:
        items = [(keep(item), _compile(item, split, keep=keep, place=place, hold=hold)) for item in node.items()]
        if not any(fill for _, fill in items):
            return None
        return lambda values: hold([constant if fill is None else fill(values) for constant, fill in items], node)
    if not isinstance(node.value, str):
        return None
    parts = split(node)
    if (name := find_whole_name(parts)) is not None:
        return lambda values: place(values[name], node)
    if (whole := find_whole_text(parts)) is not None:
        # Doubled braces change the text, though it has no placeholder.
        return None if whole == node.value else lambda values: place(whole, node)
    return lambda values: place(join_parts(parts, values), node)


def split_placeholders(text: str) -> list[Part]:
    """Return literal texts and names; raises `SpecError` for a lone brace."""
    return split_braces(text, _BRACES, example="{column}")


def split_known(text: str, names: frozenset[str]) -> list[Part]:
    """Return literal texts and those of `names` that are in braces; all other braces are text."""
    parts: list[Part] = []
    at = 0
    # Not after a dollar sign, which marks an environment variable.
    for match in re.finditer(r"(?<!\$)\{([^{}]+)\}", text):
        if match[1] in names:
            if match.start() > at:
                parts.append(text[at : match.start()])
            parts.append((match[1],))
            at = match.end()
    if at < len(text) or not parts:
        parts.append(text[at:])
    return parts
