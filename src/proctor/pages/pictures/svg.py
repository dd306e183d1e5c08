"""What every picture is made of: the frame with its words, places in it, a grid, and lines that break where nothing is known.

No coordinate depends on a text of strangers, and texts are escaped, so that the result is markup by right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

Point = tuple[float, float]


class Field(NamedTuple):
    """The field in which shares are drawn over columns: its size, and how much of it stays free at every edge."""

    width: float
    height: float
    edge: float

    def find_x(self, number: int, count: int) -> float:
        """Return where one of `count` columns stands, which are spread over the whole width."""
        return round(self.edge + number * (self.width - 2 * self.edge) / max(1, count - 1), 1)

    def find_y(self, share: float) -> float:
        """Return how high a share stands: 1 at the top, 0 at the bottom."""
        return round(self.edge + (1 - share) * (self.height - 2 * self.edge), 1)

    def draw_grid(self) -> str:
        """Return the lines of nothing, half and everything."""
        heights = [self.find_y(share) for share in (0.0, 0.5, 1.0)]
        return "".join(f'<line class="grid" x1="0" y1="{y}" x2="{self.width}" y2="{y}"/>' for y in heights)


def frame_picture(name: str, size: tuple[float, float], title: str, drawn: str, *, shape: str = "") -> Markup:
    """Return a picture: `name` is its class in the style sheet, `title` says what it shows, `shape` are attributes about its size."""
    return Markup(f'<svg class="{name}" viewBox="0 0 {size[0]} {size[1]}"{shape} role="img" aria-label="{escape(title)}">{drawn}</svg>')


STRETCHED = ' preserveAspectRatio="none"'
"""The shape of a picture that fills whatever room it gets."""


def split_at_gaps(points: Iterable[Point | None]) -> list[list[Point]]:
    """Return the stretches of points between those that are None."""
    stretches: list[list[Point]] = [[]]
    for point in points:
        if point is None:
            stretches.append([])
        else:
            stretches[-1].append(point)
    return [stretch for stretch in stretches if stretch]


def draw_lines(stretches: Iterable[Sequence[Point]]) -> str:
    """Return a line through each stretch; one point alone makes no line."""
    return "".join(f'<polyline points="{" ".join(f"{x},{y}" for x, y in stretch)}"/>' for stretch in stretches if len(stretch) > 1)


def draw_dot(point: Point, radius: float) -> str:
    """Return a dot."""
    return f'<circle cx="{point[0]}" cy="{point[1]}" r="{radius}"/>'
