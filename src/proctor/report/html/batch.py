"""A batch summary as one HTML file without scripts.

The size is limited: tables and reasons are cut, worst first, and the page shows how many are left out; the JSON summary has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from proctor.model.batch import AmountFigures, BatchSummary, CaseBatch, CommonReason, JudgedCase, JudgedRate, Slice, TracePlace
from proctor.report.blocks.outcomes import draw_chip, draw_counts, draw_mark, draw_rate, draw_sprite, write_share
from proctor.report.html.page import page, read_template
from proctor.report.words.batch import list_shown_slices, list_worst_cases, write_money, write_ms
from proctor.report.words.elements import Child, Element, make, make_table_head, write_markup
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import OUTCOME_NAMES, count_noun

_WIDTH, _HEIGHT, _EDGE = 720.0, 176.0, 16.0
"""The size of the trend chart, with labels below."""
_LABELS = 84.0
"""Left of it, for the shares."""


def draw_head(summary: BatchSummary) -> Iterator[Element]:
    """Return the verdict, what was read, and the amounts."""
    whole = summary.is_complete
    kind = "uncertain" if not whole else "pass" if summary.has_passed else "fail"
    word = OUTCOME_NAMES[kind] if whole else "incomplete"
    yield make("h1", "", draw_chip(kind, word), " ", make("bdi", "", to_one_line(summary.suite, 200) or "suite"))
    facts = [
        count_noun(summary.traces, "trace"),
        count_noun(summary.partitions, "partition"),
        f"{summary.started_at[:10]} {summary.started_at[11:16]} UTC",
    ]
    yield make("p", "facts muted", [make("span", "", fact) for fact in facts])
    if summary.where is not None:
        left_out = _describe_left_out(summary)
        yield make("p", "", "Only rows where", " ", make("code", "", to_one_line(summary.where, 1000), dir="auto"), left_out)
    if summary.committed < summary.partitions:
        missing = (
            f"{summary.partitions - summary.committed:,} of {count_noun(summary.partitions, 'partition has', 'partitions have')} no result"
        )
        yield make("p", "alarm", draw_mark("error"), f"Incomplete: {missing}; `--resume` goes on.")
    if summary.not_judged:
        yield make(
            "p",
            "alarm",
            draw_mark("error"),
            "Incomplete: judged checks are pending; continue with `--resume`.",
        )
    for warning in summary.warnings:
        yield make("p", "alarm", draw_mark("uncertain"), make("bdi", "", to_one_line(warning, 500)))
    amounts = list(_list_amounts(summary.amounts))
    if amounts:
        yield make("dl", "facts-list", [make("div", "", make("dt", "", name), make("dd", "", text)) for name, text in amounts])


def _describe_left_out(summary: BatchSummary) -> str:
    rows, files = summary.left_out, summary.files_ruled_out
    if not rows and not files:
        return ""
    left_out = [count_noun(rows, "row")] if rows else []
    left_out += [count_noun(files, "file")] if files else []
    return f" ({' and '.join(left_out)} left out)"


def _list_amounts(amounts: AmountFigures) -> Iterator[tuple[str, str]]:
    if amounts.latency is not None:
        shares = (amounts.latency.p50, amounts.latency.p95, amounts.latency.p99)
        yield "Latency", _write_percentiles([write_ms(ms) for ms in shares])
    if amounts.tokens is not None:
        shares = (amounts.tokens.p50, amounts.tokens.p95, amounts.tokens.p99)
        yield "Tokens of a trace", _write_percentiles([f"{count:,.0f}" for count in shares])
    for cost in amounts.cost:
        shares = (cost.each.p50, cost.each.p95, cost.each.p99)
        each = _write_percentiles([write_money(amount) for amount in shares])
        total = f"{write_money(cost.total)} in all"
        yield f"Cost in {to_one_line(cost.currency, 10)}", f"{total}; {each}"


def _write_percentiles(shown: Sequence[str]) -> str:
    return f"half {shown[0]}, 95 % {shown[1]}, 99 % {shown[2]} at most"


def draw_trend(days: Sequence[Slice]) -> Element | None:
    """Return the pass rate by day as a line with its interval; None for fewer than two days."""
    shown = [day for day in days if day.values != (None,) and day.rate.rate is not None]
    if len(shown) < 2:
        return None
    lowest_shown = max(0.0, min(day.rate.low for day in shown) - 0.02)
    across = [_LABELS + number * (_WIDTH - _LABELS - _EDGE) / (len(shown) - 1) for number in range(len(shown))]

    def find_y(share: float) -> float:
        return _EDGE + (1 - share) / (1 - lowest_shown) * (_HEIGHT - 2 * _EDGE)

    def trace_path(points: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)

    upper = [(x, find_y(day.rate.high)) for x, day in zip(across, shown, strict=True)]
    lower = [(x, find_y(day.rate.low)) for x, day in zip(across, shown, strict=True)]
    line = [(x, find_y(day.rate.rate or 0.0)) for x, day in zip(across, shown, strict=True)]
    names = [to_one_line(day.values[0] or "", 40) for day in shown]
    rates = [day.rate.rate or 0.0 for day in shown]
    lowest, highest = write_share(min(rates)), write_share(max(rates))
    caption = f"Pass rate by day from {names[0]} to {names[-1]}: at least {lowest}, at most {highest}"
    dots = [make("circle", "point", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3") for x, y in line] if len(shown) <= 62 else []
    grid = [
        make("line", "grid", x1=f"{_LABELS:g}", x2=f"{_WIDTH:g}", y1=f"{y:.1f}", y2=f"{y:.1f}") for y in map(find_y, (lowest_shown, 1.0))
    ]
    labels = [
        make("text", "", write_share(share), x=f"{_LABELS - 6:g}", y=f"{find_y(share) + 4:.1f}", text_anchor="end")
        for share in (lowest_shown, 1.0)
    ]
    ends = [
        make("text", "", name, x=f"{x:.1f}", y=f"{_HEIGHT + 12:g}", text_anchor=anchor)
        for name, x, anchor in ((names[0], _LABELS, "start"), (names[-1], _WIDTH - 2, "end"))
    ]
    return make(
        "svg",
        "trend-chart",
        *grid,
        make("path", "band", d=f"{trace_path(upper)}L{trace_path(lower[::-1])[1:]}Z"),
        make("path", "line", d=trace_path(line)),
        *dots,
        *labels,
        *ends,
        viewBox=f"0 0 {_WIDTH:g} {_HEIGHT + 18:g}",
        role="img",
        aria_label=caption,
    )


def draw_case_rows(case: CaseBatch, heads: Sequence[str], most_checks: int) -> Iterator[Element]:
    """Return the row of a case and one for each of its checks."""
    name = make("small", "", make("bdi", "", to_one_line(case.name, 120))) if case.name and case.name != case.id else None
    title = make("code", "", to_one_line(case.id, 120), dir="auto")
    yield _draw_rated((title, name), case.rate.counts, heads)
    judged = case.judged
    for check in case.checks[:most_checks] if len(case.checks) > 1 or judged is not None else ():
        name = make("bdi", "", to_one_line(check.check, 120))
        if judged is not None and check.check in judged.checks:
            yield _draw_judged(name, judged, judged.checks[check.check], heads)
        else:
            yield _draw_rated(name, check.rate.counts, heads, look="check")
    if judged is not None:
        yield _draw_judged("all of it, with the judge", judged, judged.rate, heads)


def _draw_judged(name: Child, judged: JudgedCase, rate: JudgedRate | None, heads: Sequence[str]) -> Element:
    share = f"{judged.judged:,} of {judged.of:,} judged ({write_share(judged.judged / max(1, judged.of))})"
    estimated = "not decided"
    if rate is not None:
        estimate, low, high = (write_share(each) for each in (rate.rate, rate.low, rate.high))
        estimated = f"{estimate} estimated ({low} – {high})"
        share += f", {rate.counts['error']:,} with errors" if rate.counts.get("error") else ""
    return make(
        "tr",
        "check",
        make("th", "", name, scope="row"),
        make("td", "number", estimated, make("small", "", share), data_label=heads[1]),
        make("td", "", None if rate is None else draw_counts(rate.counts), data_label=heads[2]),
    )


def _draw_rated(name: Child, counts: dict[str, int], heads: Sequence[str], look: str = "") -> Element:
    rate = draw_rate(counts) or make("span", "muted", "not decided")
    return make(
        "tr",
        look,
        make("th", "", name, scope="row"),
        make("td", "", rate, data_label=heads[1]),
        make("td", "", draw_counts(counts), data_label=heads[2]),
    )


def draw_slice_row(values: Sequence[Child], one: Slice, heads: Sequence[str]) -> Element:
    """Return the row of a slice; `heads` are the headings, names first."""
    latency = one.amounts.latency
    times = "" if latency is None else f"{write_ms(latency.p50)} / {write_ms(latency.p95)}"
    costs = ", ".join(f"{write_money(cost.total)} {to_one_line(cost.currency, 10)}" for cost in one.amounts.cost)
    cells: list[Child] = [_write_traces(one), draw_rate(one.rate.counts), times, costs]
    first, *rest = values
    # Empty columns are left out.
    cells = cells[: len(heads) - len(values)]
    return make(
        "tr",
        "",
        make("th", "", first, scope="row"),
        [make("td", "", value, data_label=label) for value, label in zip((*rest, *cells), heads[1:], strict=True)],
    )


def _write_traces(one: Slice) -> str:
    most = f"–{one.traces + one.missed:,}" if one.missed else ""
    return f"{one.traces:,}{most}"


def draw_value(value: str | None) -> Element:
    """Return the values of a slice."""
    return make("span", "muted", "unknown") if value is None else make("bdi", "", to_one_line(value, 120) or "–")


def draw_reason(case: str, reason: CommonReason) -> Element:
    """Return reasons of failures with example traces."""
    kind = "error" if reason.outcome == "error" else "fail"
    most = reason.count + reason.missed
    times = count_noun(most, "time") if not reason.missed else f"{reason.count:,} to {most:,} times"
    about = [make("code", "", to_one_line(each, 120), dir="auto") for each in (case, reason.check) if each]
    return make(
        "li",
        f"sheet {kind}",
        make("h3", "title", draw_mark(kind), make("b", "", times), about),
        make("p", "reason", make("bdi", "", to_one_line(reason.reason, 400))),
        make("ul", "samples small muted", [make("li", "", _draw_place(place)) for place in reason.samples]),
    )


def _draw_place(place: TracePlace) -> Child:
    at = ""
    if place.row is not None:
        at = f"row {place.row:,}"
    elif place.offset is not None:
        at = f"byte {place.offset:,}"
    trace = make("code", "", to_one_line(place.trace, 120), " ", dir="auto") if place.trace else None
    return trace, make("bdi", "", to_one_line(place.file, 300)), f", {at}" if at else ""


MOST_BYTES = 400_000
"""Bytes for cases, slices and reasons each: the page stays below 2 MB."""
MOST_CASES = 500
MOST_CHECKS = 30
"""Checks listed per case."""
MOST_REASONS = 5
"""Reasons listed per case."""
MOST_SLICES = 200
"""Slices of one table."""
MOST_DAYS = 500
_STYLES = ("tokens.css", "family.css", "batch.css")


def render_batch_html(summary: BatchSummary) -> str:
    """Return the whole page."""
    parts = [
        write_markup(draw_sprite()),
        *map(write_markup, draw_head(summary)),
        *_write_trend(summary),
        *_write_cases(summary),
        *_write_slices(summary),
        *_write_reasons(summary),
        *_write_faults(summary),
        write_markup(make("p", "muted small", "Results in", " ", make("code", "", to_one_line(summary.output, 400)))),
    ]
    title = escape(f"Batch: {to_one_line(summary.suite, 200) or 'suite'}")
    style = "".join(map(read_template, _STYLES))
    return page(title=title, style=style, body=f"<main>\n{chr(10).join(parts)}\n</main>\n")


def _write_trend(summary: BatchSummary) -> Iterator[str]:
    if summary.days:
        yield write_markup(make("h2", "", "Trend by day"))
        picture = draw_trend(summary.days)
        if picture is not None:
            yield write_markup(make("div", "sheet", picture))
        yield f"<details><summary>{count_noun(len(summary.days), 'day')} as a table</summary>"
        yield from _write_table(("Day",), summary.days, summary.other_days, [MOST_BYTES], MOST_DAYS)
        yield "</details>"


def _write_cases(summary: BatchSummary) -> Iterator[str]:
    heads = ["Case", "Pass rate", "Outcomes"]
    cases = list_worst_cases(summary, MOST_CASES)
    left, written, rows = MOST_BYTES, 0, list[str]()
    for case in cases:
        markup = "".join(map(write_markup, draw_case_rows(case, heads, MOST_CHECKS)))
        left -= len(markup.encode())
        if left < 0:
            break
        rows.append(markup)
        written += 1
    yield write_markup(make("h2", "", "Cases"))
    yield f'<div class="wide"><table class="rows">{write_markup(make_table_head(heads))}<tbody>{"".join(rows)}</tbody></table></div>'
    if len(summary.cases) > written:
        yield write_markup(make("p", "muted", f"and {count_noun(len(summary.cases) - written, 'more case')}, which the JSON summary has"))


def _write_slices(summary: BatchSummary) -> Iterator[str]:
    left = [MOST_BYTES]
    for table in summary.slices:
        yield write_markup(make("h2", "", f"By {', '.join(to_one_line(name, 80) for name in table.by)}"))
        yield from _write_table(table.by, table.slices, table.others, left)


def _write_table(
    names: Sequence[str], slices: Sequence[Slice], others: Slice | None, left: list[int], most: int = MOST_SLICES
) -> Iterator[str]:
    """Write one table; `left` is its remaining byte budget, which is reduced."""
    shown, more = list_shown_slices(slices, most)
    with_cost = any(one.amounts.cost for one in slices)
    amounts = ("Latency, half / 95 %", "Cost") if with_cost else ("Latency, half / 95 %",)
    heads = [*(to_one_line(name, 80) for name in names), "Traces", "Pass rate", *amounts]
    drawn = (draw_slice_row([draw_value(value) for value in one.values], one, heads) for one in shown)
    rows = _fill(drawn, left)
    more = [*shown[len(rows) :], *more]
    if others is not None:
        empty = [""] * (len(names) - 1)
        rows.append(write_markup(draw_slice_row([make("span", "muted", "all others"), *empty], others, heads)))
    yield f'<div class="wide"><table class="rows">{write_markup(make_table_head(heads))}<tbody>{"".join(rows)}</tbody></table></div>'
    if more:
        yield write_markup(make("p", "muted", f"and {len(more):,} more, with {sum(one.traces for one in more):,} traces"))


def _write_reasons(summary: BatchSummary) -> Iterator[str]:
    found = [(case.id, reason) for case in summary.cases for reason in case.reasons[:MOST_REASONS]]
    found += [(case.id, reason) for case in summary.cases if case.judged is not None for reason in case.judged.reasons[:MOST_REASONS]]
    found.sort(key=lambda one: -one[1].count)
    if not found:
        return
    rows = _fill((draw_reason(case, reason) for case, reason in found), [MOST_BYTES])
    every = [reason for case in summary.cases for reason in (*case.reasons, *(case.judged.reasons if case.judged is not None else ()))]
    rest = sum(reason.count for reason in every) + sum(case.more_reasons for case in summary.cases)
    rest -= sum(reason.count for _, reason in found[: len(rows)])
    yield write_markup(make("h2", "", "Why traces did not pass"))
    yield f'<ul class="groups">{"".join(rows)}</ul>'
    if rest:
        yield write_markup(make("p", "muted", f"and {count_noun(rest, 'more for another reason', 'more for other reasons')}"))


def _write_faults(summary: BatchSummary) -> Iterator[str]:
    if summary.errors:
        yield write_markup(make("h2", "", f"{count_noun(summary.unread, 'record')} not read or decided"))
        rows = _fill((draw_reason("", fault) for fault in summary.faults), [MOST_BYTES // 4])
        yield f'<ul class="groups">{"".join(rows)}</ul>'
        rest = sum(fault.count for fault in summary.faults[len(rows) :]) + summary.more_faults
        if rest:
            yield write_markup(make("p", "muted", f"and {count_noun(rest, 'more for another reason', 'more for other reasons')}"))


def _fill(drawn: Iterable[Element], left: list[int]) -> list[str]:
    """Return elements as markup within the budget."""
    rows: list[str] = []
    for element in drawn:
        markup = write_markup(element)
        size = len(markup.encode())
        if left[0] < size:
            break
        left[0] -= size
        rows.append(markup)
    return rows
