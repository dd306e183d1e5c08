"""Projects with trend and alerts, and the overview of one project."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from proctor.actions.history.compare_several import split_by_cause
from proctor.actions.history.overview import TrendPoint
from proctor.pages.desk import find_project, open_desk, read_if_allowed
from proctor.pages.forms import read_form
from proctor.pages.pictures import RatePoint
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.words import find_project_address, show_share, show_text, show_time
from proctor.service import example
from proctor.service.access.agents import list_agents
from proctor.service.refusals import Refusal

_LATEST = 10
"""Runs on the page of a project."""


async def show_projects(request: Request, source: Source) -> Response:
    """Show all projects with their latest runs."""
    page = await source.list_projects(request.query_params.get("cursor"))
    if source.is_local and len(page["data"]) == 1:
        return redirect(find_project_address(page["data"][0]["id"]))
    rows = [await _summarise_project(source, project) for project in page["data"]]
    return render_page(request, "projects.html", {"rows": rows, "page": page, "source": source})


async def show_project(request: Request, source: Source) -> Response:
    """Show one project: trend, alerts, changes since yesterday, latest runs."""
    project = await find_project(request, source)
    overview = await read_if_allowed(source.read_overview(project["id"], request.query_params.get("since") or None))
    # The first steps, also when something is there.
    steps = "start" in request.query_params
    runs = None if overview is None else (await source.list_runs(project["id"], limit=_LATEST))["data"]
    values = {
        "overview": overview,
        "runs": runs,
        "previous": await source.find_previous_runs(project["id"], runs) if runs else {},
        "rates": [] if overview is None else _list_rates(project["id"], overview.trend),
        "alerts": await source.list_firing_alerts(project["id"]) if overview is None else overview.alerts or [],
        "agents": await _list_agents(request, source, project) if overview is not None and (steps or not runs) else [],
        "steps": steps,
        "since_given": request.query_params.get("since"),
        "causes": {} if overview is None else {change.run_id: split_by_cause(change.newly_failing.cases) for change in overview.suites},
    }
    return render_page(request, "project.html", values)


async def show_missing(request: Request, source: Source) -> Response:
    """Refuse an unknown address with the navigation of its project."""
    await find_project(request, source)
    raise Refusal("NOT_FOUND", "page not found")


async def load_example(request: Request, source: Source) -> Response:
    """Fill the project with example data and show its traces, whose verdicts appear without a reload."""
    await read_form(request)
    desk = open_desk(request, source, to_write=True)
    project = await find_project(request, source)
    await example.load_example(desk.hub, desk.caller, project["id"])
    return redirect(find_project_address(project["id"], "traces"))


async def _list_agents(request: Request, source: Source, project: Record) -> Sequence[Record]:
    if source.is_local:
        return []
    desk = open_desk(request, source)
    return (await list_agents(desk.hub, desk.caller, project_id=project["id"], limit=10))["data"]


async def _summarise_project(source: Source, project: Record) -> Record:
    """Return a project with its trend and last run; None for both if the key may not read runs."""
    alerts = await source.list_firing_alerts(project["id"])
    common = {"about": project, "alerts": alerts, "traces": await source.count_traces(project["id"])}
    try:
        trend = await source.read_trend(project["id"])
        runs = (await source.list_runs(project["id"], limit=1))["data"]
    except Refusal as refusal:
        if refusal.code != "FORBIDDEN":
            raise
        return {**common, "runs": None, "rates": []}
    return {**common, "runs": runs, "rates": [point.rate for point in trend if point.suite_name == trend[-1].suite_name]}


def _list_rates(project_id: str, trend: Sequence[TrendPoint]) -> list[RatePoint]:
    found: list[RatePoint] = []
    for point in trend:
        rate = None if point.rate is None or point.low is None or point.high is None else (point.rate, point.low, point.high)
        name = show_text(point.name or point.suite_name, 60)
        text = f"{name}, {show_time(point.created_at)}: {show_share(point.rate)}" if point.rate is not None else name
        found.append(RatePoint(rate, text, find_project_address(project_id, "runs", point.run_id), point.suite_name))
    return found
