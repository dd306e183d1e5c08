"""Cases of a project, and one case: document, versions, diffs, history over runs and traces."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.model.json_values import read_digits
from proctor.pages.desk import Desk, find_in_project, find_project, open_desk, read_if_allowed
from proctor.pages.forms import read_form
from proctor.pages.pictures import draw_history
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.words import find_project_address, show_share
from proctor.report.words.wording import count_noun
from proctor.service.access.agents import list_agents
from proctor.service.refusals import Refusal
from proctor.service.resource import Page
from proctor.service.runs import requests as backtests
from proctor.service.runs.run import RunSearch
from proctor.service.traces import case_history, cases
from proctor.service.traces.case_history import CaseInRun, summarize_cases

# --- diff of two versions of a document

MOST_LINES = 1_000
"""Lines; comparing is quadratic."""
_MOST_SHOWN = 300
_LONGEST_LINE = 400
_AROUND = 3

Kind = Literal["same", "gone", "new", "gap"]


class DiffLine(msgspec.Struct, frozen=True):
    """One line of a diff with its old and new number."""

    kind: Kind
    before: int | None
    after: int | None
    text: str


class DocumentDiff(msgspec.Struct, frozen=True):
    """A diff with context lines."""

    lines: list[DiffLine]
    gone: int
    new: int
    more: bool
    """Whether it was cut."""


def compare_documents(before: str, after: str) -> DocumentDiff | None:
    """Return the diff of two documents; None if they are too long."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > MOST_LINES:
        return None
    lines: list[DiffLine] = []
    removed = added = 0
    matcher = difflib.SequenceMatcher(a=old, b=new)
    for number, group in enumerate(matcher.get_grouped_opcodes(_AROUND)):
        if number:
            lines.append(DiffLine("gap", None, None, ""))
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                pairs = zip(range(old_from, old_to), range(new_from, new_to), strict=True)
                lines += [DiffLine("same", a + 1, b + 1, old[a][:_LONGEST_LINE]) for a, b in pairs]
                continue
            lines += [DiffLine("gone", at + 1, None, old[at][:_LONGEST_LINE]) for at in range(old_from, old_to)]
            lines += [DiffLine("new", None, at + 1, new[at][:_LONGEST_LINE]) for at in range(new_from, new_to)]
            removed, added = removed + old_to - old_from, added + new_to - new_from
    return DocumentDiff(lines[:_MOST_SHOWN], removed, added, len(lines) > _MOST_SHOWN)


_ROWS = 25
"""Cases per page."""
_MOST_AGENTS = 100
_HISTORY = 30
"""Runs or days of a history per page."""
_VERSIONS = 50
_LONGEST_SHOWN = 60_000
"""Characters of a document that a page shows."""


_RECENT_RUNS = 50
"""Runs in which suites are looked for."""


async def _list_suites(source: Source, project_id: str) -> list[Record]:
    """Return the latest run of each suite that was sent with a run, and so has cases outside the project's own."""
    found = await read_if_allowed(source.list_runs(project_id, RunSearch(status="completed"), limit=_RECENT_RUNS))
    latest: dict[str, Record] = {}
    for run in [] if found is None else found["data"]:
        if not run.get("backtest"):
            latest.setdefault(run["suite_name"], run)
    return list(latest.values())


async def show_cases(request: Request, source: Source) -> Response:
    """Show a page of cases with their last outcome and recent history."""
    desk = open_desk(request, source)
    project = await find_project(request, source)
    params = request.query_params
    filters = {"agent_id": params.get("agent") or None, "query": (params.get("query") or "").strip()[: cases.LONGEST_QUERY] or None}
    active = {"active": True, "paused": False}.get(params.get("state", ""))
    page = await cases.list_cases(
        desk.hub, desk.caller, project_id=project["id"], active=active, **filters, limit=_ROWS, cursor=params.get("cursor")
    )
    values = {
        "page": page,
        "standings": await summarize_cases(desk.hub, desk.caller, project["id"], [case["id"] for case in page["data"]]),
        "agents": await list_project_agents(desk, project["id"]),
        "state": params.get("state") if active is not None else None,
        "query": filters["query"] or "",
        "suites": [] if params.get("cursor") else await _list_suites(source, project["id"]),
        "agent": filters["agent_id"],
    }
    return render_page(request, "cases.html", values)


async def show_case(request: Request, source: Source) -> Response:
    """Show one case."""
    desk, project, case = await find_case(request, source)
    params = request.query_params
    versions = await cases.list_versions(desk.hub, desk.caller, case["id"], limit=_VERSIONS, cursor=params.get("versions"))
    over_runs = await _read_run_history(desk, case["id"], params.get("key") or None, params.get("cursor"))
    by_day = await case_history.list_trace_history(desk.hub, desk.caller, case["id"], key=params.get("key") or None, limit=_HISTORY)
    values = {
        "case": case,
        "longest": _LONGEST_SHOWN,
        "agents": await list_project_agents(desk, project["id"]),
        "versions": versions,
        "key": params.get("key"),
        "change": await _read_change(desk, case, params.get("from"), params.get("to")),
        "over_runs": over_runs,
        "by_day": by_day,
        "runs_chart": None if over_runs is None else draw_history(over_runs["data"], say_history("runs", over_runs["data"])),
        "days_chart": draw_history(by_day["data"], say_history("days", by_day["data"])),
    }
    return render_page(request, "case.html", values)


async def switch_case(request: Request, source: Source) -> Response:
    """Pause or resume a case."""
    form = await read_form(request)
    desk, project, case = await find_case(request, source, to_write=True)
    active = form.get("active") == "yes"
    await (cases.resume_case if active else cases.pause_case)(desk.hub, desk.caller, case["id"])
    return redirect(find_case_address(project["id"], case["id"]))


async def start_backtest(request: Request, source: Source) -> Response:
    """Start a backtest on stored traces and show its run."""
    form = await read_form(request)
    desk, project, case = await find_case(request, source, to_write=True)
    entered = form.get("limit", "").strip()
    limit = read_digits(entered, 6)
    if limit is None:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={"limit": [f"expected a number, found {entered[:80]!r}"]})
    run = await backtests.start_backtest(desk.hub, desk.caller, case["id"], backtests.NewBacktest(limit=limit))
    return redirect(find_project_address(project["id"], "runs", str(run["id"])))


async def delete_case(request: Request, source: Source) -> Response:
    """Delete a case after confirmation."""
    form = await read_form(request)
    desk, project, case = await find_case(request, source, to_write=True)
    if form.get("sure") != "yes":
        return redirect(find_case_address(project["id"], case["id"]) + "#delete")
    await cases.delete_case(desk.hub, desk.caller, case["id"])
    return redirect(find_project_address(project["id"], "cases"))


async def find_case(request: Request, source: Source, *, to_write: bool = False) -> tuple[Desk, Record, Record]:
    """Return the project and the case that the path names. Raises `Refusal` if either is missing or they do not belong together."""
    return open_desk(request, source, to_write=to_write), *await find_in_project(request, source, "case", cases.get_case)


def find_case_address(project_id: str, case_id: str) -> str:
    """Return the address of a case."""
    return find_project_address(project_id, "cases", case_id)


async def list_project_agents(desk: Desk, project_id: str) -> Sequence[Record]:
    """Return the newest agents of a project."""
    page = await list_agents(desk.hub, desk.caller, project_id=project_id, limit=_MOST_AGENTS)
    return page["data"]


async def _read_run_history(desk: Desk, id: str, key: str | None, cursor: str | None) -> Page[CaseInRun] | None:
    """Return the history over runs; None if the key may not read runs."""
    history = case_history.list_run_history(desk.hub, desk.caller, id, key=key, limit=_HISTORY, cursor=cursor)
    return await read_if_allowed(history)


async def _read_change(desk: Desk, case: Record, before: str | None, after: str | None) -> Record | None:
    """Return the diff of two versions; None if none are requested."""
    if not (before and after and before.isdecimal() and after.isdecimal() and len(before) < 10 and len(after) < 10):
        return None
    old, new = [await cases.get_version(desk.hub, desk.caller, case["id"], int(version)) for version in (before, after)]
    return {"before": old, "after": new, "diff": await asyncio.to_thread(compare_documents, old["document"], new["document"])}


def say_history(kind: str, rows: Sequence[Record]) -> str:
    """Return the text alternative of a history chart."""
    decided = [row for row in rows if row["pass_rate"] is not None]
    if not decided:
        return ""
    last = decided[0]
    preposition, noun = ("in", "run") if kind == "runs" else ("on", "day")
    counted = f"{preposition} {count_noun(len(decided), noun)}"
    rates = f"Pass rate {counted}:" if len(decided) == 1 else f"Pass rates {counted}; {preposition} the newest"
    confidence = f"95 % interval {show_share(last['low'])} to {show_share(last['high'])}"
    lowest, highest = (show_share(bound(row["pass_rate"] for row in decided)) for bound in (min, max))
    return f"{rates} {show_share(last['pass_rate'])}, {confidence}; lowest {lowest}, highest {highest}"
