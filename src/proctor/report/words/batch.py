"""Text shared by all batch reports: shares, amounts, slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.model.batch import AmountFigures, BatchSummary, CaseBatch, JudgedCase, JudgedRate, PassRate, Slice
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import count_noun

UNKNOWN_VALUE = "unknown"
"""The name of a slice whose traces lack the value."""


def write_percent(share: float) -> str:
    """Return a percentage; 100 % and 0 % only if exact."""
    text = f"{100 * share:.1f}"
    if text == "100.0" and share < 1:
        return "99.9 %"
    return "0.1 %" if text == "0.0" and share > 0 else f"{text} %"


def describe_amounts(amounts: AmountFigures, *, short: bool = False) -> Iterator[str]:
    """Return latency, tokens and cost, one line each; `short` has only latency and total cost."""
    if amounts.latency is not None:
        shares = (("p50", amounts.latency.p50), ("p95", amounts.latency.p95), ("p99", amounts.latency.p99))
        shown = shares[:2] if short else shares
        yield ("" if short else "latency: ") + " · ".join(f"{name} {write_ms(ms)}" for name, ms in shown)
    if amounts.tokens is not None and not short:
        tokens = amounts.tokens
        yield f"tokens: p50 {tokens.p50:,.0f} · p95 {tokens.p95:,.0f} · p99 {tokens.p99:,.0f}"
    for cost in amounts.cost:
        total = f"{write_money(cost.total)} {to_one_line(cost.currency, 10)}"
        each = cost.each
        rest = f" total, per trace p50 {write_money(each.p50)} · p95 {write_money(each.p95)} · p99 {write_money(each.p99)}"
        yield total if short else f"cost: {total}{rest}"


def describe_judged(judged: JudgedCase, rate: JudgedRate | None) -> str:
    """Return the judged estimate of a sample and the size of the sample."""
    share = f"{judged.judged:,} of {judged.of:,} judged ({write_percent(judged.judged / judged.of if judged.of else 0.0)})"
    if rate is None:
        return f"not decided; {share}"
    # An unreachable judge is not a failure of the agent: errors are shown next to 0 %.
    failed = rate.counts.get("error", 0)
    share += f", {failed:,} with errors" if failed else ""
    return f"{write_percent(rate.rate)} estimated, {write_percent(rate.low)} to {write_percent(rate.high)}; {share}"


def describe_missing(summary: BatchSummary) -> str:
    """Return which parts of a batch have no result yet, or ""."""
    missing = summary.partitions - summary.committed
    missing_parts = [f"{missing:,} of {count_noun(summary.partitions, 'partition')} have no result"] if missing else []
    missing_parts += ["judged checks are pending"] if summary.not_judged else []
    return ", and ".join(missing_parts)


def describe_undecided(rate: PassRate) -> str:
    """Return the counts of errors and skipped results, or ""."""
    shown = ((outcome, word) for outcome, word in (("error", "errors"), ("skip", "skipped")) if rate.counts.get(outcome))
    return "".join(f", {rate.counts[outcome]:,} {word}" for outcome, word in shown)


def describe_left_out(summary: BatchSummary) -> str:
    """Return how many rows and files a filter excluded, or ""."""
    parts = [count_noun(summary.left_out, "row")] if summary.left_out else []
    parts += [count_noun(summary.files_ruled_out, "file")] if summary.files_ruled_out else []
    return f"{' and '.join(parts)} left out" if parts else ""


def write_ms(ms: float) -> str:
    """Return a time in milliseconds or seconds."""
    return f"{ms / 1000:,.2f} s" if ms >= 1000 else f"{ms:.0f} ms"


def write_money(amount: float) -> str:
    """Return an amount with a useful number of digits."""
    return f"{amount:,.2f}" if amount >= 1 or amount == 0 else f"{amount:.3g}"


def name_slice(values: Sequence[str | None], limit: int = 80) -> str:
    """Return the common values of a slice."""
    return ", ".join(UNKNOWN_VALUE if value is None else to_one_line(value, limit) or "(empty)" for value in values)


def list_worst_cases(summary: BatchSummary, most: int) -> tuple[CaseBatch, ...]:
    """Return the cases of a batch; if there are too many, those that fail most."""
    if len(summary.cases) <= most:
        return summary.cases
    return tuple(sorted(summary.cases, key=_find_lowest_rate)[:most])


def _find_lowest_rate(case: CaseBatch) -> float:
    judged = case.judged.rate.rate if case.judged is not None and case.judged.rate is not None else None
    return min((rate for rate in (case.rate.rate, judged) if rate is not None), default=2.0)


def write_count(count: int, missed: int, noun: str) -> str:
    """Return a count with its noun, as a range if it is inexact."""
    return f"{count:,} to {count_noun(count + missed, noun)}" if missed else count_noun(count, noun)


def list_shown_slices(slices: Sequence[Slice], most: int) -> tuple[Sequence[Slice], Sequence[Slice]]:
    """Return the slices that are shown, in order, and the smaller ones that are not."""
    if len(slices) <= most:
        return slices, ()
    chosen = {id(one) for one in sorted(slices, key=lambda one: -one.traces)[:most]}
    return [one for one in slices if id(one) in chosen], [one for one in slices if id(one) not in chosen]


def describe_rest(rest: Sequence[Slice]) -> str:
    """Return the number of hidden slices and their traces."""
    return f"and {len(rest):,} more with {count_noun(sum(one.traces for one in rest), 'trace')}"
