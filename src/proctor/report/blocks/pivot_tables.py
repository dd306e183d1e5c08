"""A table of pass rates for a terminal, for Markdown, for a page and for a spreadsheet."""

from __future__ import annotations

from proctor.report.blocks.pivot import NONE, Pivot
from proctor.report.words.csv_text import write_csv
from proctor.report.words.elements import Element, make, make_table_head, write_markup
from proctor.report.words.html_text import write_label
from proctor.report.words.markdown_text import write_plain
from proctor.report.words.neutral import to_one_line
from proctor.report.words.style import count_columns, cut_to_width, pad

_WIDEST = 36
"""Columns of one name in a terminal."""
_WIDEST_LINE = 120


def _list_texts(pivot: Pivot) -> list[list[str]]:
    """Return the table as texts, with its header."""
    columns = [_name(column) if column is None else f"{pivot.column_axis}={_name(column)}" for column in pivot.columns]
    rows = [[*_name_line(pivot, names), *(cell.tell() for cell in cells)] for names, cells in pivot.lines]
    return [[*pivot.row_axes, *columns], *rows]


def _name(value: str | None) -> str:
    """Return what readers call a value of an axis; None is everything."""
    if value is None:
        return "all"
    return "(none)" if value == NONE else value


def _name_line(pivot: Pivot, names: tuple[str, ...] | None) -> list[str]:
    if names is not None:
        return [_name(name) for name in names]
    return [_name(None), *[""] * (len(pivot.row_axes) - 1)][: len(pivot.row_axes)]


def _list_long_texts(pivot: Pivot) -> list[list[str]]:
    """Return the table as texts with a line for each cell: of many columns nobody could follow a line."""
    rows = [[*pivot.row_axes, pivot.column_axis, "pass rate"]]
    for names, cells in pivot.lines:
        rows += [[*_name_line(pivot, names), _name(column), cell.tell()] for column, cell in zip(pivot.columns, cells, strict=True)]
    return rows


def _cut_rows(rows: list[list[str]]) -> tuple[list[list[str]], list[int]]:
    """Return the texts as a terminal may show them, and the widths of the columns."""
    cut = [[cut_to_width(to_one_line(text, 200), _WIDEST) for text in row] for row in rows]
    return cut, [max(count_columns(row[index]) for row in cut) for index in range(len(cut[0]))]


def write_pivot_text(pivot: Pivot) -> str:
    """Return the table for a terminal: a line for each cell where the columns do not stand beside each other."""
    rows, widths = _cut_rows(_list_texts(pivot))
    if sum(widths) + 2 * len(widths) > _WIDEST_LINE:
        rows, widths = _cut_rows(_list_long_texts(pivot))
    lines = ["  ".join(pad(text, width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    rule = "-" * min(sum(widths) + 2 * len(widths), _WIDEST_LINE)
    return "\n".join(["", "pass rate (95% interval) passed/decided", lines[0], rule, *lines[1:], ""])


def write_pivot_markdown(pivot: Pivot) -> str:
    """Return the table in Markdown."""
    texts = _list_texts(pivot)
    rows = [f"| {' | '.join(write_plain(text) for text in row)} |" for row in texts]
    return "\n".join(["", rows[0], f"|{'---|' * len(texts[0])}", *rows[1:], ""])


def write_pivot_html(pivot: Pivot) -> str:
    """Return the table as a piece of a page."""
    head, *rows = [[write_label(text, 200) for text in row] for row in _list_texts(pivot)]
    names = len(pivot.row_axes)
    title = f"Pass rate by {write_label(', '.join((*pivot.row_axes, pivot.column_axis)), 200)}"
    lines = [make("tr", "", [_make_cell(text, at < names) for at, text in enumerate(row)]) for row in rows]
    table = make("table", "", make_table_head(head), make("tbody", "", lines))
    return write_markup(make("section", "pivot", make("h2", "", title), table))


def _make_cell(text: str, is_name: bool) -> Element:
    return make("th", "", text, scope="row") if is_name else make("td", "", text)


def write_pivot_csv(pivot: Pivot) -> str:
    """Return the table as rows of figures: one line for each cell, so that a spreadsheet can take it further."""
    head = [*pivot.row_axes, pivot.column_axis, "passed", "decided", "pass_rate", "low", "high"]
    rows: list[list[object]] = [list(head)]
    for names, cells in pivot.lines:
        for column, cell in zip(pivot.columns, cells, strict=True):
            counts, interval = cell.counts, cell.interval
            figures = [round(counts.rate, 6), round(interval.low, 6), round(interval.high, 6)] if counts.runs else ["", "", ""]
            rows.append([*_name_line(pivot, names), "all" if column is None else column, counts.passes, counts.runs, *figures])
    return write_csv(rows)
