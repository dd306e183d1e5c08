"""How long the steps of a run took, drawn one behind the other.

Evidence has durations and an order, and no times of day: a step is drawn as if it began when the one before it ended, and a step inside of
another as if it began with that one. Steps that ran at the same time therefore reach beyond the turn they belong to; the figures are
those that were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from proctor.model.evidence import Evidence
from proctor.pages.pictures.svg import STRETCHED, frame_picture
from proctor.report.html.timeline import usage_words

MOST_ROWS = 40

Row = dict[str, Any]


def lay_out_durations(steps: Sequence[Row], evidence: Evidence, find_page: Callable[[int], str]) -> Row | None:
    """Return the rows of the picture, the whole they are part of, and how many were left out; nothing where no step was timed."""
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
    if not rows:
        return None
    total = max(row["start"] + row["ms"] for row in rows)
    shown = rows[:MOST_ROWS]
    return {"rows": shown, "total": total, "tokens": tokens, "left_out": len(rows) - len(shown)}


def draw_span(start: float, length: float, total: float, title: str) -> Markup:
    """Return one row of the picture: a bar that begins at `start` and is `length` long, of `total`."""
    share = 100 / total if total > 0 else 0.0
    at = round(min(99.0, max(0.0, start * share)), 2)
    width = round(max(0.8, min(100 - at, length * share)), 2)
    track = '<rect class="track" x="0" y="3.5" width="100" height="1"/>'
    return frame_picture("span", (100, 8), title, f'{track}<rect x="{at}" y="1" width="{width}" height="6"/>', shape=STRETCHED)
