"""What every report of a batch says alike: shares, amounts, slices, and which of them are shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.model.batch import AmountFigures, BatchSummary, CaseBatch, JudgedCase, JudgedRate, PassRate, Slice
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import count_noun

NOT_TOLD = "not told"
"""The value of a slice whose traces do not tell it."""


def write_percent(share: float) -> str:
    """Return a share as a percentage; never 100 % of what is not all, and never 0 % of what is something."""
    text = f"{100 * share:.1f}"
    if text == "100.0" and share < 1:
        return "99.9 %"
    return "0.1 %" if text == "0.0" and share > 0 else f"{text} %"


def describe_amounts(amounts: AmountFigures, *, short: bool = False) -> Iterator[str]:
    """Return what is known of latency, tokens and cost, one line each; only latency and the sum of costs where that is to be short."""
    if amounts.latency is not None:
        shares = (("half", amounts.latency.p50), ("95 %", amounts.latency.p95), ("99 %", amounts.latency.p99))
        shown = shares[:2] if short else shares
        yield ("" if short else "latency: ") + ", ".join(f"{name} within {write_ms(ms)}" for name, ms in shown)
    if amounts.tokens is not None and not short:
        tokens = amounts.tokens
        yield f"tokens: half at most {tokens.p50:,.0f}, 95 % {tokens.p95:,.0f}, 99 % {tokens.p99:,.0f}"
    for cost in amounts.cost:
        total = f"{write_money(cost.total)} {to_one_line(cost.currency, 10)}"
        each = cost.each
        rest = f" in all, half at most {write_money(each.p50)}, 95 % {write_money(each.p95)}, 99 % {write_money(each.p99)} a trace"
        yield total if short else f"cost: {total}{rest}"


def describe_judged(judged: JudgedCase, rate: JudgedRate | None) -> str:
    """Return what a judge said of a sample, and how large a share of all that was."""
    share = f"{judged.judged:,} of {judged.of:,} judged ({write_percent(judged.judged / judged.of if judged.of else 0.0)})"
    if rate is None:
        return f"not decided; {share}"
    # A judge that was not reached says nothing of the agent: whoever reads 0 % must see that.
    failed = rate.counts.get("error", 0)
    share += f", {failed:,} of them in error" if failed else ""
    return f"{write_percent(rate.rate)} estimated, {write_percent(rate.low)} to {write_percent(rate.high)}; {share}"


def describe_missing(summary: BatchSummary) -> str:
    """Return what of a batch has no result yet; nothing where all of it has."""
    missing = summary.partitions - summary.committed
    told = [f"{missing:,} of {count_noun(summary.partitions, 'partition')} have no result"] if missing else []
    told += ["the judge was not asked"] if summary.not_judged else []
    return ", and ".join(told)


def describe_undecided(rate: PassRate) -> str:
    """Return how many are in error and how many were skipped, to stand behind the others; nothing where none is."""
    told = ((outcome, word) for outcome, word in (("error", "in error"), ("skip", "skipped")) if rate.counts.get(outcome))
    return "".join(f", {rate.counts[outcome]:,} {word}" for outcome, word in told)


def describe_left_out(summary: BatchSummary) -> str:
    """Return how much a condition left out; nothing where that is nothing."""
    told = [count_noun(summary.left_out, "row")] if summary.left_out else []
    told += [count_noun(summary.files_ruled_out, "file")] if summary.files_ruled_out else []
    return f"{' and '.join(told)} left out" if told else ""


def write_ms(ms: float) -> str:
    """Return a time in milliseconds or seconds."""
    return f"{ms / 1000:,.2f} s" if ms >= 1000 else f"{ms:.0f} ms"


def write_money(amount: float) -> str:
    """Return an amount with as many digits as say something."""
    return f"{amount:,.2f}" if amount >= 1 or amount == 0 else f"{amount:.3g}"


def name_slice(values: Sequence[str | None], limit: int = 80) -> str:
    """Return what the traces of a slice have in common."""
    return ", ".join(NOT_TOLD if value is None else to_one_line(value, limit) or "(empty)" for value in values)


def list_worst_cases(summary: BatchSummary, most: int) -> tuple[CaseBatch, ...]:
    """Return the cases of a batch; of more than so many those that fail most often."""
    if len(summary.cases) <= most:
        return summary.cases
    return tuple(sorted(summary.cases, key=_find_lowest_rate)[:most])


def _find_lowest_rate(case: CaseBatch) -> float:
    judged = case.judged.rate.rate if case.judged is not None and case.judged.rate is not None else None
    return min((rate for rate in (case.rate.rate, judged) if rate is not None), default=2.0)


def write_count(count: int, missed: int, noun: str) -> str:
    """Return a count with its noun; where it is inexact, the least and the most that it may be."""
    return f"{count:,} to {count_noun(count + missed, noun)}" if missed else count_noun(count, noun)


def list_shown_slices(slices: Sequence[Slice], most: int) -> tuple[Sequence[Slice], Sequence[Slice]]:
    """Return the slices that are shown, in their order, and those that are not: the ones with fewest traces."""
    if len(slices) <= most:
        return slices, ()
    chosen = {id(one) for one in sorted(slices, key=lambda one: -one.traces)[:most]}
    return [one for one in slices if id(one) in chosen], [one for one in slices if id(one) not in chosen]


def describe_rest(rest: Sequence[Slice]) -> str:
    """Return how many slices are not shown, and how many traces they have."""
    return f"and {len(rest):,} more with {count_noun(sum(one.traces for one in rest), 'trace')}"
