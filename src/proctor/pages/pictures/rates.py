"""Pass rates of a project with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from proctor.pages.pictures.svg import Field, Point, draw_dot, draw_lines, frame_picture, split_at_gaps

_FIELD = Field(600, 120, 8)


def draw_rates(rates: Sequence[tuple[float, float, float] | None], title: str) -> Markup:
    """Return pass rates with their intervals, oldest first, each given as rate, lower and upper bound; None leaves a gap."""
    points: list[Point | None] = []
    drawn = ""
    for number, one in enumerate(rates):
        if one is None:
            points.append(None)
            continue
        rate, low, high = one
        x = _FIELD.find_x(number, len(rates))
        points.append((x, _FIELD.find_y(rate)))
        drawn += f'<line class="interval" x1="{x}" y1="{_FIELD.find_y(high)}" x2="{x}" y2="{_FIELD.find_y(low)}"/>'
        drawn += draw_dot((x, _FIELD.find_y(rate)), 4)
    lines = draw_lines(split_at_gaps(points))
    return frame_picture("rates", (_FIELD.width, _FIELD.height), title, _FIELD.draw_grid() + lines + drawn)
