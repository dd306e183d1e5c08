"""One finding about a user's file, and its display.

The first line is greppable as `file:line:column: message`; the lines below it show the path, the source line with the place underlined,
the expected value, the nearest valid word, and the next step. A file may be hostile: control characters and marks that reverse the writing
direction are each shown as one visible character, so that a terminal does not interpret them and the underline stays aligned.
"""

from typing import Literal

import msgspec

from proctor.model.show import is_seen


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a document. Lines and columns count from 1; `path` is spelled `$.cases[2].expect[0]`."""

    file: str | None = None
    line: int | None = None
    column: int | None = None
    path: str = "$"

    def __str__(self) -> str:
        """Return `file:line:column`, with the unknown parts left out."""
        parts = [self.file or "<input>"]
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        return ":".join(parts)


NOWHERE = Origin()
"""The origin of values built in code rather than read from a file."""


_JOINERS = "\u200c\u200d"
"""Characters that scripts and emoji need between their parts."""


def _make_visible(text: str) -> str:
    """Return a text in which every character is visible and one character wide."""
    if text.isprintable():
        return text
    return "".join(char if char in _JOINERS or is_seen(char) else _choose_picture(ord(char)) for char in text)


def _choose_picture(code: int) -> str:
    # Unicode has pictures of control characters: ␛
    return chr(0x2400 + code) if code < 32 else "\u2421" if code == 0x7F else "\ufffd"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its place. `level` is `error` (the file cannot be used) or `warning` (it can)."""

    message: str
    origin: Origin = NOWHERE
    level: Literal["error", "warning"] = "error"
    code: str | None = None
    excerpt: str | None = None
    """The source line, as written."""
    width: int = 1
    """How many characters to underline, from the column of the origin."""
    expected: str | None = None
    nearest: tuple[str, ...] = ()
    hint: str | None = None
    """The next step for the user."""

    def write_headline(self) -> str:
        """Return the one greppable line."""
        prefix = "warning: " if self.level == "warning" else ""
        place = "" if self.origin == NOWHERE else f"{self.origin}: "
        return _make_visible(f"{place}{prefix}{self.message}")

    def render(self) -> str:
        """Return the finding in full, several lines."""
        lines = [self.write_headline()]
        if self.origin.path != "$":
            lines.append(_make_visible(f"  at {self.origin.path}"))
        if self.excerpt is not None and self.origin.line is not None:
            column = self.origin.column or 1
            # A minified file is one endless line: show a window around the column.
            start = max(0, column - 1 - 60) if len(self.excerpt) > 120 else 0
            shown = _make_visible(self.excerpt[start : start + 120].replace("\t", " "))
            number = f"{self.origin.line:5d}"
            at = column - 1 - start
            width = max(1, min(self.width, len(shown) - at))
            lines.extend([f"{number} | {shown}", f"{' ' * len(number)} | {' ' * at}{'^' * width}"])
        if self.expected or self.nearest:
            words = ", ".join(repr(word) for word in self.nearest)
            parts = [part for part in (f"expected {self.expected}" if self.expected else "", f"nearest: {words}" if words else "") if part]
            lines.append("  " + _make_visible("; ".join(parts)))
        if self.hint:
            lines.append(_make_visible(f"  {self.hint}"))
        return "\n".join(lines)
