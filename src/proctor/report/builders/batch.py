"""The document of a batch: pass rates per case and check, reasons with example traces, amounts, days and slices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from proctor.model.batch import AmountFigures, BatchSummary, CaseBatch, CommonReason, JudgedCase, JudgedRate, Slice
from proctor.report.blocks.outcomes import write_share
from proctor.report.document import model as doc
from proctor.report.words.findings import find_shape
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import OUTCOME_NAMES, count_noun, count_words, write_percent, write_small
from proctor.scoring.statistics import count_outcomes

MOST_CASES: Mapping[doc.Output, int] = {"terminal": 200, "markdown": 100, "html": 500}
"""Cases in the table, most failures first."""
MOST_REASONS: Mapping[doc.Output, int] = {"terminal": 5, "markdown": 3, "html": 5}
"""Reasons per case, and faults."""
MOST_LISTED: Mapping[doc.Output, int] = {"terminal": 200, "markdown": 60, "html": 2_500}
"""Reasons of all cases, the commonest first."""
MOST_SLICES: Mapping[doc.Output, int] = {"terminal": 40, "markdown": 60, "html": 200}
"""Slices of one table, largest first."""
MOST_DAYS: Mapping[doc.Output, int] = {**MOST_SLICES, "html": 500}
MOST_CHECKS = 30
"""Checks listed per case."""
_MOST_NAMED, _MOST_SAMPLES = 25, 3
"""Cases and traces that are named for each cause."""
UNKNOWN_VALUE = "unknown"
"""The name of a slice whose traces lack the value."""


def build_batch(summary: BatchSummary, output: doc.Output) -> doc.Document:
    """Return the document of a batch."""
    is_complete = summary.is_complete
    tone = "uncertain" if not is_complete else "pass" if summary.has_passed else "fail"
    started = f"{summary.started_at[:10]} {summary.started_at[11:16]} UTC"
    counts = {outcome: sum(case.rate.counts.get(outcome, 0) for case in summary.cases) for outcome in OUTCOME_NAMES}
    results = sum(counts.values())
    read = count_noun(summary.traces, "trace") + (f", {count_noun(results, 'result')}" if results != summary.traces else "")
    decided = count_outcomes(counts)
    # As on the page of a run: one rate with its unit, then the counts.
    rate = f"{write_share(decided.rate)} of {count_noun(decided.runs, 'result')} passed · " if output == "html" and decided.runs else ""
    amounts = tuple(_list_amounts(summary.amounts))
    return doc.Document(
        name=summary.suite or "suite",
        verdict=(tone, OUTCOME_NAMES[tone] if is_complete else "incomplete"),
        headline=f"{rate}{read}: {count_words(counts)}",
        about=(count_noun(summary.partitions, "partition"), started),
        blocks=(
            *_list_notes(summary),
            # As on the page of a run: why first, then the cases.
            *_list_reasons(summary, output),
            *_list_faults(summary, output),
            _make_cases(summary, output),
            *([doc.Section(("Amounts",), (doc.Facts(amounts),))] if amounts else []),
            *_list_days(summary, output),
            *(
                doc.Section((f"By {', '.join(part.by)}",), (_make_slices(part.by, part.slices, part.others, MOST_SLICES[output]),))
                for part in summary.slices
                if part.slices
            ),
            doc.Facts((("results", (doc.Text(summary.output, "code", limit=400),)),)),
        ),
    )


def _list_notes(summary: BatchSummary) -> Iterator[doc.Block]:
    if not summary.is_complete:
        yield doc.Paragraph((f"INCOMPLETE: {describe_missing(summary)}; --resume goes on",), tone="error")
        if summary.failures:
            yield doc.Listing(tuple((doc.Text(failure),) for failure in summary.failures[:5]))
    if summary.where is not None:
        left_out = describe_left_out(summary)
        yield doc.Paragraph(("where ", doc.Text(summary.where, "code", limit=500), f": {left_out}" if left_out else ""))
    for warning in summary.warnings:
        yield doc.Paragraph(("warning: ", doc.Text(warning, limit=500)), tone="uncertain")


def describe_missing(summary: BatchSummary) -> str:
    """Return which parts of a batch have no result yet, or ""."""
    missing = summary.partitions - summary.committed
    missing_parts = [f"{missing:,} of {count_noun(summary.partitions, 'partition')} have no result"] if missing else []
    missing_parts += ["judged checks are pending"] if summary.not_judged else []
    return ", and ".join(missing_parts)


def describe_left_out(summary: BatchSummary) -> str:
    """Return how many rows and files a filter excluded, or ""."""
    parts = [count_noun(summary.left_out, "row")] if summary.left_out else []
    parts += [count_noun(summary.files_ruled_out, "file")] if summary.files_ruled_out else []
    return f"{' and '.join(parts)} left out" if parts else ""


def _make_cases(summary: BatchSummary, output: doc.Output) -> doc.Section:
    cases = list_worst_cases(summary, MOST_CASES[output])
    rest = doc.Rest("and {rows} more cases, which the JSON summary has", len(summary.cases) - len(cases))
    rows = tuple(row for case in cases for row in _iterate_rows(case, output))
    return doc.Section(("Cases",), (doc.Table((doc.Column("case"), doc.Column("pass rate")), rows, rest),))


def _iterate_rows(case: CaseBatch, output: doc.Output) -> Iterator[doc.Row]:
    name: doc.Line = (" ", doc.Text(case.name, "muted", limit=120)) if output == "html" and case.name and case.name != case.id else ()
    yield doc.Row(((doc.Text(case.id, "code", limit=120), *name), (doc.Rate(case.rate.counts, detailed=True),)))
    judged = case.judged
    for check in case.checks[:MOST_CHECKS] if len(case.checks) > 1 or judged is not None else ():
        if judged is not None and check.check in judged.checks:
            rate: doc.Line = (describe_judged(judged, judged.checks[check.check]),)
        else:
            rate = (doc.Rate(check.rate.counts, detailed=True),)
        yield doc.Row(((doc.Text(check.check, limit=120),), rate), inner=True)
    if judged is not None:
        yield doc.Row((("all of it, with the judge",), (describe_judged(judged, judged.rate),)), inner=True)


def describe_judged(judged: JudgedCase, rate: JudgedRate | None) -> str:
    """Return the judged estimate of a sample and the size of the sample."""
    share = f"{judged.judged:,} of {judged.of:,} judged ({write_percent(judged.judged / judged.of if judged.of else 0.0)})"
    if rate is None:
        return f"not decided; {share}"
    failed = rate.counts.get("error", 0)
    share += f", {failed:,} with errors" if failed else ""
    if not (rate.counts.get("pass") or rate.counts.get("fail")):
        # An unreachable judge is no failure of the agent.
        return f"not decided; {share}"
    return f"{write_percent(rate.rate)} estimated, {write_percent(rate.low)} to {write_percent(rate.high)}; {share}"


def list_worst_cases(summary: BatchSummary, most: int) -> tuple[CaseBatch, ...]:
    """Return the cases of a batch; if there are too many, those that fail most."""
    if len(summary.cases) <= most:
        return summary.cases
    return tuple(sorted(summary.cases, key=_find_lowest_rate)[:most])


def _find_lowest_rate(case: CaseBatch) -> float:
    judged = case.judged.rate.rate if case.judged is not None and case.judged.rate is not None else None
    return min((rate for rate in (case.rate.rate, judged) if rate is not None), default=2.0)


def _list_reasons(summary: BatchSummary, output: doc.Output) -> Iterator[doc.Section]:
    most = MOST_REASONS[output]
    lists = [(case.id, reasons) for case in summary.cases for reasons in (case.reasons, case.judged.reasons if case.judged else ())]
    reasons_of_cases = [(case, reason) for case, reasons in lists for reason in reasons[:most]]
    if not reasons_of_cases:
        return
    reasons_of_cases.sort(key=lambda pair: -pair[1].count)
    listed = reasons_of_cases[: MOST_LISTED[output]]
    every = sum(reason.count for _, reasons in lists for reason in reasons) + sum(case.more_reasons for case in summary.cases)
    rest = every - sum(reason.count for _, reason in listed)
    if output == "html":
        groups = _group_by_cause(listed)
        items = doc.Items(tuple(map(_make_cause, groups)), doc.Rest("and {count} more for other reasons", count=rest))
        yield doc.Section(("Failures",), (items,), about=count_noun(len(groups), "reason") if not rest else "")
    else:
        yield doc.Section(("Failures",), (_make_reasons(listed, rest),))


def _group_by_cause(reasons_of_cases: Iterable[tuple[str, CommonReason]]) -> list[list[tuple[str, CommonReason]]]:
    """Return the reasons of all cases by cause, the commonest first, as on the page of a run."""
    groups: dict[tuple[str, str, str], list[tuple[str, CommonReason]]] = {}
    for case, reason in reasons_of_cases:
        groups.setdefault((reason.outcome, reason.check, find_shape(reason.reason)), []).append((case, reason))
    return sorted(groups.values(), key=lambda group: (-sum(reason.count for _, reason in group), group[0][1].outcome != "error"))


def _make_cause(group: Sequence[tuple[str, CommonReason]]) -> doc.Item:
    first, cases = group[0][1], list(dict.fromkeys(case for case, _ in group))
    count, missed = (sum(amounts) for amounts in zip(*((reason.count, reason.missed) for _, reason in group), strict=True))
    title: doc.Line = (doc.Text(write_count(count, missed, "result"), "strong"), doc.Text(f" in {count_noun(len(cases), 'case')}", "muted"))
    check: doc.Line = (doc.Text(first.check, limit=120), ": ") if first.check else ()
    case_names: list[doc.Inline] = [part for case in cases[:_MOST_NAMED] for part in (" ", doc.Text(case, "code", limit=120))]
    case_names += [f" and {len(cases) - _MOST_NAMED:,} more"] if len(cases) > _MOST_NAMED else []
    places = tuple((doc.Text(place.describe(), "code", limit=300),) for _, reason in group for place in reason.samples)[:_MOST_SAMPLES]
    blocks: tuple[doc.Block, ...] = (doc.Paragraph((*check, doc.Text(first.reason, limit=400))), doc.Paragraph(tuple(case_names[1:])))
    return doc.Item(title, (*blocks, *([doc.Listing(places, muted=True)] if places else [])), _find_tone(first), count=count)


def _find_tone(reason: CommonReason) -> doc.Tone:
    return "error" if reason.outcome == "error" else "fail"


def _list_faults(summary: BatchSummary, output: doc.Output) -> Iterator[doc.Section]:
    if summary.errors:
        most = MOST_REASONS[output] if output != "html" else len(summary.faults)
        rest = sum(fault.count for fault in summary.faults[most:]) + summary.more_faults
        title = f"{count_noun(summary.unread, 'record')} not read or decided"
        yield doc.Section((title,), (_make_reasons([("", fault) for fault in summary.faults[:most]], rest),))


def _make_reasons(reasons_of_cases: Iterable[tuple[str, CommonReason]], rest: int) -> doc.Items:
    return doc.Items(
        tuple(_make_reason(case, reason) for case, reason in reasons_of_cases), doc.Rest("and {count} more for other reasons", count=rest)
    )


def _make_reason(case: str, reason: CommonReason) -> doc.Item:
    names = [part for each in (case, reason.check) if each for part in ("  ", doc.Text(each, "code", limit=120))]
    title: doc.Line = (doc.Text(write_count(reason.count, reason.missed, "time"), "strong"), *names)
    samples = tuple((doc.Text(place.describe(), "code", limit=300),) for place in reason.samples)
    blocks = (doc.Paragraph((doc.Text(reason.reason, limit=400),)), *([doc.Listing(samples, muted=True)] if samples else []))
    return doc.Item(title, blocks, _find_tone(reason), count=reason.count)


def write_count(count: int, missed: int, noun: str) -> str:
    """Return a count with its noun, as a range if it is inexact."""
    return f"{count:,} to {count_noun(count + missed, noun)}" if missed else count_noun(count, noun)


def _list_amounts(amounts: AmountFigures) -> Iterator[tuple[str, doc.Line]]:
    if amounts.latency is not None:
        yield "latency", (_write_percentiles([_write_ms(ms) for ms in (amounts.latency.p50, amounts.latency.p95, amounts.latency.p99)]),)
    if amounts.tokens is not None:
        yield "tokens", (_write_percentiles([f"{count:,.0f}" for count in (amounts.tokens.p50, amounts.tokens.p95, amounts.tokens.p99)]),)
    for cost in amounts.cost:
        each = _write_percentiles([_write_money(amount) for amount in (cost.each.p50, cost.each.p95, cost.each.p99)])
        yield "cost", (f"{_write_money(cost.total)} {to_one_line(cost.currency, 10)} total, per trace {each}",)


def _write_percentiles(percentiles: Sequence[str]) -> str:
    return f"p50 {percentiles[0]} · p95 {percentiles[1]} · p99 {percentiles[2]}"


def _write_ms(ms: float) -> str:
    return f"{ms / 1000:,.2f} s" if ms >= 1000 else f"{ms:.0f} ms"


def _write_money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 1 or amount == 0 else write_small(amount)


def _list_days(summary: BatchSummary, output: doc.Output) -> Iterator[doc.Section]:
    if not summary.days:
        return
    table = _make_slices(("day",), summary.days, summary.other_days, MOST_DAYS[output])
    if output != "html":
        yield doc.Section(("By day",), (table,))
        return
    trend = _make_trend(summary.days)
    folded = doc.Section((f"{count_noun(len(summary.days), 'day')} as a table",), (table,), folded=True)
    yield doc.Section(("Trend by day",), (*([trend] if trend is not None else []), folded))


def _make_trend(days: Sequence[Slice]) -> doc.Chart | None:
    """Return the pass rate by day with its interval; None for fewer than two days."""
    decided_days = [day for day in days if day.values != (None,) and day.rate.rate is not None]
    if len(decided_days) < 2:
        return None
    first, last = (to_one_line(day.values[0] or "", 40) for day in (decided_days[0], decided_days[-1]))
    rates = [day.rate.rate or 0.0 for day in decided_days]
    points = tuple((number / (len(decided_days) - 1), rate) for number, rate in enumerate(rates))
    caption = f"Pass rate by day from {first} to {last}: at least {write_share(min(rates))}, at most {write_share(max(rates))}"
    series = doc.Series("rate", points, tuple(day.rate.low for day in decided_days), tuple(day.rate.high for day in decided_days))
    lowest = max(0.0, min(day.rate.low for day in decided_days) - 0.02)
    return doc.Chart(caption, (series,), ((0.0, first), (1.0, last)), lowest=lowest, percent=True)


def _make_slices(names: Sequence[str], slices: Sequence[Slice], others: Slice | None, most: int) -> doc.Table:
    listed, unlisted = _list_shown_slices(slices, most)
    costs = [doc.Column("cost")] if any(part.amounts.cost for part in slices) else []
    columns = (*map(doc.Column, names), doc.Column("traces", number=True), doc.Column("pass rate"), doc.Column("latency p50 / p95"), *costs)
    rows = [_make_slice(tuple(_name_value(value) for value in part.values), part, len(costs)) for part in listed]
    if others is not None:
        blank: tuple[doc.Line, ...] = ((),) * (len(names) - 1)
        rows.append(_make_slice(((doc.Text("all others", "muted"),), *blank), others, len(costs)))
    rest = doc.Rest("and {rows} more with {count} traces", len(unlisted), sum(part.traces for part in unlisted))
    return doc.Table(columns, tuple(rows), rest)


def _make_slice(names: tuple[doc.Line, ...], part: Slice, with_cost: int) -> doc.Row:
    latency = part.amounts.latency
    times = "" if latency is None else f"{_write_ms(latency.p50)} / {_write_ms(latency.p95)}"
    cost = ", ".join(f"{_write_money(each.total)} {to_one_line(each.currency, 10)}" for each in part.amounts.cost)
    traces = f"{part.traces:,}" + (f" to {part.traces + part.missed:,}" if part.missed else "")
    cells: tuple[doc.Line, ...] = (*names, (traces,), (doc.Rate(part.rate.counts),), (times,), *(((cost,),) if with_cost else ()))
    return doc.Row(cells, count=part.traces)


def _name_value(value: str | None) -> doc.Line:
    return (doc.Text(UNKNOWN_VALUE, "muted"),) if value is None else (doc.Text(value or "(empty)", limit=120),)


def _list_shown_slices(slices: Sequence[Slice], most: int) -> tuple[Sequence[Slice], Sequence[Slice]]:
    """Return the slices that are shown, in order, and the smaller ones that are not."""
    if len(slices) <= most:
        return slices, ()
    chosen = {id(part) for part in sorted(slices, key=lambda part: -part.traces)[:most]}
    return [part for part in slices if id(part) in chosen], [part for part in slices if id(part) not in chosen]
