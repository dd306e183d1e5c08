"""The summary of a batch as Markdown, for a pull request or a job summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    write_money,
    write_ms,
    write_percent,
)
from proctor.report.words.neutral import write_code, write_plain
from proctor.report.words.wording import count_noun

MOST_CASES = 100
"""Cases in the table, most failures first."""
MOST_REASONS = 3
"""Reasons per case."""
MOST_EXPLAINED = 20
"""Cases whose reasons are listed."""
MOST_SLICES = 60
MOST_CHARACTERS = 60_000
"""GitHub rejects comments of more than 65,536 characters."""


def render_batch_markdown(summary: BatchSummary) -> str:
    """Return the whole summary."""
    lines: list[str] = []
    left = MOST_CHARACTERS
    for section in (_write_head(summary), _write_cases(summary), _write_slices(summary), _write_reasons(summary), _write_faults(summary)):
        for line in section:
            left -= len(line) + 1
            if left < 0:
                lines += ["", "… and more, which `--format json` has"]
                return "\n".join(lines).rstrip() + "\n"
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


def _write_head(summary: BatchSummary) -> Iterator[str]:
    icon = "✅" if summary.has_passed and summary.is_complete else "❌" if summary.is_complete else "❔"
    yield f"## {icon} {write_plain(summary.suite or 'suite')}: {count_noun(summary.traces, 'trace')}"
    yield ""
    if not summary.is_complete:
        yield f"**INCOMPLETE: {describe_missing(summary)}**"
        yield ""
    if summary.where is not None:
        left_out = describe_left_out(summary)
        yield f"where {write_code(summary.where, 500)}{f': {left_out}' if left_out else ''}"
        yield ""
    for warning in summary.warnings:
        yield f"**warning:** {write_plain(warning, 500)}"
        yield ""
    for line in describe_amounts(summary.amounts):
        yield f"- {write_plain(line, 300)}"
    yield ""


def _write_cases(summary: BatchSummary) -> Iterator[str]:
    cases = list_worst_cases(summary, MOST_CASES)
    yield "| case | passed | | 95 % interval |"
    yield "|---|--:|--:|---|"
    for case in cases:
        yield f"| {write_code(case.id, 80)} | {_write_rate(case.rate)} |"
        judged = case.judged
        for check in case.checks if len(case.checks) > 1 or judged is not None else ():
            claim = judged is not None and check.check in judged.checks
            cells = (
                f"{describe_judged(judged, judged.checks[check.check])} | | " if claim and judged is not None else _write_rate(check.rate)
            )
            yield f"| &nbsp;&nbsp;{write_plain(check.check, 80)} | {cells} |"
        if judged is not None:
            yield f"| &nbsp;&nbsp;all of it, with the judge | {describe_judged(judged, judged.rate)} | | |"
    yield ""
    if len(summary.cases) > len(cases):
        yield f"… and {len(summary.cases) - len(cases):,} more cases, none of which passes less often"
        yield ""


def _write_rate(rate: PassRate) -> str:
    if rate.rate is None:
        return f"not decided{describe_undecided(rate)} | | "
    counts = f"{rate.passed:,} of {rate.decided:,}{describe_undecided(rate)}"
    return f"{write_percent(rate.rate)} | {counts} | {write_percent(rate.low)} to {write_percent(rate.high)}"


def _write_slices(summary: BatchSummary) -> Iterator[str]:
    tables = [(("day",), summary.days, summary.other_days), *((one.by, one.slices, one.others) for one in summary.slices)]
    for by, slices, others in tables:
        if slices:
            yield from _write_table(by, slices, others)


def _write_table(by: Sequence[str], slices: Sequence[Slice], others: Slice | None) -> Iterator[str]:
    yield f"### By {write_plain(', '.join(by))}"
    yield ""
    yield f"| {' | '.join(write_plain(name, 60) for name in by)} | traces | passed | | 95 % interval | latency p50 | p95 | cost |"
    yield f"|{'---|' * len(by)}--:|--:|--:|---|--:|--:|--:|"
    shown, left = list_shown_slices(slices, MOST_SLICES)
    for one in shown:
        values = " | ".join(write_plain(name_slice((value,)), 80) for value in one.values)
        yield f"| {values} | {_write_figures(one)} |"
    if others is not None:
        yield f"| all others {'| ' * (len(by) - 1)}| {_write_figures(others)} |"
    yield ""
    if left:
        yield f"… {describe_rest(left)}"
        yield ""


def _write_figures(one: Slice) -> str:
    latency = one.amounts.latency
    times = "| " if latency is None else f"{write_ms(latency.p50)} | {write_ms(latency.p95)}"
    cost = ", ".join(f"{write_money(each.total)} {write_plain(each.currency, 10)}" for each in one.amounts.cost)
    return f"{one.traces:,}{f' to {one.traces + one.missed:,}' if one.missed else ''} | {_write_rate(one.rate)} | {times} | {cost}"


def _write_reasons(summary: BatchSummary) -> Iterator[str]:
    explained = [
        case for case in list_worst_cases(summary, MOST_CASES) if case.reasons or (case.judged is not None and case.judged.reasons)
    ]
    for case in explained[:MOST_EXPLAINED]:
        yield from _write_case_reasons(case)


def _write_case_reasons(case: CaseBatch) -> Iterator[str]:
    yield f"### {write_code(case.id, 80)}"
    yield ""
    for reason in (*case.reasons[:MOST_REASONS], *(case.judged.reasons[:MOST_REASONS] if case.judged is not None else ())):
        yield from _write_reason(reason)
    rest = sum(reason.count for reason in case.reasons[MOST_REASONS:]) + case.more_reasons
    if rest:
        yield f"- … and {rest:,} more for other reasons"
    yield ""


def _write_reason(reason: CommonReason) -> Iterator[str]:
    what = f"{write_code(reason.check, 60)}: " if reason.check else ""
    number, _, times = write_count(reason.count, reason.missed, "time").rpartition(" ")
    yield f"- **{number}** {times} {what}{write_plain(reason.reason, 300)}"
    for place in reason.samples:
        yield f"  - {write_code(place.describe(), 200)}"


def _write_faults(summary: BatchSummary) -> Iterator[str]:
    if not summary.errors:
        return
    yield f"### {count_noun(summary.unread, 'record')} not read or decided"
    yield ""
    for fault in summary.faults[:MOST_REASONS]:
        yield from _write_reason(fault)
    rest = sum(fault.count for fault in summary.faults[MOST_REASONS:]) + summary.more_faults
    if rest:
        yield f"- … and {rest:,} more for other reasons"
