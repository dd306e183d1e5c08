"""Data sets for the tests of batches, and an executor that does everything in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import proctor
from proctor.batches.run import BatchOptions, run_batch
from proctor.model.batch import BatchSummary
from proctor.processes.executor import Done, Work, load_setup
from proctor.report.builders.batch import build_batch
from proctor.report.document.html import write_html
from proctor.report.document.markdown import write_markdown
from proctor.report.document.terminal import write_terminal

SUITE = """\
proctor: 1
name: Shop
cases:
  - id: refund
    expect:
      - tool_called: {name: refund, arguments: {order: 17}}
      - response_contains: done
  - id: short
    expect: {response_contains: "{word}"}
"""


class InlineExecutor:
    """Does one task after another in this process: nothing about a batch depends on where it is done."""

    def __init__(self) -> None:
        self.tasks = 0

    def map(self, work: Work, tasks: Sequence[bytes]) -> Iterator[Done]:
        do_task = load_setup(work.setup)(work.payload)
        for number, task in enumerate(tasks):
            self.tasks += 1
            try:
                yield Done(task=number, result=do_task(task))
            except proctor.ProctorError as error:
                yield Done(task=number, error=str(error))

    def cancel(self) -> None:
        raise NotImplementedError


def make_trace(number: int, **more: Any) -> dict[str, Any]:
    """Every fifth fails a check."""
    order = 17 if number % 5 else 18
    calls = [{"name": "refund", "arguments": {"order": order}}]
    return {"text": f"done, run {number}", "tool_calls": calls, "metadata": {"trace_id": f"t{number}"}, "duration_ms": 100 + number, **more}


def write_suite(folder: Path, word: str = "run", text: str = SUITE) -> Path:
    path = folder / "suite.yaml"
    path.write_text(text.replace("{word}", word))
    return path


def write_parquet(path: Path, records: Sequence[Any], *, group: int = 10, column: str = "record") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [record if isinstance(record, (str, bytes)) or record is None else json.dumps(record) for record in records]
    kind = pa.binary() if any(isinstance(text, bytes) for text in texts) else pa.string()
    pq.write_table(pa.table({column: pa.array(texts, kind)}), path, row_group_size=group)
    return path


def write_lines(path: Path, records: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records))
    return path


def evaluate(suite: Path, places: Sequence[Path | str], output: Path, **options: Any) -> tuple[BatchSummary, int]:
    """The summary, and how many partitions were evaluated."""
    executor = InlineExecutor()
    wanted = BatchOptions(places=tuple(map(str, places)), output=output, **options)
    return run_batch(proctor.load_suite(suite), wanted, executor), executor.tasks


def read_results(output: Path) -> list[dict[str, Any]]:
    return _read_rows(output / "results")


def read_errors(output: Path) -> list[dict[str, Any]]:
    return _read_rows(output / "errors")


def _read_rows(folder: Path) -> list[dict[str, Any]]:
    # `pq.read_table` looks for a dataset first, which takes three times as long.
    return [row for file in sorted(folder.glob("*.parquet")) for row in pq.ParquetFile(file).read().to_pylist()]


def render_batch(summary: BatchSummary) -> str:
    return write_terminal(build_batch(summary, "terminal"))


def render_batch_markdown(summary: BatchSummary) -> str:
    return write_markdown(build_batch(summary, "markdown"))


def render_batch_html(summary: BatchSummary) -> str:
    return write_html(build_batch(summary, "html"))
