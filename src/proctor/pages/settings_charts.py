"""Pictures of alerts and benchmarks as SVG, each with its words: a share as a bar, and what a rule looked at over time.

No coordinate depends on a text of strangers, and texts are escaped, so that the result is markup by right.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

_WIDTH, _HEIGHT = 600, 120


def draw_share(share: float, title: str) -> Markup:
    """Return a share as a bar of which so much is filled."""
    width = round(max(0.0, min(1.0, share)) * 100, 1)
    return Markup(
        f'<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">'
        f'<rect class="missing" x="0" y="0" width="100" height="8"/><rect class="pass" x="0" y="0" width="{width}" height="8"/></svg>'
    )


def draw_preview(
    points: Sequence[tuple[float, float | None]], fired: Sequence[tuple[float, float]], limit: float, most: float, title: str
) -> Markup:
    """Return what a rule would have seen as a line over time, its limit as a dashed one, and when it would have fired as fields behind.

    Times are shares of the period, from 0 to 1. A point without a value (too few results to say) leaves a gap.
    """
    top = max(most, limit, 1e-9) * 1.05

    def at(share: float, value: float) -> str:
        return f"{round(share * _WIDTH, 1)},{round(_HEIGHT - max(0.0, min(value, top)) / top * _HEIGHT, 1)}"

    spans = [(round(start * _WIDTH, 1), round(max(0.003, end - start) * _WIDTH, 1)) for start, end in fired]
    fields = "".join(f'<rect class="fired" x="{x}" y="0" width="{width}" height="{_HEIGHT}"/>' for x, width in spans)
    lines: list[list[str]] = [[]]
    for share, value in points:
        if value is None:
            lines.append([])
            continue
        if lines[-1]:
            # A step: what was counted holds until something new comes.
            lines[-1].append(f"{round(share * _WIDTH, 1)},{lines[-1][-1].partition(',')[2]}")
        lines[-1].append(at(share, value))
    drawn = "".join(f'<polyline points="{" ".join(line)}"/>' for line in lines if len(line) > 1)
    dots = "".join(f'<circle cx="{line[0].partition(",")[0]}" cy="{line[0].partition(",")[2]}" r="2"/>' for line in lines if len(line) == 1)
    y = at(0, limit).partition(",")[2]
    return Markup(
        f'<svg class="preview" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">'
        f'{fields}<line class="limit" x1="0" y1="{y}" x2="{_WIDTH}" y2="{y}"/>{drawn}{dots}</svg>'
    )
