"""A comparison of two runs as one HTML file without scripts."""

from __future__ import annotations

from html import escape
from typing import Any

from proctor.actions.history.compare import RunComparison
from proctor.actions.history.compare_several import (
    ChangedGroup,
    describe_incomplete,
    describe_runs,
    list_changed_cases,
    list_repeats_needed,
)
from proctor.report.blocks.attempt import draw_time
from proctor.report.blocks.comparison import CaseRow, CaseTable, RunFigures, draw_case_table, draw_run_table, draw_verdict
from proctor.report.blocks.outcomes import draw_sprite, write_share
from proctor.report.html.page import page, read_template
from proctor.report.words.comparison import describe_chance
from proctor.report.words.elements import Element, Node, make, write_markup
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import count_noun
from proctor.scoring.intervals import Counts
from proctor.scoring.statistics import SuiteStatistics

MOST_CASES = 1000
_STYLES = ("tokens.css", "family.css", "compared.css", "comparison.css")


def write_comparison_page(found: RunComparison) -> str:
    """Return the page: verdict, figures, and changed cases with reasons, worst first."""
    comparison = found.comparison
    incomplete = describe_incomplete(found)
    suite = to_one_line(found.candidate.suite_name or "suite", 200)
    groups = list_changed_cases(found)
    repeats = [
        make(
            "li",
            "",
            f"To see a drop of {write_share(needed.drop)} four times out of five, "
            f"run every case {count_noun(needed.repeats or 0, 'time')}.",
        )
        for needed in list_repeats_needed(found)
    ]
    body: list[Node] = [
        draw_sprite(),
        make("h1", "", draw_verdict(comparison.verdict, whole=not incomplete), " ", make("bdi", "", suite)),
        *(make("p", "bad", line) for line in incomplete),
        make("p", "", describe_chance(comparison)),
        draw_run_table(_list_runs(found)),
        *(drawn for group in groups for drawn in _draw_group(group, found)),
        *([] if groups else [make("p", "", "No case changed.")]),
        *([make("h2", "", "To be sure"), make("ul", "", repeats)] if repeats else []),
    ]
    title = f"{escape(suite)}: {comparison.verdict.replace('_', ' ')}"
    style, markup = "".join(map(read_template, _STYLES)), "\n".join(map(write_markup, body))
    return page(title=title, style=style, body=markup + "\n")


def _list_runs(found: RunComparison) -> list[RunFigures]:
    base, candidate = (make("code", "", to_one_line(each, 200), dir="auto") for each in describe_runs(found))
    comparison = found.comparison
    amounts: dict[str, Any] = {"latency": found.latency, "tokens": found.tokens, "cost": found.cost}
    return [
        RunFigures(name=base, about=draw_time(found.base.started_at), counts=_count(comparison.base), **amounts),
        RunFigures(
            name=candidate,
            about=draw_time(found.candidate.started_at),
            counts=_count(comparison.candidate),
            comparison=comparison,
            **amounts,
        ),
    ]


def _count(statistics: SuiteStatistics) -> dict[str, int]:
    return {"pass": statistics.passes, "fail": statistics.runs - statistics.passes}


def _draw_group(group: ChangedGroup, found: RunComparison) -> list[Element]:
    before_after = "Before → after"
    counts = {change.case: (change.base, change.candidate) for change in found.comparison.changes}
    table = CaseTable(
        group=group.slug,
        cases=[_make_row(each.case, counts.get(each.case), each.reason) for each in group.cases[:MOST_CASES]],
        columns=[before_after],
        labels=[before_after],
    )
    rest = len(group.cases) - MOST_CASES
    size = make("span", "muted", f"{len(group.cases):,}")
    title = make("h2", group.kind, group.title.capitalize(), " ", size)
    more = [make("p", "", f"and {rest:,} more")] if rest > 0 else []
    return [title, draw_case_table(table), *more]


def _make_row(case: str, counts: tuple[Counts, Counts] | None, reason: str) -> CaseRow:
    base, candidate = counts or (None, None)
    name = make("code", "", to_one_line(case, 120) or "(no id)", dir="auto")
    return CaseRow(name=name, base=base, candidates=[candidate], reasons=[to_one_line(reason, 1000)])
