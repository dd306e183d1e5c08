r"""Untrusted text made safe for terminals, CSV and Markdown.

Ids, labels, reasons and file names come from suites and traces and may contain terminal escapes, direction marks, invisible characters or
lone surrogates. Each is shown as its escape (`\x1b`, `\u202e`). Joiners of scripts and emoji (U+200C, U+200D) stay. CSV cells that a
spreadsheet would compute get an apostrophe. Markdown renders exactly these characters: no formatting, HTML, mentions, issues or links.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import shorten

_LINE_BREAK = lazy_pattern(r"\r\n|[\n\r\x0b\x0c\x85\u2028\u2029]")
_HARMFUL = lazy_pattern(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters of both sets: escapes, bells, cursor movement
    "\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, or changes the direction of writing
    "\ud800-\udfff\ufffe\uffff"  # halves of pairs and non-characters: not in UTF-8, not in XML
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # formats of hieroglyphs, shorthand and music
    "\U000e0000-\U000e007f"  # tag characters: text that only machines read
    "]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if code < 0x100:
        return _NAMED.get(character) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def to_one_line(text: str, limit: int = 200) -> str:
    """Return the text on one line, shortened in the middle, misleading characters escaped."""
    # Shortened first, so that long texts are not searched in full.
    return _escape_harmful(shorten(text, limit))


def _escape_harmful(text: str) -> str:
    # All of these characters are unprintable. Most texts have none, and the pattern takes longer to compile than a small report to write.
    return text if text.isprintable() else _HARMFUL.sub(_escape, text)


def to_block(text: str) -> str:
    """Return the whole text with line breaks and spaces, misleading characters escaped; tabs become spaces."""
    return "\n".join(_escape_harmful(line.replace("\t", "    ")) for line in _LINE_BREAK.split(text))


def to_lines(text: str, *, limit: int = 2000, most_lines: int = 20) -> list[str]:
    """Return the lines of a text, shortened, misleading characters escaped; tabs become spaces."""
    lines = _LINE_BREAK.split(shorten(text, limit).strip())
    if len(lines) > most_lines:
        lines = [*lines[:most_lines], f"… {len(lines) - most_lines} more lines"]
    return [_escape_harmful(line.expandtabs(4).rstrip()) for line in lines]


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def make_harmless(value: object) -> object:
    """Return a cell that no spreadsheet computes."""
    if not isinstance(value, str):
        return value
    # NUL ends a text in some readers and would hide the rest.
    text = value.replace("\0", "\N{SYMBOL FOR NULL}")
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_csv(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV, with the line ends of RFC 4180."""
    import csv  # other formats do not need it

    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n").writerows([make_harmless(value) for value in row] for row in rows)
    return buffer.getvalue()


_REFERENCES = {"\\": "&#92;", "|": "&#124;", "<": "&lt;", ">": "&gt;", "&": "&amp;", "$": "&#36;"}
_STRUCTURE = lazy_pattern(r"[\\|<>&$`*\[\]~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_NOTICED = lazy_pattern(
    r"@(?=\w)"  # a mention or mail address
    r"|\#(?=[0-9])|(?i:\bgh-)(?=[0-9])"  # an issue
    r"|:(?=//)|(?i:\b(?:www|mailto|xmpp)\b)(?=[.:])"  # a link
    r"|:(?=(?:100|1234|[0-9]{0,4}[a-z_+-][a-z0-9_+-]{0,40}):)"  # the name of an emoji; `file:100:` would be one
)
_LINE_START = lazy_pattern(r"^(?:[+=-]|[0-9]{1,9}[.)])")
_BACKTICKS = lazy_pattern(r"`+")
_PLAIN_CODE = lazy_pattern(r"[^`|\\]*[^`|\\ ]")
_UNSEEN = "&#8203;"


def write_plain(text: str, limit: int = 200) -> str:
    """Return one line of Markdown that renders as exactly these characters."""
    return escape_line_start(write_inside(text, limit))


def write_inside(text: str, limit: int = 200) -> str:
    """Return the same for text that is not at the start of a line."""
    return _escape_markdown(to_one_line(text, limit).strip())


def escape_line_start(text: str) -> str:
    """Return Markdown in which a number with a dot, or a dash, does not start a list."""
    return _LINE_START.sub(lambda match: f"{match.group()[:-1]}\\{match.group()[-1]}", text)


def write_code(text: str, limit: int = 200) -> str:
    """Return text in code style, also inside a table."""
    line = to_one_line(text, limit).strip()
    if not line:
        return ""
    # Backticks cannot hold a pipe or backslash in a table for all renderers; tags can.
    return f"`{line}`" if _PLAIN_CODE.fullmatch(line) else f"<code>{_escape_markdown(line)}</code>"


def write_fenced(lines: Sequence[str]) -> list[str]:
    """Return lines in a fenced block."""
    longest = max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *lines, fence]


def _escape_markdown(text: str) -> str:
    # A placeholder for the invisible space: written at once, the `&` and `#` of its reference
    # would be escaped below.
    broken = _NOTICED.sub(lambda match: match.group() + "\x00", text)
    escaped = _STRUCTURE.sub(lambda match: _REFERENCES.get(match.group()) or f"\\{match.group()}", broken)
    return escaped.replace("\x00", _UNSEEN)
