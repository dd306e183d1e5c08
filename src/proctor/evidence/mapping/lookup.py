"""Follows the paths of a mapping through a record, also into JSON that is written as text, and explains a path that finds nothing."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

from proctor.errors import CheckFault, EvidenceError
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import names_tool
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.account import Part
from proctor.model.evidence import Json
from proctor.model.show import describe_value, nearest, shorten
from proctor.paths.evaluate import Found, Walk
from proctor.paths.json_path import CompiledPath, list_keys
from proctor.paths.query import Name, Query, Segment, Step

_KEYS_SHOWN = 6
"""Keys of a record in the reason why a path found nothing."""
_DEPTH = 12
"""Levels of a record in which JSON text is parsed."""


class Holder:
    """A value that paths are applied to; JSON text in it is parsed when a path finds nothing without."""

    def __init__(self, value: Json) -> None:
        self.value = value

    @functools.cached_property
    def parsed(self) -> Json:
        """The value with every object and list that is written as text parsed; the value itself if there is none."""
        return _parse_texts(self.value, _DEPTH)

    def find(self, path: CompiledPath) -> list[Json]:
        """Return the values that a path selects, without null. Raises `EvidenceError` if it visits too much."""
        return [value for value in self.find_any(path) if value is not None]

    def find_any(self, path: CompiledPath) -> list[Json]:
        """Return the values that a path selects, null included."""
        return _follow(path.steps, self.value) if path.steps is not None else [node[0] for node in self.find_nodes(path)[0]]

    def find_nodes(self, path: CompiledPath) -> tuple[list[Found], Json]:
        """Return the nodes that a path selects, and the document that they are in."""
        try:
            found = path.find_nodes(self.value)
            if not found and self.parsed is not self.value:
                return path.find_nodes(self.parsed), self.parsed
        except CheckFault as fault:
            raise EvidenceError(f"{path.text}: {fault.message}", code=fault.code) from None
        return found, self.value


def _follow(steps: tuple[str | int, ...], value: Json) -> list[Json]:
    for step in steps:
        if isinstance(value, str):
            value = decode_container(value)
        if not isinstance(value, list if isinstance(step, int) else dict):
            return []
        try:
            value = cast(Any, value)[step]
        except LookupError:
            return []
    return [value]


def _parse_texts(value: Json, depth: int) -> Json:
    """Return a value with JSON text parsed; the same object if there is none in it, so that most records are not copied."""
    if isinstance(value, str):
        parsed = decode_container(value)
        return value if parsed is value else _parse_texts(parsed, depth - 1)
    if depth <= 0 or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        items = [_parse_texts(item, depth - 1) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    members = {key: _parse_texts(item, depth - 1) for key, item in value.items()}
    return members if any(members[key] is not item for key, item in value.items()) else value


class Missing(NamedTuple):
    """Why a list is missing, or some of it."""

    why: str
    is_lost: bool = False
    """Whether something else is in its place, which no declaration of completeness overrides."""

    def mark(self, parts: tuple[Part, ...], unknowns: Unknowns, where: str = "") -> None:
        """Mark the parts that the list would contain."""
        (unknowns.mark_parts if self.is_lost else unknowns.mark_unrecognised)(parts, where + self.why)


def find_list(holder: Holder, path: CompiledPath) -> tuple[list[Json], Position | None, Missing | None]:
    """Return the items that a path selects, the position of the last one, and why the list is missing if it is.

    No items in a list that is there means that there were none. A list that is not there, or is null, is missing.
    """
    if path.steps is not None:
        found = [decode_container(value) for value in holder.find(path)]
        if found and isinstance(found[0], str):
            return [], None, _explain_other(path, found[0])
        items = found[0] if found and isinstance(found[0], list) else found
        return items, None, None if found else Missing(explain_missing(holder, path))
    plurals = [index for index, part in enumerate(path.query.segments) if _is_plural(part)]
    # Some of several lists may be written as text.
    nodes, document = (Holder(holder.parsed) if len(plurals) > 1 else holder).find_nodes(path)
    items, position = [node[0] for node in nodes], find_position(nodes[-1], document) if nodes else None
    if nodes and len(plurals) == 1:
        return items, position, None
    parent = Query(True, path.query.segments[: plurals[-1]])
    walk = Walk(holder.parsed)
    lists = [node[0] for node in walk.select_query(parent, walk.root)]
    other = next((value for value in lists if value not in (None, "") and not isinstance(value, (list, dict))), None)
    if other is not None:
        return items, position, _explain_other(path, other)
    if not nodes and not any(isinstance(value, (list, dict)) for value in lists):
        return [], None, Missing(explain_missing(holder, path))
    if not nodes and any(map(names_tool, (entry for value in lists if isinstance(value, list) for entry in value))):
        return [], None, Missing(f"`{path.text}` found nothing, and entries of the same list look like tool calls")
    return items, position, None


def _explain_other(path: CompiledPath, value: Json) -> Missing:
    return Missing(f"`{path.text}` found {describe_value(value, 60)} instead of a list", is_lost=True)


def find_summands(holder: Holder, path: CompiledPath) -> list[Json]:
    """Return the values that a path selects, with None for each entry of a list in which the rest of the path finds nothing."""
    plurals = [index for index, part in enumerate(path.query.segments) if _is_plural(part)] if path.steps is None else []
    if not plurals:
        return holder.find(path)
    head, tail = (Query(True, part) for part in (path.query.segments[: plurals[-1] + 1], path.query.segments[plurals[-1] + 1 :]))
    walk = Walk(holder.parsed)
    entries = [node[0] for node in walk.select_query(head, walk.root)]
    walks = map(Walk, entries)
    return [next((node[0] for node in inner.select_query(tail, inner.root)), None) for inner in walks]


def _is_plural(part: Segment | Step) -> bool:
    return not Query(True, (part,)).is_singular()


Position = tuple[tuple[str | int, ...], int]
"""The keys that lead to a list, and the position in it."""


def find_position(node: Found, document: Json) -> Position | None:
    """Return the position of a node in the outermost list that it is in, or None if it is in no list."""
    keys = list_keys(node, document) or ()
    return next(((keys[:index], key) for index, key in enumerate(keys) if isinstance(key, int)), None)


def _find_first_selector(path: CompiledPath) -> object:
    first = path.query.segments[0] if path.query.segments else None
    return first.selectors[0] if isinstance(first, Segment) and not first.descendant else None


def starts_at_list(path: CompiledPath) -> bool:
    """Return whether a path selects from a list at the root: `$[*].text`."""
    return not isinstance(_find_first_selector(path), (Name, type(None)))


def find_root_key(path: CompiledPath) -> str | None:
    """Return the member of the record in which a path begins: `request` for `$.request.text`."""
    selector = _find_first_selector(path)
    return selector.name if isinstance(selector, Name) else None


def explain_missing(holder: Holder, path: CompiledPath, what: str = "the record") -> str:
    """Return why a path found nothing: what is at the last step that exists, and the nearest key."""
    value, at = holder.value, "$"
    for part in path.query.segments:
        value = decode_container(value)
        if _is_plural(part):
            break
        selector = part.selectors[0] if isinstance(part, Segment) else None
        step = getattr(selector, "name", None) or getattr(selector, "position", 0)
        found = _follow((step,), value)
        if not found:
            where = what if at == "$" else f"`{shorten(at, 60)}`"
            if isinstance(value, dict) and isinstance(step, str):
                return _explain_keys(path.text, where, step, tuple(value))
            shown = f"a list of {len(value)}" if isinstance(value, list) else describe_value(value, 60)
            return f"`{path.text}` found nothing; {where} is {shown}"
        value, at = found[0], f"{at}.{step}" if isinstance(step, str) else f"{at}[{step}]"
    if isinstance(value, (dict, list)):
        return f"`{path.text}` found nothing in the {len(value)} entries of `{shorten(at, 60)}`"
    nothing = "" if at == path.text else f"nothing; `{at}` is "
    return f"`{path.text}` found {nothing}{describe_value(value, 60)}"


# Records of one log have the same few sets of keys, and comparing words is slow.
@functools.lru_cache(maxsize=512)
def _explain_keys(path: str, where: str, missing: str, keys: tuple[str, ...]) -> str:
    close = nearest(missing, keys, most=1)
    ordered = (*close, *(key for key in keys if key not in close))
    shown = ", ".join(f"`{shorten(key, 40)}`" for key in ordered[:_KEYS_SHOWN])
    more = f" and {len(keys) - _KEYS_SHOWN} more" if len(keys) > _KEYS_SHOWN else ""
    return f"`{path}` found nothing; {where} has {shown or 'no keys'}{more}"
