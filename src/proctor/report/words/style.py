"""Text in a terminal: colours, width in columns, wrapping, bars.

No library, because `proctor check` must start fast. Input is already safe (`report/words/neutral.py`); colour is added last, so that
widths are counted on plain text.
"""

from __future__ import annotations

from typing import Literal
from unicodedata import combining, east_asian_width

Colour = Literal["red", "green", "yellow", "blue", "magenta", "cyan", "dim", "bold"]
_CODES: dict[Colour, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class Style:
    """Paints text, or not if colour is off."""

    __slots__ = ("colour",)

    def __init__(self, *, colour: bool) -> None:
        self.colour = colour

    def paint(self, text: str, *colours: Colour) -> str:
        """Return the text in these colours."""
        if not self.colour or not text:
            return text
        return f"\x1b[{';'.join(_CODES[colour] for colour in colours)}m{text}\x1b[0m"


def count_columns(text: str) -> int:
    """Return how many columns a terminal needs: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)


def pad(text: str, width: int) -> str:
    """Return the text padded to `width` columns."""
    return text + " " * max(0, width - count_columns(text))


def cut_to_width(text: str, width: int) -> str:
    """Return the text cut at its end to at most `width` columns."""
    if count_columns(text) <= width:
        return text
    return _cut_pieces(text, max(1, width - 1))[0] + "…"


def wrap(text: str, width: int) -> list[str]:
    """Return a line wrapped at spaces to at most `width` columns; longer words are cut.

    Leading spaces repeat on every line, so that tables and tracebacks align.
    """
    if count_columns(text) <= width:
        return [text]
    body = text.lstrip(" ")
    # At most half of the width, so that deeply indented text is readable.
    indent = " " * min(len(text) - len(body), width // 2)
    space = width - len(indent)
    lines: list[str] = []
    current, used = "", 0
    for word in body.split(" "):
        for number, piece in enumerate(_cut_pieces(word, space)):
            size = count_columns(piece)
            if number == 0 and current and used + 1 + size <= space:
                current, used = f"{current} {piece}", used + 1 + size
                continue
            if current:
                lines.append(indent + current)
            current, used = piece, size
    lines.append(indent + current)
    return [line.rstrip(" ") for line in lines]


def _cut_pieces(word: str, space: int) -> list[str]:
    if count_columns(word) <= space:
        return [word]
    pieces: list[str] = []
    current, used = "", 0
    for character in word:
        size = count_columns(character)
        if current and used + size > space:
            pieces.append(current)
            current, used = "", 0
        current, used = current + character, used + size
    return [*pieces, current]


def draw_bar(share: float, size: int = 20) -> str:
    """Return a share as a bar; full only if it is 1, empty only if it is 0."""
    if share >= 1:
        filled = size
    elif share > 0:
        filled = min(size - 1, max(1, round(share * size)))
    else:
        filled = 0
    return "█" * filled + "░" * (size - filled)
