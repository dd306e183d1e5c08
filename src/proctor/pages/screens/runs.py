"""The runs of a project: newest first, by status, name and tag, and some of them chosen to be compared."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from proctor.actions.history.compare_several import MOST_RUNS
from proctor.pages.ports import RunFilter, Source
from proctor.pages.rendering import render_page

STATUSES = ("queued", "running", "completed", "cancelled", "failed")
_LONGEST = 200
"""Characters of what is looked for."""


async def show_runs(request: Request, source: Source) -> Response:
    """Show a page of runs."""
    project = await source.get_project(request.path_params["project"])
    asked = request.query_params
    status = asked.get("status")
    wanted = RunFilter(
        status=status if status in STATUSES else None,
        name=_read_word(asked.get("name")),
        tag=(_read_word(asked.get("tag")) or "").removeprefix("@") or None,
        query=_read_word(asked.get("q")),
    )
    page = await source.list_runs(project["id"], wanted, cursor=asked.get("cursor"))
    # What the list is narrowed to beside its status, as the rest of an address.
    narrowed = {name: value for name, value in (("name", wanted.name), ("tag", wanted.tag), ("q", wanted.query)) if value is not None}
    values = {
        "project": project,
        "source": source,
        "page": page,
        "wanted": wanted,
        "narrowed": narrowed,
        "rest": f"&{urlencode(narrowed)}" if narrowed else "",
        "statuses": STATUSES,
        "most": MOST_RUNS,
    }
    return render_page(request, "runs.html", values)


def _read_word(text: str | None) -> str | None:
    """Return what is looked for; None for nothing but space."""
    return (text or "").strip().replace("\0", "")[:_LONGEST] or None
