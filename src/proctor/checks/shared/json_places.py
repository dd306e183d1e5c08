"""The characters of values inside a document: of the texts in a structured one, of any value in one that is a JSON text.

A pointer leads to a value of a structured document, so there only texts have characters. It does not lead into a text: where the document
is one, the characters of the value in it say what a pointer cannot.
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
from proctor.matchers.equal import deep_equal, join_path
from proctor.model.evidence import Evidence, Json
from proctor.model.verdict import TextRange, Verdict
from proctor.work import spend

# --- locates values in a JSON text by reading its tokens once

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


class JsonDocument(msgspec.Struct, frozen=True):
    """A document, its path in the evidence, and its text if it is one."""

    value: Json
    pointer: str
    text: str | None = None
    start: int = 0
    """Where in the text the document begins."""

    def locate(self, places: Iterable[Keys]) -> Iterator[TextRange]:
        """Yield the characters of the values at these places, the first of them; in a JSON text in the order of the text."""
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
    """Return the answer as the document that checks look into, or None where there is none.

    A body that equals the parsed text is located in the text, which is what a person sees.
    """
    answer = answer_json(evidence, source=source, unfence=unfence)
    if isinstance(answer, Verdict):
        return None
    spoken = answer if answer.pointer == "$.text" else answer_json(evidence, source="text", unfence=unfence)
    if evidence.text is None or isinstance(spoken, Verdict) or (spoken is not answer and not deep_equal(spoken.value, answer.value)):
        return JsonDocument(answer.value, answer.pointer)
    fenced = find_fenced(evidence.text) if unfence else None
    return JsonDocument(answer.value, "$.text", evidence.text, 0 if fenced is None else fenced[0])


def write_pointer(base: str, keys: Keys) -> str:
    """Return the pointer that leads from `base` along keys and positions."""
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
