"""What is wrong with a pattern, and where.

The engine that validates patterns reports the fault but not its position, so a small scan of our own locates the common
mistakes: brackets that do not close, a quantifier with nothing before it, and the spellings of other languages.
"""

from __future__ import annotations

from typing import NamedTuple

from proctor.errors import SpecError

_FLAG_HINT = "flags are written next to the pattern; inside it only a group can have them: `(?i:...)`"
_PYTHON_HINT = "ECMAScript writes a named group as `(?<name>...)` and a back reference to it as `\\k<name>`"
_GREEDY_HINT = "ECMAScript has neither possessive quantifiers nor atomic groups"
_COMMENT_HINT = "ECMAScript has no comments inside patterns"


class PatternError(SpecError):
    """A regular expression that cannot be used."""

    def __init__(self, message: str, *, offset: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, field="pattern", offset=offset, hint=hint)


class Mistake(NamedTuple):
    """The likely place of a mistake and what to do about it."""

    offset: int
    message: str
    hint: str | None = None


def locate_mistake(source: str) -> Mistake | None:
    """Return the first common mistake of an invalid pattern, or `None` when it is an uncommon one."""
    open_groups: list[int] = []
    repeatable = False
    at = 0
    while at < len(source):
        character = source[at]
        if character == "\\":
            if at + 1 == len(source):
                return Mistake(at, "a backslash at the end escapes nothing")
            # `\b` and `\B` take no character; a quantifier after them has nothing to repeat.
            repeatable = source[at + 1] not in "bB"
            at += 2
        elif character == "[":
            end = _end_of_class(source, at)
            if end is None:
                return Mistake(at, "this character class is never closed")
            at, repeatable = end, True
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


def _end_of_class(source: str, start: int) -> int | None:
    at = start + 1
    while at < len(source):
        if source[at] == "\\":
            at += 2
        elif source[at] == "]":
            return at + 1
        else:
            at += 1
    return None


def _skip_group_head(source: str, at: int) -> int:
    for head in ("(?<=", "(?<!", "(?:", "(?=", "(?!"):
        if source.startswith(head, at):
            return at + len(head)
    if source.startswith("(?", at):
        # A name or inline flags: step over them, so that they are not read as quantifiers.
        ends = [end for end in (source.find(">", at), source.find(":", at)) if end != -1]
        return min(ends) + 1 if ends else at + 2
    return at + 1


def _find_foreign_group(source: str, at: int) -> Mistake | None:
    if source.startswith("(?P", at):
        return Mistake(at, "`(?P` does not begin a group in ECMAScript", _PYTHON_HINT)
    if source.startswith("(?#", at):
        return Mistake(at, "`(?#` does not begin a group in ECMAScript", _COMMENT_HINT)
    if source.startswith("(?>", at):
        return Mistake(at, "`(?>` does not begin a group in ECMAScript", _GREEDY_HINT)
    if source.startswith("(?", at):
        end = at + 2
        while end < len(source) and source[end] in "imsxuU-":
            end += 1
        if end > at + 2 and source[end : end + 1] == ")":
            return Mistake(at, f"`{source[at : end + 1]}` is not ECMAScript", _FLAG_HINT)
    return None
