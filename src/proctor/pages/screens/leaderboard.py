"""The leaderboard of a published benchmark."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from proctor.pages import nouns
from proctor.pages.desk import get_caller, get_hub
from proctor.pages.pictures import draw_share
from proctor.pages.ports import Source
from proctor.pages.rendering import render_page
from proctor.service.verification.runs.leaderboard import MOST_RUNS, get_public_leaderboard

_MOST_AXES = 6
"""Axes that the table has columns for."""


async def show_leaderboard(request: Request, source: Source) -> Response:
    """Show the agents on a benchmark, the best first."""
    slug = request.path_params["slug"]
    board = await get_public_leaderboard(get_hub(request), get_caller(request), slug)
    axes = sorted({axis for place in board["places"] for axis in place["axes"]})
    values = {
        "source": source,
        "nouns": nouns,
        "parts": ["leaderboard", slug],
        "board": board,
        "most_runs": MOST_RUNS,
        # Every axis is a column, and a benchmark may have any number of them; REST has them all.
        "axes": axes[:_MOST_AXES],
        "draw_share": draw_share,
    }
    return render_page(request, "leaderboard.html", values)
