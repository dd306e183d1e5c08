"""Texts of strangers, as every page of the family shows them: marked where an assertion is about them, folded where they are long."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.model.evidence import Json
from proctor.report.words.elements import Child, Element, Node, make
from proctor.report.words.wording import count_noun

_MOST_OPEN, _MOST_LINES = 700, 12
"""Characters and lines up to which a value stands open."""


def draw_pre(*text: Child, look: str = "") -> Element:
    """Return a text with its lines, in its own direction of writing; a long one can be scrolled by keys."""
    return make("pre", look, *text, dir="auto", tabindex="0")


def draw_text(text: str, pieces: Sequence[Json] | None) -> list[Node]:
    """Return a text, with the characters marked that assertions are about; each mark leads back to its assertions."""
    return [text] if not pieces else [piece if isinstance(piece, str) else _draw_marked(piece) for piece in pieces]


def _draw_marked(piece: Json) -> Element:
    first: list[int] = piece.get("first") or []
    back = [make("a", "back", str(number), href=f"#a{number}", aria_label=f"To assertion {number:,}") for number in piece["of"]]
    return make(
        "mark",
        piece["kind"],
        [make("span", id=f"m{number}") for number in first[1:]],
        make("span", "hidden", "Found: " if piece["kind"] == "pass" else "Forbidden, and found: "),
        piece["text"],
        back,
        tabindex="-1",
        id=f"m{first[0]}" if first else None,
    )


def draw_block(label: str, text: str | None, *, pieces: Sequence[Json] | None = None, bad: bool = False) -> Element | None:
    """Return a value below its name; nothing where there is none."""
    if not text:
        return None
    return make("div", "piece bad" if bad else "piece", make("span", "side", label), draw_pre(draw_text(text, pieces)))


def draw_folded(label: str, text: str | None, *, pieces: Sequence[Json] | None = None) -> Element | None:
    """Return a short value open, and one in which something is marked; a long one behind its name."""
    if not text or pieces or (len(text) <= _MOST_OPEN and text.count("\n") < _MOST_LINES):
        return draw_block(label, text, pieces=pieces)
    size = make("span", "muted", count_noun(len(text), "character"))
    return make("details", "", make("summary", "", label, " ", size), draw_pre(text))
