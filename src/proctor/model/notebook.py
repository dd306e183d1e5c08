"""Results as a notebook shows them: a small table of HTML in which every text of strangers is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proctor.model.show import escape_unseen, shorten

MOST_ROWS = 100
# The ampersand first. Python's own module for this loads thousands of names, which every command would pay for.
_REFERENCES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
_COLOURS = {"pass": "#187a3c", "fail": "#c0261f", "error": "#a85200", "skip": "#667080"}


def write_outcome(outcome: str) -> str:
    """Return an outcome as coloured text."""
    return f'<b style="color:{_COLOURS.get(outcome, "inherit")}">{write_text(outcome)}</b>'


def write_text(text: str, limit: int = 300) -> str:
    """Return any text so that it is shown and never obeyed."""
    shown = escape_unseen(shorten(text, limit))
    for character, reference in _REFERENCES.items():
        shown = shown.replace(character, reference)
    return shown


def write_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, more: int = 0) -> str:
    """Return a table; the cells are HTML already."""
    heading = "".join(f"<th>{write_text(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in row) + "</tr>" for row in rows)
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>{rest}"
