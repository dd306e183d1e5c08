"""Parts of a whole as one bar."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from proctor.pages.pictures.svg import STRETCHED, frame_picture

_SIZE = (100, 8)
_BETWEEN, _LEAST = 1.5, 2.0
"""Of a bar of 100: the gap between two parts, and the least that a part is drawn with."""


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
    return frame_picture("bar", _SIZE, title, parts, shape=STRETCHED)


def draw_share(share: float, title: str) -> Markup:
    """Return a share as a bar of which so much is filled."""
    width = round(max(0.0, min(1.0, share)) * 100, 1)
    whole = '<rect class="missing" x="0" y="0" width="100" height="8"/>'
    return frame_picture("bar", _SIZE, title, f'{whole}<rect class="pass" x="0" y="0" width="{width}" height="8"/>', shape=STRETCHED)
