"""Cases from data: ten times the rows must need hardly more memory to be read, checked against recorded answers, and run."""

from __future__ import annotations

import csv
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import ChildTook, measure_child
from benchmarks.report import Figure

SMALL, LARGE = 10_000, int(os.environ.get("PROCTOR_BENCH_DATA_ROWS", "100000"))
MOST_GROWTH = 1.15
"""How much more memory ten times the rows may need: Parquet needs most, as its dictionaries are not full in the small file."""
COMMANDS = {
    "validate": (),
    "check": ("evidence{count}.jsonl", "--format", "json", "--output", "checked.json", "--quiet"),
    "run": ("--format", "json", "--output", "run.json", "--quiet", "-j", "20"),
}
VERBS = {"csv": ("validate", "check", "run"), "jsonl": ("validate",), "parquet": ("validate", "check", "run"), "xlsx": ("validate",)}
"""The measurements per file type; once read, all rows are in the same spool."""
AGENT = """\
def answer(message):
    order = int(message.split("order ")[1].split("?")[0])
    return {"text": f"It is order {order}.", "tool_calls": [{"name": "lookup_order", "arguments": {"id": order}, "result": "sent"}]}
"""
COLUMNS = ("id", "question", "order", "answer")
SUITE = """\
proctor: 1
cases:
  from: {file}
  {types}
  as:
    input: "{{question}}"
    expect:
      - response_contains: "{{answer}}"
      - tool_called: {{name: lookup_order, arguments: {{id: "{{order}}"}}}}
      - no_tool_errors
"""


def _make_rows(count: int) -> Iterator[tuple[str, str, int, str]]:
    return ((f"q{n}", f"Where is order {n}? It was sent on day {n % 30}, and nobody has seen it.", n, f"order {n}") for n in range(count))


def _write_files(folder: Path, count: int) -> None:
    """Write suites over the same rows in every kind of file, and evidence that answers all of them."""
    import openpyxl
    import pyarrow as pa
    import pyarrow.parquet as pq

    with (folder / f"rows{count}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(_make_rows(count))
    with (folder / f"rows{count}.jsonl").open("w") as file:
        file.writelines(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in _make_rows(count))
    columns = dict(zip(COLUMNS, map(list, zip(*_make_rows(count), strict=True)), strict=True))
    pq.write_table(pa.table(columns), folder / f"rows{count}.parquet")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    for row in (COLUMNS, *_make_rows(count)):
        sheet.append(row)
    book.save(folder / f"rows{count}.xlsx")
    for kind in VERBS:
        types = "types: {order: integer}" if kind == "csv" else "limit: 1000000"
        (folder / f"{kind}{count}.yaml").write_text(SUITE.format(file=f"rows{count}.{kind}", types=types))
    with (folder / f"evidence{count}.jsonl").open("w") as file:
        for case, question, order, answer in _make_rows(count):
            calls = [{"name": "lookup_order", "arguments": {"id": order}, "result": "sent"}]
            file.write(json.dumps({"case": case, "input": question, "text": answer, "tool_calls": calls}) + "\n")


def figures() -> Iterator[Figure]:
    """Ratios of peak resident memory and of CPU time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "order_agent.py").write_text(AGENT)
        (folder / "proctor.yaml").write_text('targets: {orders: {type: callable, function: "order_agent:answer"}}\n')
        for count in (SMALL, LARGE):
            _write_files(folder, count)
        for kind, verbs in VERBS.items():
            for verb in verbs:
                small, large = (_measure(folder, verb, kind, count) for count in (SMALL, LARGE))
                more = (large.peak_bytes - small.peak_bytes) / (LARGE - SMALL)
                note = f"{small.peak_bytes / 2**20:.0f} and {large.peak_bytes / 2**20:.0f} MB, {more:.0f} bytes for each row more"
                what = f"{verb}, {LARGE:,} / {SMALL:,} rows of {kind}"
                yield Figure(f"peak memory of {what}", large.peak_bytes / small.peak_bytes, at_most=MOST_GROWTH, note=note)
                # Ten times the rows may take a little more than ten times the time, but not a hundred times.
                bound = 1.3 * LARGE / SMALL
                yield Figure(
                    f"CPU time of {what}", large.cpu_s / small.cpu_s, at_most=bound, note=f"{small.cpu_s:.1f} and {large.cpu_s:.1f} s"
                )


def _measure(folder: Path, verb: str, kind: str, count: int) -> ChildTook:
    """Return the cost of a command over this many rows."""
    filled = [flag.format(count=count) for flag in COMMANDS[verb]]
    # Everything passes: a command that did not come to its end would need little memory.
    return measure_child([sys.executable, "-m", "proctor", verb, f"{kind}{count}.yaml", *filled], folder, allowed=(0,))
