"""Results as a table for spreadsheets and data frames: one row for each attempt at a case.

Columns, in this order: `run_id`, `suite`, `case`, `name`, `attempt`, `outcome`, `score`, `verdict`, `code`, one `tag_<name>` for every tag
of any case (the axes of a matrix are tags), `input`, `answer`, `tool_calls`, `model`, `input_tokens`, `output_tokens`, `total_tokens`,
`cost`, `currency`, `duration_ms`, `failed`, `file`, `line`. Unrecorded values are empty, and so is a cost of which
a part is unknown.

The table can be written as a Parquet file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from proctor.errors import MissingExtra
from proctor.expressions.text_form import write_text_form
from proctor.model.evidence import Cost, Evidence, Json, Usage
from proctor.model.result import CaseResult, RunResult
from proctor.model.run import RunEntry
from proctor.report.words.neutral import write_csv

Cells = dict[str, Json]
FRONT = ("run_id", "suite", "case", "name", "attempt", "outcome", "score", "verdict", "code")
BACK = (
    *("input", "answer", "tool_calls", "model", "input_tokens", "output_tokens", "total_tokens"),
    *("cost", "currency", "duration_ms", "failed", "file", "line"),
)
NUMBERS = ("score", "cost", "duration_ms")
WHOLE = ("attempt", "input_tokens", "output_tokens", "total_tokens", "line")
TAG = "tag_"
ROWS_AT_ONCE = 10_000
"""Rows written together."""
MOST_TAGS = 200
"""Tags with their own column."""


class RowWriter:
    """Makes rows of results and collects the columns. Evidence is not held, only the cells."""

    def __init__(self) -> None:
        self._tags: dict[str, None] = {}

    def make_row(self, result: CaseResult, entry: RunEntry | None = None) -> Cells:
        """Return the row of one result and its stored attempt."""
        evidence = entry.evidence if entry is not None else result.evidence
        case = result.case
        agent_input: Json = case.input
        if agent_input is None and case.turns:
            agent_input = [turn.input for turn in case.turns]
        if agent_input is None:
            agent_input = case.custom_body if case.custom_body is not None else evidence.input if evidence is not None else None
        reasons = [f"{each.assertion.label or each.assertion.check}: {each.reason}" for each in result.failures()]
        if result.reason and result.outcome in ("fail", "error", "skip"):
            reasons.insert(0, result.reason)
        cells: Cells = {
            "case": result.case.id,
            "name": result.case.name or None,
            "attempt": result.attempt,
            "outcome": result.outcome,
            "score": result.score,
            "verdict": result.verdict,
            "code": result.code,
            "input": None if agent_input is None else write_text_form(agent_input),
            "failed": "\n".join(reasons) or None,
            "file": result.source.file if result.source is not None else None,
            "line": result.source.line if result.source is not None else None,
            **_read_evidence(evidence),
            **_read_cost(entry.cost if entry is not None and entry.cost is not None else result.cost),
        }
        if cells["duration_ms"] is None and entry is not None:
            cells["duration_ms"] = entry.duration_ms
        for tag, value in result.case.tags.items():
            # Limits the number of columns.
            if tag in self._tags or len(self._tags) < MOST_TAGS:
                self._tags.setdefault(tag)
                cells[TAG + tag] = write_text_form(value)
        return cells

    def list_columns(self) -> tuple[str, ...]:
        """Return the columns of all rows so far."""
        return (*FRONT, *(TAG + tag for tag in self._tags), *BACK)


def name_run(rows: Iterable[Cells], run: RunResult) -> Iterator[Cells]:
    """Yield the rows with their run, which is known at the end."""
    for cells in rows:
        cells["run_id"], cells["suite"] = run.run_id, run.suite_name
        yield cells


def iterate_csv(columns: Sequence[str], rows: Iterable[Cells]) -> Iterator[str]:
    """Yield the table as CSV in chunks."""
    yield write_csv([columns])
    for some in batch_rows(rows, ROWS_AT_ONCE):
        yield write_csv([row.get(column) for column in columns] for row in some)


def batch_rows(rows: Iterable[Cells], size: int) -> Iterator[list[Cells]]:
    """Yield the rows in lists of at most `size`."""
    iterator = iter(rows)
    while some := list(itertools.islice(iterator, size)):
        yield some


def _read_evidence(evidence: Evidence | None) -> Cells:
    observed = evidence or Evidence()
    usage = observed.usage or Usage()
    return {
        "answer": observed.text,
        "tool_calls": ", ".join(call.name for call in observed.tool_calls) if observed.tool_calls is not None else None,
        "model": observed.model,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total(),
        "duration_ms": observed.duration_ms,
    }


def _read_cost(cost: Cost | None) -> Cells:
    """Return the total cost, if all of it is known."""
    total = cost.total() if cost is not None else None
    return {"cost": total, "currency": cost.currency if cost is not None and total is not None else None}


def write_parquet(columns: Sequence[str], rows: Iterable[Cells], file: IO[bytes]) -> None:
    """Write the table in Parquet: texts, whole numbers and numbers by column."""
    arrow, parquet = import_arrow()
    fields = [(name, arrow.int64() if name in WHOLE else arrow.float64() if name in NUMBERS else arrow.string()) for name in columns]
    schema = arrow.schema(fields)
    with parquet.ParquetWriter(file, schema) as writer:
        for group in batch_rows(rows, ROWS_AT_ONCE):
            arrays = [arrow.array([_fit(row.get(name), name) for row in group], type=kind) for name, kind in fields]
            writer.write_table(arrow.table(arrays, schema=schema))


def import_arrow() -> tuple[Any, Any]:
    """Return the library. Raises `MissingExtra` if it is not installed."""
    try:
        import pyarrow  # an optional part
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("--format parquet", "data") from error
    return pyarrow, pyarrow.parquet


def _fit(value: object, name: str) -> object:
    if value is None or (name not in WHOLE and name not in NUMBERS):
        # Lone surrogates are not valid UTF-8.
        return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
    return int(value) if name in WHOLE and isinstance(value, (int, float)) else value
