"""What a batch would read and about what it would cost, found out by deciding its first records into a folder that is thrown away."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from proctor.batches.options import BatchOptions
from proctor.batches.output.output_folder import OutputFolder
from proctor.batches.plan import make_plan
from proctor.batches.run import identify, run_batch
from proctor.model.case import Suite
from proctor.processes.executor import Done, Work, load_setup
from proctor.report.words.wording import count_noun
from proctor.sources.datasets.cells import read_cells
from proctor.sources.datasets.plan import Partition

RECORDS = 2_000
"""Records that are decided for an estimate."""


class _Timed:
    """Does tasks in this process and measures them alone: starting workers is no part of what a record costs."""

    seconds = 0.0

    def map(self, work: Work, tasks: Sequence[bytes]) -> Iterator[Done]:
        do_task = load_setup(work.setup)(work.payload)
        for number, task in enumerate(tasks):
            started = time.process_time()
            result = do_task(task)
            self.seconds += time.process_time() - started
            yield Done(task=number, result=result)

    def cancel(self) -> None:
        """Nothing is under way between two tasks."""


def estimate_batch(suite: Suite, options: BatchOptions, workers: int | None) -> str:
    """Return a description of what a batch would read and cost. Raises `InputError`."""
    identity, judged = identify(suite, options)
    folder = OutputFolder(options.output)
    planned = make_plan(folder, folder.read_manifest(), identity, options, read_again=judged)
    tasks = [part for task in planned.tasks for part in task.partition.list_parts()]
    files = {part.file for part in tasks}
    size = sum(file.size for file in files)
    plan = f"{count_noun(len(files), 'file')}, {size / 1e6:,.1f} MB, {count_noun(len(planned.tasks), 'partition')} to evaluate"
    merged = [task.partition for task in planned.tasks if task.partition.parts]
    if merged:
        plan += f" ({len(merged):,} merged from {sum(len(partition.parts) for partition in merged):,} small files)"
    if planned.shares or not tasks or judged:
        return f"{plan}; there is no estimate for spans and for claims that need a judge"
    timed = _Timed()
    with tempfile.TemporaryDirectory(prefix="proctor-estimate-") as name:
        part = msgspec.structs.replace(options, output=Path(name) / "out", limit=min(RECORDS, options.limit or RECORDS), resume=False)
        summary = run_batch(suite, part, timed)
        written = sum(file.stat().st_size for file in Path(name).glob("out/*/*.parquet")) / max(1, summary.records)
    records = sum(map(_count_records, tasks))
    seconds = timed.seconds / max(1, summary.records + summary.left_out) * records
    each = seconds / (workers or os.cpu_count() or 1)
    return (
        f"{plan}\nabout {records:,.0f} records; about {seconds:,.0f} s of one core, {each:,.0f} s with all workers, and "
        f"{written * records / 1e6:,.1f} MB of results, measured on the first {summary.records + summary.left_out:,} records"
    )


def _count_records(partition: Partition) -> float:
    """Return about how many records a partition has: those in its footer, or its bytes by the length of its first lines."""
    if partition.file.kind == "parquet" or partition.limit is not None:
        return partition.limit or partition.rows
    first = next(read_cells(partition)).records
    length = sum(len(record) + 1 for record in first if isinstance(record, bytes)) / max(1, len(first))
    return (partition.end - partition.start) * (1 if partition.file.codec is None else 8) / max(1, length)
