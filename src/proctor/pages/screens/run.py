"""One run: live while it goes on; what went wrong first, grouped by reason; then every attempt."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from proctor.actions.history.failures import Failures
from proctor.pages.forms import read_form
from proctor.pages.ports import FIRST, Place, Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.words import OUTCOMES, find_project_address, read_number
from proctor.report.words.html_text import duration_words
from proctor.service.refusals import Refusal, not_found
from proctor.service.runs.results import LONGEST_TEXT, AttemptFilter

T = TypeVar("T")
PAGE = 50
"""Attempts on one page."""
_NOTHING = Failures(groups=(), looked_at=0, more=False)


async def show_run(request: Request, source: Source) -> Response:
    """Show a run with a page of its attempts."""
    # Asked for first: what happens from here on is told, and what happened before is in what is read now.
    events = await source.find_event_address(request.path_params["run"])
    project, run = await find_run(request, source)
    wanted = _read_filter(request)
    place = _read_place(request)
    went_wrong = run["counts"].get("fail", 0) + run["counts"].get("error", 0)
    is_live = run["status"] in ("queued", "running")
    # Together: each of them waits for its own connection most of the time.
    page, failures, before, latency = await asyncio.gather(
        source.list_results(run["id"], wanted, place=place),
        source.group_failures(run["id"]) if went_wrong else _give(_NOTHING),
        _give(None) if is_live else source.find_run_before(run),
        _give(None) if is_live else source.measure_latency(run["id"]),
    )
    if not page["data"] and place.position and page["_meta"]["total"]:
        # Behind the last row: the last page is what somebody meant.
        place = Place(position=(page["_meta"]["total"] - 1) // PAGE * PAGE)
        page = await source.list_results(run["id"], wanted, place=place)
    values = {
        "project": project,
        "source": source,
        "run": run,
        "page": page,
        "outcome": wanted.outcome,
        "case": wanted.case,
        "text": wanted.text,
        "outcomes": OUTCOMES,
        "is_live": is_live,
        "failures": failures,
        "went_wrong": went_wrong,
        "before": before,
        "latency": latency,
        "events": events,
        "pace": _find_pace(run, datetime.now(UTC)) if is_live else None,
    }
    return render_page(request, "run.html", values)


async def _give(value: T) -> T:
    return value


async def show_rows(request: Request, source: Source) -> Response:
    """Show some rows of the list of attempts by themselves, for the window over a long one."""
    project, run = await find_run(request, source)
    page = await source.list_results(run["id"], _read_filter(request), place=_read_place(request))
    here = find_project_address(project["id"], "runs", run["id"])
    return render_page(request, "run_rows.html", {"project": project, "source": source, "run": run, "page": page, "here": here})


def _read_filter(request: Request) -> AttemptFilter:
    asked = request.query_params
    outcome = asked.get("outcome") if asked.get("outcome") in OUTCOMES else None
    text = asked.get("q", "").strip()[:LONGEST_TEXT]
    return AttemptFilter(outcome=outcome, case=asked.get("case") or None, text=text or None)


def _read_place(request: Request) -> Place:
    """Return where a page of attempts begins: at a cursor, at a position, or at the row that somebody typed."""
    asked = request.query_params
    if asked.get("cursor"):
        return Place(cursor=asked["cursor"])
    if asked.get("row"):
        row = max(0, read_number(asked["row"].replace(",", "").replace(".", "").strip(), 2**31) - 1)
        return Place(position=row // PAGE * PAGE)
    return Place(position=read_number(asked.get("position"), 2**31)) if asked.get("position") else FIRST


async def cancel_run(request: Request, source: Source) -> Response:
    """End a run, and show it."""
    await read_form(request)
    if source.is_local:
        raise Refusal("FORBIDDEN", "runs of this folder are ended where they were started")
    project, run = await find_run(request, source)
    await source.cancel_run(run["id"])
    return redirect(find_project_address(project["id"], "runs", run["id"]))


async def find_run(request: Request, source: Source) -> tuple[Record, Record]:
    """Return the project and the run that an address names. Raises `Refusal` when one is not there, or the run is of another project."""
    project = await source.get_project(request.path_params["project"])
    run = await source.get_run(request.path_params["run"])
    if run["project_id"] != project["id"]:
        raise not_found("run", run["id"])
    return project, run


def _find_pace(run: Record, now: datetime) -> Record | None:
    """Return how many attempts a minute are finished, and how long the rest will take at that rate."""
    if not run["started_at"] or not run["finished"]:
        return None
    seconds = (now - datetime.fromisoformat(run["started_at"])).total_seconds()
    if seconds <= 0:
        return None
    left_s = max(0, run["attempts"] - run["finished"]) * seconds / run["finished"]
    rate = run["finished"] / seconds * 60
    # Slow agents finish less than one in a minute, or in an hour, which is not none.
    told = f"{rate:,.{0 if rate >= 10 else 1 if rate >= 1 else 2}f}" if rate >= 0.01 else f"< {0.01:,.2f}"
    return {"rate": told, "left": duration_words(left_s * 1000)}
