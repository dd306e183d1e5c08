"""Pass rates with their intervals as SVG: one column per run or day, oldest first; what is flaky has a shape of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

_COLUMN, _HEIGHT, _EDGE = 18, 96, 6
_FEWEST = 12
"""Columns that a picture has room for at least: one run alone is not drawn as wide as the page."""


def draw_history(rows: Sequence[Mapping[str, Any]], title: str) -> Markup:
    """Return a picture of rows with `pass_rate`, `low`, `high` and perhaps `flaky`, newest first; `title` says it in words."""
    if not rows:
        return Markup("")
    width = _COLUMN * max(_FEWEST, len(rows)) + 2 * _EDGE
    parts = "".join(
        f'<line class="grid" x1="0" y1="{_find_height(share)}" x2="{width}" y2="{_find_height(share)}"/>' for share in (0.0, 0.5, 1.0)
    )
    before: tuple[float, float] | None = None
    for number, row in enumerate(reversed(rows)):
        x = _EDGE + number * _COLUMN + _COLUMN / 2
        if row["pass_rate"] is None:
            # Nothing was decided: the line is broken, so that nobody reads a rate into it.
            parts += f'<line class="none" x1="{x}" y1="{_find_height(0.55)}" x2="{x}" y2="{_find_height(0.45)}"/>'
            before = None
            continue
        y = _find_height(row["pass_rate"])
        if before is not None:
            parts += f'<line class="way" x1="{before[0]}" y1="{before[1]}" x2="{x}" y2="{y}"/>'
        parts += f'<line class="range" x1="{x}" y1="{_find_height(row["high"])}" x2="{x}" y2="{_find_height(row["low"])}"/>'
        parts += _draw_point(x, y, flaky=bool(row.get("flaky")))
        before = (x, y)
    return Markup(
        f'<svg class="history" viewBox="0 0 {width} {_HEIGHT}" width="{width}" height="{_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">{parts}</svg>'
    )


def _draw_point(x: float, y: float, *, flaky: bool) -> str:
    if flaky:
        return f'<path class="flaky" d="M{x} {y - 6}L{x + 6} {y}L{x} {y + 6}L{x - 6} {y}z"/>'
    return f'<circle cx="{x}" cy="{y}" r="3.5"/>'


def _find_height(share: float) -> float:
    return round(_EDGE + (1 - share) * (_HEIGHT - 2 * _EDGE), 1)
