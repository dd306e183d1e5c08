"""The parts of the page of a batch, as elements: figures, the trend by day, cases with their checks, slices, and reasons with samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.model.batch import AmountFigures, BatchSummary, CaseBatch, CommonReason, JudgedCase, JudgedRate, Slice, TracePlace
from proctor.report.batch_words import write_money, write_ms
from proctor.report.catalogue import Catalogue
from proctor.report.drawn_outcomes import draw_chip, draw_counts, draw_mark, draw_rate, write_share
from proctor.report.elements import Child, Element, make
from proctor.report.neutral import to_one_line

_WIDTH, _HEIGHT, _EDGE = 720.0, 176.0, 16.0
"""Of the picture of the trend; below it there is room for the days."""
_LABELS = 84.0
"""Left of it, for the shares."""


def draw_head(summary: BatchSummary, words: Catalogue) -> Iterator[Element]:
    """Return the verdict, what was read, and the amounts."""
    whole = summary.is_complete
    kind = "uncertain" if not whole else "pass" if summary.has_passed else "fail"
    word = words.say("batch.incomplete_mark" if not whole else f"outcome.{kind}")
    yield make("h1", "", draw_chip(kind, word), " ", make("bdi", "", to_one_line(summary.suite, 200) or words.say("told.suite")))
    facts = [
        words.say("batch.traces", count=summary.traces),
        words.say("batch.partitions", count=summary.partitions),
        f"{summary.started_at[:10]} {summary.started_at[11:16]} UTC",
    ]
    yield make("p", "facts muted", [make("span", "", fact) for fact in facts])
    if summary.where is not None:
        left_out = _describe_left_out(summary, words)
        yield make("p", "", words.say("batch.where"), " ", make("code", "", to_one_line(summary.where, 1000), dir="auto"), left_out)
    if summary.committed < summary.partitions:
        missing = words.say("batch.incomplete", missing=summary.partitions - summary.committed, count=summary.partitions)
        yield make("p", "alarm", draw_mark("error"), missing)
    if summary.not_judged:
        yield make("p", "alarm", draw_mark("error"), words.say("batch.not_judged"))
    for warning in summary.warnings:
        yield make("p", "alarm", draw_mark("uncertain"), make("bdi", "", to_one_line(warning, 500)))
    told = list(_list_amounts(summary.amounts, words))
    if told:
        yield make("dl", "facts-list", [make("div", "", make("dt", "", name), make("dd", "", text)) for name, text in told])


def _describe_left_out(summary: BatchSummary, words: Catalogue) -> str:
    rows, files = summary.left_out, summary.files_ruled_out
    if not rows and not files:
        return ""
    told = [words.say("batch.rows", count=rows)] if rows else []
    told += [words.say("batch.files", count=files)] if files else []
    return f" ({words.say('batch.left_out', what=words.say('batch.and').join(told))})"


def _list_amounts(amounts: AmountFigures, words: Catalogue) -> Iterator[tuple[str, str]]:
    if amounts.latency is not None:
        shares = (amounts.latency.p50, amounts.latency.p95, amounts.latency.p99)
        yield words.say("batch.latency"), _write_percentiles([words.write_figure(write_ms(ms)) for ms in shares], words)
    if amounts.tokens is not None:
        shares = (amounts.tokens.p50, amounts.tokens.p95, amounts.tokens.p99)
        yield words.say("batch.tokens"), _write_percentiles([words.write_number(count) for count in shares], words)
    for cost in amounts.cost:
        shares = (cost.each.p50, cost.each.p95, cost.each.p99)
        each = _write_percentiles([words.write_figure(write_money(amount)) for amount in shares], words)
        total = words.say("batch.in_all", total=words.write_figure(write_money(cost.total)))
        yield words.say("batch.cost", currency=to_one_line(cost.currency, 10)), f"{total}; {each}"


def _write_percentiles(shown: Sequence[str], words: Catalogue) -> str:
    return words.say("batch.percentiles", p50=shown[0], p95=shown[1], p99=shown[2])


def draw_trend(days: Sequence[Slice], words: Catalogue) -> Element | None:
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
    lowest, highest = write_share(min(rates), words), write_share(max(rates), words)
    said = words.say("batch.trend_said", first=names[0], last=names[-1], low=lowest, high=highest)
    dots = [make("circle", "point", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3") for x, y in line] if len(shown) <= 62 else []
    grid = [make("line", "grid", x1=f"{_LABELS:g}", x2=f"{_WIDTH:g}", y1=f"{y:.1f}", y2=f"{y:.1f}") for y in map(find_y, (floor, 1.0))]
    labels = [
        make("text", "", write_share(share, words), x=f"{_LABELS - 6:g}", y=f"{find_y(share) + 4:.1f}", text_anchor="end")
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


def draw_case_rows(case: CaseBatch, heads: Sequence[str], words: Catalogue, most_checks: int) -> Iterator[Element]:
    """Return the row of a case and one for each of its checks."""
    name = make("small", "", make("bdi", "", to_one_line(case.name, 120))) if case.name and case.name != case.id else None
    title = make("code", "", to_one_line(case.id, 120), dir="auto")
    yield _draw_rated((title, name), case.rate.counts, heads, words)
    judged = case.judged
    for check in case.checks[:most_checks] if len(case.checks) > 1 or judged is not None else ():
        name = make("bdi", "", to_one_line(check.check, 120))
        if judged is not None and check.check in judged.checks:
            yield _draw_judged(name, judged, judged.checks[check.check], heads, words)
        else:
            yield _draw_rated(name, check.rate.counts, heads, words, look="check")
    if judged is not None:
        yield _draw_judged(words.say("batch.with_judge"), judged, judged.rate, heads, words)


def _draw_judged(name: Child, judged: JudgedCase, rate: JudgedRate | None, heads: Sequence[str], words: Catalogue) -> Element:
    share = words.say("batch.judged", judged=judged.judged, of=judged.of, share=write_share(judged.judged / max(1, judged.of), words))
    told = words.say("batch.not_decided")
    if rate is not None:
        estimate, low, high = (write_share(each, words) for each in (rate.rate, rate.low, rate.high))
        told = words.say("batch.estimated", rate=estimate, low=low, high=high)
        share += words.say("batch.judged_errors", errors=rate.counts["error"]) if rate.counts.get("error") else ""
    return make(
        "tr",
        "check",
        make("th", "", name, scope="row"),
        make("td", "number", told, make("small", "", share), data_label=heads[1]),
        make("td", "", None if rate is None else draw_counts(rate.counts, words), data_label=heads[2]),
    )


def _draw_rated(name: Child, counts: dict[str, int], heads: Sequence[str], words: Catalogue, look: str = "") -> Element:
    rate = draw_rate(counts, words) or make("span", "muted", words.say("batch.not_decided"))
    return make(
        "tr",
        look,
        make("th", "", name, scope="row"),
        make("td", "", rate, data_label=heads[1]),
        make("td", "", draw_counts(counts, words), data_label=heads[2]),
    )


def draw_slice_row(values: Sequence[Child], one: Slice, heads: Sequence[str], words: Catalogue) -> Element:
    """Return the row of a slice; `heads` are those of the whole table, the names first."""
    latency = one.amounts.latency
    times = "" if latency is None else f"{words.write_figure(write_ms(latency.p50))} / {words.write_figure(write_ms(latency.p95))}"
    costs = ", ".join(f"{words.write_figure(write_money(cost.total))} {to_one_line(cost.currency, 10)}" for cost in one.amounts.cost)
    cells: list[Child] = [_write_traces(one, words), draw_rate(one.rate.counts, words), times, costs]
    first, *rest = values
    # Nobody wants to see a column that has nothing in it.
    cells = cells[: len(heads) - len(values)]
    return make(
        "tr",
        "",
        make("th", "", first, scope="row"),
        [make("td", "", value, data_label=label) for value, label in zip((*rest, *cells), heads[1:], strict=True)],
    )


def _write_traces(one: Slice, words: Catalogue) -> str:
    most = f"–{words.write_number(one.traces + one.missed)}" if one.missed else ""
    return words.write_number(one.traces) + most


def draw_value(value: str | None, words: Catalogue) -> Element:
    """Return what the traces of a slice have in common."""
    return make("span", "muted", words.say("batch.not_told")) if value is None else make("bdi", "", to_one_line(value, 120) or "–")


def draw_reason(case: str, reason: CommonReason, words: Catalogue) -> Element:
    """Return why traces did not pass, with traces to look at."""
    kind = "error" if reason.outcome == "error" else "fail"
    most = reason.count + reason.missed
    times = words.say("batch.times", count=most) if not reason.missed else words.say("batch.times_range", least=reason.count, most=most)
    about = [make("code", "", to_one_line(each, 120), dir="auto") for each in (case, reason.check) if each]
    return make(
        "li",
        f"sheet {kind}",
        make("h3", "title", draw_mark(kind), make("b", "", times), about),
        make("p", "reason", make("bdi", "", to_one_line(reason.reason, 400))),
        make("ul", "samples small muted", [make("li", "", _draw_place(place, words)) for place in reason.samples]),
    )


def _draw_place(place: TracePlace, words: Catalogue) -> Child:
    at = ""
    if place.row is not None:
        at = words.say("batch.row", row=place.row)
    elif place.offset is not None:
        at = words.say("batch.byte", offset=place.offset)
    trace = make("code", "", to_one_line(place.trace, 120), " ", dir="auto") if place.trace else None
    return trace, make("bdi", "", to_one_line(place.file, 300)), f", {at}" if at else ""
