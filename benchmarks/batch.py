"""A batch over Parquet against a hand-written loop over the same file with msgspec, each on one process and on two."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from docs.batch_costs import Measured

import proctor
from benchmarks.measure import measure_child
from benchmarks.report import Figure
from benchmarks.traces import SUITE, traces
from proctor.batches.run import open_batch
from proctor.report.builders.batch import build_batch
from proctor.report.document.html import write_html

COUNT = int(os.environ.get("PROCTOR_BENCH_BATCH", "200000"))
"""Traces of six tool calls; 1,000,000 take some minutes."""
MANY = 1_000_000
"""From how many on a cluster has to be nearly as fast as processes."""
GROUP = 10_000
"""Rows of a row group, some 10 MB."""
FULL = 100_000
"""How many traces surely fill a partition for every worker: fewer measure their own number, not the needs of a batch."""
ROUNDS = 2

BY_HAND = """\
import sys
import msgspec, pyarrow, pyarrow.parquet
from benchmarks.hand_written import check_all

path, part, parts, output = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
file = pyarrow.parquet.ParquetFile(path)
decode = msgspec.json.Decoder().decode
groups = [number for number in range(file.num_row_groups) if number % parts == part]
columns = [[], [], []]
for batch in file.iter_batches(1024, row_groups=groups, columns=["record"], use_threads=False):
    for row in check_all([decode(text) for text in batch.column(0).cast(pyarrow.binary()).to_pylist()]):
        for column, passed in zip(columns, row):
            column.append(passed)
pyarrow.parquet.write_table(pyarrow.table(dict(zip("abc", columns))), output)
"""


def figures() -> Iterator[Figure]:
    """Ratios of traces per second by the clock, best of some rounds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "traces.parquet"
        (folder / "suite.yaml").write_text(SUITE)
        write_traces(path, COUNT)
        best: dict[str, float] = {}
        for _ in range(ROUNDS):
            for workers in (1, 2):
                for kind, seconds in (("hand", _run_by_hand(path, workers)), ("batch", _run_batch(folder, path, workers))):
                    key = f"{kind} {workers}"
                    best[key] = min(best.get(key, float("inf")), seconds)
        for workers in (1, 2):
            ours, hand = best[f"batch {workers}"], best[f"hand {workers}"]
            yield Figure(
                f"batch / hand-written loop over Parquet, traces per second, {workers} worker{'s' * (workers > 1)}",
                hand / ours,
                at_least=0.5,
                note=f"{COUNT / ours:,.0f} against {COUNT / hand:,.0f} traces/s, {COUNT:,} traces",
            )
        yield Figure("batch: two workers / one", best["batch 1"] / best["batch 2"], at_least=1.7)
        yield from _measure_dask(folder, path, best["batch 2"])
        memory = _compare_memory(folder, path)
        yield memory
        yield from _measure_summary(folder, path)
        yield _describe_costs(folder, path, best, memory)


def _measure_dask(folder: Path, path: Path, local: float) -> Iterator[Figure]:
    """The same batch on a cluster of two processes, which is started for it; starting it is a fixed cost, bounded from a million on."""
    if importlib.util.find_spec("distributed") is None:
        return
    seconds = min(_run_batch(folder, path, 2, engine="dask") for _ in range(ROUNDS))
    bound = 1.5 if COUNT >= MANY else None
    note = f"{seconds:.1f} against {local:.1f} s, two workers each, the start of the cluster included"
    yield Figure("batch on a Dask LocalCluster / on local processes, wall time", seconds / local, at_most=bound, note=note)


def _describe_costs(folder: Path, path: Path, best: dict[str, float], memory: Figure) -> Figure:
    """The figures for `docs/batch_costs.py`, to be copied there."""
    written = sum(file.stat().st_size for file in (folder / "plain" / "results").glob("*.parquet"))
    measured = Measured(
        traces=COUNT,
        per_second=round(COUNT / best["batch 1"]),
        two_to_one=round(best["batch 1"] / best["batch 2"], 2),
        read_bytes=round(path.stat().st_size / COUNT),
        written_bytes=round(written / COUNT),
        peak_mb=round(float(memory.note.split()[2])),
    )
    return Figure("batch: traces a second of one worker", measured.per_second, note=f"MEASURED = {measured!r}")


def _compare_memory(folder: Path, path: Path) -> Figure:
    """The largest process of a batch, the driver among them, over all traces and over a tenth that still fills the workers."""
    few = max(COUNT // 10, FULL)
    small = folder / "tenth.parquet"
    write_traces(small, few)
    command = [sys.executable, "-m", "proctor", "batch", "suite.yaml", "-j", "2", "--quiet", "--output"]
    peaks = [measure_child([*command, f"memory-{file.stem}", file.name], folder, allowed=(1,)).peak_bytes for file in (small, path)]
    note = f"{peaks[0] / 2**20:.0f} and {peaks[1] / 2**20:.0f} MB"
    return Figure(f"batch: peak memory of a process, {COUNT:,} / {few:,} traces", peaks[1] / peaks[0], at_most=1.2, note=note)


def _measure_summary(folder: Path, path: Path) -> Iterator[Figure]:
    """What slices add to a plain batch, how long a summary takes, and how large its page is; then rows chosen by `--where`."""
    seconds: dict[str, float] = {}
    options_by_name: dict[str, dict[str, Any]] = {
        "plain": {},
        "sliced": {"by": ["tier", "tier,number"]},
        "where": {"where": f"number < {COUNT // 100}"},
    }
    summary = None
    for name, options in options_by_name.items():
        started = time.perf_counter()
        summary = proctor.batch(folder / "suite.yaml", path, output=folder / name, workers=2, **options)
        seconds[name] = time.perf_counter() - started
    assert summary is not None and summary.traces == COUNT // 100, "--where did not choose a hundredth"
    yield Figure("batch with two tables of slices / without, wall time", seconds["sliced"] / seconds["plain"], at_most=1.5)
    yield Figure("batch where a hundredth of the rows fits / of all, wall time", seconds["where"] / seconds["plain"], at_most=0.5)
    started = time.perf_counter()
    page = write_html(build_batch(open_batch(folder / "sliced"), "html"))
    took = time.perf_counter() - started
    yield Figure(f"page of a batch of {COUNT:,}, megabytes", len(page.encode()) / 1e6, at_most=2, note=f"read and drawn in {took:.2f} s")


def write_traces(path: Path, count: int) -> None:
    """Write traces as Parquet in groups, with a tier and a number as extra columns."""
    schema = pyarrow.schema([("record", pyarrow.string()), ("tier", pyarrow.string()), ("number", pyarrow.int64())])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, count, GROUP):
            texts = [json.dumps(trace, separators=(",", ":")) for trace in traces(min(GROUP, count - start), 7 + start)]
            numbers = range(start, start + len(texts))
            tiers = [f"tier-{number % 20}" for number in numbers]
            columns = {"record": texts, "tier": tiers, "number": list(numbers)}
            writer.write_table(pyarrow.table(columns, schema=schema), row_group_size=GROUP)


def _run_by_hand(path: Path, workers: int) -> float:
    started = time.perf_counter()
    outputs = [path.with_name(f"hand-{part}.parquet") for part in range(workers)]
    commands = [[sys.executable, "-c", BY_HAND, str(path), str(part), str(workers), str(output)] for part, output in enumerate(outputs)]
    running = [subprocess.Popen(command) for command in commands]
    assert not any(process.wait() for process in running)
    return time.perf_counter() - started


def _run_batch(folder: Path, path: Path, workers: int, engine: str = "local") -> float:
    output = folder / f"checked-{time.monotonic_ns()}"
    started = time.perf_counter()
    summary = proctor.batch(folder / "suite.yaml", path, output=output, workers=workers, engine=engine)
    seconds = time.perf_counter() - started
    tables = [pyarrow.parquet.read_table(file) for file in sorted(folder.glob("hand-*.parquet"))[:workers]]
    rows = pyarrow.concat_tables(tables)
    by_hand = [sum(rows[column].to_pylist()) for column in "abc"]
    assert [check.rate.passed for check in summary.cases[0].checks] == by_hand, "proctor and the hand-written loop disagree"
    return seconds


if __name__ == "__main__":
    for figure in figures():
        print(figure.line())
