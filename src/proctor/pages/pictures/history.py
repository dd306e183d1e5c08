"""Pass rates of a case with their intervals: one column per run or day, oldest first; what is flaky has a shape of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from proctor.pages.pictures.svg import Field, Point, draw_dot, frame_picture

_COLUMN, _HEIGHT, _EDGE = 18, 96, 6
_FEWEST = 12
"""Columns that a picture has room for at least: one run alone is not drawn as wide as the page."""


def draw_history(rows: Sequence[Mapping[str, Any]], title: str) -> Markup:
    """Return a picture of rows with `pass_rate`, `low`, `high` and perhaps `flaky`, newest first; `title` says it in words."""
    if not rows:
        return Markup("")
    field = Field(_COLUMN * max(_FEWEST, len(rows)) + 2 * _EDGE, _HEIGHT, _EDGE)
    parts = field.draw_grid()
    before: Point | None = None
    for number, row in enumerate(reversed(rows)):
        x = _EDGE + number * _COLUMN + _COLUMN / 2
        if row["pass_rate"] is None:
            # Nothing was decided: the line is broken, so that nobody reads a rate into it.
            parts += f'<line class="none" x1="{x}" y1="{field.find_y(0.55)}" x2="{x}" y2="{field.find_y(0.45)}"/>'
            before = None
            continue
        here = (x, field.find_y(row["pass_rate"]))
        if before is not None:
            parts += f'<line class="way" x1="{before[0]}" y1="{before[1]}" x2="{here[0]}" y2="{here[1]}"/>'
        parts += f'<line class="range" x1="{x}" y1="{field.find_y(row["high"])}" x2="{x}" y2="{field.find_y(row["low"])}"/>'
        parts += _draw_rhombus(here) if row.get("flaky") else draw_dot(here, 3.5)
        before = here
    size = (field.width, field.height)
    return frame_picture("history", size, title, parts, shape=f' width="{size[0]}" height="{size[1]}"')


def _draw_rhombus(point: Point) -> str:
    x, y = point
    return f'<path class="flaky" d="M{x} {y - 6}L{x + 6} {y}L{x} {y + 6}L{x - 6} {y}z"/>'
