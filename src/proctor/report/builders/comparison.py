"""Runs side by side: figures per run, changed cases, and sentences about the change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from proctor.report.document.model import Change, Column, Line, Rate, Rest, Row, Small, Table, Text, Tone
from proctor.report.words.html_text import duration_words
from proctor.report.words.wording import count_noun, write_p, write_points, write_small
from proctor.scoring.amounts import AmountChange
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import Comparison

BAD = ("newly_failing", "regressed")
"""The groups of cases that got worse."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the run table; the base has no comparison."""

    name: Line
    about: Line = ()
    """The time of the run, shown below its name."""
    tags: Line = ()
    counts: Mapping[str, int]
    comparison: Comparison | None = None
    latency: AmountChange
    tokens: AmountChange
    cost: AmountChange | None = None
    """For the base, that of the first comparison."""
    link: Line = ()
    """Shown for the base in place of a change."""


class CaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A changed case: name, pass rates before and after, reasons."""

    name: Line
    base: Counts | None
    candidates: Sequence[Counts | None]
    reasons: Sequence[str]
    more: Line = ()
    """A link to more."""


def make_run_table(runs: Sequence[RunFigures]) -> Table:
    """Return the figures of all runs, the base first."""
    with_cost = any(run.cost is not None for run in runs)
    heads = ["run", "pass rate", "change", "latency (median)", "tokens (median)", *(["cost (median)"] if with_cost else [])]
    return Table(tuple(map(Column, heads)), tuple(_make_run(run, with_cost) for run in runs), kind="figures several")


def _make_run(run: RunFigures, with_cost: bool) -> Row:
    role = "Base" if run.comparison is None else "Candidate"
    amounts: list[_Amount] = [(run.latency, duration_words, ("slower", "faster")), (run.tokens, "{:,.0f}".format, ("more", "less"))]
    amounts += [(run.cost, write_small, ("more", "less"))] if with_cost else []
    return Row(
        (
            (*run.name, Small((role, *((" · ", *run.about) if run.about else ()))), *run.tags),
            (Rate(run.counts),),
            run.link if run.comparison is None else _write_change(run.comparison),
            *(_write_base_amount(*each) if run.comparison is None else _write_amount(*each) for each in amounts),
        )
    )


def _write_change(comparison: Comparison) -> Line:
    effect, low, high = map(write_points, (comparison.effect, comparison.interval.low, comparison.interval.high))
    heading = f"Pass rate over {count_noun(comparison.cases, 'case')}"
    return (f"{effect} points ({low} to {high})", Small((f"{write_p(comparison.p_value)} · {heading}",)))


_Amount: TypeAlias = tuple[AmountChange | None, Callable[[float], str], tuple[str, str]]
"""A median, how it is written, and the names of its directions."""


def _write_base_amount(change: AmountChange | None, write: Callable[[float], str], _: tuple[str, str]) -> Line:
    return () if change is None or change.base_median is None else (write(change.base_median),)


def _write_amount(change: AmountChange | None, write: Callable[[float], str], words: tuple[str, str]) -> Line:
    if change is None or change.ratio is None or change.candidate_median is None:
        return (Text("not recorded", "muted"),)
    return (write(change.candidate_median), Small((describe_amount(change, *words),)))


def make_figure_table(comparison: Comparison, amounts: Mapping[str, AmountChange | None]) -> Table:
    """Return the figures of two runs, one per row; narrower than the table of runs."""
    effect, low, high = map(write_points, (comparison.effect, comparison.interval.low, comparison.interval.high))
    change = f"{effect} points, {low} to {high}, {write_p(comparison.p_value)}"
    shares = (f"{comparison.base_rate:.1%}", f"{comparison.candidate_rate:.1%}", change)
    rows = [(f"pass rate over {count_noun(comparison.cases, 'case')}", *shares)]
    for name, amount in amounts.items():
        if amount is None:
            continue
        words, write = (
            ("slower", "faster") if name.startswith("latency") else ("more", "less"),
            write_small if name == "cost" else "{:.0f}".format,
        )
        if amount.base_median is None or amount.candidate_median is None or amount.ratio is None:
            rows.append((name, "", "", "not recorded"))
        else:
            rows.append((name, write(amount.base_median), write(amount.candidate_median), describe_amount(amount, *words)))
    columns = (Column(""), Column("base", number=True), Column("candidate", number=True), Column("change"))
    return Table(columns, tuple(Row(tuple((text,) for text in row)) for row in rows))


def make_case_table(
    group: str, cases: Sequence[CaseRow], *, columns: Sequence[Column] = (Column("before → after"),), more: str = "", rest: int = 0
) -> Table:
    """Return the cases of one group with their pass rates before and after; `more` is the heading of a column with links."""
    tone: Tone | None = "fail" if group in BAD else None
    with_reasons = any(any(case.reasons) for case in cases)
    rows = [
        Row(
            (
                case.name,
                *(() if before is None or after is None else (Change(before, after),) for before, after in _list_pairs(case)),
                *([tuple(part for reason in case.reasons if reason for part in (Text(reason, limit=1000), " "))] if with_reasons else []),
                *((case.more,) if more else ()),
            ),
            tone=tone,
        )
        for case in cases
    ]
    heads = (Column("case"), *columns, *([Column("why")] if with_reasons else []), *((Column(more),) if more else ()))
    return Table(heads, tuple(rows), Rest("and {rows} more", rest) if rest > 0 else None, kind="cases several")


def _list_pairs(case: CaseRow) -> list[tuple[Counts | None, Counts | None]]:
    return [(case.base, after) for after in case.candidates]


def describe_chance(comparison: Comparison) -> str:
    """Return whether the pass rate changed beyond chance."""
    if not comparison.cases:
        return "No case has results in both runs."
    is_change = comparison.verdict in ("regressed", "improved")
    # Significant, but not reported as a change for another reason.
    if not is_change and comparison.p_value <= comparison.alpha:
        return f"{comparison.reason}."
    low, high = write_points(comparison.interval.low), write_points(comparison.interval.high)
    figures = f"{write_points(comparison.effect, signed=not is_change)} points ({low} to {high})"
    if is_change:
        fell = "fell" if comparison.verdict == "regressed" else "rose"
        return f"The pass rate {fell} by {figures}. This is more than chance: {write_p(comparison.p_value)}."
    resolution = f"A change of {write_points(comparison.resolution, signed=False)} points"
    if comparison.verdict == "unchanged":
        return f"No change beyond chance: {figures}. {resolution} would have been seen."
    return f"Too little data to tell a change from chance: {figures}. {resolution} cannot be ruled out."


def describe_amount(change: AmountChange, higher: str = "more", lower: str = "less") -> str:
    """Return a change per case, which may differ from that of the medians: `15 % slower (1 – 35 %)`."""
    verdict = change.verdict.replace("_", " ")
    if change.ratio is None or change.interval is None:
        return verdict
    percent, low, high = (100 * (share - 1) for share in (change.ratio, change.interval.low, change.interval.high))
    if change.verdict == "higher":
        return f"{percent:,.0f} % {higher} ({low:,.0f} – {high:,.0f} %)"
    if change.verdict == "lower":
        return f"{-percent:,.0f} % {lower} ({-high:,.0f} – {-low:,.0f} %)"
    if not round(percent) and not round(low) and not round(high):
        return "unchanged"
    return f"{verdict}: {percent:+,.0f} % ({low:+,.0f} to {high:+,.0f} %)".replace("-", "−")
