"""The traces of a project as they come in: searched, filtered by what they have in common, live on the first page."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.ports import Source
from proctor.pages.rendering import render_page
from proctor.pages.trace_source import TraceSource
from proctor.pages.words import OUTCOMES
from proctor.service.traces.search import TraceSearch

_ROWS = 40
_LONGEST = 200
Value = tuple[str, str | None, int]
"""A value of a facet, its name, and how many have it."""
Choice = tuple[str, str | None, int, str, bool]
"""The same with the address it leads to, and whether it is chosen."""
STATUSES = ("open", "complete", "evaluated", "failed")


async def show_traces(request: Request, source: Source) -> Response:
    """Show a page of traces with the facets of the search."""
    seen = TraceSource.of_request(request)
    project = await source.get_project(request.path_params["project"])
    asked = _read_filters(request.query_params)
    cursor = request.query_params.get("cursor")
    # Before anything is read: what happens from here on is told, and what happened before is in what is read now.
    events = None if cursor else seen.find_event_address(project["id"], asked.get("agent"))
    wanted = TraceSearch(
        project_id=project["id"],
        agent_id=asked.get("agent"),
        outcome=asked.get("outcome"),
        status=asked.get("status"),
        case_id=asked.get("case"),
        since=asked.get("since"),
        until=asked.get("until"),
        query=asked.get("q"),
    )
    page = await seen.list_traces(wanted, cursor, _ROWS)
    found = await seen.count_facets(wanted)
    agents = {one["id"]: one["name"] for one in await seen.list_agents(project["id"])}
    groups = [
        (name, [(one.value, one.name, one.count) for one in values])
        for name, values in (("outcome", found.outcomes), ("status", found.statuses), ("agent", found.agents), ("case", found.cases))
    ]
    values = {
        "project": project,
        "source": source,
        "page": page,
        "asked": asked,
        "facets": found,
        "groups": [(name, _list_choices(name, rows, asked)) for name, rows in groups if rows or asked.get(name)],
        "agents": agents,
        "events": events,
        "rest": "".join(f"&{pair}" for pair in [urlencode(asked)] if pair),
        "newest": page["data"][0]["id"] if page["data"] else "",
        # What can be asked for again: nothing but the place and the time of a trace.
        "again": _write_query({name: value for name, value in asked.items() if name in ("agent", "case", "since", "until")}),
    }
    return render_page(request, "traces.html", values)


def _read_filters(params: Mapping[str, str]) -> dict[str, str]:
    asked = {name: params[name].strip()[:_LONGEST] for name in ("q", "agent", "case", "since", "until") if params.get(name, "").strip()}
    if params.get("outcome") in OUTCOMES:
        asked["outcome"] = params["outcome"]
    if params.get("status") in STATUSES:
        asked["status"] = params["status"]
    return asked


def _write_query(values: dict[str, str]) -> str:
    return f"?{urlencode(values)}" if values else ""


def _list_choices(name: str, rows: list[Value], asked: dict[str, str]) -> list[Choice]:
    """Return the values of a facet with where they lead; what is chosen leads back."""
    found: list[Choice] = []
    chosen = asked.get(name)
    if chosen is not None and all(value != chosen for value, _, _ in rows):
        rows = [(chosen, None, 0), *rows]
    for value, shown, count in rows[:12]:
        others = {key: kept for key, kept in asked.items() if key != name}
        address = "?" + urlencode(others if value == chosen else {**others, name: value})
        found.append((value, shown, count, address, value == chosen))
    return found
