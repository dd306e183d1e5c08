"""Traces of a project: search, facets, live feed, re-evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from proctor.model.cost import PriceList
from proctor.model.json_values import read_digits
from proctor.pages.form_page import Form, returning_form, show_form
from proctor.pages.inputs import read_inputs
from proctor.pages.places import Record, sort_page
from proctor.pages.rendering import redirect
from proctor.pages.screens.cases import list_project_agents
from proctor.pages.screens.run import read_order
from proctor.pages.screens.trace import find_prices, write_cost
from proctor.pages.visit import Visit
from proctor.pages.words import OUTCOMES
from proctor.service.traces import feed, search
from proctor.service.traces.cases import list_cases
from proctor.service.traces.reevaluation import MOST_TRACES, Reevaluation, request_reevaluation
from proctor.service.traces.search import FacetValue, TraceSearch, TraceSummary
from proctor.service.verification.shared import fields
from proctor.service.verification.shared.fields import Field, Table

_ROWS = 40
_LONGEST = 200
Choice = tuple[str, str | None, int, int | None, str, bool]
"""A value of a facet, its name, its count, how many of them failed, its address, and whether it is selected."""
_TEXTS = ("q", "agent", "case", "since", "until", "tool", "metadata")
STATUSES = ("open", "complete", "evaluated", "failed")


async def show_traces(visit: Visit) -> Response:
    """Show a page of traces with the facets of the search."""
    project = await visit.find_project()
    filters = _read_filters(visit.params)
    # First: events from here on are streamed, earlier ones are in what is read below.
    events = None if visit.cursor else _find_event_address(visit, filters.get("agent"))
    wanted = TraceSearch(
        project_id=visit.project_id,
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
    order = read_order(visit.params.get("sort"), tuple(_VALUES))
    listing = partial(visit.call, search.list_traces, wanted)
    if order is None:
        page = await listing(cursor=visit.cursor, limit=_ROWS)
    else:
        find_values = partial(_find_values, project, order.lstrip("-"))
        page = await sort_page(listing, find_values, down=order.startswith("-"), cursor=visit.cursor, limit=_ROWS)
    shown = filters | ({"sort": order} if order else {})
    found = await visit.call(search.count_facets, wanted)
    groups = (("outcome", found.outcomes), ("status", found.statuses), ("agent", found.agents), ("case", found.cases))
    # Filters that re-evaluation supports.
    again = {name: value for name, value in filters.items() if name in ("agent", "case", "since", "until")}
    return visit.render(
        "traces.html",
        page=page,
        failing=await visit.call(search.list_failing_cases, [row["id"] for row in page["data"]]),
        costs=_list_costs(project, page["data"]),
        filters=filters,
        facets=found,
        groups=[(name, _list_choices(name, values, shown)) for name, values in groups if values or filters.get(name)],
        agents={entry["id"]: entry["name"] for entry in await list_project_agents(visit)},
        events=events,
        order=order or "",
        rest="".join(f"&{pair}" for pair in [urlencode(filters)] if pair),
        newest=page["data"][0]["id"] if page["data"] else "",
        again=f"?{urlencode(again)}" if again else "",
    )


def _find_event_address(visit: Visit, agent_id: str | None) -> str:
    """Return the address of the event stream."""
    wanted = {"project_id": visit.project_id, **({"agent_id": agent_id} if agent_id else {}), "after": feed.find_now(visit.hub)}
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


def _list_choices(name: str, values: Sequence[FacetValue], filters: dict[str, str]) -> list[Choice]:
    """Return the values of a facet with their addresses; a selected value links to its removal."""
    chosen = filters.get(name)
    rows = [(entry.value, entry.name, entry.count, entry.failed) for entry in values]
    if chosen is not None and all(value != chosen for value, *_ in rows):
        rows.insert(0, (chosen, None, 0, None))
    found: list[Choice] = []
    for value, label, count, failed in rows[:12]:
        others = {key: text for key, text in filters.items() if key != name}
        address = "?" + urlencode(others if value == chosen else {**others, name: value})
        found.append((value, label, count, failed, address, value == chosen))
    return found


_MOST_CASES = 100
_REEVALUATION: Table = {
    "agent": Field(fields.text(_LONGEST), "empty: every agent"),
    "case": Field(fields.text(_LONGEST), "the traces of the agent, or of the project, that match this case's trace filter"),
    "since": Field(fields.text(_LONGEST), "time received, such as 2026-11-16T09:00Z"),
    "until": Field(fields.text(_LONGEST), "time received, such as 2026-11-16T09:00Z"),
    "trace_ids": Field(fields.TEXTS, f"ids, at most {MOST_TRACES:,}"),
}


async def show_reevaluation(visit: Visit) -> Response:
    """Show the form, filled from the query, or the number of queued traces."""
    visit.require_writer()
    await visit.find_project()
    done = read_digits(visit.params.get("done"), 11)
    if done is not None:
        return visit.render("reevaluation.html", done=done)
    return show_form(visit, await _make_form(visit), {name: visit.params.get(name, "")[:_LONGEST] for name in _REEVALUATION})


async def send_reevaluation(visit: Visit) -> Response:
    """Queue traces for re-evaluation and show their number."""
    body = await visit.read_form()
    visit.require_writer()
    await visit.find_project()
    with returning_form(visit, await _make_form(visit), body, "NOT_FOUND"):
        inputs = read_inputs(_REEVALUATION, body)
        ids = list(dict.fromkeys(" ".join(inputs.get("trace_ids", [])).split()))
        queued = await visit.call(
            request_reevaluation,
            Reevaluation(
                project_id=visit.project_id,
                agent_id=inputs.get("agent"),
                case_id=inputs.get("case"),
                trace_ids=ids or None,
                since=inputs.get("since"),
                until=inputs.get("until"),
            ),
        )
    return redirect(f"{visit.find_address('traces', 'reevaluate')}?done={queued['traces']}")


async def _make_form(visit: Visit) -> Form:
    cases = (await visit.call(list_cases, project_id=visit.project_id, limit=_MOST_CASES))["data"]
    feed_address = visit.find_address("traces")
    return Form(
        title="Re-evaluate traces",
        about="Evaluates traces with the current cases, including traces that could not be read before. Results of the same case version "
        "are replaced. Filters are combined. With no filter, every trace of the project is re-evaluated; judge calls are billed.",
        action=f"{feed_address}/reevaluate",
        button="Re-evaluate",
        back=feed_address,
        fields=_REEVALUATION,
        choices={
            "agent": [(entry["id"], entry["name"]) for entry in await list_project_agents(visit)],
            "case": [(entry["id"], entry["name"]) for entry in cases],
        },
        crumbs=visit.list_crumbs("traces", "Traces"),
    )
