"""Runs side by side: verdict, figures per run, changed cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from proctor.report.blocks.outcomes import draw_chip, draw_dumbbell, draw_rate
from proctor.report.words.comparison import describe_amount
from proctor.report.words.elements import Child, Element, make, make_table_head
from proctor.report.words.wording import count_noun
from proctor.scoring.amounts import AmountChange
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import Change, Comparison

KINDS: dict[Change, str] = {"regressed": "fail", "improved": "pass", "unchanged": "pass", "too_little_data": "uncertain"}
"""The symbol of a verdict."""
BAD = ("newly_failing", "regressed")
"""The groups of cases that got worse."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the run table; the base has no comparison."""

    name: Child
    about: Child = None
    """Shown below the name, after the role: the time."""
    tags: Child = None
    counts: Mapping[str, int]
    comparison: Comparison | None = None
    latency: AmountChange
    tokens: AmountChange
    cost: AmountChange | None = None
    """For the base, those of the first comparison."""
    link: Child = None
    """Shown for the base in place of a change."""


class CaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A changed case: name, pass rates before and after, reasons."""

    name: Child
    base: Counts | None
    candidates: Sequence[Counts | None]
    reasons: Sequence[str]
    more: Child = None
    """A link to more."""


class CaseTable(msgspec.Struct, frozen=True, kw_only=True):
    """The cases of one group with column headings."""

    group: str
    cases: Sequence[CaseRow]
    columns: Sequence[Child]
    """Headings of the runs except the base."""
    labels: Sequence[str]
    """The same as text, for narrow pages."""
    more: str | None = None
    """The heading of `more`, if any."""


def draw_verdict(verdict: Change, *, whole: bool = True) -> Element:
    """Return the symbol and name of a verdict; uncertain for incomplete runs."""
    return draw_chip(KINDS[verdict] if whole else "uncertain", verdict.replace("_", " "))


def draw_run_table(runs: Sequence[RunFigures]) -> Element:
    """Return the figures of all runs, the base first."""
    with_cost = any(run.cost is not None for run in runs)
    heads = ["Run", "Pass rate", "Change", "Latency, ms (median)", "Tokens (median)", *(["Cost (median)"] if with_cost else [])]
    table = make("table", "rows figures several", make_table_head(heads), make("tbody", "", [_draw_run(run, heads) for run in runs]))
    return make("div", "wide", table)


def _draw_run(run: RunFigures, heads: Sequence[str]) -> Element:
    role = "Base" if run.comparison is None else "Candidate"
    amounts = [(run.latency, 0, ("slower", "faster")), (run.tokens, 0, ("more", "less"))]
    amounts += [(run.cost, 4, ("more", "less"))] if len(heads) > 5 else []
    cells: list[Child] = [
        draw_rate(run.counts),
        run.link if run.comparison is None else _draw_change(run.comparison),
        *(_draw_base_amount(*each) if run.comparison is None else _draw_amount(*each) for each in amounts),
    ]
    return make(
        "tr",
        "",
        make(
            "th",
            "",
            run.name,
            make("small", "", role, (" · ", run.about) if run.about else None),
            run.tags,
            scope="row",
            data_label=heads[0],
        ),
        [make("td", "", cell, data_label=label) for cell, label in zip(cells, heads[1:], strict=True)],
        data_row="",
    )


def _draw_change(comparison: Comparison) -> Child:
    effect, low, high = (f"{100 * share:,.1f}" for share in (comparison.effect, comparison.interval.low, comparison.interval.high))
    over = f"Pass rate over {count_noun(comparison.cases, 'case')}"
    return (
        f"{effect} points ({low} to {high})",
        make("small", "", f"p = {comparison.p_value:.2g} · {over}"),
    )


def _draw_base_amount(change: AmountChange | None, places: int, _: tuple[str, str]) -> Child:
    return None if change is None or change.base_median is None else f"{change.base_median:,.{places}f}"


def _draw_amount(change: AmountChange | None, places: int, words: tuple[str, str]) -> Child:
    if change is None or change.ratio is None or change.candidate_median is None:
        return make("span", "none", "not recorded")
    return f"{change.candidate_median:,.{places}f}", make("small", "", describe_amount(change, *words))


def draw_case_table(table: CaseTable) -> Element:
    """Return the cases of one group, each with its pass rates before and after."""
    heads: list[Child] = [
        make("th", "", "Case", scope="col"),
        [make("th", "against", column, scope="col") for column in table.columns],
        make("th", "", "Why", scope="col"),
        None if table.more is None else make("th", "", table.more, scope="col"),
    ]
    rows = [_draw_case(case, table) for case in table.cases]
    drawn = make("table", "rows cases several", make("thead", "", make("tr", "", heads)), make("tbody", "", rows))
    return make("div", "wide", drawn)


def _draw_case(case: CaseRow, table: CaseTable) -> Element:
    pairs = [
        make("td", "", _draw_pair(case.base, after), data_label=label) for after, label in zip(case.candidates, table.labels, strict=True)
    ]
    reasons = [make("p", "", make("bdi", "", reason)) for reason in case.reasons if reason]
    return make(
        "tr",
        "",
        make("th", "", case.name, scope="row", data_label="Case"),
        pairs,
        make("td", "", reasons, data_label="Why"),
        None if table.more is None else make("td", "whole", case.more, data_label=table.more),
        data_row="",
        data_bad="" if table.group in BAD else None,
    )


def _draw_pair(before: Counts | None, after: Counts | None) -> Element | None:
    if before is None or after is None:
        return None
    was, now = (f"{each.passes}/{each.runs}" for each in (before, after))
    picture = draw_dumbbell(before.rate, after.rate, f"passed {was} before, {now} after")
    return make("span", "pair", picture, make("span", "", f"{was} → {now}"))
