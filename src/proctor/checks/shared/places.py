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

import functools
import json
import math
import operator
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Literal, cast

import msgspec

from proctor.checks.shared.answer import answer_json, find_fenced
from proctor.errors import CheckFault
from proctor.matchers.mismatch import join_path
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import equal, is_finite, quote_javascript_text, read_digits, write_javascript_number
from proctor.model.show import kind_of
from proctor.model.verdict import TextRange, Verdict
from proctor.work import spend

_LARGEST_INDEX = 2**32 - 2
"""The largest key that JavaScript orders as a list index."""


def write_javascript_json(value: Json) -> str:
    """Return the compact JSON text of a value. A value that JSON cannot carry raises `CheckFault`."""
    try:
        return "".join([piece for piece, _, _ in _iterate_pieces(value, "")])
    except RecursionError:
        raise CheckFault("value_too_deep", "a tool input is nested too deeply to be written as JSON") from None


def iterate_texts(value: Json, path: str) -> Iterator[tuple[int, str, str]]:
    """Yield the position of each text in the JSON text, its path, and the text."""
    at = 0
    for piece, place, text in _iterate_pieces(value, path):
        if text is not None:
            yield at + 1, place, text
        at += len(piece)


def _iterate_pieces(value: Json, path: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield the pieces of the JSON text of a value, each with its path, and with the text that it quotes."""
    if isinstance(value, dict):
        opening = "{"
        for key, item in _order_members(value):
            yield f"{opening}{quote_javascript_text(key)}:", path, None
            yield from _iterate_pieces(item, join_path(path, key))
            opening = ","
        yield ("}" if value else "{}"), path, None
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield ("," if number else "["), path, None
            yield from _iterate_pieces(item, f"{path}[{number}]")
        yield ("]" if value else "[]"), path, None
    else:
        yield _write_scalar(value), path, value if isinstance(value, str) else None


def _order_members(value: dict[str, Json]) -> Iterable[tuple[str, Json]]:
    """Return the members in JavaScript's order: index-like keys ascending, then the others in insertion order."""
    indexes = sorted((key for key in value if _is_index(key)), key=int)
    return value.items() if not indexes else [(key, value[key]) for key in dict.fromkeys((*indexes, *value))]


def _is_index(key: str) -> bool:
    number = read_digits(key, 10)
    return number is not None and str(number) == key and number <= _LARGEST_INDEX


def _write_scalar(value: Json) -> str:
    if isinstance(value, str):
        return quote_javascript_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) < 10**21:
            return str(value)
        # JavaScript reads a number beyond its range as `Infinity`, which `JSON.stringify` writes as null.
        value = float(value) if is_finite(value) else None
    if isinstance(value, float):
        return write_javascript_number(value) if math.isfinite(value) else "null"
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    raise CheckFault("not_json", f"a tool input holds a {kind_of(value)}, which has no JSON text")


MOST_SPANS: Final = 20
"""Maximum number of ranges in one JSON text."""

Span = tuple[int, int]
At = Literal["start", "end", "whole", "anywhere"]


def locate_text(path: str, text: str | None, wanted: str, *, ignore_case: bool, at: At = "anywhere") -> Iterator[TextRange]:
    """Yield every occurrence of `wanted` in `text`, or the one at its start or end, or the whole text."""
    if not text or not wanted:
        return
    for start, end in find_spans(text, wanted, ignore_case=ignore_case, at=at):
        yield TextRange(path, start, end)


def find_spans(text: str, wanted: str, *, ignore_case: bool, at: At = "anywhere") -> Iterator[Span]:
    """Yield where `wanted` occurs in `text`; both are lower-cased if case is ignored."""
    searched = text.lower() if ignore_case else text
    wanted = wanted.lower() if ignore_case else wanted
    restore = _find_restorer(text, searched)
    if at == "anywhere":
        yield from (restore(*found.span()) for found in re.finditer(re.escape(wanted), searched))
    elif at == "end":
        if searched.endswith(wanted):
            yield restore(len(searched) - len(wanted), len(searched))
    elif searched == wanted if at == "whole" else searched.startswith(wanted):
        yield restore(0, len(wanted))


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
    spans = list(islice(find(write_javascript_json(value)), MOST_SPANS))
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


# Locates values in a JSON text by reading its tokens once

Keys = tuple[str | int, ...]
"""Member names and list positions, starting at the document."""

# Possessive quantifiers: each character of the text is visited once.
_TOKENS: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],]|[^\s{}\[\],:"]++', re.DOTALL)
_CHARS_PER_STEP: Final = 2


def find_value_spans(text: str, places: Iterable[Keys], start: int = 0) -> dict[Keys, Span]:
    """Return the spans of the values at `places` in the JSON document that begins at `start`, without missing places."""
    spend((len(text) - start) // _CHARS_PER_STEP + 1)
    wanted = set(places)
    deepest = max(map(len, wanted), default=0)
    spans: dict[Keys, Span] = {}
    keys: list[str | int | None] = []
    """The member or position of the current value in each open object or list; None if a name comes next."""
    begins: list[int] = []
    for token in _TOKENS.finditer(text, start):
        begin, end = token.span()
        mark, key = text[begin], keys[-1] if keys else 0
        if mark == ",":
            if not keys:
                break
            keys[-1] = key + 1 if isinstance(key, int) else None
        elif key is None and mark == '"':
            keys[-1] = json.loads(text[begin:end], strict=False)
        elif mark in "{[":
            begins.append(begin)
            keys.append(None if mark == "{" else 0)
        else:
            if mark in "}]":
                if not begins:
                    break
                begin = begins.pop()
                keys.pop()
            # Comparing the paths of deeper values would cost their depth each.
            if len(keys) <= deepest and (place := cast(Keys, tuple(keys))) in wanted:
                # A repeated member replaces the earlier one.
                spans[place] = (begin + 1, end - 1) if mark == '"' and end - begin > 2 else (begin, end)
            if not begins:
                break
    return spans


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
            value = functools.reduce(operator.getitem, keys, self.value)
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


def write_pointer(base: str, keys: Iterable[str | int]) -> str:
    """Return the pointer from `base` along keys and positions."""
    for key in keys:
        base = join_path(base, key) if isinstance(key, str) else f"{base}[{key}]"
    return base
