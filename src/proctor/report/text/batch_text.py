"""A batch summary as text: pass rates per case and check, reasons with example traces, slices."""

from __future__ import annotations

from collections.abc import Iterator

from proctor.model.batch import BatchSummary, CaseBatch, CommonReason, PassRate, Slice
from proctor.report.words.batch import (
    describe_amounts,
    describe_judged,
    describe_left_out,
    describe_missing,
    describe_rest,
    describe_undecided,
    list_shown_slices,
    list_worst_cases,
    name_slice,
    write_count,
    write_percent,
)
from proctor.report.words.neutral import to_one_line
from proctor.report.words.style import Colour, Style, count_columns, pad
from proctor.report.words.wording import count_noun

MOST_REASONS = 5
"""Reasons per case; the JSON report has more."""
MOST_CASES = 200
"""Cases shown, most failures first."""
MOST_SLICES = 40
"""Slices per table, largest first."""
_LONGEST = 200
_WIDE = 40


def render_batch(summary: BatchSummary, *, colour: bool = False) -> str:
    """Return the whole report."""
    style = Style(colour=colour)
    parts = (
        _paint_head(summary, style),
        _paint_cases(summary, style),
        _paint_slices(summary, style),
        _paint_faults(summary, style),
        _paint_end(summary, style),
    )
    return "\n".join(line for part in parts for line in part) + "\n"


def _paint_head(summary: BatchSummary, style: Style) -> Iterator[str]:
    name = style.paint(to_one_line(summary.suite, 80), "bold")
    yield f"{name} on {count_noun(summary.traces, 'trace')} in {count_noun(summary.partitions, 'partition')}"
    if summary.where is not None:
        left_out = describe_left_out(summary)
        yield f"where {to_one_line(summary.where, _LONGEST)}{f': {left_out}' if left_out else ''}"
    yield from describe_amounts(summary.amounts)
    yield from (style.paint(f"warning: {to_one_line(warning, _LONGEST * 2)}", "yellow") for warning in summary.warnings)
    yield ""


def _paint_cases(summary: BatchSummary, style: Style) -> Iterator[str]:
    cases = list_worst_cases(summary, MOST_CASES)
    width = max((count_columns(to_one_line(name, _WIDE)) for case in cases for name in _list_names(case)), default=0)
    for case in cases:
        yield _paint_rate(case.id, case.rate, width + 2, style)
        for check in case.checks:
            if case.judged is not None and check.check in case.judged.checks:
                name = pad(to_one_line(check.check, _WIDE), width)
                yield f"  {name}  {describe_judged(case.judged, case.judged.checks[check.check])}"
            else:
                yield "  " + _paint_rate(check.check, check.rate, width, style)
        if case.judged is not None:
            yield f"  {pad('all of it, with the judge', width)}  {describe_judged(case.judged, case.judged.rate)}"
        for reason in (*case.reasons[:MOST_REASONS], *(case.judged.reasons[:MOST_REASONS] if case.judged is not None else ())):
            yield from _paint_reason(reason, style)
        rest = sum(reason.count for reason in case.reasons[MOST_REASONS:]) + case.more_reasons
        if rest:
            yield style.paint(f"    and {rest:,} more for other reasons", "dim")
        yield ""
    if len(summary.cases) > len(cases):
        yield style.paint(f"and {len(summary.cases) - len(cases):,} more cases, none of which passes less often", "dim")
        yield ""


def _list_names(case: CaseBatch) -> Iterator[str]:
    yield case.id
    yield "all of it, with the judge" if case.judged is not None else ""
    yield from (check.check for check in case.checks)


def _paint_rate(name: str, rate: PassRate, width: int, style: Style) -> str:
    padded = pad(to_one_line(name, _WIDE), width)
    skipped = rate.counts.get("skip", 0)
    if rate.rate is None:
        return f"{padded}  {style.paint('not decided', 'dim')}" + (f"  {skipped:,} skipped" if skipped else "")
    colour: Colour = "green" if rate.passed == rate.decided else "red"
    share = style.paint(f"{write_percent(rate.rate):>7}", colour)
    bounds = f"{write_percent(rate.low)} to {write_percent(rate.high)}"
    return f"{padded}  {share}  {rate.passed:,} of {rate.decided:,}, {bounds}{describe_undecided(rate)}"


def _paint_reason(reason: CommonReason, style: Style) -> Iterator[str]:
    what = f"{to_one_line(reason.check, _WIDE)}: " if reason.check else ""
    times = style.paint(write_count(reason.count, reason.missed, "time"), "bold")
    yield f"    {times} {what}{to_one_line(reason.reason, _LONGEST)}"
    for place in reason.samples:
        yield style.paint(f"      {to_one_line(place.describe(), _LONGEST)}", "dim")


def _paint_slices(summary: BatchSummary, style: Style) -> Iterator[str]:
    tables = [("day", summary.days, summary.other_days), *((", ".join(one.by), one.slices, one.others) for one in summary.slices)]
    for name, slices, others in tables:
        if not slices:
            continue
        yield style.paint(f"by {to_one_line(name, _LONGEST)}", "bold")
        shown, left = list_shown_slices(slices, MOST_SLICES)
        width = max(count_columns(name_slice(one.values, _WIDE)) for one in shown)
        for one in shown:
            yield _paint_slice(name_slice(one.values, _WIDE), one, width, style)
        if left:
            yield style.paint(f"  {describe_rest(left)}", "dim")
        if others is not None:
            yield _paint_slice("all others", others, width, style)
        yield ""


def _paint_slice(name: str, one: Slice, width: int, style: Style) -> str:
    rate = _paint_rate(name, one.rate, width, style)
    details = [write_count(one.traces, one.missed, "trace"), *describe_amounts(one.amounts, short=True)]
    return f"  {rate}{style.paint('; ' + ', '.join(details), 'dim')}"


def _paint_faults(summary: BatchSummary, style: Style) -> Iterator[str]:
    if not summary.errors:
        return
    yield style.paint(f"{count_noun(summary.unread, 'record')} not read or decided", "red")
    for fault in summary.faults[:MOST_REASONS]:
        yield from _paint_reason(fault, style)
    rest = sum(fault.count for fault in summary.faults[MOST_REASONS:]) + summary.more_faults
    if rest:
        yield style.paint(f"    and {rest:,} more for other reasons", "dim")
    yield ""


def _paint_end(summary: BatchSummary, style: Style) -> Iterator[str]:
    if not summary.is_complete:
        yield style.paint(f"INCOMPLETE: {describe_missing(summary)}; --resume goes on", "red")
        yield from (f"  {to_one_line(failure, _LONGEST)}" for failure in summary.failures[:MOST_REASONS])
    yield f"results in {to_one_line(summary.output, _LONGEST)}"
