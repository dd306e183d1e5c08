"""Runs side by side, as every page of the family shows them: the verdict, a row of figures for each run, and the cases that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from proctor.report.catalogue import Catalogue
from proctor.report.drawn_outcomes import draw_chip, draw_dumbbell, draw_rate
from proctor.report.elements import Child, Element, make, make_table_head
from proctor.scoring.amounts import AmountChange
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import Change, Comparison

KINDS: dict[Change, str] = {"regressed": "fail", "improved": "pass", "unchanged": "pass", "too_little_data": "uncertain"}
"""The shape that a verdict is drawn with."""
BAD = ("newly_failing", "regressed")
"""The groups of cases that got worse."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the table of figures: what it is called, and how it differs from the base; the base itself differs from nothing."""

    name: Child
    about: Child = None
    """What stands below the name, behind the role: when it was."""
    tags: Child = None
    counts: Mapping[str, int]
    comparison: Comparison | None = None
    latency: AmountChange
    tokens: AmountChange
    cost: AmountChange | None = None
    """Of the base, these are those of the first comparison."""
    beside: Child = None
    """What stands in the place of the change of the base."""


class CaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A case that changed: what it is called, how often it passed before and in each run after, and why it fails."""

    name: Child
    base: Counts | None
    candidates: Sequence[Counts | None]
    reasons: Sequence[str]
    more: Child = None
    """Where to read on."""


class CaseTable(msgspec.Struct, frozen=True, kw_only=True):
    """The cases of one group, and how the columns are called."""

    group: str
    cases: Sequence[CaseRow]
    columns: Sequence[Child]
    """What stands above each run but the base."""
    labels: Sequence[str]
    """The same as text, where a narrow page shows a column as a line."""
    more: str | None = None
    """What stands above where to read on; None where there is nothing to read."""


def draw_verdict(verdict: Change, words: Catalogue, *, whole: bool = True) -> Element:
    """Return the verdict as its shape and its word; of runs that are not whole the shape says that it is uncertain."""
    return draw_chip(KINDS[verdict] if whole else "uncertain", words.say(f"change.{verdict}"))


def draw_run_table(runs: Sequence[RunFigures], words: Catalogue) -> Element:
    """Return the figures of all runs, the base first."""
    with_cost = any(run.cost is not None for run in runs)
    names = ["compare.run", "several.rate", "compare.change", "compare.latency", "compare.tokens", *(["compare.cost"] if with_cost else [])]
    heads = [words.say(name) for name in names]
    table = make("table", "rows figures several", make_table_head(heads), make("tbody", "", [_draw_run(run, heads, words) for run in runs]))
    return make("div", "wide", table)


def _draw_run(run: RunFigures, heads: Sequence[str], words: Catalogue) -> Element:
    role = words.say("compare.base" if run.comparison is None else "compare.candidate")
    amounts = [(run.latency, 0), (run.tokens, 0), *([(run.cost, 4)] if len(heads) > 5 else [])]
    cells: list[Child] = [
        draw_rate(run.counts, words),
        run.beside if run.comparison is None else _draw_change(run.comparison, words),
        *(_draw_base_amount(*each, words) if run.comparison is None else _draw_amount(*each, words) for each in amounts),
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


def _draw_change(comparison: Comparison, words: Catalogue) -> Child:
    effect, low, high = (
        words.write_number(100 * share, 1) for share in (comparison.effect, comparison.interval.low, comparison.interval.high)
    )
    over = words.say("compare.rate", count=comparison.cases)
    return (
        words.say("compare.points", effect=effect, low=low, high=high),
        make("small", "", f"p = {words.write_figure(f'{comparison.p_value:.2g}')} · {over}"),
    )


def _draw_base_amount(change: AmountChange | None, places: int, words: Catalogue) -> Child:
    return None if change is None or change.base_median is None else words.write_number(change.base_median, places)


def _draw_amount(change: AmountChange | None, places: int, words: Catalogue) -> Child:
    if change is None or change.ratio is None or change.candidate_median is None:
        return make("span", "none", words.say("compare.not_recorded"))
    bounds = change.interval
    around = "" if bounds is None else f" ({words.write_number(bounds.low, 2)} – {words.write_number(bounds.high, 2)})"
    told = f"× {words.write_number(change.ratio, 2)}{around}: {words.say(f'amount.{change.verdict}')}"
    return words.write_number(change.candidate_median, places), make("small", "", told)


def draw_case_table(table: CaseTable, words: Catalogue) -> Element:
    """Return the cases of one group, each with its pass rates before and after."""
    heads: list[Child] = [
        make("th", "", words.say("run.case"), scope="col"),
        [make("th", "against", column, scope="col") for column in table.columns],
        make("th", "", words.say("run.why"), scope="col"),
        None if table.more is None else make("th", "", table.more, scope="col"),
    ]
    rows = [_draw_case(case, table, words) for case in table.cases]
    drawn = make("table", "rows cases several", make("thead", "", make("tr", "", heads)), make("tbody", "", rows))
    return make("div", "wide", drawn)


def _draw_case(case: CaseRow, table: CaseTable, words: Catalogue) -> Element:
    pairs = [
        make("td", "", _draw_pair(case.base, after, words), data_label=label)
        for after, label in zip(case.candidates, table.labels, strict=True)
    ]
    reasons = [make("p", "", make("bdi", "", reason)) for reason in case.reasons if reason]
    return make(
        "tr",
        "",
        make("th", "", case.name, scope="row", data_label=words.say("run.case")),
        pairs,
        make("td", "", reasons, data_label=words.say("run.why")),
        None if table.more is None else make("td", "whole", case.more, data_label=table.more),
        data_row="",
        data_bad="" if table.group in BAD else None,
    )


def _draw_pair(before: Counts | None, after: Counts | None, words: Catalogue) -> Element | None:
    if before is None or after is None:
        return None
    was, now = (f"{each.passes}/{each.runs}" for each in (before, after))
    picture = draw_dumbbell(before.rate, after.rate, words.say("compare.pair_said", before=was, after=now))
    return make("span", "pair", picture, make("span", "", f"{was} → {now}"))
