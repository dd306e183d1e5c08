"""Cases from data: ten times the rows must need hardly more memory to be read, checked against recorded answers, and run."""

from __future__ import annotations

import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import child_peak_bytes
from benchmarks.report import Figure

SMALL, LARGE = 10_000, int(os.environ.get("PROCTOR_BENCH_DATA_ROWS", "100000"))
COMMANDS = {
    "validate": (),
    "check": ("evidence{count}.jsonl", "--format", "json", "--output", "checked.json", "--quiet"),
    "run": ("--format", "json", "--output", "run.json", "--quiet", "-j", "20"),
}
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
    """Write suites over the same rows in CSV and Parquet, and evidence that answers all of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with (folder / f"rows{count}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(_make_rows(count))
    columns = dict(zip(COLUMNS, map(list, zip(*_make_rows(count), strict=True)), strict=True))
    pq.write_table(pa.table(columns), folder / f"rows{count}.parquet")
    for kind, types in (("csv", "types: {order: integer}"), ("parquet", "limit: 1000000")):
        (folder / f"{kind}{count}.yaml").write_text(SUITE.format(file=f"rows{count}.{kind}", types=types))
    with (folder / f"evidence{count}.jsonl").open("w") as file:
        for case, question, order, answer in _make_rows(count):
            calls = [{"name": "lookup_order", "arguments": {"id": order}, "result": "sent"}]
            file.write(json.dumps({"case": case, "input": question, "text": answer, "tool_calls": calls}) + "\n")


def figures() -> Iterator[Figure]:
    """Ratios of peak resident memory, and the time that it takes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "order_agent.py").write_text(AGENT)
        (folder / "proctor.yaml").write_text('targets: {orders: {type: callable, function: "order_agent:answer"}}\n')
        for count in (SMALL, LARGE):
            _write_files(folder, count)
        for kind in ("csv", "parquet"):
            for verb, flags in COMMANDS.items():
                peaks, times = zip(*(_measure(folder, verb, kind, count, flags) for count in (SMALL, LARGE)), strict=True)
                told = f"{peaks[0] / 2**20:.0f} and {peaks[1] / 2**20:.0f} MB; {times[0]:.1f} and {times[1]:.1f} s"
                more = (peaks[1] - peaks[0]) / (LARGE - SMALL)
                yield Figure(
                    f"peak memory of {verb}, {LARGE:,} / {SMALL:,} rows of {kind}",
                    peaks[1] / peaks[0],
                    at_most=1.4,
                    note=f"{told}; {more:.0f} bytes for each row more",
                )


def _measure(folder: Path, verb: str, kind: str, count: int, flags: tuple[str, ...]) -> tuple[int, float]:
    """Return the peak of a command over so many rows, and the seconds it took."""
    filled = [flag.format(count=count) for flag in flags]
    started = time.perf_counter()
    # Everything passes: a command that did not come to its end would need little memory.
    peak = child_peak_bytes([sys.executable, "-m", "proctor", verb, f"{kind}{count}.yaml", *filled], folder, allowed=(0,))
    return peak, time.perf_counter() - started
