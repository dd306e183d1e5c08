"""Projects with trend and alerts, and the overview of one project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from proctor.actions.history.compare_several import split_by_cause
from proctor.actions.history.overview import TrendPoint
from proctor.pages.pictures import RatePoint
from proctor.pages.places import Record
from proctor.pages.rendering import redirect
from proctor.pages.visit import Source, Visit, read_if_allowed
from proctor.pages.words import find_project_address, show_share, show_text, show_time
from proctor.service import example
from proctor.service.access.agents import list_agents
from proctor.service.refusals import Refusal

_LATEST = 10
"""Runs on the page of a project."""


async def show_projects(visit: Visit) -> Response:
    """Show all projects with their latest runs."""
    page = await visit.source.list_projects(visit.cursor)
    if visit.source.is_local:
        return redirect(find_project_address(page["data"][0]["id"]))
    rows = [await _summarise_project(visit.source, project) for project in page["data"]]
    return visit.render("projects.html", rows=rows, page=page)


async def show_project(visit: Visit) -> Response:
    """Show one project: trend, alerts, changes since yesterday, latest runs."""
    await visit.find_project()
    source, id, since = visit.source, visit.project_id, visit.params.get("since") or None
    overview = await read_if_allowed(source.read_overview(id, since))
    if overview is None:
        values: dict[str, Any] = {"runs": None, "previous": {}, "rates": [], "alerts": await source.list_firing_alerts(id), "causes": {}}
    else:
        runs = (await source.list_runs(id, limit=_LATEST))["data"]
        values = {
            "runs": runs,
            "previous": await source.find_previous_runs(id, runs) if runs else {},
            "rates": [_make_rate(visit, point) for point in overview.trend],
            "alerts": overview.alerts or [],
            "causes": {change.run_id: split_by_cause(change.newly_failing.cases) for change in overview.suites},
        }
    # The first steps, also when something is there.
    steps = "start" in visit.params
    agents: Sequence[Record] = []
    if not source.is_local and overview is not None and (steps or not values["runs"]):
        agents = (await visit.call(list_agents, project_id=id, limit=10))["data"]
    return visit.render("project.html", overview=overview, agents=agents, steps=steps, since_given=visit.params.get("since"), **values)


async def show_missing(visit: Visit) -> Response:
    """Refuse an unknown address with the navigation of its project."""
    await visit.find_project()
    raise Refusal("NOT_FOUND", "page not found")


async def load_example(visit: Visit) -> Response:
    """Fill the project with example data and show its traces, whose verdicts appear without a reload."""
    await visit.read_form()
    visit.require_writer()
    await visit.find_project()
    await visit.call(example.load_example, visit.project_id)
    return redirect(visit.find_address("traces"))


async def _summarise_project(source: Source, project: Record) -> Record:
    """Return a project with its trend and last run; None for both if the key may not read runs."""
    alerts = await source.list_firing_alerts(project["id"])
    common = {"about": project, "alerts": alerts, "traces": await source.count_traces(project["id"])}
    trend = await read_if_allowed(source.read_trend(project["id"]))
    if trend is None:
        return {**common, "runs": None, "rates": []}
    runs = (await source.list_runs(project["id"], limit=1))["data"]
    return {**common, "runs": runs, "rates": [point.rate for point in trend if point.suite_name == trend[-1].suite_name]}


def _make_rate(visit: Visit, point: TrendPoint) -> RatePoint:
    rate = None if point.rate is None or point.low is None or point.high is None else (point.rate, point.low, point.high)
    name = show_text(point.name or point.suite_name, 60)
    text = f"{name}, {show_time(point.created_at)}: {show_share(point.rate)}" if point.rate is not None else name
    return RatePoint(rate, text, visit.find_address("runs", point.run_id), point.suite_name)
