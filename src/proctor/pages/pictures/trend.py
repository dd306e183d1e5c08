"""Pass rates of the latest runs as a small line."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from proctor.pages.pictures.svg import Field, draw_dot, draw_lines, frame_picture, split_at_gaps

_FIELD = Field(240, 44, 3)


def draw_trend(rates: Sequence[float | None], title: str) -> Markup:
    """Return pass rates as a line with a dot for each run, oldest first; a run of which nothing was decided leaves a gap."""
    if not rates:
        return Markup("")
    points = [None if rate is None else (_FIELD.find_x(at, len(rates)), _FIELD.find_y(rate)) for at, rate in enumerate(rates)]
    dots = "".join(draw_dot(point, 2.5) for point in points if point is not None)
    full = f'<line class="full" x1="0" y1="{_FIELD.edge}" x2="{_FIELD.width}" y2="{_FIELD.edge}"/>'
    return frame_picture("trend", (_FIELD.width, _FIELD.height), title, full + draw_lines(split_at_gaps(points)) + dots)
