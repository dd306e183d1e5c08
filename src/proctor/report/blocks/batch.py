"""The parts of the page of a batch, as elements: figures, the trend by day, cases with their checks, slices, and reasons with samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.model.batch import AmountFigures, BatchSummary, CaseBatch, CommonReason, JudgedCase, JudgedRate, Slice, TracePlace
from proctor.report.blocks.outcomes import draw_chip, draw_counts, draw_mark, draw_rate, write_share
from proctor.report.words.batch import write_money, write_ms
from proctor.report.words.elements import Child, Element, make
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import OUTCOME_NAMES, count_noun

_WIDTH, _HEIGHT, _EDGE = 720.0, 176.0, 16.0
"""Of the picture of the trend; below it there is room for the days."""
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
            "Incomplete: claims in plain language wait for a judge, who was not asked; `--resume` goes on.",
        )
    for warning in summary.warnings:
        yield make("p", "alarm", draw_mark("uncertain"), make("bdi", "", to_one_line(warning, 500)))
    told = list(_list_amounts(summary.amounts))
    if told:
        yield make("dl", "facts-list", [make("div", "", make("dt", "", name), make("dd", "", text)) for name, text in told])


def _describe_left_out(summary: BatchSummary) -> str:
    rows, files = summary.left_out, summary.files_ruled_out
    if not rows and not files:
        return ""
    told = [count_noun(rows, "row")] if rows else []
    told += [count_noun(files, "file")] if files else []
    return f" ({' and '.join(told)} left out)"


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
    """Return the pass rate by day as a line within its interval; nothing for fewer than two days that were decided."""
    shown = [day for day in days if day.values != (None,) and day.rate.rate is not None]
    if len(shown) < 2:
        return None
    floor = max(0.0, min(day.rate.low for day in shown) - 0.02)
    across = [_LABELS + number * (_WIDTH - _LABELS - _EDGE) / (len(shown) - 1) for number in range(len(shown))]

    def find_y(share: float) -> float:
        return _EDGE + (1 - share) / (1 - floor) * (_HEIGHT - 2 * _EDGE)

    def trace_path(points: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)

    upper = [(x, find_y(day.rate.high)) for x, day in zip(across, shown, strict=True)]
    lower = [(x, find_y(day.rate.low)) for x, day in zip(across, shown, strict=True)]
    line = [(x, find_y(day.rate.rate or 0.0)) for x, day in zip(across, shown, strict=True)]
    names = [to_one_line(day.values[0] or "", 40) for day in shown]
    rates = [day.rate.rate or 0.0 for day in shown]
    lowest, highest = write_share(min(rates)), write_share(max(rates))
    said = f"Pass rate by day from {names[0]} to {names[-1]}: at least {lowest}, at most {highest}"
    dots = [make("circle", "point", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3") for x, y in line] if len(shown) <= 62 else []
    grid = [make("line", "grid", x1=f"{_LABELS:g}", x2=f"{_WIDTH:g}", y1=f"{y:.1f}", y2=f"{y:.1f}") for y in map(find_y, (floor, 1.0))]
    labels = [
        make("text", "", write_share(share), x=f"{_LABELS - 6:g}", y=f"{find_y(share) + 4:.1f}", text_anchor="end")
        for share in (floor, 1.0)
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
        aria_label=said,
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
    told = "not decided"
    if rate is not None:
        estimate, low, high = (write_share(each) for each in (rate.rate, rate.low, rate.high))
        told = f"{estimate} estimated ({low} – {high})"
        share += f", {rate.counts['error']:,} of them in error" if rate.counts.get("error") else ""
    return make(
        "tr",
        "check",
        make("th", "", name, scope="row"),
        make("td", "number", told, make("small", "", share), data_label=heads[1]),
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
    """Return the row of a slice; `heads` are those of the whole table, the names first."""
    latency = one.amounts.latency
    times = "" if latency is None else f"{write_ms(latency.p50)} / {write_ms(latency.p95)}"
    costs = ", ".join(f"{write_money(cost.total)} {to_one_line(cost.currency, 10)}" for cost in one.amounts.cost)
    cells: list[Child] = [_write_traces(one), draw_rate(one.rate.counts), times, costs]
    first, *rest = values
    # Nobody wants to see a column that has nothing in it.
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
    """Return what the traces of a slice have in common."""
    return make("span", "muted", "not told") if value is None else make("bdi", "", to_one_line(value, 120) or "–")


def draw_reason(case: str, reason: CommonReason) -> Element:
    """Return why traces did not pass, with traces to look at."""
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
