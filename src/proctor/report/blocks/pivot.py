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
from proctor.scoring.intervals import Counts, Interval, wilson
from proctor.scoring.statistics import count_outcomes

NONE = "(none)"
"""The value of a case that lacks the tag."""
MOST_LINES, MOST_COLUMNS = 200, 50
"""Rows and columns of one table."""


class Cell(msgspec.Struct, frozen=True):
    """The attempts of one combination."""

    counts: Counts

    @property
    def interval(self) -> Interval:
        """Wilson's interval of the pass rate."""
        return wilson(self.counts)

    def tell(self) -> str:
        """Return the rate, its interval and the numbers: `84.0% (71.5 to 91.7) 42/50`."""
        counts = self.counts
        if not counts.runs:
            return "-"
        low, high = self.interval.low, self.interval.high
        return f"{counts.rate:.1%} ({low * 100:,.1f} to {high * 100:,.1f}) {counts.passes:,}/{counts.runs:,}"


class Pivot(msgspec.Struct, frozen=True, kw_only=True):
    """A table. The last line and the last column are over everything."""

    row_axes: tuple[str, ...]
    """None: a table of one line."""
    column_axis: str
    columns: tuple[str | None, ...]
    """The values of the column axis; None is the column over everything."""
    lines: tuple[tuple[tuple[str, ...] | None, tuple[Cell, ...]], ...]
    """The values of the row axes, and a cell for each column; None is the line over everything."""


def find_matrix_axes(run: RunResult) -> tuple[str, ...]:
    """Return the axes of the matrix that a run was made over; none without one, or where the table would be too large to be read."""
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
        # Nobody asked for it, so a table that does not fit is left out; whoever names the axes is told.
        if len(lines) > MOST_LINES or len(columns) > MOST_COLUMNS:
            return ()
    return axes


def read_axes(text: str, cases: Iterable[Case]) -> tuple[str, ...]:
    """Return the axes that are named; raises `InputError` for one that no case has as a tag."""
    axes = tuple(part.strip() for part in text.split(",") if part.strip())
    known = tuple(dict.fromkeys(tag for case in cases for tag in case.tags))
    for axis in axes:
        if axis not in known:
            close = nearest(axis, known)
            told = f"; nearest: {', '.join(close)}" if close else ""
            raise InputError(f"--pivot: no case has a tag {axis!r}{told}; there are {', '.join(known) or 'none'}")
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
    shown: tuple[str | None, ...] = (*columns, None) if len(columns) > 1 else tuple(columns)
    named: list[tuple[str, ...] | None] = [*lines] if row_axes else []
    # Beside a single line, one over everything would say the same again; without row axes it is the only one.
    if len(named) != 1:
        named.append(None)
    made = [(line, tuple(_make_cell(outcomes.get((line, column))) for column in shown)) for line in named]
    return Pivot(row_axes=tuple(row_axes), column_axis=column_axis, columns=shown, lines=tuple(made))


def _make_cell(outcomes: dict[str, int] | None) -> Cell:
    return Cell(count_outcomes(outcomes or {}))


def _name_value(result: CaseResult, axis: str) -> str:
    value: Json = result.case.tags.get(axis)
    if value is None:
        return NONE
    return ", ".join(map(write_text_form, value)) if isinstance(value, (list, tuple)) else write_text_form(value)
