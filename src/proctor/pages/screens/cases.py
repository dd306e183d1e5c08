"""Cases of a project, and one case: document, versions, diffs, history over runs and traces."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence
from typing import Literal

import msgspec
from starlette.responses import Response

from proctor.model.json_values import read_digits
from proctor.pages.pictures import draw_history
from proctor.pages.places import Record
from proctor.pages.rendering import redirect
from proctor.pages.visit import Visit, read_if_allowed
from proctor.pages.words import show_share
from proctor.report.words.wording import count_noun
from proctor.service.access.agents import list_agents
from proctor.service.refusals import Refusal
from proctor.service.runs import requests as backtests
from proctor.service.runs.run import RunSearch
from proctor.service.traces import case_history, cases
from proctor.service.traces.case_history import summarize_cases

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


async def _list_suites(visit: Visit) -> list[Record]:
    """Return the latest run of each suite that was sent with a run, and so has cases outside the project's own."""
    found = await read_if_allowed(visit.source.list_runs(visit.project_id, RunSearch(status="completed"), limit=_RECENT_RUNS))
    latest: dict[str, Record] = {}
    for run in [] if found is None else found["data"]:
        if not run.get("backtest"):
            latest.setdefault(run["suite_name"], run)
    return list(latest.values())


async def show_cases(visit: Visit) -> Response:
    """Show a page of cases with their last outcome and recent history."""
    await visit.find_project()
    params = visit.params
    agent, query = params.get("agent") or None, (params.get("query") or "").strip()[: cases.LONGEST_QUERY]
    active = {"active": True, "paused": False}.get(params.get("state", ""))
    page = await visit.call(
        cases.list_cases,
        project_id=visit.project_id,
        active=active,
        agent_id=agent,
        query=query or None,
        limit=_ROWS,
        cursor=visit.cursor,
    )
    return visit.render(
        "cases.html",
        page=page,
        standings=await visit.call(summarize_cases, visit.project_id, [case["id"] for case in page["data"]]),
        agents=await list_project_agents(visit),
        state=params.get("state") if active is not None else None,
        query=query,
        suites=[] if visit.cursor else await _list_suites(visit),
        agent=agent,
    )


async def show_case(visit: Visit) -> Response:
    """Show one case."""
    case = await find_case(visit)
    key = visit.params.get("key") or None
    # None if the key may not read runs.
    over_runs = await read_if_allowed(visit.call(case_history.list_run_history, case["id"], key=key, limit=_HISTORY, cursor=visit.cursor))
    by_day = await visit.call(case_history.list_trace_history, case["id"], key=key, limit=_HISTORY)
    return visit.render(
        "case.html",
        case=case,
        longest=_LONGEST_SHOWN,
        agents=await list_project_agents(visit),
        versions=await visit.call(cases.list_versions, case["id"], limit=_VERSIONS, cursor=visit.params.get("versions")),
        key=key,
        change=await _read_change(visit, case),
        over_runs=over_runs,
        by_day=by_day,
        runs_chart=None if over_runs is None else draw_history(over_runs["data"], say_history("runs", over_runs["data"])),
        days_chart=draw_history(by_day["data"], say_history("days", by_day["data"])),
    )


async def switch_case(visit: Visit) -> Response:
    """Pause or resume a case."""
    form = await visit.read_form()
    visit.require_writer()
    case = await find_case(visit)
    await visit.call(cases.resume_case if form.get("active") == "yes" else cases.pause_case, case["id"])
    return redirect(visit.find_address("cases", case["id"]))


async def start_backtest(visit: Visit) -> Response:
    """Start a backtest on stored traces and show its run."""
    form = await visit.read_form()
    visit.require_writer()
    case = await find_case(visit)
    entered = form.get("limit", "").strip()
    limit = read_digits(entered, 6)
    if limit is None:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={"limit": [f"expected a number, found {entered[:80]!r}"]})
    run = await visit.call(backtests.start_backtest, case["id"], backtests.NewBacktest(limit=limit))
    return redirect(visit.find_address("runs", run["id"]))


async def delete_case(visit: Visit) -> Response:
    """Delete a case after confirmation."""
    form = await visit.read_form()
    visit.require_writer()
    case = await find_case(visit)
    if form.get("sure") != "yes":
        return redirect(visit.find_address("cases", case["id"]) + "#delete")
    await visit.call(cases.delete_case, case["id"])
    return redirect(visit.find_address("cases"))


async def find_case(visit: Visit) -> Record:
    """Return the case that the path names."""
    return await visit.find("case", cases.get_case)


async def list_project_agents(visit: Visit) -> Sequence[Record]:
    """Return the newest agents of the project."""
    return (await visit.call(list_agents, project_id=visit.project_id, limit=_MOST_AGENTS))["data"]


async def _read_change(visit: Visit, case: Record) -> Record | None:
    """Return the diff of the requested versions; None if none are requested."""
    before, after = (read_digits(visit.params.get(name), 9) for name in ("from", "to"))
    if not before or not after:
        return None
    old, new = [await visit.call(cases.get_version, case["id"], version) for version in (before, after)]
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
