"""Locates the characters that a claim found, in texts and in JSON.

JSON text as JavaScript's `JSON.stringify` writes it, without spaces.

Claims about tool inputs search this text, so it must look as it did in the system the claim was written for: no space after `,` and `:`,
non-ASCII characters unescaped, `1.0` as `1`, large numbers as `1e+21`, keys that look like list indexes first and ascending. One
improvement on the original: integers below 10^21 keep all their digits.

Locates the characters of a text that a claim found: computed to show a verdict, never to decide.

Positions count code points of the recorded text, however it was transformed for comparison.

Locates the characters of values in a document: of texts in a structured document, of any value in a JSON text.

A pointer leads to a value of a structured document, so only texts have characters there. It does not lead into a text: in a JSON text, the
characters show what a pointer cannot.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Literal

import msgspec

from proctor.checks.shared.answer import answer_json, find_fenced
from proctor.errors import CheckFault
from proctor.matchers.mismatch import join_path
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import equal, quote_javascript_text, write_javascript_number
from proctor.model.show import kind_of
from proctor.model.verdict import TextRange, Verdict
from proctor.work import spend

_LARGEST_INDEX = 2**32 - 2
"""The largest key that JavaScript orders as a list index."""
_MOST_DEPTH = 10_000
"""Maximum nesting; a stack of our own is used, so this only bounds memory."""


def write_javascript_json(value: Json) -> str:
    """Return the compact JSON text of a value. A value that JSON cannot carry raises `CheckFault`."""
    pieces: list[str] = []
    # Iterators of containers that are still open, and the character that closes each.
    open_containers: list[tuple[Iterator[tuple[str | None, Json]], str]] = []
    current: Json = value
    while True:
        if isinstance(current, dict):
            pieces.append("{")
            open_containers.append((iter(_order_members(current)), "}"))
        elif isinstance(current, (list, tuple)):
            pieces.append("[")
            open_containers.append((((None, item) for item in current), "]"))
        else:
            pieces.append(_write_scalar(current))
        if len(open_containers) > _MOST_DEPTH:
            raise CheckFault("value_too_deep", f"a tool input is nested more than {_MOST_DEPTH} levels deep")
        while open_containers:
            entries, closing = open_containers[-1]
            entry = next(entries, None)
            if entry is None:
                open_containers.pop()
                pieces.append(closing)
                continue
            if pieces[-1] not in "{[":
                pieces.append(",")
            if entry[0] is not None:
                pieces.append(f"{quote_javascript_text(entry[0])}:")
            current = entry[1]
            break
        else:
            return "".join(pieces)


def iterate_texts(value: Json, path: str, at: int = 0) -> Generator[tuple[int, str, str], None, int]:
    """Yield the position of each text in the JSON text, its path, and the text; returns the end of the JSON text."""
    # Recursive, unlike the writer above: this only finds places to mark, and `report/words/ranges.py` skips values that are too deep.
    if isinstance(value, dict):
        for key, item in _order_members(value):
            # One character for the brace or comma before, one for the colon after.
            at += 1 + len(quote_javascript_text(key or "")) + 1
            at = yield from iterate_texts(item, join_path(path, key or ""), at)
        return at + (1 if value else 2)
    if isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            at = yield from iterate_texts(item, f"{path}[{number}]", at + 1)
        return at + (1 if value else 2)
    if isinstance(value, str):
        yield at + 1, path, value
    return at + len(_write_scalar(value))


def _order_members(value: dict[str, Json]) -> Sequence[tuple[str | None, Json]]:
    """Return the members in JavaScript's order: index-like keys ascending, then the others in insertion order."""
    indexes = sorted((key for key in value if _is_index(key)), key=int)
    if not indexes:
        return list(value.items())
    return [(key, value[key]) for key in indexes] + [(key, item) for key, item in value.items() if not _is_index(key)]


def _is_index(key: str) -> bool:
    if not key.isascii() or not key.isdigit() or len(key) > 10 or (len(key) > 1 and key[0] == "0"):
        return False
    return int(key) <= _LARGEST_INDEX


def _write_scalar(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote_javascript_text(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**21 else _write_large_integer(value)
    if isinstance(value, float):
        return write_javascript_number(value) if math.isfinite(value) else "null"
    raise CheckFault("not_json", f"a tool input holds a {kind_of(value)}, which has no JSON text")


def _write_large_integer(value: int) -> str:
    try:
        return write_javascript_number(float(value))
    except OverflowError:
        # JavaScript reads such a large number as `Infinity`, which `JSON.stringify` writes as null.
        return "null"


MOST_SPANS: Final = 20
"""Maximum number of ranges in one JSON text."""

Span = tuple[int, int]


def locate_text(
    path: str, text: str | None, wanted: str, *, ignore_case: bool, at: Literal["start", "end", "whole", "anywhere"] = "anywhere"
) -> Iterator[TextRange]:
    """Yield every occurrence of `wanted` in `text`, or the one at its start or end, or the whole text."""
    if not text or not wanted:
        return
    for start, end in find_spans(text, wanted, ignore_case=ignore_case, at=at):
        yield TextRange(path, start, end)


def find_spans(
    text: str, wanted: str, *, ignore_case: bool, at: Literal["start", "end", "whole", "anywhere"] = "anywhere"
) -> Iterator[Span]:
    """Yield where `wanted` occurs in `text`; both are lower-cased if case is ignored."""
    searched = text.lower() if ignore_case else text
    wanted = wanted.lower() if ignore_case else wanted
    restore = _find_restorer(text, searched)
    if at == "anywhere":
        begin = searched.find(wanted)
        while begin >= 0:
            yield restore(begin, begin + len(wanted))
            begin = searched.find(wanted, begin + len(wanted))
    elif at == "whole":
        if searched == wanted:
            yield 0, len(text)
    elif at == "start":
        if searched.startswith(wanted):
            yield restore(0, len(wanted))
    elif searched.endswith(wanted):
        yield restore(len(searched) - len(wanted), len(searched))


def _find_restorer(text: str, folded: str) -> Callable[[int, int], Span]:
    """Return a function that maps positions in the folded text to positions in the text itself."""
    if len(folded) == len(text):
        return lambda start, end: (start, end)
    # Lower-casing turns `İ` into two characters; both map to the original one.
    origin = [index for index, char in enumerate(text) for _ in char.lower()]
    return lambda start, end: (origin[start], origin[end - 1] + 1)


def locate_in_json(value: Json, path: str, find: Callable[[str], Iterator[Span]]) -> Iterator[TextRange]:
    """Yield the parts of texts inside `value` that overlap a match of `find` in its compact JSON text.

    A match may span keys and punctuation, which are not text of the evidence: only parts inside texts are returned.
    """
    spans = [span for span, _ in zip(find(write_javascript_json(value)), range(MOST_SPANS), strict=False)]
    if not spans:
        return
    for begin, at, text in iterate_texts(value, path):
        offsets = _list_offsets(text)
        for start, end in spans:
            first = max(0, bisect_right(offsets, start - begin) - 1)
            stop = min(len(text), bisect_left(offsets, end - begin))
            if first < stop:
                yield TextRange(at, first, stop)


def iterate_whole_texts(value: Json, path: str) -> Iterator[TextRange]:
    """Yield the whole range of every text in a value at `path`."""
    return (TextRange(at, 0, len(text)) for at, text in iterate_text_places(value, path) if text)


def iterate_text_places(value: Json, path: str) -> Iterator[tuple[str, str]]:
    """Yield every text in a value with its place, in order."""
    waiting: list[tuple[Json, str]] = [(value, path)]
    while waiting:
        value, at = waiting.pop()
        # With hostile nesting the paths grow too.
        spend(1 + len(at) // 64)
        if isinstance(value, str):
            yield at, value
        elif isinstance(value, dict):
            waiting += reversed([(item, join_path(at, key)) for key, item in value.items()])
        elif isinstance(value, (list, tuple)):
            waiting += reversed([(item, f"{at}[{number}]") for number, item in enumerate(value)])


def _list_offsets(text: str) -> range | list[int]:
    """Return the offset of each character inside the quotes of its JSON text, and the end of the last one."""
    if len(quote_javascript_text(text)) == len(text) + 2:
        return range(len(text) + 1)
    offsets = [0]
    for char in text:
        offsets.append(offsets[-1] + len(quote_javascript_text(char)) - 2)
    return offsets


# --- locates values in a JSON text by reading its tokens once

Keys = tuple[str | int, ...]
"""Member names and list positions, starting at the document."""

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
