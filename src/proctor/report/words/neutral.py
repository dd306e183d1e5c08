r"""Text of strangers made harmless before it is shown.

Ids, labels, reasons and file names come out of suites and traces, so they may carry terminal escapes, marks that reverse the
direction of writing, invisible characters, or halves of surrogate pairs that no encoding can write. Each such character is shown
as its escape (`\x1b`, `\u202e`) instead. Joiners that real scripts and emoji need (U+200C, U+200D) stay.
"""

from __future__ import annotations

import re

from proctor.model.show import shorten

_LINE_BREAK = re.compile(r"\r\n|[\n\r\x0b\x0c\x85\u2028\u2029]")
_HARMFUL = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters of both sets: escapes, bells, cursor movement
    "\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, or changes the direction of writing
    "\ud800-\udfff\ufffe\uffff"  # halves of pairs and non-characters: not in UTF-8, not in XML
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # formats of hieroglyphs, shorthand and music
    "\U000e0000-\U000e007f"  # tag characters: text that only machines read
    "]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    code = ord(character)
    if code < 0x100:
        return _NAMED.get(character) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def to_one_line(text: str, limit: int = 200) -> str:
    """Return the text on one line, shortened in the middle, every harmful character escaped."""
    # Shortened first, so that a text of megabytes is not looked through for characters that nobody sees.
    return _HARMFUL.sub(_escape, shorten(text, limit))


def to_block(text: str) -> str:
    """Return the whole text with its line breaks and spaces, every harmful character escaped; tabs become spaces."""
    return "\n".join(_HARMFUL.sub(_escape, line.replace("\t", "    ")) for line in _LINE_BREAK.split(text))


def to_lines(text: str, *, limit: int = 2000, most_lines: int = 20) -> list[str]:
    """Return the lines of a text, shortened, every harmful character escaped; tabs become spaces."""
    lines = _LINE_BREAK.split(shorten(text, limit).strip())
    if len(lines) > most_lines:
        lines = [*lines[:most_lines], f"… {len(lines) - most_lines} more lines"]
    return [_HARMFUL.sub(_escape, line.expandtabs(4).rstrip()) for line in lines]
