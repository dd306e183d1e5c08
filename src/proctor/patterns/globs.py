"""File patterns: `*` stays inside a folder, `**` crosses folders, `?` is one character of a name; all other characters match themselves.

`**/` also matches no folder at all, so `outbox/**/a.json` finds `outbox/a.json`. Paths are compared with a leading `/` or `./`
omitted on both sides, and case matters. All positions in the pattern advance together, so the time is bounded by the product of both
lengths, which are limited; over many files the steps are counted.
"""

from __future__ import annotations

import functools
import re

from proctor.errors import SpecError
from proctor.model.show import show
from proctor.work import Spend

_LONGEST = 500
"""The maximum length of a pattern in characters."""
LONGEST_PATH = 2_000
"""The maximum length of a matched path in characters."""
_MOST_WILDCARDS = 20
"""The maximum number of wildcards: the time to match grows with their number and the length of the path."""

_FOLDERS, _ANY, _INSIDE, _ONE = "**/", "**", "*", "?"
# Characters that people write instead of a wildcard, and that no path of a request or a record contains.
_NEVER = (
    (re.compile(r"\{[^/{}]*\}|<[^/<>]*>|(?<![^/]):[A-Za-z_]\w*"), "matches only itself; write * for any value"),
    (re.compile(r"\?[^/]*=.*"), "is a query, which is not compared; leave it out"),
    (re.compile(r"^[A-Z]+ +(?=/)"), "is not part of a path; write method and path apart"),
    (re.compile(r"^[a-z]+://[^/]*"), "is the address of a server; write the path below it"),
)


def compile_address(pattern: str, field: str) -> tuple[str, ...]:
    """Return the parts of a pattern for requests or records. Raises `SpecError` for one that can never match."""
    for wrong, why in _NEVER:
        if match := wrong.search(pattern):
            raise SpecError(f"{show(pattern)} can never match: {match.group().strip()!r} {why}", field=field)
    return compile_glob(pattern)


def strip_leading_marks(path: str) -> str:
    """Return a path without a prefix that means the root folder."""
    while path.startswith("./"):
        path = path[2:]
    return path.lstrip("/")


@functools.lru_cache(maxsize=256)
def compile_glob(pattern: str) -> tuple[str, ...]:
    """Return the parts of a pattern: wildcards and single characters."""
    if not pattern or len(pattern) > _LONGEST:
        raise SpecError("the path is empty" if not pattern else f"a path pattern of more than {_LONGEST} characters", field="path")
    text = strip_leading_marks(pattern)
    parts: list[str] = []
    position = 0
    while position < len(text):
        wildcard = next((mark for mark in (_FOLDERS, _ANY, _INSIDE, _ONE) if text.startswith(mark, position)), None)
        # `a**/b` does not begin a folder there, so the two stars match anything.
        if wildcard == _FOLDERS and position and text[position - 1] != "/":
            wildcard = _ANY
        part = wildcard or text[position]
        # Repeated wildcards are equivalent to one, but would cost a step each.
        if not (wildcard in (_FOLDERS, _ANY, _INSIDE) and parts and parts[-1] == wildcard):
            parts.append(part if wildcard else "=" + part)
        position += len(part)
    if sum(not part.startswith("=") for part in parts) > _MOST_WILDCARDS:
        raise SpecError(f"a path pattern with more than {_MOST_WILDCARDS} wildcards", field="path")
    return tuple(parts)


def matches_glob(parts: tuple[str, ...], path: str, spend: Spend = lambda steps: None) -> bool:
    """Return whether a path fits a compiled pattern."""
    text = strip_leading_marks(path)
    if len(text) > LONGEST_PATH:
        return False
    # All possible positions in the pattern advance together by one character: no retries, so never exponential.
    current: set[int] = set()
    _enter_place(parts, 0, current)
    for char in text:
        following: set[int] = set()
        spend(len(current))
        for place in current:
            part = parts[place] if place < len(parts) else ""
            if part == _ANY or (part == _INSIDE and char != "/"):
                _enter_place(parts, place, following)
            elif part == _FOLDERS:
                # There is no match inside a folder's name, only after its slash.
                following.add(place)
                if char == "/":
                    _enter_place(parts, place + 1, following)
            elif part == "=" + char or (part == _ONE and char != "/"):
                _enter_place(parts, place + 1, following)
        current = following
    return len(parts) in current


def _enter_place(parts: tuple[str, ...], place: int, places: set[int]) -> None:
    """Add a position, and those after the wildcards that begin there, since each may match nothing."""
    places.add(place)
    while place < len(parts) and parts[place] in (_FOLDERS, _ANY, _INSIDE):
        place += 1
        places.add(place)
