"""Pass rates by the values of tags: rows and columns of a table, each cell with its interval.

Any tag can be an axis, above all those of a matrix (`model`, `prompt`). The last axis makes the columns, those before it the rows. An
attempt that errored counts as one that did not pass; one that was skipped does not count (`scoring/statistics.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from proctor.errors import InputError
from proctor.expressions.text_form import write_text_form
from proctor.model.case import Case, list_axes
from proctor.model.evidence import Json
from proctor.model.lazy_cases import may_have
from proctor.model.result import CaseResult, RunResult
from proctor.model.show import nearest
from proctor.report.document.model import Column, Output, Row, Section, Table, Text
from proctor.report.words.neutral import write_csv
from proctor.scoring.intervals import Counts, wilson
from proctor.scoring.statistics import count_outcomes

NONE = "(none)"
"""The value of a case that lacks the tag."""
MOST_LINES, MOST_COLUMNS = 200, 50
"""Rows and columns of one table."""


class Pivot(msgspec.Struct, frozen=True, kw_only=True):
    """A table. The last line and column are totals."""

    row_axes: tuple[str, ...]
    """None: a table of one line."""
    column_axis: str
    columns: tuple[str | None, ...]
    """The values of the column axis; None is the total."""
    lines: tuple[tuple[tuple[str, ...] | None, tuple[Counts, ...]], ...]
    """The values of the row axes with the attempts of each column; None is the total."""


def find_matrix_axes(run: RunResult) -> tuple[str, ...]:
    """Return the axes of the matrix of a run; none without one or if the table would be too large."""
    if not may_have(run.cases, "settings"):
        return ()
    axes = next((axes for axes in (list_axes(result.case) for result in run.cases) if axes), ())
    if not axes:
        return ()
    lines: set[tuple[str, ...]] = set()
    columns: set[str] = set()
    for result in run.cases:
        *line, column = (_name_value(result, axis) for axis in axes)
        lines.add(tuple(line))
        columns.add(column)
        # An automatic table that does not fit is left out; `--pivot` raises instead.
        if len(lines) > MOST_LINES or len(columns) > MOST_COLUMNS:
            return ()
    return axes


def read_axes(text: str, cases: Iterable[Case]) -> tuple[str, ...]:
    """Return the named axes. Raises `InputError` for one that no case has as a tag."""
    axes = tuple(part.strip() for part in text.split(",") if part.strip())
    known = tuple(dict.fromkeys(tag for case in cases for tag in case.tags))
    for axis in axes:
        if axis not in known:
            close = nearest(axis, known)
            hint = f"; nearest: {', '.join(close)}" if close else ""
            raise InputError(f"--pivot: no case has a tag {axis!r}{hint}; there are {', '.join(known) or 'none'}")
    if not axes or len(set(axes)) != len(axes):
        raise InputError("--pivot: expected the names of tags, each once, separated by commas: model,prompt")
    return axes


def build_pivot(run: RunResult, axes: Sequence[str]) -> Pivot:
    """Return the table of a run over these axes."""
    *row_axes, column_axis = axes
    outcomes: dict[tuple[tuple[str, ...] | None, str | None], dict[str, int]] = {}
    lines: dict[tuple[str, ...], None] = {}
    columns: dict[str, None] = {}
    for result in run.cases:
        line, column = tuple(_name_value(result, axis) for axis in row_axes), _name_value(result, column_axis)
        lines.setdefault(line)
        columns.setdefault(column)
        for key in ((line, column), (line, None), (None, column), (None, None)):
            counts = outcomes.setdefault(key, {})
            counts[result.outcome] = counts.get(result.outcome, 0) + 1
    if len(lines) > MOST_LINES or len(columns) > MOST_COLUMNS:
        raise InputError(f"--pivot: {len(lines):,} rows and {len(columns):,} columns; a table has at most {MOST_LINES} and {MOST_COLUMNS}")
    shown_columns: tuple[str | None, ...] = (*columns, None) if len(columns) > 1 else tuple(columns)
    row_keys: list[tuple[str, ...] | None] = [*lines] if row_axes else []
    # With a single line, a total would repeat it.
    if len(row_keys) != 1:
        row_keys.append(None)
    cells = [(line, tuple(count_outcomes(outcomes.get((line, column)) or {}) for column in shown_columns)) for line in row_keys]
    return Pivot(row_axes=tuple(row_axes), column_axis=column_axis, columns=shown_columns, lines=tuple(cells))


def _name_value(result: CaseResult, axis: str) -> str:
    value: Json = result.case.tags.get(axis)
    if value is None:
        return NONE
    return ", ".join(map(write_text_form, value)) if isinstance(value, (list, tuple)) else write_text_form(value)


_WIDEST_LINE = 120
"""Columns of a terminal, beyond which a table has one row per cell."""


def make_pivot_section(pivot: Pivot, output: Output) -> Section:
    """Return the table with its title; for a terminal, one row per cell if it is too wide."""
    columns = [_name(column) if column is None else f"{pivot.column_axis}={_name(column)}" for column in pivot.columns]
    heads, rows = [*pivot.row_axes, *columns], [[*_name_line(pivot, names), *map(_describe, cells)] for names, cells in pivot.lines]
    if output == "terminal" and max(sum(len(text) + 2 for text in row) for row in (heads, *rows)) > _WIDEST_LINE:
        heads = [*pivot.row_axes, pivot.column_axis, "pass rate"]
        rows = [
            [*_name_line(pivot, names), _name(column), _describe(cell)]
            for names, cells in pivot.lines
            for column, cell in zip(pivot.columns, cells, strict=True)
        ]
    table = Table(tuple(map(Column, heads)), tuple(Row(tuple((Text(text),) for text in row)) for row in rows))
    title = f"Pass rate by {', '.join((*pivot.row_axes, pivot.column_axis))}"
    return Section((Text(title),), (table,), about="95 % interval, passed/decided")


def _describe(counts: Counts) -> str:
    """Return rate, interval and counts: `84.0% (71.5 to 91.7) 42/50`."""
    if not counts.runs:
        return "-"
    interval = wilson(counts)
    return f"{counts.rate:.1%} ({interval.low * 100:,.1f} to {interval.high * 100:,.1f}) {counts.passes:,}/{counts.runs:,}"


def _name(value: str | None) -> str:
    """Return the display name of an axis value; None is the total."""
    return "all" if value is None else value


def _name_line(pivot: Pivot, names: tuple[str, ...] | None) -> list[str]:
    if names is not None:
        return [_name(name) for name in names]
    return [_name(None), *[""] * (len(pivot.row_axes) - 1)][: len(pivot.row_axes)]


def write_pivot_csv(pivot: Pivot) -> str:
    """Return the table as CSV, one line per cell."""
    head = [*pivot.row_axes, pivot.column_axis, "passed", "decided", "pass_rate", "low", "high"]
    rows: list[list[object]] = [list(head)]
    for names, cells in pivot.lines:
        for column, cell in zip(pivot.columns, cells, strict=True):
            interval = wilson(cell)
            figures = [round(cell.rate, 6), round(interval.low, 6), round(interval.high, 6)] if cell.runs else ["", "", ""]
            rows.append([*_name_line(pivot, names), "all" if column is None else column, cell.passes, cell.runs, *figures])
    return write_csv(rows)
