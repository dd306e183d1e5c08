"""JSONPath: compile once, ask many documents.

`rfc9535` is the language of our own format, whole and nothing else; `mcplab` adds the forms listed in `parser`.
"""

from __future__ import annotations

import functools
from typing import Literal, cast

from proctor.model.evidence import Json
from proctor.paths.evaluate import Found, Walk
from proctor.paths.parser import parse
from proctor.paths.query import Index, Name, PathError, Query, Segment

__all__ = ["CompiledPath", "PathError", "Syntax", "compile_path", "list_keys"]

Syntax = Literal["rfc9535", "mcplab"]


class CompiledPath:
    """A path that has been read."""

    __slots__ = ("query", "steps", "syntax", "text")

    def __init__(self, text: str, syntax: str, query: Query) -> None:
        self.text = text
        self.syntax = syntax
        self.query = query
        # Most paths branch nowhere and are followed without nodes or a count of steps, as they have
        # no more steps than names. Not MCPLab's, where a name may mean a length or a position.
        self.steps = _list_straight_steps(query) if syntax == "rfc9535" else None
        """The names and positions of a path that branches nowhere."""

    def __repr__(self) -> str:
        return f"CompiledPath({self.text!r})"

    def find(self, document: Json) -> list[Json]:
        """Return the values selected, in order. Raises `CheckFault` with code `path_limit` when there is too much to visit."""
        if self.steps is not None:
            return _follow(self.steps, document)
        walk = Walk(document)
        return [node[0] for node in walk.select_query(self.query, walk.root)]

    def find_nodes(self, document: Json) -> list[Found]:
        """Return what `find` does, as nodes that know where they stand: see `list_keys`."""
        walk = Walk(document)
        return walk.select_query(self.query, walk.root)


def list_keys(node: Found, document: Json) -> tuple[str | int, ...] | None:
    """Return the keys and positions that lead to a node; None for one that is no part of the document, as a length is none."""
    keys: list[str | int] = []
    value, key, parent = node
    while parent is not None and key is not None:
        # A name on something that is not an object: `length`, which is computed and has no position.
        if isinstance(parent[0], dict) != isinstance(key, str):
            return None
        keys.append(key)
        value, key, parent = parent
    # What `~` selects has no parent, so its chain does not lead back to the document.
    return tuple(reversed(keys)) if value is document else None


@functools.lru_cache(maxsize=2048)
def compile_path(text: str, syntax: str = "rfc9535") -> CompiledPath:
    """Read a path. Raises `PathError` with the offset of the fault."""
    return CompiledPath(text, syntax, parse(text, loose=syntax == "mcplab"))


def _list_straight_steps(query: Query) -> tuple[str | int, ...] | None:
    """Return names and positions of a path that branches nowhere."""
    if not query.is_singular():
        return None
    selectors = [cast(Segment, part).selectors[0] for part in query.segments]
    return tuple(selector.name if isinstance(selector, Name) else cast(Index, selector).position for selector in selectors)


def _follow(steps: tuple[str | int, ...], document: Json) -> list[Json]:
    value = document
    for step in steps:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return []
            value = value[step]
        else:
            if not isinstance(value, (list, tuple)) or not -len(value) <= step < len(value):
                return []
            value = value[step]
    return [value]
