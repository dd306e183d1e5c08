"""Positions between three ways of counting: Python characters, UTF-16 units (ECMAScript) and UTF-8 bytes (the fast engine).

A match that splits a surrogate pair, as `.` does without the `u` flag, is widened to whole characters: half a character cannot be
written into any report. An empty match inside a pair is before that character.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_BASIC = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")

Span = tuple[int, int]


def has_surrogates(text: str) -> bool:
    """Return whether the text holds halves of surrogate pairs, which UTF-8 cannot carry."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def is_within_basic_plane(text: str) -> bool:
    """Return whether every character is one UTF-16 unit and has a UTF-8 form."""
    return text.isascii() or _NOT_BASIC.search(text) is None


def measure_utf16_length(text: str) -> int:
    """Return the length of the text in ECMAScript."""
    return len(text) if text.isascii() else len(text) + sum(1 for _ in _ASTRAL.finditer(text))


def from_utf16(text: str) -> Callable[[int, int], Span]:
    """Return a function from a span of UTF-16 units to a span of Python characters."""
    wide = [] if text.isascii() else [match.start() for match in _ASTRAL.finditer(text)]
    if not wide:
        return lambda start, end: (start, end)
    # The k-th wide character begins at unit position + k and ends two units later.
    # Found by bisection afterwards, so that a match with many groups in a long text does not count from the start for each of them.
    seconds = [position + k + 1 for k, position in enumerate(wide)]

    def span(start: int, end: int) -> Span:
        first = start - bisect_right(seconds, start)
        if end == start:
            return first, first
        # By its last unit, so that half a character at the end counts as a whole one.
        return first, end - 1 - bisect_right(seconds, end - 1) + 1

    return span


def from_utf8(text: str) -> Callable[[int, int], Span]:
    """Return a function from a span of UTF-8 bytes to a span of Python characters."""
    if text.isascii():
        return lambda start, end: (start, end)
    raw = text.encode()

    def span(start: int, end: int) -> Span:
        first = len(raw[:start].decode())
        return first, first + len(raw[start:end].decode())

    return span
