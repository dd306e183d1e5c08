"""Text and values for HTML reports: limited in length and with misleading characters escaped.

JSON is formatted here and sent as text, since JavaScript would read 9007199254740993 as 9007199254740992 and 1.0 as 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proctor.model.evidence import Json
from proctor.model.show import shorten, show
from proctor.report.words.neutral import to_lines, to_one_line

MOST_TEXT = 6000
"""Characters of one text: an answer, an argument object, a result."""
_MOST_LINES = 400
"""Lines of one text."""
_MOST_TAG_VALUES = 20
"""Values of one tag."""
_ONE_LINE = 72
"""Values up to this many characters stay on one line."""
_MOST_LAID_OUT = 200_000
"""Bytes; longer JSON is not indented, since only its ends are shown."""


def write_block(text: str, limit: int = MOST_TEXT) -> str:
    """Return a text that may have several lines."""
    return "\n".join(to_lines(text, limit=limit, most_lines=_MOST_LINES))


def write_clean_block(text: str) -> str:
    """Return a shortened text with misleading characters escaped."""
    return write_block(text, len(text))


def lay_out_value(value: Json) -> str:
    """Return a value as JSON, indented if long; the caller shortens it."""
    try:
        encoded = _encode(value)
        return encoded.decode() if len(encoded) > _MOST_LAID_OUT else _lay_out(encoded)
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        return show(value, _MOST_LAID_OUT)


def write_pretty(value: Json, limit: int = MOST_TEXT) -> str:
    """Return a value as JSON, indented if long; text as it is, JSON inside text indented."""
    if isinstance(value, str):
        laid_out = _find_json_inside(value)
        return write_block(value if laid_out is None else laid_out, limit)
    try:
        return write_block(_lay_out(_encode(value)), limit)
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        return write_block(show(value, limit), limit)


def write_tool_result(value: Json) -> str:
    """Return the result of a tool; the text of an MCP result that is only text."""
    texts = _list_mcp_texts(value)
    return write_pretty(value) if texts is None else "\n".join(write_pretty(text) for text in texts)


_LONG = (
    (47.5 * 3_600_000, "d", 86_400_000, "h", 3_600_000),
    (119.5 * 60_000, "h", 3_600_000, "min", 60_000),
    (59_950, "min", 60_000, "s", 1_000),
)
"""Unit pairs by minimum duration, longest first."""


def duration_words(ms: float) -> str:
    """Return a duration: `812 ms`, `1.5 s`, `2 min 5 s`, `3 h 20 min`, `7 d`."""
    if ms != ms or ms in (float("inf"), float("-inf")):
        return "unknown"
    if ms < 1000:
        return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.3g} ms"
    # Longer values would round to `60.0 s`.
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    for least_ms, large, large_ms, small, small_ms in _LONG:
        if ms >= least_ms:
            first, rest = divmod(round(ms / small_ms), large_ms // small_ms)
            return f"{first:,} {large} {rest} {small}" if rest else f"{first:,} {large}"
    raise AssertionError(ms)


def list_tag_pairs(tags: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return the tags of a case as names and values; a list has several values."""
    return [
        (write_label(name, 80), write_label(write_pretty(one, 80), 80))
        for name, value in tags.items()
        for one in (value[:_MOST_TAG_VALUES] if isinstance(value, (list, tuple)) else (value,))
        if one is not None
    ]


def write_label(text: str, limit: int = 200) -> str:
    """Return a name or title on one line."""
    return to_one_line(text, limit)


def _encode(value: Json) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        from json import dumps  # writes lone surrogates as escapes

        return dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def _lay_out(encoded: bytes) -> str:
    if len(encoded) <= _ONE_LINE:
        return encoded.decode()
    if len(encoded) > _MOST_LAID_OUT:
        # Cut first: indenting the middle would be wasted.
        return shorten(encoded.decode(), _MOST_LAID_OUT)
    return msgspec.json.format(encoded, indent=2).decode()


def _find_json_inside(text: str) -> str | None:
    if len(text) > _MOST_LAID_OUT or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        # Not decoded: that would change long numbers.
        return _lay_out(msgspec.json.format(text.strip().encode(), indent=-1))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _list_mcp_texts(value: Json) -> list[str] | None:
    if not isinstance(value, dict) or not value.keys() <= {"content", "isError"} or not isinstance(value.get("content"), list):
        return None
    parts: list[Json] = value["content"]
    plain = [part["text"] for part in parts if isinstance(part, dict) and part.keys() == {"type", "text"} and isinstance(part["text"], str)]
    return plain if plain and len(plain) == len(parts) else None
