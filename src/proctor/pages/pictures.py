"""Charts as SVG: each has a text alternative and takes its colours from the style sheet.

Coordinates never depend on untrusted text, and texts are escaped, so the result is safe markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from proctor.model.evidence import Evidence
from proctor.report.html.timeline import usage_words

Point = tuple[float, float]


class Field(NamedTuple):
    """The drawing area of a chart of shares: size and margin."""

    width: float
    height: float
    edge: float

    def find_x(self, number: int, count: int) -> float:
        """Return the x position of a column among `count`."""
        return round(self.edge + number * (self.width - 2 * self.edge) / max(1, count - 1), 1)

    def find_y(self, share: float) -> float:
        """Return the y position of a share: 1 at the top, 0 at the bottom."""
        return round(self.edge + (1 - share) * (self.height - 2 * self.edge), 1)

    def draw_grid(self) -> str:
        """Return grid lines at 0, 50 and 100 %."""
        heights = [self.find_y(share) for share in (0.0, 0.5, 1.0)]
        return "".join(f'<line class="grid" x1="0" y1="{y}" x2="{self.width}" y2="{y}"/>' for y in heights)


def frame_picture(name: str, size: tuple[float, float], title: str, drawn: str, *, shape: str = "") -> Markup:
    """Return an SVG: `name` is its CSS class, `title` its text alternative, `shape` its size attributes."""
    return Markup(f'<svg class="{name}" viewBox="0 0 {size[0]} {size[1]}"{shape} role="img" aria-label="{escape(title)}">{drawn}</svg>')


STRETCHED = ' preserveAspectRatio="none"'
"""Stretches the chart to the space available."""


def split_at_gaps(points: Iterable[Point | None]) -> list[list[Point]]:
    """Return the runs of points between None values."""
    stretches: list[list[Point]] = [[]]
    for point in points:
        if point is None:
            stretches.append([])
        else:
            stretches[-1].append(point)
    return [stretch for stretch in stretches if stretch]


def draw_lines(stretches: Iterable[Sequence[Point]]) -> str:
    """Return a polyline per run of points; single points have none."""
    return "".join(f'<polyline points="{" ".join(f"{x},{y}" for x, y in stretch)}"/>' for stretch in stretches if len(stretch) > 1)


def draw_dot(point: Point, radius: float) -> str:
    """Return a dot."""
    return f'<circle cx="{point[0]}" cy="{point[1]}" r="{radius}"/>'


def draw_share(share: float, title: str) -> Markup:
    """Return a share as a bar."""
    width = round(max(0.0, min(1.0, share)) * 100, 1)
    bar = '<rect class="missing" x="0" y="0" width="100" height="8"/>'
    return frame_picture("bar", (100, 8), title, f'{bar}<rect class="pass" x="0" y="0" width="{width}" height="8"/>', shape=STRETCHED)


def draw_histogram(counts: Sequence[int], title: str) -> Markup:
    """Return a histogram; non-empty bars have a visible minimum height."""
    highest = max(counts, default=0) or 1
    width = 100 / max(1, len(counts))
    bars = ""
    for number, count in enumerate(counts):
        if count:
            high, x = round(max(1.0, count / highest * 38), 2), round(number * width + 0.3, 2)
            bars += f'<rect x="{x}" y="{40 - high:.2f}" width="{width - 0.6:.2f}" height="{high}"/>'
    return frame_picture("histogram", (100, 40), title, f'{bars}<line x1="0" y1="40" x2="100" y2="40"/>', shape=STRETCHED)


_COLUMN, _COLUMN_HEIGHT, _EDGE = 18, 96, 6
_FEWEST = 12
"""Minimum number of columns, so that a single run is not drawn as wide as the page."""


def draw_history(rows: Sequence[Mapping[str, Any]], title: str) -> Markup:
    """Return a chart of rows with `pass_rate`, `low`, `high` and optionally `flaky`, newest first."""
    if not rows:
        return Markup("")
    field = Field(_COLUMN * max(_FEWEST, len(rows)) + 2 * _EDGE, _COLUMN_HEIGHT, _EDGE)
    parts = field.draw_grid()
    before: Point | None = None
    for number, row in enumerate(reversed(rows)):
        x = _EDGE + number * _COLUMN + _COLUMN / 2
        if row["pass_rate"] is None:
            # Nothing was decided: leave a gap in the line.
            parts += f'<line class="none" x1="{x}" y1="{field.find_y(0.55)}" x2="{x}" y2="{field.find_y(0.45)}"/>'
            before = None
            continue
        point = (x, field.find_y(row["pass_rate"]))
        if before is not None:
            parts += f'<line class="way" x1="{before[0]}" y1="{before[1]}" x2="{point[0]}" y2="{point[1]}"/>'
        parts += f'<line class="range" x1="{x}" y1="{field.find_y(row["high"])}" x2="{x}" y2="{field.find_y(row["low"])}"/>'
        y = point[1]
        rhombus = f'<path class="flaky" d="M{x} {y - 6}L{x + 6} {y}L{x} {y + 6}L{x - 6} {y}z"/>'
        parts += rhombus if row.get("flaky") else draw_dot(point, 3.5)
        before = point
    size = (field.width, field.height)
    return frame_picture("history", size, title, parts, shape=f' width="{size[0]}" height="{size[1]}"')


_PREVIEW_WIDTH, _PREVIEW_HEIGHT = 600, 120


def draw_preview(
    points: Sequence[tuple[float, float | None]], fired: Sequence[tuple[float, float]], limit: float, most: float, title: str
) -> Markup:
    """Return a chart of an alert rule: measured value as a line, threshold dashed, firing periods shaded.

    Times are shares of the period, from 0 to 1. A point without a value (too few results) leaves a gap.
    """
    top = max(most, limit, 1e-9) * 1.05

    def find_y(value: float) -> float:
        return round(_PREVIEW_HEIGHT - max(0.0, min(value, top)) / top * _PREVIEW_HEIGHT, 1)

    spans = [(round(start * _PREVIEW_WIDTH, 1), round(max(0.003, end - start) * _PREVIEW_WIDTH, 1)) for start, end in fired]
    fields = "".join(f'<rect class="fired" x="{x}" y="0" width="{width}" height="{_PREVIEW_HEIGHT}"/>' for x, width in spans)
    placed = [None if value is None else (round(share * _PREVIEW_WIDTH, 1), find_y(value)) for share, value in points]
    stretches = split_at_gaps(placed)
    lines = draw_lines(_make_steps(stretch) for stretch in stretches)
    dots = "".join(draw_dot(stretch[0], 2) for stretch in stretches if len(stretch) == 1)
    y = find_y(limit)
    markup = f'{fields}<line class="limit" x1="0" y1="{y}" x2="{_PREVIEW_WIDTH}" y2="{y}"/>{lines}{dots}'
    return frame_picture("preview", (_PREVIEW_WIDTH, _PREVIEW_HEIGHT), title, markup, shape=STRETCHED)


def _make_steps(stretch: Sequence[Point]) -> list[Point]:
    """Return a step line: a value holds until the next one."""
    steps: list[Point] = [stretch[0]]
    for x, y in stretch[1:]:
        steps += [(x, steps[-1][1]), (x, y)]
    return steps


_RATES = Field(600, 120, 8)


class RatePoint(NamedTuple):
    """A run in a chart: rate and interval, or None if nothing was decided; with its text and address."""

    rate: tuple[float, float, float] | None
    text: str
    address: str
    suite: str


def draw_rates(found: Sequence[RatePoint], title: str) -> Markup:
    """Return pass rates with intervals, oldest first, each linked to its run. Lines join runs of one suite that have a rate."""
    points: dict[str, list[Point | None]] = {}
    markup = ""
    for number, run in enumerate(found):
        line = points.setdefault(run.suite, [])
        if run.rate is None:
            line.append(None)
            continue
        rate, low, high = run.rate
        x = _RATES.find_x(number, len(found))
        line.append((x, _RATES.find_y(rate)))
        bar = f'<line class="interval" x1="{x}" y1="{_RATES.find_y(high)}" x2="{x}" y2="{_RATES.find_y(low)}"/>'
        dot = draw_dot((x, _RATES.find_y(rate)), 4)
        area = f'<rect class="hit" x="{x - 12}" y="0" width="24" height="{_RATES.height}"/>'
        markup += f'<a href="{escape(run.address)}" aria-label="{escape(run.text)}"><title>{escape(run.text)}</title>{area}{bar}{dot}</a>'
    drawn = _RATES.draw_grid() + "".join(draw_lines(split_at_gaps(line)) for line in points.values()) + markup
    size = f"0 0 {_RATES.width} {_RATES.height}"
    # A group and not an image, since it has links.
    return Markup(f'<svg class="rates" viewBox="{size}" role="group" aria-label="{escape(title)}">{drawn}</svg>')


_TREND = Field(240, 44, 3)


def draw_trend(rates: Sequence[float | None], title: str) -> Markup:
    """Return pass rates as a sparkline, oldest first; a run without verdicts leaves a gap."""
    if not rates:
        return Markup("")
    points = [None if rate is None else (_TREND.find_x(at, len(rates)), _TREND.find_y(rate)) for at, rate in enumerate(rates)]
    dots = "".join(draw_dot(point, 2.5) for point in points if point is not None)
    full = f'<line class="full" x1="0" y1="{_TREND.edge}" x2="{_TREND.width}" y2="{_TREND.edge}"/>'
    return frame_picture("trend", (_TREND.width, _TREND.height), title, full + draw_lines(split_at_gaps(points)) + dots)


MOST_ROWS = 40

Row = dict[str, Any]


def lay_out_durations(steps: Sequence[Row], evidence: Evidence, find_page: Callable[[int], str]) -> Row | None:
    """Return the rows of a waterfall, their total, and how many were left out; None if no step was timed.

    Evidence has durations but no start times: steps are drawn one after another, nested steps from the start of their parent.
    """
    rows: list[Row] = []
    turn_start = turn_end = at = inside_at = 0.0
    for number, step in enumerate(steps, 1):
        link = {"step": number, "page": find_page(number), "kind": step["kind"], "tokens": step.get("tokens")}
        if step["kind"] == "turn":
            turn_start = at = inside_at = max(turn_end, at)
            turn_end = turn_start + float(step.get("turn_ms") or 0)
            if step.get("turn_ms") is not None:
                rows.append({**link, "name": step["name"], "start": turn_start, "ms": float(step["turn_ms"])})
        elif step.get("ms") is not None:
            took = max(0.0, float(step["ms"]))
            if step.get("inside"):
                rows.append({**link, "name": step["name"], "start": inside_at, "ms": took, "inside": True})
                inside_at += took
            else:
                rows.append({**link, "name": step["name"], "start": at, "ms": took})
                inside_at, at = at, at + took
    tokens = usage_words(evidence.usage)
    if evidence.duration_ms is not None and not evidence.turns:
        rows.insert(0, {"kind": "run", "name": "", "start": 0.0, "ms": max(0.0, evidence.duration_ms), "tokens": tokens})
    # A single bar shows no more than the duration of the attempt.
    if len(rows) < 2:
        return None
    total = max(row["start"] + row["ms"] for row in rows)
    shown_rows = rows[:MOST_ROWS]
    return {"rows": shown_rows, "total": total, "tokens": tokens, "left_out": len(rows) - len(shown_rows)}


def draw_span(start: float, length: float, total: float, title: str) -> Markup:
    """Return one bar of the waterfall."""
    share = 100 / total if total > 0 else 0.0
    at = round(min(99.0, max(0.0, start * share)), 2)
    width = round(max(0.8, min(100 - at, length * share)), 2)
    track = '<rect class="track" x="0" y="3.5" width="100" height="1"/>'
    return frame_picture("span", (100, 8), title, f'{track}<rect x="{at}" y="1" width="{width}" height="6"/>', shape=STRETCHED)
