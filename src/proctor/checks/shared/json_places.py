"""Locates the characters of values in a document: of texts in a structured document, of any value in a JSON text.

A pointer leads to a value of a structured document, so only texts have characters there. It does not lead into a text: in a JSON text, the
characters show what a pointer cannot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Literal

import msgspec

from proctor.checks.shared.answer import answer_json, find_fenced
from proctor.checks.shared.ranges import MOST_SPANS
from proctor.matchers.mismatch import join_path
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import equal
from proctor.model.verdict import TextRange, Verdict
from proctor.work import spend

# --- locates values in a JSON text by reading its tokens once

Keys = tuple[str | int, ...]
"""Member names and list positions, starting at the document."""
Span = tuple[int, int]

# Possessive quantifiers: each character of the text is visited once.
_TOKENS: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],]|[^\s{}\[\],:"]++', re.DOTALL)
_CHARS_PER_STEP: Final = 2


class _Wanted:
    """The search targets below a place: itself, or its members."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: dict[str | int, _Wanted] = {}


class _Found:
    """A place that was reached: its characters, and the places below it."""

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
        """The member or position of the next value; None if a name comes next."""
        self.members: dict[str | int, _Found] = {}


def find_value_spans(text: str, places: Iterable[Keys], start: int = 0) -> dict[Keys, Span]:
    """Return the spans of the values at `places` in the JSON document that begins at `start`, without missing places."""
    spend((len(text) - start) // _CHARS_PER_STEP + 1)
    places = tuple(places)
    root = _Wanted()
    for keys in places:
        at = root
        for key in keys:
            at = at.members.setdefault(key, _Wanted())
    document = _read_document(text, start, root)
    spans = {keys: _find_value(document, keys) for keys in places} if document is not None else {}
    return {keys: span for keys, span in spans.items() if span is not None}


def _find_value(document: _Found, keys: Keys) -> Span | None:
    found: _Found | None = document
    for key in keys:
        found = found.members.get(key) if found is not None else None
    return found.span if found is not None else None


def _read_document(text: str, start: int, root: _Wanted) -> _Found | None:
    outside = _Wanted()
    outside.members[0] = root
    # The document is treated as the only element of a list that is never closed.
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
            # No part of it is wanted, so only brackets are counted.
            end = _skip(tokens)
        if wanted is not None and here.key is not None:
            content = (begin + 1, end - 1) if mark == '"' and end - begin > 2 else (begin, end)
            # A repeated member replaces the earlier one and everything below it.
            here.members[here.key] = _Found(content, members)
        if len(open_ones) == 1:
            break
    return open_ones[0].members.get(0)


def _skip(tokens: Iterator[re.Match[str]]) -> int:
    """Return where the list or object that has just begun ends."""
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


class JsonDocument(msgspec.Struct, frozen=True):
    """A document, its path in the evidence, and its text if it is one."""

    value: Json
    pointer: str
    text: str | None = None
    start: int = 0
    """The position in the text where the document begins."""

    def locate(self, places: Iterable[Keys]) -> Iterator[TextRange]:
        """Yield the ranges of the first of these values; in a JSON text in text order."""
        wanted = list(islice(dict.fromkeys(places), MOST_SPANS))
        if self.text is not None:
            for start, end in sorted(find_value_spans(self.text, wanted, self.start).values()):
                yield TextRange(self.pointer, start, end)
            return
        for keys in wanted:
            value = _follow(self.value, keys)
            if isinstance(value, str) and value:
                yield TextRange(write_pointer(self.pointer, keys), 0, len(value))


def open_answer(evidence: Evidence, *, source: Literal["body", "text"] = "body", unfence: bool = True) -> JsonDocument | None:
    """Return the answer as the document that checks read, or None if there is none.

    A body that equals the parsed text is located in the text, which is what a person sees.
    """
    answer = answer_json(evidence, source=source, unfence=unfence)
    if isinstance(answer, Verdict):
        return None
    in_text = answer if answer.pointer == "$.text" else answer_json(evidence, source="text", unfence=unfence)
    if evidence.text is None or isinstance(in_text, Verdict) or (in_text is not answer and not equal(in_text.value, answer.value)):
        return JsonDocument(answer.value, answer.pointer)
    fenced = find_fenced(evidence.text) if unfence else None
    return JsonDocument(answer.value, "$.text", evidence.text, 0 if fenced is None else fenced[0])


def write_pointer(base: str, keys: Keys) -> str:
    """Return the pointer from `base` along keys and positions."""
    for key in keys:
        base = join_path(base, key) if isinstance(key, str) else f"{base}[{key}]"
    return base


def find_keys(document: Json, base: str, pointers: Iterable[str]) -> Iterator[Keys]:
    """Yield the keys of the values of a document at these pointers; the document itself is at `base`."""
    wanted = set(pointers)
    waiting: list[tuple[Json, str, Keys]] = [(document, base, ())]
    while waiting and wanted:
        value, pointer, keys = waiting.pop()
        spend(1 + len(pointer) // 64)
        if pointer in wanted:
            wanted.discard(pointer)
            yield keys
        if isinstance(value, dict):
            waiting += [(item, join_path(pointer, key), (*keys, key)) for key, item in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(item, f"{pointer}[{at}]", (*keys, at)) for at, item in enumerate(value)]


def _follow(value: Json, keys: Keys) -> Json:
    for key in keys:
        value = value[key]
    return value
