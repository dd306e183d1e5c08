"""Runs side by side: whether each difference is more than chance, and which cases changed, the newly failing first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.actions.history.compare_several import GROUPS, MOST_RUNS, CaseAcross, SeveralRuns
from proctor.pages.compared_runs import list_run_figures, make_case_table
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import render_page
from proctor.pages.words import quote_part, read_number
from proctor.report.blocks.comparison import BAD, draw_case_table, draw_run_table
from proctor.service.refusals import Refusal, not_found

_CHOICE = 50
"""Runs to choose from."""
_CELLS = 90
"""Cells with a picture on one page: every one is a dozen elements, and a page has at most two thousand."""


async def show_comparison(request: Request, source: Source) -> Response:
    """Show runs side by side; where fewer than two are named, runs to choose from."""
    project = await source.get_project(request.path_params["project"])
    named = _read_named(request)
    if len(named) < 2:
        page = await source.list_runs(project["id"], cursor=request.query_params.get("cursor"), limit=_CHOICE)
        values = {"project": project, "source": source, "page": page, "chosen": named, "most": MOST_RUNS}
        return render_page(request, "choose.html", values)
    runs = await _find_runs(request, source, project, named)
    found = await source.compare_several([run["id"] for run in runs])
    group = request.query_params.get("group", "")
    sections = _cut_sections(found, group, read_number(request.query_params.get("from")))
    address = _write_address(request, runs)
    for section in sections:
        section["table"] = draw_case_table(make_case_table(section["slug"], section["cases"], runs, address))
    values = {
        "project": project,
        "source": source,
        "base": runs[0],
        "candidates": runs[1:],
        "run_table": draw_run_table(list_run_figures(runs, found)),
        "pairs": list(zip(runs[1:], found.comparisons, strict=True)),
        "sections": sections,
        "group": group,
        "address": address,
    }
    return render_page(request, "compare.html", values)


async def show_answers(request: Request, source: Source) -> Response:
    """Show what was answered to one case in several runs, as the difference from the first of them."""
    project = await source.get_project(request.path_params["project"])
    named = _read_named(request)
    case = request.query_params.get("case")
    if len(named) < 2 or case is None:
        raise Refusal("BAD_REQUEST", "no case of two runs is named", hint="open the comparison and choose a case there")
    runs = await _find_runs(request, source, project, named)
    attempt = request.query_params.get("attempt")
    found = await source.read_answers([run["id"] for run in runs], case, attempt=None if attempt is None else read_number(attempt))
    values = {
        "project": project,
        "source": source,
        "runs": runs,
        "case": case,
        "answers": list(zip(runs, found, strict=True)),
        "attempts": sorted({one.attempt for answer in found for one in answer.attempts}),
        "attempt": attempt,
        "address": _write_address(request, runs),
    }
    return render_page(request, "answers.html", values)


def _read_named(request: Request) -> list[str]:
    named = [id for word in request.query_params.getlist("runs") for id in word.split(",") if id]
    chosen = list(dict.fromkeys(named))
    if len(chosen) > MOST_RUNS:
        raise Refusal("BAD_REQUEST", f"{len(chosen)} runs are chosen", hint=f"at most {MOST_RUNS} runs are compared at once")
    return chosen


async def _find_runs(request: Request, source: Source, project: Record, named: Sequence[str]) -> list[Record]:
    """Return the runs, the oldest first, whichever was ticked first; or as they are named, where somebody asks for that."""
    runs = [await _find_run(source, project, id) for id in named]
    if request.query_params.get("as_given") is None:
        runs.sort(key=lambda run: (run["created_at"], run["id"]))
    return runs


async def _find_run(source: Source, project: Record, id: str) -> Record:
    run = await source.get_run(id)
    if run["project_id"] != project["id"]:
        raise not_found("run", id)
    return run


def _write_address(request: Request, runs: Sequence[Record]) -> str:
    """Return the part of an address that names these runs in this order."""
    ids = ",".join(quote_part(run["id"]) for run in runs)
    return f"runs={ids}" + ("&as_given=1" if request.query_params.get("as_given") is not None else "")


def _cut_sections(found: SeveralRuns, group: str, begin: int) -> list[dict[str, Any]]:
    """Return the groups of changed cases with as many rows as a page has room for; one group alone from a row on, where it is asked for."""
    by_group: dict[str, list[CaseAcross]] = {}
    for case in found.cases:
        by_group.setdefault(case.group.replace(" ", "_"), []).append(case)
    if group in by_group:
        by_group = {group: by_group[group]}
    else:
        begin = 0
    left = max(10, _CELLS // len(found.comparisons))
    sections: list[dict[str, Any]] = []
    for slug, cases in by_group.items():
        # Every group shows at least something: that there are newly passing cases must not depend on how many fail.
        shown = cases[begin : begin + max(left, 3)]
        left -= len(shown)
        kind = "bad" if slug in BAD else "other"
        sections.append({"slug": slug, "kind": kind, "cases": shown, "total": len(cases), "begin": begin, "next": begin + len(shown)})
    assert all(section["slug"].replace("_", " ") in GROUPS for section in sections)
    return sections
