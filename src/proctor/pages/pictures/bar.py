"""A share of a whole as one bar."""

from __future__ import annotations

from markupsafe import Markup

from proctor.pages.pictures.svg import STRETCHED, frame_picture

_SIZE = (100, 8)


def draw_share(share: float, title: str) -> Markup:
    """Return a share as a bar of which so much is filled."""
    width = round(max(0.0, min(1.0, share)) * 100, 1)
    whole = '<rect class="missing" x="0" y="0" width="100" height="8"/>'
    return frame_picture("bar", _SIZE, title, f'{whole}<rect class="pass" x="0" y="0" width="{width}" height="8"/>', shape=STRETCHED)
