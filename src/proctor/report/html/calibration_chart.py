"""Drawings of a calibration, as SVG without style: colours are the page's, so that they follow light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.report.words.calibration import threshold_words
from proctor.scoring.agreement import Figure
from proctor.scoring.cutting import SweepRow

_WIDTH, _HEIGHT = 640, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 56, 54


WORDS = {
    "accuracy": "accuracy",
    "kappa": "kappa",
    "present": "present",
    "chosen": "chosen",
    "axis": "passes from this score on",
    "said": "Accuracy and kappa for every threshold; present {present}",
}
"""The labels of the curve."""


def draw_interval_bar(figure: Figure, *, low: float = 0.0) -> str:
    """Return a figure on its scale, from `low` to 1, with its interval behind it."""
    if figure.value is None or figure.interval is None:
        return ""

    def at(value: float) -> float:
        return 100 * (min(1.0, max(low, value)) - low) / (1 - low)

    start, end, point = at(figure.interval.low), at(figure.interval.high), at(figure.value)
    return (
        '<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="ground" x="0" y="3" width="100" height="2"/>'
        f'<rect class="reach" x="{start:.2f}" y="1.5" width="{max(0.6, end - start):.2f}" height="5"/>'
        f'<rect class="point" x="{max(0.0, min(98.8, point - 0.6)):.2f}" y="0" width="1.2" height="8"/></svg>'
    )


def draw_share_bar(share: float) -> str:
    """Return a share of what was decided right."""
    width = 100 * min(1.0, max(0.0, share))
    return (
        '<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="missed" width="100" height="8"/>'
        f'<rect class="got" width="{width:.2f}" height="8"/></svg>'
    )


def draw_sweep_chart(rows: Sequence[SweepRow], present: float, chosen: float | None, words: Mapping[str, str] = WORDS) -> str:
    """Draw accuracy and kappa over the threshold, as steps: between two scores that occurred nothing changes."""
    lowest = min((row.table.kappa or 0.0 for row in rows), default=0.0)
    floor = 0.0 if lowest >= 0 else -0.5 if lowest >= -0.5 else -1.0
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{words["said"].format(present=threshold_words(present))}">'
    ]
    steps = 5 if floor == 0 else 6 if floor == -0.5 else 4
    for step in range(steps + 1):
        value = floor + (1 - floor) * step / steps
        y = _place_y(value, floor)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{threshold_words(round(value, 2))}</text>')
    for step in range(6):
        parts.append(f'<text x="{_place_x(step / 5):.1f}" y="{_HEIGHT - 33}" text-anchor="middle">{threshold_words(step / 5)}</text>')
    parts.append(f'<text x="{_place_x(0.5):.1f}" y="{_HEIGHT - 7}" text-anchor="middle">{words["axis"]}</text>')
    parts.append(_mark(present, "present", 16, words["present"]))
    if chosen is not None and chosen != present:
        parts.append(_mark(chosen, "chosen", 40, words["chosen"]))
    for name in ("accuracy", "kappa"):
        points = [(row.threshold, value) for row in rows if (value := getattr(row.table, name)) is not None]
        parts.append(f'<path class="{name}" d="{_draw_steps(points, floor)}"/>')
    parts.append(f'<text class="accuracy" x="{_LEFT}" y="16">{words["accuracy"]}</text>')
    parts.append(f'<text class="kappa" x="{_LEFT}" y="40">{words["kappa"]}</text></svg>')
    return "".join(parts)


def _mark(threshold: float, name: str, y: int, word: str) -> str:
    x = _place_x(threshold)
    anchor, shift = ("end", -5) if threshold > 0.5 else ("start", 5)
    return (
        f'<line class="{name}" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 12}" y2="{_HEIGHT - _BOTTOM}"/>'
        f'<text class="{name}" x="{x + shift:.1f}" y="{y}" text-anchor="{anchor}">{word} {threshold_words(threshold)}</text>'
    )


def _draw_steps(points: Sequence[tuple[float, float]], floor: float) -> str:
    """Return a line that jumps just above each score: up to and with a score, everything from it on passes."""
    drawn: list[str] = []
    before = 0.0
    for threshold, value in points:
        start, end, y = _place_x(before), _place_x(threshold), _place_y(value, floor)
        drawn.append(f"{'M' if not drawn else 'L'}{start:.1f} {y:.1f}L{end:.1f} {y:.1f}")
        before = threshold
    return "".join(drawn)


def _place_x(value: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(1.0, max(0.0, value))


def _place_y(value: float, floor: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (min(1.0, max(floor, value)) - floor) / (1 - floor))
