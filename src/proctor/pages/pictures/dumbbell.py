"""Two shares, before and after, as a dumbbell."""

from __future__ import annotations

from markupsafe import Markup

from proctor.pages.pictures.svg import frame_picture


def draw_dumbbell(before: float, after: float, title: str) -> Markup:
    """Return two shares as a line from a ring (before) to a dot (after)."""
    one, other = (round(6 + max(0.0, min(1.0, share)) * 88, 1) for share in (before, after))
    kind = "worse" if other < one else "better" if other > one else "same"
    lines = f'<line class="track" x1="6" y1="6" x2="94" y2="6"/><line x1="{one}" y1="6" x2="{other}" y2="6"/>'
    ends = f'<circle class="before" cx="{one}" cy="6" r="4"/><circle class="after" cx="{other}" cy="6" r="4"/>'
    return frame_picture(f"dumbbell {kind}", (100, 12), title, lines + ends)
