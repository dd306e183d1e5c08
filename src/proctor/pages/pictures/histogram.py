"""How many there are of what, as bars beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from proctor.pages.pictures.svg import STRETCHED, frame_picture


def draw_histogram(counts: Sequence[int], title: str) -> Markup:
    """Return how many there are in each of several stretches; a bar that is not empty is at least seen."""
    highest = max(counts, default=0) or 1
    width = 100 / max(1, len(counts))
    bars = ""
    for number, count in enumerate(counts):
        if count:
            high, left = round(max(1.0, count / highest * 38), 2), round(number * width + 0.3, 2)
            bars += f'<rect x="{left}" y="{40 - high:.2f}" width="{width - 0.6:.2f}" height="{high}"/>'
    return frame_picture("histogram", (100, 40), title, f'{bars}<line x1="0" y1="40" x2="100" y2="40"/>', shape=STRETCHED)
