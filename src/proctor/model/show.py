"""How values appear in sentences for people: shortened in the middle, kinds named in the user's words."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

LIMIT = 160


def shorten(text: str, limit: int = LIMIT) -> str:
    """Cut the middle out of a long text, saying how much is gone."""
    if len(text) <= limit:
        return text
    gone = len(text) - limit
    head = limit * 2 // 3
    return f"{text[:head]}…({gone} more)…{text[len(text) - (limit - head) :]}"


def show(value: object, limit: int = LIMIT) -> str:
    """A value as JSON text, shortened; what JSON cannot carry falls back to `repr`."""
    if isinstance(value, str):
        # Cut before encoding: a text of many megabytes must not be copied to show its ends.
        value = shorten(value, limit)
        try:
            return msgspec.json.encode(value).decode()
        except UnicodeEncodeError:  # a lone surrogate, which JSON escapes can spell and UTF-8 cannot
            return msgspec.json.encode(value.encode("utf-8", "backslashreplace").decode()).decode()
    try:
        return shorten(msgspec.json.encode(value).decode(), limit)
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        try:
            return shorten(repr(value), limit)
        except RecursionError:
            return f"<deeply nested {kind_of(value)}>"
        except ValueError:  # Python refuses to write a number of thousands of digits
            return f"<{kind_of(value)} too long to be written>"


def kind_of(value: object) -> str:
    """What a user calls this kind of value."""
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


def nearest(word: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """The known words most like `word`, best first; case is ignored while comparing."""
    from difflib import get_close_matches  # costs a regex compile; only a mistake needs it

    by_lower: dict[str, str] = {}
    for name in known:
        by_lower.setdefault(name.lower(), name)
    close = get_close_matches(word.lower()[:200], by_lower, n=most, cutoff=0.6)
    if not close and len(word) >= 3:
        close = [name for name in by_lower if word.lower() in name or (len(name) >= 3 and name in word.lower())][:most]
    return tuple(by_lower[name] for name in close)
