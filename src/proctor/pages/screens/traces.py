"""Traces of a project: search, facets, live feed, re-evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from proctor.model.cost import PriceList
from proctor.model.json_values import read_digits
from proctor.pages.desk import Desk, find_project, open_desk
from proctor.pages.forms import read_form
from proctor.pages.places import sort_page
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.screens.cases import list_project_agents
from proctor.pages.screens.run import read_order
from proctor.pages.screens.trace import find_prices, write_cost
from proctor.pages.words import OUTCOMES, find_project_address
from proctor.service.refusals import Refusal
from proctor.service.traces import feed, search
from proctor.service.traces.cases import list_cases
from proctor.service.traces.reevaluation import MOST_TRACES, Reevaluation, request_reevaluation
from proctor.service.traces.search import TraceSearch, TraceSummary

_ROWS = 40
_LONGEST = 200
Value = tuple[str, str | None, int, int | None]
"""A value of a facet, its name, its count, and how many of them failed."""
Choice = tuple[str, str | None, int, int | None, str, bool]
"""The same with its address and whether it is selected."""
_TEXTS = ("q", "agent", "case", "since", "until", "tool", "metadata")
STATUSES = ("open", "complete", "evaluated", "failed")


async def show_traces(request: Request, source: Source) -> Response:
    """Show a page of traces with the facets of the search."""
    desk = open_desk(request, source)
    project = await find_project(request, source)
    filters = _read_filters(request.query_params)
    cursor = request.query_params.get("cursor")
    # First: events from here on are streamed, earlier ones are in what is read below.
    events = None if cursor else _find_event_address(desk, project["id"], filters.get("agent"))
    wanted = TraceSearch(
        project_id=project["id"],
        agent_id=filters.get("agent"),
        outcome=filters.get("outcome"),
        status=filters.get("status"),
        case_id=filters.get("case"),
        since=filters.get("since"),
        until=filters.get("until"),
        query=filters.get("q"),
        tool=filters.get("tool"),
        metadata=[filters["metadata"]] if "metadata" in filters else None,
    )
    order = read_order(request.query_params.get("sort"), tuple(_VALUES))
    listing = partial(search.list_traces, desk.hub, desk.caller, wanted)
    if order is None:
        page = await listing(cursor=cursor, limit=_ROWS)
    else:
        find_values = partial(_find_values, project, order.lstrip("-"))
        page = await sort_page(listing, find_values, down=order.startswith("-"), cursor=cursor, limit=_ROWS)
    shown = filters | ({"sort": order} if order else {})
    found = await search.count_facets(desk.hub, desk.caller, wanted)
    agents = {entry["id"]: entry["name"] for entry in await list_project_agents(desk, project["id"])}
    groups = [
        (name, [(entry.value, entry.name, entry.count, entry.failed) for entry in values])
        for name, values in (("outcome", found.outcomes), ("status", found.statuses), ("agent", found.agents), ("case", found.cases))
    ]
    values = {
        "page": page,
        "failing": await search.list_failing_cases(desk.hub, desk.caller, [row["id"] for row in page["data"]]),
        "costs": _list_costs(project, page["data"]),
        "filters": filters,
        "facets": found,
        "groups": [(name, _list_choices(name, rows, shown)) for name, rows in groups if rows or filters.get(name)],
        "agents": agents,
        "events": events,
        "order": order or "",
        "rest": "".join(f"&{pair}" for pair in [urlencode(filters)] if pair),
        "newest": page["data"][0]["id"] if page["data"] else "",
        # Filters that re-evaluation supports.
        "again": _write_query({name: value for name, value in filters.items() if name in ("agent", "case", "since", "until")}),
    }
    return render_page(request, "traces.html", values)


def _find_event_address(desk: Desk, project_id: str, agent_id: str | None) -> str:
    """Return the address of the event stream."""
    wanted = {"project_id": project_id, **({"agent_id": agent_id} if agent_id else {}), "after": feed.find_now(desk.hub)}
    return f"/api/traces/events?{urlencode(wanted)}"


def _list_costs(project: Record, rows: Sequence[TraceSummary]) -> dict[str, str]:
    """Return the cost of each trace, as far as it is known."""
    prices = find_prices(project)
    costs = {row["id"]: row["digest"].find_cost(prices) for row in rows}
    return {id: write_cost(cost, prices) for id, cost in costs.items() if cost is not None and prices is not None}


_VALUES: dict[str, Callable[[TraceSummary, PriceList | None], Any]] = {
    "duration": lambda row, prices: row["digest"].duration_ms,
    "tokens": lambda row, prices: None if row["digest"].usage is None else row["digest"].usage.total(),
    "cost": lambda row, prices: row["digest"].find_cost(prices),
    "received": lambda row, prices: row["created_at"],
}
"""What columns are sorted by."""


async def _find_values(project: Record, name: str, rows: Sequence[TraceSummary]) -> list[Any]:
    prices = find_prices(project)
    return [_VALUES[name](row, prices) for row in rows]


def _read_filters(params: Mapping[str, str]) -> dict[str, str]:
    filters = {name: params[name].strip()[:_LONGEST] for name in _TEXTS if params.get(name, "").strip()}
    if params.get("outcome") in OUTCOMES:
        filters["outcome"] = params["outcome"]
    if params.get("status") in STATUSES:
        filters["status"] = params["status"]
    return filters


def _write_query(values: dict[str, str]) -> str:
    return f"?{urlencode(values)}" if values else ""


def _list_choices(name: str, rows: list[Value], filters: dict[str, str]) -> list[Choice]:
    """Return the values of a facet with their addresses; a selected value links to its removal."""
    found: list[Choice] = []
    chosen = filters.get(name)
    if chosen is not None and all(value != chosen for value, *_ in rows):
        rows = [(chosen, None, 0, None), *rows]
    for value, label, count, failed in rows[:12]:
        others = {key: text for key, text in filters.items() if key != name}
        address = "?" + urlencode(others if value == chosen else {**others, name: value})
        found.append((value, label, count, failed, address, value == chosen))
    return found


_MOST_CASES = 100
_NAMES = ("agent", "case", "since", "until", "trace_ids")
_LONGEST_FIELD = 200
"""Characters of a query parameter."""


async def show_reevaluation(request: Request, source: Source) -> Response:
    """Show the form, filled from the query, or the number of queued traces."""
    desk = open_desk(request, source, to_write=True)
    project = await find_project(request, source)
    form = {name: request.query_params.get(name, "")[:_LONGEST_FIELD] for name in _NAMES}
    return await _show_form(request, desk, project, form, done=read_digits(request.query_params.get("done"), 11))


async def send_reevaluation(request: Request, source: Source) -> Response:
    """Queue traces for re-evaluation and show their number."""
    form: Record = dict(await read_form(request, proven=False))
    desk = open_desk(request, source, to_write=True)
    project = await find_project(request, source)
    if not request.state.form_proven:
        return await _show_form(request, desk, project, form, lost="proof", status=403)
    try:
        queued = await request_reevaluation(desk.hub, desk.caller, _read_request(project["id"], form))
    except Refusal as refusal:
        return await _show_form(request, desk, project, form, refusal=refusal, status=refusal.status)
    return redirect(f"{find_project_address(project['id'], 'traces', 'reevaluate')}?done={queued['traces']}")


def _read_request(project_id: str, form: Record) -> Reevaluation:
    ids = list(dict.fromkeys(form.get("trace_ids", "").split()))
    return Reevaluation(
        project_id=project_id,
        agent_id=form.get("agent") or None,
        case_id=form.get("case") or None,
        trace_ids=ids or None,
        since=form.get("since", "").strip() or None,
        until=form.get("until", "").strip() or None,
    )


async def _show_form(request: Request, desk: Desk, project: Record, form: Record, *, status: int = 200, **more: Any) -> Response:
    cases = await list_cases(desk.hub, desk.caller, project_id=project["id"], limit=_MOST_CASES)
    values = {
        "form": form,
        "agents": [(entry["id"], entry["name"]) for entry in await list_project_agents(desk, project["id"])],
        "cases": [(entry["id"], entry["name"]) for entry in cases["data"]],
        "most": MOST_TRACES,
        "done": None,
        "lost": None,
        "refusal": None,
        **more,
    }
    return render_page(request, "reevaluation.html", values, status=status)
