"""Small pictures as SVG: each says in words what it shows, and takes its colours from the style sheet.

No coordinate depends on a text of strangers, and texts are escaped, so that the result is markup by right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

_WIDTH, _HEIGHT, _GAP = 240, 44, 3
_BETWEEN, _LEAST = 1.5, 2.0
"""Of a bar of 100: the gap between two parts, and the least that a part is drawn with."""


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


def draw_counts(counts: Mapping[str, int], title: str, missing: int = 0) -> Markup:
    """Return how many attempts came out how as one bar with gaps between its parts; each part is at least seen.

    Attempts that are missing leave their part of the bar open: a run that broke off early is not a full bar of passes.
    """
    found = {**counts, "missing": max(0, missing)}
    shown = [(word, found[word]) for word in ("pass", "skip", "error", "fail", "missing") if found.get(word)]
    total = sum(number for _, number in shown) or 1
    room = 100 - _BETWEEN * (len(shown) - 1)
    widths = [max(_LEAST, number / total * room) for _, number in shown]
    scale = room / sum(widths) if widths else 1
    at, parts = 0.0, ""
    for (word, _), width in zip(shown, widths, strict=True):
        parts += f'<rect class="{word}" x="{round(at, 2)}" width="{round(width * scale, 2)}" height="8"/>'
        at += width * scale + _BETWEEN
    return Markup(f'<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">{parts}</svg>')


def draw_dumbbell(before: float, after: float, title: str) -> Markup:
    """Return two shares as a line from a ring (before) to a dot (after)."""
    one, other = (round(6 + max(0.0, min(1.0, share)) * 88, 1) for share in (before, after))
    kind = "worse" if other < one else "better" if other > one else "same"
    return Markup(
        f'<svg class="dumbbell {kind}" viewBox="0 0 100 12" role="img" aria-label="{escape(title)}">'
        f'<line class="track" x1="6" y1="6" x2="94" y2="6"/><line x1="{one}" y1="6" x2="{other}" y2="6"/>'
        f'<circle class="before" cx="{one}" cy="6" r="4"/><circle class="after" cx="{other}" cy="6" r="4"/></svg>'
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
