"""Formats values for sentences: shortened in the middle, kinds named in the user's words.

A value of more than `ENOUGH` parts and characters is not written in full before it is cut: only its beginning is. Shared parts count each
time they occur, so that a few nested lists cannot expand to more text than there is memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import cast

import msgspec

LIMIT = 160
"""The maximum number of characters of a value in a message: about two lines of a terminal."""
ENOUGH = 200_000
"""The number of parts and characters beyond which a value is cut while it is written, to cost less than the check."""
DEEPEST = 100
"""The maximum nesting shown; deeper values approach Python's recursion limit."""
_UNSEEN = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs"))
_encode = msgspec.json.Encoder().encode
_PLAIN = frozenset((bool, int, float, type(None)))


def shorten(text: str, limit: int = LIMIT) -> str:
    """Cut the middle out of a long text, and note how much was removed."""
    if len(text) <= limit:
        return text
    removed = len(text) - limit
    head = limit * 2 // 3
    return f"{text[:head]}…({removed} more)…{text[len(text) - (limit - head) :]}"


def count_rest(count: int, most: int, joint: str = " and") -> str:
    """Return ` and 3 more` for a list of `count` things of which the first `most` are shown; empty if all are shown."""
    return f"{joint} {count - most} more" if count > most else ""


def escape_unseen(text: str, keep: str = "") -> str:
    r"""Return a text with every character as its escape (`\x1b`, `\u202e`) that is not seen itself or changes how others are.

    Those are control and format characters, breaks of lines and paragraphs, and halves of pairs; whatever is in `keep` stays.
    """
    if text.isprintable():
        return text
    return "".join(char if char in keep or is_seen(char) else _escape(ord(char)) for char in text)


def is_seen(char: str) -> bool:
    """Return whether a character is visible when printed."""
    if char.isprintable():
        return True
    from unicodedata import category  # hardly any text needs it

    return category(char) not in _UNSEEN


def _escape(code: int) -> str:
    named = {10: "\\n", 13: "\\r", 9: "\\t"}.get(code)
    return named or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def show(value: object, limit: int = LIMIT) -> str:
    """Return a value as shortened JSON text; values that JSON cannot represent fall back to `repr`."""
    if isinstance(value, str):
        # Cut before encoding: a text of many megabytes must not be copied to show its ends.
        if len(value) > limit:
            value = shorten(value, limit)
        try:
            return _encode(value).decode()
        except UnicodeEncodeError:  # a lone surrogate, which JSON escapes can represent and UTF-8 cannot
            return msgspec.json.encode(value.encode("utf-8", "backslashreplace").decode()).decode()
    if type(value) not in _PLAIN and not _is_small(value):
        written = ""
        for piece in _iterate_pieces(value, limit, ()):
            written += piece
            if len(written) > limit:
                return f"{written[:limit]}…(more than can be shown)"
        return written
    try:
        return shorten(_encode(value).decode(), limit)
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        try:
            return shorten(repr(value), limit)
        except RecursionError:
            return f"<deeply nested {kind_of(value)}>"
        except ValueError:  # Python refuses to write a number of thousands of digits
            return f"<{kind_of(value)} too long to be written>"


def _list_members(value: object) -> Iterable[tuple[object, object]] | None:
    """Return the named parts of a value: of an object, a struct, a dataclass."""
    if isinstance(value, dict):
        return cast("dict[object, object]", value).items()
    names = getattr(type(value), "__struct_fields__", None) or getattr(type(value), "__dataclass_fields__", None)
    return None if names is None else [(name, getattr(value, name, None)) for name in names]


def _is_small(value: object) -> bool:
    """Return whether a value is small enough to be written in full."""
    left = ENOUGH
    waiting: list[object] = [value]
    # Shared parts count each time they occur, since the text would repeat them; so this also ends on self-referencing values.
    for part in waiting:  # grows during the loop
        kind = type(part)
        if kind in _PLAIN:
            continue
        more: Collection[object] = ()
        if kind is dict:
            entries = cast("dict[object, object]", part)
            more = (*entries, *entries.values())
        elif isinstance(part, (str, bytes, bytearray)):
            left -= len(part)
        elif isinstance(part, (list, tuple, set, frozenset)):
            more = cast("Collection[object]", part)
        else:
            more = [inner for member in _list_members(part) or () for inner in member]
        left -= len(more)
        if left < 0:
            return False
        waiting += more
    return True


def _iterate_pieces(value: object, limit: int, around: tuple[int, ...]) -> Iterator[str]:
    """Yield the text of a value in the style of JSON, piece by piece; a cycle or a part that is too deep is `[...]`."""
    members = _list_members(value)
    if members is None and not isinstance(value, (list, tuple, set, frozenset)):
        # No more bytes are written than are shown.
        yield show(bytes(value[:limit]) if isinstance(value, (bytes, bytearray)) else value, limit)
        return
    opening, closing = "[]" if members is None else "{}"
    # Only the enclosing values, not all visited ones: the same value twice in one list is not a cycle.
    if id(value) in around or len(around) == DEEPEST:
        yield f"{opening}...{closing}"
        return
    yield opening
    for number, entry in enumerate(cast("Iterable[object]", value) if members is None else members):
        name, part = ("", entry) if members is None else cast("tuple[object, object]", entry)
        yield ("," if number else "") + (f"{show(name, limit)}:" if members is not None else "")
        yield from _iterate_pieces(part, limit, (*around, id(value)))
    yield closing


def exception_text(error: BaseException, limit: int = 500) -> str:
    """Return the message of an exception in printable characters; if it has none, the name of its type."""
    try:
        text = str(error)
    except Exception as broken:  # a foreign `__str__` may raise anything
        return f"(its text cannot be had: {type(broken).__name__})"
    return shorten(text, limit).encode("utf-8", "backslashreplace").decode()


def kind_of(value: object) -> str:
    """Return the user's name for this kind of value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true/false"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (list, tuple)):
        return "list"
    if isinstance(value, dict):
        return "object"
    return type(value).__name__


def describe_value(value: object, limit: int = LIMIT) -> str:
    """Return a value with its kind before it, as in `text "17"`; `null`, `true` and `false` have no kind."""
    shown = show(value, limit)
    return shown if value is None or isinstance(value, bool) else f"{kind_of(value)} {shown}"


_MOST_KNOWN = 1_000
"""The maximum number of words compared with a misspelt one: the comparison is slow, and a suggestion is optional."""


def nearest(word: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """Return the known words most like `word`, best first, ignoring case; of very many words only the first are compared."""
    from difflib import get_close_matches  # costs a regex compile; only a mistake needs it

    by_lower: dict[str, str] = {}
    for name in islice(known, _MOST_KNOWN):
        # Comparing costs the product of both lengths.
        by_lower.setdefault(name.lower()[:200], name)
    close = get_close_matches(word.lower()[:200], by_lower, n=most, cutoff=0.61)
    if not close and len(word) >= 3:
        close = [name for name in by_lower if word.lower() in name or (len(name) >= 3 and name in word.lower())][:most]
    return tuple(by_lower[name] for name in close)


def suggest(word: str, known: Iterable[str]) -> str:
    """Return `; nearest: ...` with the known words most like `word`; empty if none is."""
    near = nearest(word, known)
    return f"; nearest: {', '.join(near)}" if near else ""


def suggest_one(word: str, known: Iterable[str]) -> str:
    """Return `; nearest: 'word'` with the known word most like `word`; empty if none is."""
    near = nearest(word, known)
    return f"; nearest: {near[0]!r}" if near else ""


def explain_alike(expected: str, actual: str) -> str | None:
    """Return how two similar-looking texts differ, such as a letter with an accent and a letter followed by one; None for others."""
    if expected == actual or (expected.isascii() and actual.isascii()) or max(len(expected), len(actual)) > ENOUGH:
        return None
    from unicodedata import normalize  # hardly any text needs it

    if normalize("NFKC", expected) != normalize("NFKC", actual):
        return None
    shorter = min(len(expected), len(actual))
    at = next((number for number in range(shorter) if expected[number] != actual[number]), shorter)
    start = max(0, at - 10)
    shown = (shorten(text[start : at + 20], 60).encode("unicode_escape").decode("ascii") for text in (expected, actual))
    return 'only the Unicode form differs: expected "{}", found "{}"'.format(*shown)


def show_number(value: float) -> str:
    """Return a score or weight with two or three decimals, unless rounding makes it look like a round threshold: 0.8999 is not 0.9."""
    if not math.isfinite(value):
        return "none"
    text = f"{value:.3f}"
    # A mean of 0.9 except for its last bits is 0.9.
    if text.endswith("0") and float(text) > value + 1e-9:
        text = f"{math.floor(value * 1000) / 1000:.3f}"
    return text[:-1] if text.endswith("0") else text
