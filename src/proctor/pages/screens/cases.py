"""The cases of a project, and one of them: its document, its versions and what changed, how it came out over runs and traces."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from proctor.model.json_values import read_digits
from proctor.pages.desk import Desk, find_in_project, open_desk, read_if_allowed
from proctor.pages.document_diff import compare_documents
from proctor.pages.forms import read_form
from proctor.pages.pictures import draw_history
from proctor.pages.ports import Page, Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.words import find_project_address, show_share
from proctor.report.words.wording import count_noun
from proctor.service.access.agents import list_agents
from proctor.service.refusals import Refusal
from proctor.service.runs import requests as backtests
from proctor.service.traces import case_history, cases
from proctor.service.traces.case_history import summarize_cases

_ROWS = 25
"""Cases on a page: of each the latest runs and results are looked at."""
_MOST_AGENTS = 100
_HISTORY = 30
"""Runs, or days, of a history on one page."""
_VERSIONS = 50
_LONGEST_SHOWN = 60_000
"""Characters of a document that a page shows; the rest is in the editor."""


async def show_cases(request: Request, source: Source) -> Response:
    """Show a page of cases, each with its last outcome and how the latest runs went."""
    desk = open_desk(request, source)
    project = await source.get_project(request.path_params["project"])
    asked = request.query_params
    wanted = {"agent_id": asked.get("agent") or None, "query": (asked.get("query") or "").strip()[: cases.LONGEST_QUERY] or None}
    active = {"active": True, "paused": False}.get(asked.get("state", ""))
    page: Page = await cases.list_cases(
        desk.hub, desk.caller, project_id=project["id"], active=active, **wanted, limit=_ROWS, cursor=asked.get("cursor")
    )
    values = {
        "project": project,
        "source": source,
        "page": page,
        "standings": await summarize_cases(desk.hub, desk.caller, project["id"], [case["id"] for case in page["data"]]),
        "agents": await list_project_agents(desk, project["id"]),
        "state": asked.get("state") if active is not None else None,
        "query": wanted["query"] or "",
        "agent": wanted["agent_id"],
    }
    return render_page(request, "cases.html", values)


async def show_case(request: Request, source: Source) -> Response:
    """Show one case."""
    desk, project, case = await find_case(request, source)
    asked = request.query_params
    versions = await cases.list_versions(desk.hub, desk.caller, case["id"], limit=_VERSIONS, cursor=asked.get("versions"))
    over_runs = await _read_run_history(desk, case["id"], asked.get("key") or None, asked.get("cursor"))
    by_day = await case_history.list_trace_history(desk.hub, desk.caller, case["id"], key=asked.get("key") or None, limit=_HISTORY)
    values = {
        "project": project,
        "source": source,
        "case": case,
        "longest": _LONGEST_SHOWN,
        "agents": await list_project_agents(desk, project["id"]),
        "versions": versions,
        "key": asked.get("key"),
        "change": await _read_change(desk, case, asked.get("from"), asked.get("to")),
        "over_runs": over_runs,
        "by_day": by_day,
        "runs_chart": None if over_runs is None else draw_history(over_runs["data"], _say("runs", over_runs["data"])),
        "days_chart": draw_history(by_day["data"], _say("days", by_day["data"])),
    }
    return render_page(request, "case.html", values)


async def switch_case(request: Request, source: Source) -> Response:
    """Pause a case, or let it decide again."""
    form = await read_form(request)
    desk, project, case = await find_case(request, source, to_write=True)
    active = form.get("active") == "yes"
    await cases.update_case(desk.hub, desk.caller, case["id"], {"active": active}, action="resume" if active else "pause")
    return redirect(find_case_address(project["id"], case["id"]))


async def start_backtest(request: Request, source: Source) -> Response:
    """Have a case decided on kept traces, and show the run."""
    form = await read_form(request)
    desk, project, case = await find_case(request, source, to_write=True)
    given = form.get("limit", "").strip()
    limit = read_digits(given, 6)
    if limit is None:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={"limit": [f"expected a number, found {given[:80]!r}"]})
    run = await backtests.start_backtest(desk.hub, desk.caller, case["id"], backtests.BacktestSpec(limit=limit))
    return redirect(find_project_address(project["id"], "runs", str(run["id"])))


async def delete_case(request: Request, source: Source) -> Response:
    """Delete a case, once somebody has ticked that they mean it."""
    form = await read_form(request)
    desk, project, case = await find_case(request, source, to_write=True)
    if form.get("sure") != "yes":
        return redirect(find_case_address(project["id"], case["id"]) + "#delete")
    await cases.delete_case(desk.hub, desk.caller, case["id"])
    return redirect(find_project_address(project["id"], "cases"))


async def find_case(request: Request, source: Source, *, to_write: bool = False) -> tuple[Desk, Record, Record]:
    """Return the project and the case that an address names. Raises `Refusal` when one is not there, or the case is of another project."""
    return open_desk(request, source, to_write=to_write), *await find_in_project(request, source, "case", cases.get_case)


def find_case_address(project_id: str, case_id: str) -> str:
    """Return the address of a case."""
    return find_project_address(project_id, "cases", case_id)


async def list_project_agents(desk: Desk, project_id: str) -> list[Record]:
    """Return the newest agents of a project, to be chosen from."""
    page: Page = await list_agents(desk.hub, desk.caller, project_id=project_id, limit=_MOST_AGENTS)
    return page["data"]


async def _read_run_history(desk: Desk, id: str, key: str | None, cursor: str | None) -> Page | None:
    """Return the history over runs; None where the reader's key does not read runs."""
    history = case_history.list_run_history(desk.hub, desk.caller, id, key=key, limit=_HISTORY, cursor=cursor)
    return await read_if_allowed(history)


async def _read_change(desk: Desk, case: Record, before: str | None, after: str | None) -> Record | None:
    """Return what changed between two versions; None where none are asked for."""
    if not (before and after and before.isdecimal() and after.isdecimal() and len(before) < 10 and len(after) < 10):
        return None
    old, new = [await cases.get_version(desk.hub, desk.caller, case["id"], int(version)) for version in (before, after)]
    return {"before": old, "after": new, "diff": await asyncio.to_thread(compare_documents, old["document"], new["document"])}


def _say(kind: str, rows: list[Record]) -> str:
    """Return what a picture of a history shows, in words."""
    decided = [row for row in rows if row["pass_rate"] is not None]
    if not decided:
        return ""
    last = decided[0]
    preposition, noun = ("in", "run") if kind == "runs" else ("on", "day")
    shown = f"{preposition} {count_noun(len(decided), noun)}"
    rates = f"Pass rate {shown}:" if len(decided) == 1 else f"Pass rates {shown}; {preposition} the newest"
    confidence = f"with 95 % confidence between {show_share(last['low'])} and {show_share(last['high'])}"
    lowest, highest = (show_share(bound(row["pass_rate"] for row in decided)) for bound in (min, max))
    return f"{rates} {show_share(last['pass_rate'])}, {confidence}; lowest {lowest}, highest {highest}"
