"""Runs side by side: verdicts, figures and changed cases, newly failing first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from proctor.actions.history.compare_several import MOST_RUNS, CaseAcross, SeveralRuns, split_by_cause
from proctor.pages.drawing import name_run
from proctor.pages.places import Record
from proctor.pages.rendering import redirect
from proctor.pages.visit import Visit
from proctor.pages.words import find_project_address, quote_part, read_number, show_text
from proctor.report.builders.comparison import BAD, CaseRow, RunFigures, make_case_table, make_run_table
from proctor.report.document.html import write_block_html
from proctor.report.document.model import Column, Line, Link, Table, Text, Time
from proctor.service.refusals import Refusal


def list_run_figures(runs: Sequence[Record], found: SeveralRuns) -> list[RunFigures]:
    """Return a row for each run, the base first; with two runs the base row has a link to swap them."""
    first = found.comparisons[0].found
    base = RunFigures(**_describe(runs[0]), latency=first.latency, tokens=first.tokens, cost=first.cost, link=_link_swap(runs))
    return [
        base,
        *(
            RunFigures(
                **_describe(run),
                comparison=against.found.comparison,
                latency=against.found.latency,
                tokens=against.found.tokens,
                cost=against.found.cost,
            )
            for run, against in zip(runs[1:], found.comparisons, strict=True)
        ),
    ]


def _describe(run: Record) -> dict[str, Any]:
    address = _find_run_address(run)
    started = run["started_at"] or run["created_at"]
    return {
        "name": (Link((Text(name_run(run)),), address),),
        "about": (Time(started),) if started else (),
        "tags": tuple(part for tag in run["tags"] or () for part in (" ", Text(f"@{tag}", "note", limit=40))),
        "counts": run["counts"],
    }


def _find_run_address(run: Record) -> str:
    return find_project_address(run["project_id"], "runs", run["id"])


def _link_swap(runs: Sequence[Record]) -> Line:
    if len(runs) != 2:
        return ()
    address = f"?runs={quote_part(runs[1]['id'])},{quote_part(runs[0]['id'])}&as_given=1"
    return (Link(("Swap base and candidate",), address),)


def make_group_table(slug: str, cases: Sequence[CaseAcross], runs: Sequence[Record], address: str, cause: str = "") -> Table:
    """Return the table of one group; `address` is the query with the ids of the runs, `cause` the reason in the heading."""
    linked_run = runs[0] if slug == "only_in_the_base" else runs[1]
    columns = [Column("before → after")]
    if len(runs) > 2:
        names = [show_text(run["name"] or run["note"] or str(number), 20) for number, run in enumerate(runs[1:], 1)]
        columns = [Column(name, title=("Base → ", Text(name_run(run)))) for name, run in zip(names, runs[1:], strict=True)]
    return make_case_table(slug, [_make_row(case, linked_run, address, cause) for case in cases], columns=columns, more="answers")


def _make_row(case: CaseAcross, linked_run: Record, address: str, cause: str) -> CaseRow:
    quoted = quote_part(case.case)
    name = Text(case.case or "(no id)", limit=100)
    return CaseRow(
        name=(Link((name,), f"{_find_run_address(linked_run)}?case={quoted}#all"),),
        base=case.base,
        candidates=case.candidates,
        # A reason that several runs share is shown once.
        reasons=[show_text(reason, 300) for reason in dict.fromkeys(case.reasons) if reason != cause],
        more=(
            Link(
                ("Diff",),
                f"{find_project_address(linked_run['project_id'], 'compare', 'answers')}?{address}&case={quoted}",
                f"Diff of the answers to {show_text(case.case, 60)}",
            ),
        ),
    )


_CELLS = 90
"""Cells with a chart per page: each has a dozen elements, and a page has at most two thousand."""


async def show_comparison(visit: Visit) -> Response:
    """Show runs side by side; with fewer than two, the list of runs to select from."""
    await visit.find_project()
    ids = _read_run_ids(visit)
    if len(ids) < 2:
        return redirect(visit.find_address("runs") + (f"?runs={quote_part(ids[0])}" if ids else ""))
    runs = await _find_runs(visit, ids)
    found = await visit.source.compare_several([run["id"] for run in runs])
    group = visit.params.get("group", "")
    sections = _paginate_groups(found, group, read_number(visit.params.get("from")))
    address = _write_address(visit, runs)
    for section in sections:
        causes = split_by_cause(section["cases"])
        # A heading for each cause, unless no two cases share one.
        causes = causes if any(len(cases) > 1 for _, cases in causes) else [("", section["cases"])]
        section["causes"] = [
            (cause, len(cases), Markup(write_block_html(make_group_table(section["slug"], cases, runs, address, cause))))
            for cause, cases in causes
        ]
    return visit.render(
        "compare.html",
        base=runs[0],
        candidates=runs[1:],
        run_table=Markup(write_block_html(make_run_table(list_run_figures(runs, found)))),
        pairs=list(zip(runs[1:], found.comparisons, strict=True)),
        sections=sections,
        group=group,
        address=address,
    )


async def show_answers(visit: Visit) -> Response:
    """Show the answers to one case in several runs, as diffs with the first run."""
    await visit.find_project()
    ids = _read_run_ids(visit)
    case, attempt = visit.params.get("case"), visit.params.get("attempt")
    if len(ids) < 2 or case is None:
        raise Refusal("BAD_REQUEST", "two runs and a case are required", hint="open the comparison and choose a case there")
    runs = await _find_runs(visit, ids)
    number = None if attempt is None else read_number(attempt)
    found = await visit.source.read_answers([run["id"] for run in runs], case, attempt=number)
    return visit.render(
        "answers.html",
        runs=runs,
        case=case,
        answers=list(zip(runs, found, strict=True)),
        attempts=sorted({outcome.attempt for answer in found for outcome in answer.attempts}),
        attempt=attempt,
        address=_write_address(visit, runs),
    )


def _read_run_ids(visit: Visit) -> list[str]:
    chosen = list(dict.fromkeys(id for word in visit.params.getlist("runs") for id in word.split(",") if id))
    if len(chosen) > MOST_RUNS:
        raise Refusal("BAD_REQUEST", f"{len(chosen)} runs are selected", hint=f"at most {MOST_RUNS} runs are compared at once")
    return chosen


async def _find_runs(visit: Visit, ids: Sequence[str]) -> list[Record]:
    """Return the runs, oldest first, or in the given order if requested."""
    runs: list[Record] = [await visit.find_run(id) for id in ids]
    if "as_given" not in visit.params:
        runs.sort(key=lambda run: (run["created_at"], run["id"]))
    return runs


def _write_address(visit: Visit, runs: Sequence[Record]) -> str:
    """Return the query that names these runs in this order."""
    ids = ",".join(quote_part(run["id"]) for run in runs)
    return f"runs={ids}" + ("&as_given=1" if "as_given" in visit.params else "")


def _paginate_groups(found: SeveralRuns, group: str, begin: int) -> list[dict[str, Any]]:
    """Return the groups of changed cases, limited to the rows of a page; if one group is requested, its rows from `begin`."""
    by_group: dict[str, list[CaseAcross]] = {}
    for case in found.cases:
        by_group.setdefault(case.group.replace(" ", "_"), []).append(case)
    if group in by_group:
        by_group = {group: by_group[group]}
    else:
        begin = 0
    remaining = max(10, _CELLS // len(found.comparisons))
    sections: list[dict[str, Any]] = []
    for slug, cases in by_group.items():
        # Every group has at least one row.
        listed = cases[begin : begin + max(remaining, 3)]
        remaining -= len(listed)
        kind = "bad" if slug in BAD else "other"
        sections.append({"slug": slug, "kind": kind, "cases": listed, "total": len(cases), "begin": begin, "next": begin + len(listed)})
    return sections
