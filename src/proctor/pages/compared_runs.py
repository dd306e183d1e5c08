"""The rows of the tables of a comparison: runs and cases with their addresses, for the functions that draw them everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proctor.actions.history.compare_several import CaseAcross, SeveralRuns
from proctor.pages.ports import Record
from proctor.pages.words import find_project_address, quote_part, show_text
from proctor.report.blocks.attempt import draw_time
from proctor.report.blocks.comparison import CaseRow, CaseTable, RunFigures
from proctor.report.words.elements import Child, Element, make


def list_run_figures(runs: Sequence[Record], found: SeveralRuns) -> list[RunFigures]:
    """Return a row for each run, the base first; where there are two, the base has the way to the other direction."""
    first = found.comparisons[0].found
    base = RunFigures(**_describe(runs[0]), latency=first.latency, tokens=first.tokens, cost=first.cost, beside=_draw_swap(runs))
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
    tags = [(" ", make("span", "note", "@", make("bdi", "", show_text(tag, 40)))) for tag in run["tags"] or ()]
    return {
        "name": make("a", "", draw_label(run), href=address),
        "about": draw_time(run["started_at"] or run["created_at"]),
        "tags": tags,
        "counts": run["counts"],
    }


def _find_run_address(run: Record) -> str:
    return find_project_address(run["project_id"], "runs", run["id"])


def draw_label(run: Record) -> Element:
    """Return what a run is called."""
    return make("bdi", "", show_text(run["name"] or run["note"] or run["suite_name"] or run["id"], 60))


def _draw_swap(runs: Sequence[Record]) -> Child:
    if len(runs) != 2:
        return None
    address = f"?runs={quote_part(runs[1]['id'])},{quote_part(runs[0]['id'])}&as_given=1"
    return make("a", "", "The other way round", href=address)


def make_case_table(slug: str, cases: Sequence[CaseAcross], runs: Sequence[Record], address: str) -> CaseTable:
    """Return the table of one group; `address` is the part of an address that names these runs."""
    of_run = runs[0] if slug == "only_in_the_base" else runs[1]
    if len(runs) == 2:
        columns: list[Child] = ["Before → after"]
        labels = ["Before → after"]
    else:
        columns = [("Base →", " ", draw_label(run)) for run in runs[1:]]
        labels = [show_text(run["name"] or run["note"] or str(number), 20) for number, run in enumerate(runs[1:], 1)]
    return CaseTable(
        group=slug,
        cases=[_make_row(case, of_run, address) for case in cases],
        columns=columns,
        labels=labels,
        more="Answers",
    )


def _make_row(case: CaseAcross, of_run: Record, address: str) -> CaseRow:
    quoted = quote_part(case.case)
    name = make("bdi", "", show_text(case.case or "(no id)", 100))
    return CaseRow(
        name=make("a", "", name, href=f"{_find_run_address(of_run)}?case={quoted}#all"),
        base=case.base,
        candidates=case.candidates,
        reasons=[show_text(reason, 300) for reason in case.reasons],
        more=make(
            "a",
            "",
            "Difference",
            href=f"{find_project_address(of_run['project_id'], 'compare', 'answers')}?{address}&case={quoted}",
            aria_label=f"Difference of the answers to {show_text(case.case, 60)}",
        ),
    )
