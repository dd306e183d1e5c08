"""The summary of a batch for people: how often each case and each check passed, then why not, with traces to look at."""

from __future__ import annotations

from collections.abc import Iterator

from proctor.model.batch import BatchSummary, CaseBatch, CommonReason, PassRate
from proctor.report.neutral import to_one_line
from proctor.report.style import Colour, Style, count_columns, pad
from proctor.report.wording import count_noun

MOST_REASONS = 5
"""Reasons that are shown for one case; the JSON report has more."""
MOST_CASES = 200
"""Cases that are shown, those that fail most often first where there are more."""
_LONGEST = 200
_WIDE = 40


def render_batch(summary: BatchSummary, *, colour: bool = False) -> str:
    """Return the whole report."""
    style = Style(colour=colour)
    parts = (_paint_head(summary, style), _paint_cases(summary, style), _paint_faults(summary, style), _paint_end(summary, style))
    return "\n".join(line for part in parts for line in part) + "\n"


def _paint_head(summary: BatchSummary, style: Style) -> Iterator[str]:
    name = style.paint(to_one_line(summary.suite, 80), "bold")
    yield f"{name} on {count_noun(summary.traces, 'trace')} in {count_noun(summary.partitions, 'partition')}"
    if summary.latency is not None:
        shares = (("half", summary.latency.p50), ("95 %", summary.latency.p95), ("99 %", summary.latency.p99))
        yield "latency: " + ", ".join(f"{name} within {_tell_ms(ms)}" for name, ms in shares)
    yield ""


def _paint_cases(summary: BatchSummary, style: Style) -> Iterator[str]:
    cases = summary.cases
    if len(cases) > MOST_CASES:
        cases = tuple(sorted(cases, key=lambda case: case.rate.rate if case.rate.rate is not None else 2.0)[:MOST_CASES])
    width = max((count_columns(to_one_line(name, _WIDE)) for case in cases for name in _list_names(case)), default=0)
    for case in cases:
        yield _paint_rate(case.id, case.rate, width + 2, style)
        for check in case.checks:
            yield "  " + _paint_rate(check.check, check.rate, width, style)
        for reason in case.reasons[:MOST_REASONS]:
            yield from _paint_reason(reason, style)
        rest = sum(reason.count for reason in case.reasons[MOST_REASONS:]) + case.more_reasons
        if rest:
            yield style.paint(f"    and {rest:,} more for other reasons", "dim")
        yield ""
    if len(summary.cases) > len(cases):
        yield style.paint(f"and {len(summary.cases) - len(cases):,} more cases, which pass more often", "dim")
        yield ""


def _list_names(case: CaseBatch) -> Iterator[str]:
    yield case.id
    yield from (check.check for check in case.checks)


def _paint_rate(name: str, rate: PassRate, width: int, style: Style) -> str:
    told = pad(to_one_line(name, _WIDE), width)
    skipped = rate.counts.get("skip", 0)
    if rate.rate is None:
        return f"{told}  {style.paint('not decided', 'dim')}" + (f"  {skipped:,} skipped" if skipped else "")
    colour: Colour = "green" if rate.passed == rate.decided else "red"
    share = style.paint(f"{_percent(rate.rate):>7}", colour)
    more = [f"{rate.passed:,} of {rate.decided:,}", f"{_percent(rate.low)} to {_percent(rate.high)}"]
    more += [
        f"{rate.counts[outcome]:,} {word}" for outcome, word in (("error", "in error"), ("skip", "skipped")) if rate.counts.get(outcome)
    ]
    return f"{told}  {share}  {', '.join(more)}"


def _tell_ms(ms: float) -> str:
    return f"{ms / 1000:,.2f} s" if ms >= 1000 else f"{ms:.0f} ms"


def _percent(share: float) -> str:
    # Never 100 % of what is not all.
    text = f"{100 * share:.1f}"
    return "99.9 %" if text == "100.0" and share < 1 else f"{text} %"


def _paint_reason(reason: CommonReason, style: Style) -> Iterator[str]:
    what = f"{to_one_line(reason.check, _WIDE)}: " if reason.check else ""
    yield f"    {style.paint(f'{reason.count:,}', 'bold')} times {what}{to_one_line(reason.reason, _LONGEST)}"
    for place in reason.samples:
        yield style.paint(f"      {to_one_line(place.describe(), _LONGEST)}", "dim")


def _paint_faults(summary: BatchSummary, style: Style) -> Iterator[str]:
    if not summary.errors:
        return
    yield style.paint(f"{count_noun(summary.errors, 'record')} that could not be read or decided", "red")
    for fault in summary.faults[:MOST_REASONS]:
        yield from _paint_reason(fault, style)
    yield ""


def _paint_end(summary: BatchSummary, style: Style) -> Iterator[str]:
    if not summary.is_complete:
        missing = summary.partitions - summary.committed
        yield style.paint(
            f"INCOMPLETE: {missing:,} of {count_noun(summary.partitions, 'partition')} have no result; --resume goes on", "red"
        )
        yield from (f"  {to_one_line(failure, _LONGEST)}" for failure in summary.failures[:MOST_REASONS])
    yield f"results in {to_one_line(summary.output, _LONGEST)}"
