"""Evaluates a data set of recorded evidence against a suite: planned, evaluated by partitions, committed one by one.

A result that an earlier batch committed to the same folder stays valid as long as its file and its cases are the same: a second batch
evaluates new files, and the cases of the suite that changed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from proctor.actions.checking.check_stream import CheckStream
from proctor.actions.judging.judges import JudgeLike
from proctor.actions.workspace.custom_checks import find_registry
from proctor.actions.workspace.status_line import StatusLine
from proctor.actions.workspace.suites import load_suite
from proctor.batches.judging import find_judge, judge_sample, open_memory, read_bounds
from proctor.batches.output_folder import JUDGED, JUDGED_TALLY, Manifest, OutputFolder
from proctor.batches.output_store import explain_full_disk, write_bytes
from proctor.batches.plan import BatchOptions, Planned, make_plan, name_output, refuse_other_batch
from proctor.batches.result_table import make_schema
from proctor.batches.slicer import read_groupings
from proctor.batches.suite_identity import SuiteIdentity, describe_own_checks, identify_suite
from proctor.batches.summary import summarize_batch
from proctor.batches.worker import SETUP, Evaluated, Settings, Task, Written
from proctor.errors import InputError
from proctor.model.batch import BatchSummary
from proctor.model.case import Suite
from proctor.model.judgement import NO_JUDGE
from proctor.model.lazy_cases import is_lazy
from proctor.model.typed import decode_msgpack
from proctor.processes.dask_executor import DaskExecutor, TlsFiles
from proctor.processes.executor import Done, Executor, LocalExecutor, StopWork, Work, load_setup
from proctor.report.words.wording import count_noun
from proctor.runner.ports import Judge
from proctor.sources.datasets.cells import read_cells
from proctor.sources.datasets.columns import ALL_COLUMNS
from proctor.sources.datasets.files import import_arrow
from proctor.sources.datasets.plan import Partition
from proctor.sources.datasets.row_filter import read_filter
from proctor.sources.records import require_format


class BatchProgress(msgspec.Struct, kw_only=True):
    """How far a batch is."""

    partitions: int
    """Partitions to evaluate in this batch."""
    carried: int = 0
    """Partitions with a result from an earlier batch."""
    done: int = 0
    traces: int = 0
    failed: int = 0
    """Results that did not pass, and records that could not be read."""

    def show(self, line: StatusLine) -> None:
        """Show partitions, traces a second, failures so far and the time left."""
        line.show(self._describe, is_last=self.done >= self.partitions)

    def _describe(self, seconds: float) -> str:
        remaining_s = seconds / self.done * (self.partitions - self.done) if self.done else None
        parts = [f"{self.done:,}/{self.partitions:,} partitions", f"{self.traces / seconds:,.0f} traces a second"]
        parts += [f"{self.failed:,} failed"] * bool(self.failed)
        parts += [f"{self.carried:,} reused"] * bool(self.carried)
        parts += [] if remaining_s is None else [f"{remaining_s:,.0f} s left"]
        return ", ".join(parts)


ENGINES = ("local", "dask")


@contextlib.contextmanager
def open_executor(
    engine: str, *, workers: int | None = None, scheduler: str | None = None, tls: TlsFiles | None = None, client: object = None
) -> Generator[Executor]:
    """Provide the executor for the tasks of a batch. Raises `InputError` if it is unavailable.

    For Dask, `scheduler` is the address of an existing one, and `client` a connected `dask.distributed.Client`.
    """
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}; expected {' or '.join(ENGINES)}, or a client of dask.distributed")
    if workers is not None and workers < 1:
        raise InputError(f"workers: expected at least 1, found {workers}")
    if engine == "local":
        if scheduler is not None or tls is not None or client is not None:
            raise InputError("a scheduler is for the engine dask (--engine dask)")
        yield LocalExecutor(workers)
    else:
        with DaskExecutor(scheduler=scheduler, tls=tls, client=client, workers=workers) as executor:
            yield executor


OnProgress = Callable[[BatchProgress], None]
OpenJudge = Callable[[Path], Judge | None]
"""Opens the judge of a suite, which caches its replies below a folder; None if none is configured."""


def batch(
    suite: Suite | str | Path,
    source: str | Path | Sequence[str | Path],
    *,
    output: str | Path,
    engine: object = "local",
    workers: int | None = None,
    resume: bool = False,
    on_progress: OnProgress | Literal["bar"] | None = None,
    column: str | None = None,
    evidence_format: str | None = None,
    where: str | None = None,
    by: str | Sequence[str] = (),
    carry: Sequence[str] = (),
    limit: int | None = None,
    sample: float | None = None,
    judge: JudgeLike = None,
    judge_sample: int | None = None,
    max_tokens: int | None = None,
) -> BatchSummary:
    """Evaluate a data set of recorded evidence (Parquet, JSON lines) against `suite`, and write the results into the folder `output`.

    `source` is a path, a pattern or an address, or several. `workers` is the number of processes, by default one for each core; with
    `engine="dask"` they belong to a cluster on this machine, and with a `Client` of `dask.distributed` as the engine to its cluster.
    `on_progress` is called with a `BatchProgress` whenever a partition is done; `"bar"` shows it as a line on standard error. How it is
    read: `column`, `evidence_format`, `where` (`"agent = 'shop'"`), `limit`, `sample`, and `by` what the summary is sliced: `"model"`,
    `"model,day"` for both together, a list for several tables; `carry` names columns for `results`. A suite with claims in plain language
    needs `judge_sample` or `max_tokens`, and may have a `judge`. Raises `InputError` if the batch cannot start or continue.
    """
    places = [source] if isinstance(source, (str, Path)) else source
    options = BatchOptions(
        places=tuple(map(str, places)),
        output=name_output(output),
        column=column,
        evidence_format=evidence_format,
        where=where,
        by=read_groupings([by] if isinstance(by, str) else by),
        carry=tuple(carry),
        limit=limit,
        sample=sample,
        resume=resume,
        judging=read_bounds(judge_sample, max_tokens),
    )
    found = suite if isinstance(suite, Suite) else load_suite(suite)
    name, client = (engine, None) if isinstance(engine, str) else ("dask", engine)
    line = StatusLine(enabled=on_progress == "bar", every_s=0.25)
    notify = (lambda progress: progress.show(line)) if on_progress == "bar" else on_progress
    with open_executor(name, workers=workers, client=client) as executor, ExitStack() as stack:
        stack.callback(line.finish)
        return run_batch(found, options, executor, notify, lambda memory: find_judge(found, judge, memory))


def run_batch(
    suite: Suite, options: BatchOptions, executor: Executor, on_progress: OnProgress | None = None, open_judge: OpenJudge | None = None
) -> BatchSummary:
    """Evaluate a data set with an executor; returns the figures of everything that is committed. Raises `InputError`.

    `open_judge` returns the judge of the suite, and is called if the suite needs one.
    """
    import_arrow("pyarrow.parquet")
    declared = suite.find_declared()
    mapped = declared is not None and declared.map is not None
    options = msgspec.structs.replace(options, declared=declared, column=options.column or (ALL_COLUMNS if mapped else None))
    if options.evidence_format is not None:
        require_format(options.evidence_format)
    if options.where is not None:
        read_filter(options.where)
    for name in options.carry:
        if name in make_schema().names or options.carry.count(name) > 1:
            raise InputError(f"--carry {name!r}: `results` has a column of this name already")
    identity, judged = identify(suite, options)
    place = name_output(options.output)
    folder = OutputFolder(place)
    with ExitStack() as stack:
        stack.enter_context(explain_full_disk(place))
        memory = stack.enter_context(open_memory(folder.store, place)) if judged else None
        judge = None if memory is None else _open_judge(open_judge, memory.path)
        stack.enter_context(folder.lock())
        before = folder.read_manifest()
        refuse_other_batch(folder, before, identity, options)
        planned = make_plan(folder, before, identity, options, read_again=judged)
        # The manifest first: a folder without one is not recognised as a batch.
        folder.write_manifest(planned.manifest)
        folder.write_suite(suite, identity.digest)
        folder.sweep(planned.manifest)
        # The sample of an earlier batch, the tally first: it means that the whole sample was judged. Replies of the judge stay.
        folder.store.delete(JUDGED_TALLY)
        folder.store.delete(JUDGED)
        if before is not None and before.suite != identity:
            # Results are overwritten, and the file times of a store may be too coarse to show it.
            folder.write_index(None)
        done = _evaluate(planned, suite, options, executor, on_progress)
        # Killed workers leave incomplete parts.
        folder.sweep(planned.manifest)
        if not done.failures and judge is not None and options.judging is not None:
            settings = _make_settings(planned.manifest, suite, options)
            assert memory is not None
            tally = judge_sample(folder, planned.manifest, settings, judge, options.judging, memory)
            write_bytes(folder.store, JUDGED_TALLY, msgspec.json.encode(tally))
        if not done.failures:
            finished = msgspec.structs.replace(planned.manifest, finished=True, suites={identity.digest: identity})
            folder.write_manifest(finished)
            folder.sweep(finished)
            folder.write_index(folder.sum_footers(finished))
        return summarize_batch(folder, planned.manifest, evaluated=done.evaluated, failures=done.failures)


def open_batch(output: str | Path) -> BatchSummary:
    """Return the figures of a finished or unfinished batch. Raises `InputError` if there is none."""
    place = name_output(output)
    folder = OutputFolder(place)
    manifest = folder.read_manifest() if isinstance(place, str) or place.is_dir() else None
    if manifest is None:
        raise InputError(f"no batch at {str(output)!r}; `proctor batch SUITE DATASET --output DIR` makes one")
    import_arrow("pyarrow.parquet")
    return summarize_batch(folder, manifest)


class _Done(NamedTuple):
    evaluated: int
    failures: list[str]
    gathered: bool
    """Whether all spans were gathered."""


def _open_judge(open_judge: OpenJudge | None, memory: Path) -> Judge:
    judge = open_judge(memory) if open_judge is not None else None
    if judge is None:
        raise InputError(NO_JUDGE)
    return judge


def identify(suite: Suite, options: BatchOptions) -> tuple[SuiteIdentity, bool]:
    """Return the identity of a suite, and whether it needs a judge. Raises `InputError` if the judge has no limits."""
    if not suite.cases:
        raise InputError("nothing to decide: the suite has no cases")
    if suite.unselected:
        raise InputError("a batch takes a whole suite, not a selection; put these cases into a suite of their own")
    registry = find_registry()
    stream = CheckStream(suite, now=options.now, registry=registry)
    judged = stream.judged
    if judged and options.judging is None:
        raise InputError(
            "the suite has claims in plain language, and a batch does not ask a judge about every trace; "
            "give it a limit: --judge-sample 2000, or --max-tokens 1000000"
        )
    return identify_suite(suite, registry, now=options.now, only_presence=stream.only_presence), judged


def _evaluate(planned: Planned, suite: Suite, options: BatchOptions, executor: Executor, on_progress: OnProgress | None) -> _Done:
    manifest = planned.manifest
    to_do = len(planned.tasks) + len(planned.shares)
    decided = sum(not task.partition.spans for task in planned.tasks) + len(planned.shares)
    progress = BatchProgress(partitions=to_do, carried=len(manifest.partitions) - decided)
    work = Work(setup=SETUP, payload=msgspec.msgpack.encode(_make_settings(manifest, suite, options)))
    if on_progress is not None:
        on_progress(msgspec.structs.replace(progress))
    done = _do_tasks(planned.tasks, work, executor, progress, on_progress)
    # Not if a partition is missing: a trace would be decided without its spans there.
    if planned.shares and done.gathered:
        last = _do_tasks(planned.shares, work, executor, progress, on_progress)
        done = _Done(done.evaluated + last.evaluated, done.failures + last.failures, gathered=True)
    return done


def _make_settings(manifest: Manifest, suite: Suite, options: BatchOptions) -> Settings:
    place = name_output(options.output)
    return Settings(
        # Absolute, because a worker of a cluster has another current folder.
        output=place if isinstance(place, str) else os.path.abspath(place),
        suite=manifest.suite.digest,
        started_at=manifest.started_at,
        **msgspec.structs.asdict(manifest.reading),
        prices=suite.prices,
        declared=options.declared,
        written=() if is_lazy(suite.cases) else tuple(Written(case.own_id, case.origin) for case in suite.cases),
        sources=tuple((source.id, tuple(part.file.name for part in source.list_parts())) for source in manifest.sources),
        shares=manifest.shares,
        own_checks=describe_own_checks(),
    )


def _do_tasks(tasks: list[Task], work: Work, executor: Executor, progress: BatchProgress, on_progress: OnProgress | None) -> _Done:
    evaluated, failures, gathered = 0, list[str](), True
    try:
        for done in executor.map(work, [msgspec.msgpack.encode(task) for task in tasks]) if tasks else ():
            partition = tasks[done.task].partition
            progress.done += 1
            if done.error is not None:
                failures.append(_describe_failure(partition, done.error))
                gathered = gathered and not partition.spans
            else:
                found = decode_msgpack(done.result, Evaluated)
                evaluated += not partition.spans
                progress.traces += found.traces
                progress.failed += found.failed + found.errors
            if on_progress is not None:
                # A copy: callers may store it.
                on_progress(msgspec.structs.replace(progress))
    except StopWork as error:
        raise InputError(str(error)) from error
    return _Done(evaluated, failures, gathered)


def _describe_failure(partition: Partition, error: str) -> str:
    names = tuple(f"{part.file.name}: " for part in partition.list_parts())
    return error if error.startswith(names) else f"{partition.file.name}: {error}"


RECORDS = 2_000
"""Records that are decided for an estimate."""


class _Timed:
    """Runs tasks in this process and measures only them: starting workers does not count as cost of a record."""

    seconds = 0.0

    def map(self, work: Work, tasks: Sequence[bytes]) -> Iterator[Done]:
        do_task = load_setup(work.setup)(work.payload)
        for number, task in enumerate(tasks):
            started = time.process_time()
            result = do_task(task)
            self.seconds += time.process_time() - started
            yield Done(task=number, result=result)

    def cancel(self) -> None:
        """Do nothing: no task is running between two calls."""


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
        bytes_per_record = sum(file.stat().st_size for file in Path(name).glob("out/*/*.parquet")) / max(1, summary.records)
    records = sum(map(_count_records, tasks))
    seconds = timed.seconds / max(1, summary.records + summary.left_out) * records
    each = seconds / (workers or os.cpu_count() or 1)
    return (
        f"{plan}\nabout {records:,.0f} records; about {seconds:,.0f} s of one core, {each:,.0f} s with all workers, and "
        f"{bytes_per_record * records / 1e6:,.1f} MB of results, measured on the first {summary.records + summary.left_out:,} records"
    )


def _count_records(partition: Partition) -> float:
    """Return the approximate number of records of a partition: from its footer, or from its size and the length of its first lines."""
    if partition.file.kind == "parquet" or partition.limit is not None:
        return partition.limit or partition.rows
    first = next(read_cells(partition)).records
    length = sum(len(record) + 1 for record in first if isinstance(record, bytes)) / max(1, len(first))
    return (partition.end - partition.start) * (1 if partition.file.codec is None else 8) / max(1, length)
