"""Small pictures as SVG: each says in words what it shows, and takes its colours from the style sheet.

No coordinate depends on a text of strangers, and texts are escaped, so that the result is markup by right.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

_WIDTH, _HEIGHT, _GAP = 240, 44, 3


def draw_trend(rates: Sequence[float | None], title: str) -> Markup:
    """Return pass rates as a line with a dot for each run, oldest first; a run of which nothing was decided leaves a gap."""
    if not rates:
        return Markup("")
    step = (_WIDTH - 2 * _GAP) / max(1, len(rates) - 1)
    points = [
        None if rate is None else (round(_GAP + number * step, 1), round(_GAP + (1 - rate) * (_HEIGHT - 2 * _GAP), 1))
        for number, rate in enumerate(rates)
    ]
    lines: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            lines.append([])
        else:
            lines[-1].append(point)
    paths = "".join(f'<polyline points="{" ".join(f"{x},{y}" for x, y in line)}"/>' for line in lines if len(line) > 1)
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="2.5"/>' for x, y in (point for point in points if point is not None))
    return Markup(
        f'<svg class="trend" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'<line class="full" x1="0" y1="{_GAP}" x2="{_WIDTH}" y2="{_GAP}"/>{paths}{dots}</svg>'
    )


def draw_span(start: float, length: float, total: float, title: str) -> Markup:
    """Return one row of a waterfall: a bar that begins at `start` and is `length` long, of `total`."""
    share = 100 / total if total > 0 else 0.0
    at = round(min(99.0, max(0.0, start * share)), 2)
    width = round(max(0.8, min(100 - at, length * share)), 2)
    return Markup(
        f'<svg class="span" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">'
        f'<rect class="track" x="0" y="3.5" width="100" height="1"/><rect x="{at}" y="1" width="{width}" height="6"/></svg>'
    )


def draw_histogram(counts: Sequence[int], title: str) -> Markup:
    """Return how many there are in each of several stretches, as bars beside each other; a bar that is not empty is at least seen."""
    highest = max(counts, default=0) or 1
    width = 100 / max(1, len(counts))
    bars = ""
    for number, count in enumerate(counts):
        if count:
            high, left = round(max(1.0, count / highest * 38), 2), round(number * width + 0.3, 2)
            bars += f'<rect x="{left}" y="{40 - high:.2f}" width="{width - 0.6:.2f}" height="{high}"/>'
    return Markup(
        f'<svg class="histogram" viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">{bars}'
        '<line x1="0" y1="40" x2="100" y2="40"/></svg>'
    )


def draw_rates(rates: Sequence[tuple[float, float, float] | None], title: str) -> Markup:
    """Return pass rates with their intervals, oldest first, each given as rate, lower and upper bound; None leaves a gap."""
    width, height, edge = 600, 120, 8
    step = (width - 2 * edge) / max(1, len(rates) - 1)

    def find_y(share: float) -> float:
        return round(edge + (1 - share) * (height - 2 * edge), 1)

    grid = "".join(f'<line class="grid" x1="0" y1="{find_y(share)}" x2="{width}" y2="{find_y(share)}"/>' for share in (0, 0.5, 1))
    lines: list[list[str]] = [[]]
    drawn = ""
    for number, one in enumerate(rates):
        if one is None:
            lines.append([])
            continue
        x = round(edge + number * step, 1)
        lines[-1].append(f"{x},{find_y(one[0])}")
        drawn += f'<line class="interval" x1="{x}" y1="{find_y(one[2])}" x2="{x}" y2="{find_y(one[1])}"/>'
        drawn += f'<circle cx="{x}" cy="{find_y(one[0])}" r="4"/>'
    paths = "".join(f'<polyline points="{" ".join(points)}"/>' for points in lines if len(points) > 1)
    return Markup(f'<svg class="rates" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">{grid}{paths}{drawn}</svg>')
