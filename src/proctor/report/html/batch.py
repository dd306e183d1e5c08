"""The summary of a batch as one page that loads nothing and runs nothing, of one family with the report of a run.

Its size has a bound whatever the batch was: tables and reasons are written until their share of it is used up, the worst first, and the
page says how many are left out; the JSON summary has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from proctor.model.batch import BatchSummary, Slice
from proctor.report.blocks.batch import draw_case_rows, draw_head, draw_reason, draw_slice_row, draw_trend, draw_value
from proctor.report.blocks.outcomes import draw_sprite
from proctor.report.html.page import page, read_template
from proctor.report.words.batch import list_shown_slices, list_worst_cases
from proctor.report.words.elements import Element, make, make_table_head, write_markup
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import count_noun

MOST_BYTES = 400_000
"""Of the cases, of the slices and of the reasons each, and less for days and faults: together the page stays below 2 MB."""
MOST_CASES = 500
MOST_CHECKS = 30
"""Checks that are told of one case."""
MOST_REASONS = 5
"""Reasons that are told of one case."""
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
    """Write one table; `left` is how many bytes it may still take, and is made less."""
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
        yield write_markup(make("h2", "", f"{count_noun(summary.unread, 'record')} that could not be read or decided"))
        rows = _fill((draw_reason("", fault) for fault in summary.faults), [MOST_BYTES // 4])
        yield f'<ul class="groups">{"".join(rows)}</ul>'
        rest = sum(fault.count for fault in summary.faults[len(rows) :]) + summary.more_faults
        if rest:
            yield write_markup(make("p", "muted", f"and {count_noun(rest, 'more for another reason', 'more for other reasons')}"))


def _fill(drawn: Iterable[Element], left: list[int]) -> list[str]:
    """Return elements as markup, as many as there is room for."""
    rows: list[str] = []
    for element in drawn:
        markup = write_markup(element)
        size = len(markup.encode())
        if left[0] < size:
            break
        left[0] -= size
        rows.append(markup)
    return rows
