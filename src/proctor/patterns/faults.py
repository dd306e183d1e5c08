"""Locates errors in patterns.

The engine that validates patterns reports an error but not its position, so a small scan locates the common mistakes: unclosed brackets, a
quantifier with nothing before it, and the syntax of other languages.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from proctor.errors import SpecError

_FLAG_HINT = "flags are written next to the pattern; inside it only a group can have them: `(?i:...)`"
_GREEDY_HINT = "ECMAScript has neither possessive quantifiers nor atomic groups"
_FOREIGN = {
    "(?P": "ECMAScript writes a named group as `(?<name>...)` and a back reference to it as `\\k<name>`",
    "(?#": "ECMAScript has no comments inside patterns",
    "(?>": _GREEDY_HINT,
}
"""How groups of other languages begin."""
_HEAD = re.compile(r"\(\?(?:<[=!]|[:=!])")
_CLASS = re.compile(r"\[(?:[^\]\\]|\\.)*+\]", re.DOTALL)
_INLINE_FLAGS = re.compile(r"\(\?[imsxuU-]+\)")


class PatternError(SpecError):
    """An invalid regular expression."""

    def __init__(self, message: str, *, offset: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, field="pattern", offset=offset, hint=hint)


class Mistake(NamedTuple):
    """The likely position of a mistake and a hint."""

    offset: int | None
    message: str
    hint: str | None = None


def locate_mistake(source: str) -> Mistake | None:
    """Return the first common mistake of an invalid pattern, or `None`."""
    open_groups: list[int] = []
    repeatable = False
    at = 0
    while at < len(source):
        character = source[at]
        if character == "\\":
            if at + 1 == len(source):
                return Mistake(at, "a backslash at the end escapes nothing")
            # `\b` and `\B` match no character, so a quantifier after them has nothing to repeat.
            repeatable = source[at + 1] not in "bB"
            at += 2
        elif character == "[":
            if (whole := _CLASS.match(source, at)) is None:
                return Mistake(at, "this character class is never closed")
            at, repeatable = whole.end(), True
        elif character == "(":
            if (foreign := _find_foreign_group(source, at)) is not None:
                return foreign
            open_groups.append(at)
            at, repeatable = _skip_group_head(source, at), False
        elif character == ")":
            if not open_groups:
                return Mistake(at, "this `)` closes nothing")
            open_groups.pop()
            at, repeatable = at + 1, True
        elif character in "*+?":
            if not repeatable:
                # `a++` is possessive in Java and PCRE, which was probably meant.
                possessive = at > 0 and source[at - 1] in "*+?}"
                return Mistake(at, f"nothing to repeat before `{character}`", _GREEDY_HINT if possessive and character == "+" else None)
            at += 2 if source[at + 1 : at + 2] == "?" else 1
            repeatable = False
        else:
            repeatable = character not in "|^"
            at += 1
    return Mistake(open_groups[-1], "this group is never closed") if open_groups else None


def _skip_group_head(source: str, at: int) -> int:
    if head := _HEAD.match(source, at):
        return head.end()
    if source.startswith("(?", at):
        # A name or inline flags: skip them, so that they are not read as quantifiers.
        ends = [end for end in (source.find(">", at), source.find(":", at)) if end != -1]
        return min(ends) + 1 if ends else at + 2
    return at + 1


def _find_foreign_group(source: str, at: int) -> Mistake | None:
    for head, hint in _FOREIGN.items():
        if source.startswith(head, at):
            return Mistake(at, f"`{head}` does not begin a group in ECMAScript", hint)
    flags = _INLINE_FLAGS.match(source, at)
    return None if flags is None else Mistake(at, f"`{flags[0]}` is not ECMAScript", _FLAG_HINT)


# Converts positions between Python characters, UTF-16 units (ECMAScript) and UTF-8 bytes (the fast engine).
# A match that splits a surrogate pair, as `.` does without the `u` flag, is widened to whole characters: no report can contain half a
# character. An empty match inside a pair is placed before that character.

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_BASIC = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")

Span = tuple[int, int]


def has_surrogates(text: str) -> bool:
    """Return whether the text has lone surrogates, which UTF-8 cannot represent."""
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
    # The k-th wide character begins at unit position + k and ends two units later. Found by bisection, so that a match with many groups in
    # a long text does not count from the start for each of them.
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
