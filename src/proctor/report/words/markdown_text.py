"""Text of strangers inside Markdown that GitHub and its like will render.

A label must come out as the characters it has: no formatting, no HTML, no table cell of its own, nobody notified (`@name`), no
issue referred to or closed (`#12`), no link. What only Markdown reads is escaped with a backslash; what HTML or a table reads
becomes a character reference; what the platform looks for after rendering is broken up with an invisible space, as it acts on the
rendered text and would see through a reference. Longer text goes into a fence longer than any run of backticks inside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from proctor.report.words.neutral import to_one_line

_REFERENCES = {"\\": "&#92;", "|": "&#124;", "<": "&lt;", ">": "&gt;", "&": "&amp;", "$": "&#36;"}
_STRUCTURE = re.compile(r"[\\|<>&$`*\[\]~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_NOTICED = re.compile(
    r"@(?=\w)"  # somebody, or a mail address
    r"|\#(?=[0-9])|(?i:\bgh-)(?=[0-9])"  # an issue
    r"|:(?=//)|(?i:\b(?:www|mailto|xmpp)\b)(?=[.:])"  # a link
    r"|:(?=(?:100|1234|[0-9]{0,4}[a-z_+-][a-z0-9_+-]{0,40}):)"  # the name of an emoji; `file:100:` would be one
)
_LINE_START = re.compile(r"^(?:[+=-]|[0-9]{1,9}[.)])")
_BACKTICKS = re.compile(r"`+")
_PLAIN_CODE = re.compile(r"[^`|\\]*[^`|\\ ]")
_UNSEEN = "&#8203;"


def write_plain(text: str, limit: int = 200) -> str:
    """Write any text as one line of Markdown that renders as exactly these characters."""
    return _escape_markdown(to_one_line(text, limit).strip())


def write_code(text: str, limit: int = 200) -> str:
    """Write any text in code type, also inside a table."""
    shown = to_one_line(text, limit).strip()
    if not shown:
        return ""
    # Inside a table a pipe or backslash cannot be written in backticks so that all renderers agree; tags can carry anything.
    return f"`{shown}`" if _PLAIN_CODE.fullmatch(shown) else f"<code>{_escape_markdown(shown)}</code>"


def write_fenced(lines: Sequence[str], indent: str = "") -> list[str]:
    """Return lines, already harmless, in a block that shows them as they are."""
    longest = max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{indent}{fence}text", *(f"{indent}{line}" for line in lines), f"{indent}{fence}"]


def _escape_markdown(text: str) -> str:
    # A character that `to_one_line` leaves nowhere holds the place of the invisible
    # space: written at once, the `&` and `#` of its reference would be escaped below.
    broken = _NOTICED.sub(lambda found: found.group() + "\x00", text)
    escaped = _STRUCTURE.sub(lambda found: _REFERENCES.get(found.group()) or f"\\{found.group()}", broken)
    # The text may be the first of its line, where a number with a dot or a dash would begin a list.
    escaped = _LINE_START.sub(lambda found: f"{found.group()[:-1]}\\{found.group()[-1]}", escaped)
    return escaped.replace("\x00", _UNSEEN)
