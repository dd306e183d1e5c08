"""Evaluates a data set of recorded evidence against a suite: planned, evaluated by partitions, committed one by one.

What was committed by an earlier batch into the same folder stands as long as its file and its cases are the same: a second batch evaluates
what is new, and of a changed suite the cases that changed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

import msgspec

from proctor import __version__
from proctor.actions.check_stream import CheckStream, wall_clock
from proctor.actions.own_checks import find_registry
from proctor.actions.suites import load_suite
from proctor.batches.output_folder import Manifest, OutputFolder, Reading, name_spill
from proctor.batches.suite_identity import SuiteIdentity, identify_suite
from proctor.batches.summary import summarize_batch
from proctor.batches.worker import SETUP, Evaluated, Settings, Task, Written
from proctor.errors import InputError
from proctor.model.batch import BatchSummary
from proctor.model.case import Suite
from proctor.model.lazy_cases import is_lazy
from proctor.processes.dask_executor import DaskExecutor, TlsFiles
from proctor.processes.executor import Executor, StopWork, Work
from proctor.processes.local_executor import LocalExecutor
from proctor.report.wording import count_noun
from proctor.sources.dataset_files import DataFile, import_arrow, list_files, name_places
from proctor.sources.dataset_plan import Partition, choose_partition_bytes, plan_partitions, plan_shares
from proctor.sources.records import require_format

ENGINES = ("local", "dask")


class BatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch is asked to do."""

    places: tuple[str, ...]
    """Files, folders, patterns and addresses of the data set."""
    output: Path | str
    """A folder of this machine, or the address of one in an object store."""
    column: str | None = None
    """The column of Parquet files that holds the record."""
    evidence_format: str | None = None
    now: str | None = None
    """The clock of every expression."""
    resume: bool = False
    partition_bytes: int | None = None
    """About how large a partition is; left out: by the size of the data set."""


class ReadingOptions(TypedDict, total=False):
    """How a data set is read, for `batch`."""

    column: str | None
    """The column of Parquet files that holds the record."""
    evidence_format: str | None


class BatchProgress(msgspec.Struct, kw_only=True):
    """How far a batch is."""

    partitions: int
    """Partitions that are to be evaluated now."""
    carried: int = 0
    """Partitions that have their result from an earlier batch."""
    done: int = 0
    traces: int = 0
    failed: int = 0
    """Results that did not pass, and records that could not be read."""


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is told."""

    workers: int | None = None
    scheduler: str | None = None
    """The address of a Dask scheduler that is there already."""
    tls: TlsFiles | None = None
    client: object = None
    """A `dask.distributed.Client` that is connected already."""


@contextlib.contextmanager
def open_executor(engine: str, options: EngineOptions) -> Generator[Executor]:
    """Provide what the tasks of a batch are done by. Raises `InputError` where it cannot be had."""
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}; expected {' or '.join(ENGINES)}, or a client of dask.distributed")
    if engine == "local":
        if options.scheduler is not None or options.tls is not None or options.client is not None:
            raise InputError("a scheduler is for the engine dask (--engine dask)")
        yield LocalExecutor(options.workers)
    else:
        with DaskExecutor(scheduler=options.scheduler, tls=options.tls, client=options.client, workers=options.workers) as executor:
            yield executor


OnProgress = Callable[[BatchProgress], None]


def batch(
    suite: Suite | str | Path,
    source: str | Path | Sequence[str | Path],
    *,
    output: str | Path,
    engine: object = "local",
    workers: int | None = None,
    resume: bool = False,
    on_progress: OnProgress | None = None,
    **reading: Unpack[ReadingOptions],
) -> BatchSummary:
    """Evaluate a data set of recorded evidence (Parquet, JSON lines) against `suite`, and write the results into the folder `output`.

    `source` is a path, a pattern or an address, or several. `workers` are processes, by default one for each core; with `engine="dask"`
    they are those of a cluster on this machine, and with a `Client` of `dask.distributed` as the engine those that it is connected to.
    `on_progress` is called with a `BatchProgress` whenever a partition is done. How it is read: `column`, `evidence_format`.
    Raises `InputError` where the batch cannot be begun, or cannot go on.
    """
    places = [source] if isinstance(source, (str, Path)) else source
    options = BatchOptions(places=tuple(map(str, places)), output=name_output(output), resume=resume, **reading)
    found = suite if isinstance(suite, Suite) else load_suite(suite)
    told = EngineOptions(workers=workers, client=None if isinstance(engine, str) else engine)
    with open_executor(engine if isinstance(engine, str) else "dask", told) as executor:
        return run_batch(found, options, executor, on_progress)


def run_batch(suite: Suite, options: BatchOptions, executor: Executor, on_progress: OnProgress | None = None) -> BatchSummary:
    """Evaluate a data set with an executor; returns the figures of everything that is committed. Raises `InputError`."""
    import_arrow("pyarrow.parquet")
    if options.evidence_format is not None:
        require_format(options.evidence_format)
    identity = _identify(suite, options)
    folder = OutputFolder(name_output(options.output))
    with folder.lock():
        before = folder.read_manifest()
        _refuse_other_batch(folder, before, identity, options)
        planned = _make_plan(folder, before, identity, options)
        # The manifest first: a folder without one is not taken for a batch.
        folder.write_manifest(planned.manifest)
        folder.write_suite(suite, identity.digest)
        folder.sweep(planned.manifest)
        done = _evaluate(planned, suite, options, executor, on_progress)
        # Workers that were killed leave parts behind.
        folder.sweep(planned.manifest)
        if not done.failures:
            finished = msgspec.structs.replace(planned.manifest, finished=True, suites={identity.digest: identity})
            folder.write_manifest(finished)
            folder.sweep(finished)
        return summarize_batch(folder, planned.manifest, evaluated=done.evaluated, failures=done.failures)


def name_output(output: str | Path) -> str | Path:
    """Return the folder that a path or an address means."""
    if isinstance(output, Path) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(output)):
        raise InputError(f"{str(output)!r} was an address before it became a path; hand it over as text")
    return output if isinstance(output, str) and "://" in output else Path(output)


def open_batch(output: str | Path) -> BatchSummary:
    """Return the figures of a batch that was evaluated, finished or not. Raises `InputError` where there is none."""
    place = name_output(output)
    folder = OutputFolder(place)
    manifest = folder.read_manifest() if isinstance(place, str) or place.is_dir() else None
    if manifest is None:
        raise InputError(f"no batch at {str(output)!r}; `proctor batch SUITE DATASET --output DIR` makes one")
    import_arrow("pyarrow.parquet")
    return summarize_batch(folder, manifest)


class _Planned(NamedTuple):
    manifest: Manifest
    tasks: list[Task]
    """What is decided, and spans that are gathered for that."""
    shares: list[Task]
    """What is decided when all spans are gathered."""


class _Done(NamedTuple):
    evaluated: int
    failures: list[str]
    gathered: bool
    """Whether all spans were gathered that should be."""


def _identify(suite: Suite, options: BatchOptions) -> SuiteIdentity:
    if not suite.cases:
        raise InputError("nothing to decide: the suite has no cases")
    if suite.unselected:
        raise InputError("a batch takes a whole suite, not a selection; put these cases into a suite of their own")
    registry = find_registry()
    stream = CheckStream(suite, now=options.now, registry=registry)
    if stream.judged:
        raise InputError(
            "the suite has claims in plain language, and a batch asks no judge: it would be asked about every trace; "
            "put these claims into a suite of their own, and check a sample with `proctor check`"
        )
    return identify_suite(suite, registry, now=options.now, only_presence=stream.only_presence)


def _refuse_other_batch(folder: OutputFolder, before: Manifest | None, identity: SuiteIdentity, options: BatchOptions) -> None:
    """Raise `InputError` where the folder holds what this batch would not go on with."""
    if before is None:
        return
    elsewhere = "name a new folder with --output"
    place = str(folder.path)
    if before.version != __version__:
        raise InputError(
            f"{place!r} was written by proctor {before.version}; this is {__version__}, which may decide otherwise; {elsewhere}"
        )
    if before.suite.name != identity.name:
        raise InputError(f"{place!r} holds results of the suite {before.suite.name!r}, not of {identity.name!r}; {elsewhere}")
    if before.reading != _describe_reading(options):
        told = ", ".join(before.reading.places)
        raise InputError(
            f"{place!r} holds results of another data set, or of one read in another way: {told}; "
            f"name the same (it may have grown, its files may have changed), or {elsewhere}"
        )
    if not before.finished and not options.resume:
        done = sum(folder.has_result(partition.id) for partition in before.partitions)
        raise InputError(
            f"{place!r} holds a batch that was not finished ({done:,} of {len(before.partitions):,} partitions); "
            f"--resume goes on with it, or {elsewhere}"
        )


def _describe_reading(options: BatchOptions) -> Reading:
    return Reading(places=name_places(options.places), column=options.column, evidence_format=options.evidence_format, now=options.now)


def _make_plan(folder: OutputFolder, before: Manifest | None, identity: SuiteIdentity, options: BatchOptions) -> _Planned:
    files = list_files(options.places, leave_out=folder.path if isinstance(folder.path, Path) else None)
    # A data set that has grown is split as it was before: otherwise nothing of it would be known.
    known_size = None if before is None else before.partition_bytes
    partition_bytes = options.partition_bytes or known_size or choose_partition_bytes(files)
    same_split = before is not None and before.partition_bytes == partition_bytes
    planned = plan_partitions(
        files,
        column=options.column,
        evidence_format=options.evidence_format,
        partition_bytes=partition_bytes,
        known=_list_known(before) if before is not None and same_split else None,
    )
    sources = [partition for partition in planned if partition.spans]
    shares = plan_shares(sources, partition_bytes, before.shares if before is not None else None)
    partitions = [partition for partition in planned if not partition.spans] + shares
    if not partitions:
        raise InputError(f"nothing to evaluate: no row in {count_noun(len(files), 'file')} of the data set")
    known = {**before.suites, before.suite.digest: before.suite} if before is not None else {}
    digest = identity.digest
    tasks: list[Task] = []
    for partition in partitions:
        footer = folder.read_footer(partition.id) if before is not None else None
        if footer is None or footer.suite not in known:
            tasks.append(Task(partition=partition))
        elif footer.suite != digest:
            tasks.append(Task(partition=partition, carried=tuple(sorted(identity.list_carried(known[footer.suite])))))
    last = [task for task in tasks if task.partition.file.kind == "spans"]
    tasks = [task for task in tasks if task.partition.file.kind != "spans"]
    if last:
        gathered = folder.list_spills()
        tasks += [Task(partition=source) for source in sources if name_spill(source.id, len(shares)) not in gathered]
    # A batch that goes on has the clock of its beginning: two partitions never disagree about today.
    started_at = before.started_at if before is not None and not before.finished else wall_clock()
    manifest = Manifest(
        version=__version__,
        reading=_describe_reading(options),
        suite=identity,
        suites={**known, digest: identity},
        started_at=started_at,
        partition_bytes=partition_bytes,
        partitions=tuple(partitions),
        sources=tuple(sources),
        shares=len(shares),
    )
    return _Planned(manifest, tasks, last)


def _list_known(before: Manifest) -> dict[DataFile, list[Partition]]:
    """Return the partitions of files as they were planned before: a file that has not changed is not opened again."""
    known: dict[DataFile, list[Partition]] = {}
    for partition in (*before.partitions, *before.sources):
        if partition.broken is None and partition.file.kind != "spans":
            known.setdefault(partition.file, []).append(partition)
    return known


def _evaluate(planned: _Planned, suite: Suite, options: BatchOptions, executor: Executor, on_progress: OnProgress | None) -> _Done:
    """Have every task done; returns how many, and why the others were not."""
    manifest = planned.manifest
    to_do = len(planned.tasks) + len(planned.shares)
    decided = sum(not task.partition.spans for task in planned.tasks) + len(planned.shares)
    progress = BatchProgress(partitions=to_do, carried=len(manifest.partitions) - decided)
    work = Work(setup=SETUP, payload=msgspec.msgpack.encode(_make_settings(manifest, suite, options)))
    if on_progress is not None:
        on_progress(progress)
    done = _do_tasks(planned.tasks, work, executor, progress, on_progress)
    if planned.shares and done.gathered:
        last = _do_tasks(planned.shares, work, executor, progress, on_progress)
        done = _Done(done.evaluated + last.evaluated, done.failures + last.failures, gathered=True)
    return done


def _make_settings(manifest: Manifest, suite: Suite, options: BatchOptions) -> Settings:
    """Return what every worker is told."""
    place = name_output(options.output)
    return Settings(
        output=place if isinstance(place, str) else os.path.abspath(place),
        suite=manifest.suite.digest,
        started_at=manifest.started_at,
        now=options.now,
        column=options.column,
        evidence_format=options.evidence_format,
        prices=suite.prices,
        written=() if is_lazy(suite.cases) else tuple(Written(case.own_id, case.origin) for case in suite.cases),
        sources=tuple((source.id, source.file.name) for source in manifest.sources),
        shares=manifest.shares,
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
                found = _EVALUATED.decode(done.result)
                evaluated += not partition.spans
                progress.traces += found.traces
                progress.failed += found.failed + found.errors
            if on_progress is not None:
                on_progress(progress)
    except StopWork as error:
        raise InputError(str(error)) from error
    return _Done(evaluated, failures, gathered)


_EVALUATED = msgspec.msgpack.Decoder(Evaluated)


def _describe_failure(partition: Partition, error: str) -> str:
    name = partition.file.name
    return error if error.startswith(f"{name}: ") else f"{name}: {error}"
