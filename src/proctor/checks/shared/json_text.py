"""Locates values in a JSON text by reading its tokens once.

The text is known to be valid JSON. The last of two equal keys counts. The range of a string excludes its quotes unless it is empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from proctor.work import spend

Keys = tuple[str | int, ...]
"""Names of members and positions in lists, from the document on."""
Span = tuple[int, int]

# Quantifiers that never give back: whatever the text is, each character is looked at once.
_TOKENS: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],]|[^\s{}\[\],:"]++', re.DOTALL)
_CHARS_PER_STEP: Final = 2


class _Wanted:
    """What is looked for below a place: itself, or what its members lead to."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: dict[str | int, _Wanted] = {}


class _Found:
    """A place that was met: its characters, and the places below it."""

    __slots__ = ("members", "span")

    def __init__(self, span: Span, members: dict[str | int, _Found]) -> None:
        self.span = span
        self.members = members


class _Open:
    """A list or object that is being read."""

    __slots__ = ("begin", "is_object", "key", "members", "wanted")

    def __init__(self, wanted: _Wanted, begin: int, is_object: bool) -> None:
        self.wanted = wanted
        self.begin = begin
        self.is_object = is_object
        self.key: str | int | None = None if is_object else 0
        """The member or position whose value comes next; nothing where a name comes next."""
        self.members: dict[str | int, _Found] = {}


def find_value_spans(text: str, places: Iterable[Keys], start: int = 0) -> dict[Keys, Span]:
    """Return where the values at `places` stand in the JSON document that begins at `start`; places that are not there are left out."""
    spend((len(text) - start) // _CHARS_PER_STEP + 1)
    places = tuple(places)
    root = _Wanted()
    for keys in places:
        at = root
        for key in keys:
            at = at.members.setdefault(key, _Wanted())
    document = _read_document(text, start, root)
    spans = {keys: _follow(document, keys) for keys in places} if document is not None else {}
    return {keys: span for keys, span in spans.items() if span is not None}


def _follow(document: _Found, keys: Keys) -> Span | None:
    found: _Found | None = document
    for key in keys:
        found = found.members.get(key) if found is not None else None
    return found.span if found is not None else None


def _read_document(text: str, start: int, root: _Wanted) -> _Found | None:
    outside = _Wanted()
    outside.members[0] = root
    # The document is the one element of a list that is never closed.
    open_ones = [_Open(outside, start, is_object=False)]
    tokens = _TOKENS.finditer(text, start)
    for token in tokens:
        begin, end = token.span()
        mark, here = text[begin], open_ones[-1]
        if mark == ",":
            here.key = None if isinstance(here.key, str) or here.key is None else here.key + 1
            continue
        if here.is_object and here.key is None and mark == '"':
            here.key = _read_name(text[begin:end])
            continue
        members: dict[str | int, _Found] = {}
        if mark in "}]":
            closed = open_ones.pop()
            if not open_ones:
                return None
            begin, members, here = closed.begin, closed.members, open_ones[-1]
        wanted = here.wanted.members.get(here.key) if here.key is not None else None
        if mark in "{[":
            if wanted is not None and wanted.members:
                open_ones.append(_Open(wanted, begin, mark == "{"))
                continue
            # Nothing inside is wanted, so however much it is, only brackets are counted.
            end = _skip(tokens)
        if wanted is not None and here.key is not None:
            inside = (begin + 1, end - 1) if mark == '"' and end - begin > 2 else (begin, end)
            # A member that comes again takes the place of the one before, and of all below it.
            here.members[here.key] = _Found(inside, members)
        if len(open_ones) == 1:
            break
    return open_ones[0].members.get(0)


def _skip(tokens: Iterator[re.Match[str]]) -> int:
    """Return where the list or object ends that has just begun."""
    depth = 1
    for token in tokens:
        mark = token[0]
        if mark in ("{", "["):
            depth += 1
        elif mark in ("}", "]"):
            depth -= 1
            if depth == 0:
                return token.end()
    return 0


def _read_name(quoted: str) -> str:
    return quoted[1:-1] if "\\" not in quoted else json.loads(quoted, strict=False)
