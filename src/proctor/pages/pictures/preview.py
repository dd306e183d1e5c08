"""What a rule of an alert would have seen, over time."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from proctor.pages.pictures.svg import STRETCHED, Point, draw_dot, draw_lines, frame_picture, split_at_gaps

_WIDTH, _HEIGHT = 600, 120


def draw_preview(
    points: Sequence[tuple[float, float | None]], fired: Sequence[tuple[float, float]], limit: float, most: float, title: str
) -> Markup:
    """Return what a rule would have seen as a line over time, its limit as a dashed one, and when it would have fired as fields behind.

    Times are shares of the period, from 0 to 1. A point without a value (too few results to say) leaves a gap.
    """
    top = max(most, limit, 1e-9) * 1.05

    def find_y(value: float) -> float:
        return round(_HEIGHT - max(0.0, min(value, top)) / top * _HEIGHT, 1)

    spans = [(round(start * _WIDTH, 1), round(max(0.003, end - start) * _WIDTH, 1)) for start, end in fired]
    fields = "".join(f'<rect class="fired" x="{x}" y="0" width="{width}" height="{_HEIGHT}"/>' for x, width in spans)
    placed = [None if value is None else (round(share * _WIDTH, 1), find_y(value)) for share, value in points]
    stretches = split_at_gaps(placed)
    lines = draw_lines(_make_steps(stretch) for stretch in stretches)
    dots = "".join(draw_dot(stretch[0], 2) for stretch in stretches if len(stretch) == 1)
    y = find_y(limit)
    drawn = f'{fields}<line class="limit" x1="0" y1="{y}" x2="{_WIDTH}" y2="{y}"/>{lines}{dots}'
    return frame_picture("preview", (_WIDTH, _HEIGHT), title, drawn, shape=STRETCHED)


def _make_steps(stretch: Sequence[Point]) -> list[Point]:
    """Return a line in steps: what was counted holds until something new comes."""
    steps: list[Point] = [stretch[0]]
    for x, y in stretch[1:]:
        steps += [(x, steps[-1][1]), (x, y)]
    return steps
