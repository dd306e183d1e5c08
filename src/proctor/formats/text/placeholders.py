"""Placeholders in the texts of a document: `{column}`.

A placeholder that is a whole text keeps the type of its value; inside a longer text the value is written as text. `{{` and `}}` are
literal braces. Keys of objects are not changed. Texts without a placeholder are reused: a tree that is filled a hundred thousand times
shares all constant parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from proctor.expressions.text_form import Part, compile_braces, find_whole_name, find_whole_text, join_parts, split_braces
from proctor.formats.text.located import Located, locate_value, replace_value
from proctor.model.evidence import Json

Fill = Callable[[Mapping[str, Json]], Located]
"""Builds the filled tree from the values of the placeholders."""

_BRACES = compile_braces(r"[^{}]+")


class LocatedTemplate:
    """A tree whose texts contain placeholders."""

    def __init__(self, node: Located, *, only: frozenset[str] | None = None) -> None:
        """Raises `SpecError` for a brace that is neither a placeholder nor doubled.

        With `only`, just these names are placeholders, and every other brace is literal.
        """
        self._names: dict[str, Located] = {}
        self._only = only
        self.node = node
        self._fill = self._compile(node)
        self.placeholders: Mapping[str, Located] = self._names
        """The names in use, each with the first text that uses it."""

    def fill(self, values: Mapping[str, Json]) -> Located:
        """Return the tree with every placeholder replaced; parts without any are the same nodes."""
        return self.node if self._fill is None else self._fill(values)

    def _compile(self, node: Located) -> Fill | None:
        """Return a function that fills a node; None if there is nothing to fill."""
        if node.is_object:
            fills = {key: self._compile(member) for key, member in node.members()}
            if not any(fills.values()):
                return None
            members = [(key, member, fills[key]) for key, member in node.members()]
            return lambda values: replace_value(node, {key: member if fill is None else fill(values) for key, member, fill in members})
        if node.is_list:
            return self._compile_items(node)
        return self._compile_text(node) if isinstance(node.value, str) else None

    def _compile_items(self, node: Located) -> Fill | None:
        items = [(item, self._compile(item)) for item in node.items()]
        if not any(fill for _, fill in items):
            return None
        return lambda values: replace_value(node, [item if fill is None else fill(values) for item, fill in items])

    def _compile_text(self, node: Located) -> Fill | None:
        parts = self._split(node)
        for part in parts:
            if isinstance(part, tuple):
                self._names.setdefault(part[0], node)
        if (name := find_whole_name(parts)) is not None:
            return lambda values: locate_value(values[name], node)
        if (whole := find_whole_text(parts)) is not None:
            # Doubled braces change the text, though it has no placeholder.
            return None if whole == node.value else lambda values: replace_value(node, whole)
        return lambda values: replace_value(node, join_parts(parts, values))

    def _split(self, node: Located) -> list[Part]:
        if self._only is None:
            return split_placeholders(node.value)
        return split_known(node.value, self._only)


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


def make_filler(node: Located) -> Callable[[Mapping[str, Json]], Json] | None:
    """Return a function that builds the plain value of a node with strict placeholders; None if it has none and is constant."""
    if node.is_object:
        members = [(key, make_filler(member), member.plain()) for key, member in node.members()]
        if not any(fill for _, fill, _ in members):
            return None
        return lambda values: {key: plain if fill is None else fill(values) for key, fill, plain in members}
    if node.is_list:
        items = [(make_filler(item), item.plain()) for item in node.items()]
        if not any(fill for fill, _ in items):
            return None
        return lambda values: [plain if fill is None else fill(values) for fill, plain in items]
    if not isinstance(node.value, str):
        return None
    parts = split_placeholders(node.value)
    if (name := find_whole_name(parts)) is not None:
        return lambda values: values[name]
    if (whole := find_whole_text(parts)) is not None:
        return None if whole == node.value else lambda values: whole
    return lambda values: join_parts(parts, values)
