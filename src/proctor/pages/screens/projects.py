"""Projects with trend and alerts, and the overview of one project."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from proctor.actions.history.overview import TrendPoint
from proctor.pages.desk import read_if_allowed
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.words import find_project_address
from proctor.service.refusals import Refusal

_LATEST = 10
"""Runs on the page of a project."""


async def show_projects(request: Request, source: Source) -> Response:
    """Show all projects with their latest runs."""
    page = await source.list_projects(request.query_params.get("cursor"))
    if source.is_local and len(page["data"]) == 1:
        return redirect(find_project_address(page["data"][0]["id"]))
    rows = [await _look_at(source, project) for project in page["data"]]
    return render_page(request, "projects.html", {"rows": rows, "page": page, "source": source})


async def show_project(request: Request, source: Source) -> Response:
    """Show one project: trend, alerts, changes since yesterday, latest runs."""
    project = await source.get_project(request.path_params["project"])
    overview = await read_if_allowed(source.read_overview(project["id"], request.query_params.get("since") or None))
    runs = None if overview is None else (await source.list_runs(project["id"], limit=_LATEST))["data"]
    values = {
        "project": project,
        "source": source,
        "overview": overview,
        "runs": runs,
        "rates": [] if overview is None else _list_rates(overview.trend),
        "alerts": await source.list_firing_alerts(project["id"]) if overview is None else overview.alerts or [],
        "since_given": request.query_params.get("since"),
        "kinds": ("newly_failing", "newly_flaky", "newly_passing"),
    }
    return render_page(request, "project.html", values)


async def _look_at(source: Source, project: Record) -> Record:
    """Return a project with its trend and last run; None for both if the key may not read runs."""
    alerts = await source.list_firing_alerts(project["id"])
    try:
        trend = await source.read_trend(project["id"])
        runs = (await source.list_runs(project["id"], limit=1))["data"]
    except Refusal as refusal:
        if refusal.code != "FORBIDDEN":
            raise
        return {"about": project, "runs": None, "rates": [], "alerts": alerts}
    return {"about": project, "runs": runs, "rates": [point.rate for point in trend], "alerts": alerts}


def _list_rates(trend: Sequence[TrendPoint]) -> list[tuple[float, float, float] | None]:
    return [None if p.rate is None or p.low is None or p.high is None else (p.rate, p.low, p.high) for p in trend]
