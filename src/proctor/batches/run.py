"""Evaluates a data set of recorded evidence against a suite: planned, evaluated by partitions, committed one by one.

What was committed by an earlier batch into the same folder stands as long as its file and its cases are the same: a second batch evaluates
what is new, and of a changed suite the cases that changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

import msgspec

from proctor import __version__
from proctor.actions.check_stream import CheckStream, wall_clock
from proctor.actions.judges import JudgeLike
from proctor.actions.own_checks import find_registry
from proctor.actions.suites import load_suite
from proctor.batches.judged_tally import write_tally
from proctor.batches.judging import JudgeBounds, find_judge, judge_sample, read_bounds
from proctor.batches.output_folder import Manifest, OutputFolder, Reading
from proctor.batches.slicer import read_groupings
from proctor.batches.suite_identity import SuiteIdentity, identify_suite
from proctor.batches.summary import summarize_batch
from proctor.batches.worker import SETUP, Evaluated, Settings, Task, Written
from proctor.errors import InputError
from proctor.model.batch import BatchSummary
from proctor.model.case import Suite
from proctor.model.judgement import NO_JUDGE
from proctor.model.lazy_cases import is_lazy
from proctor.model.typed import decode_msgpack
from proctor.processes.executor import Executor, StopWork, Work
from proctor.processes.local_executor import LocalExecutor
from proctor.report.wording import count_noun
from proctor.runner.ports import Judge
from proctor.sources.dataset_files import import_arrow, list_files, name_places
from proctor.sources.dataset_plan import Partition, choose_partition_bytes, plan_partitions
from proctor.sources.dataset_rows import list_fitting_files
from proctor.sources.records import require_format
from proctor.sources.row_filter import read_filter


class BatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch is asked to do."""

    places: tuple[str, ...]
    """Files, folders, patterns and addresses of the data set."""
    output: Path
    column: str | None = None
    """The column of Parquet files that holds the record."""
    evidence_format: str | None = None
    where: str | None = None
    """Which rows are read, as `--where` says it."""
    by: tuple[tuple[str, ...], ...] = ()
    """By what the summary is sliced, beside the day: each a table, of one name or of several together."""
    now: str | None = None
    """The clock of every expression."""
    judging: JudgeBounds | None = None
    """How much a judge is asked, where the suite has claims in plain language."""
    resume: bool = False
    partition_bytes: int | None = None
    """About how large a partition is; left out: by the size of the data set."""


class ReadingOptions(TypedDict, total=False):
    """How a data set is read, sliced and judged, for `batch`."""

    column: str | None
    """The column of Parquet files that holds the record."""
    evidence_format: str | None
    where: str | None
    by: str | Sequence[str]
    judge: JudgeLike
    """Who judges claims in plain language; left out: as the suite, the workspace or the environment say."""
    judge_sample: int
    """About how many results it is asked at most."""
    max_tokens: int
    """Tokens of the judge at most."""


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


OnProgress = Callable[[BatchProgress], None]
OpenJudge = Callable[[Path], Judge | None]
"""Opens the judge of a suite, which remembers its answers below a folder; None where none is configured."""


def batch(
    suite: Suite | str | Path,
    source: str | Path | Sequence[str | Path],
    *,
    output: str | Path,
    workers: int | None = None,
    resume: bool = False,
    on_progress: OnProgress | None = None,
    **reading: Unpack[ReadingOptions],
) -> BatchSummary:
    """Evaluate a data set of recorded evidence (Parquet, JSON lines) against `suite`, and write the results into the folder `output`.

    `source` is a path, a pattern or an address, or several. `workers` are processes, by default one for each core. `on_progress` is called
    with a `BatchProgress` whenever a partition is done. How it is read: `column`, `evidence_format`, `where` (`"agent = 'shop'"`), and `by`
    what the summary is sliced: `"model"`, `"model,day"` for both together, a list for several tables. A suite with claims in plain language
    needs `judge_sample` or `max_tokens`, and may have a `judge`. Raises `InputError` where the batch cannot be begun, or cannot go on.
    """
    places = [source] if isinstance(source, (str, Path)) else source
    for name in reading.keys() - ReadingOptions.__annotations__.keys():
        raise TypeError(f"batch() got an unexpected keyword argument {name!r}")
    by = reading.get("by", ())
    options = BatchOptions(
        places=tuple(map(str, places)),
        output=Path(output),
        column=reading.get("column"),
        evidence_format=reading.get("evidence_format"),
        where=reading.get("where"),
        by=read_groupings([by] if isinstance(by, str) else by),
        resume=resume,
        judging=read_bounds(reading.get("judge_sample"), reading.get("max_tokens")),
    )
    found = suite if isinstance(suite, Suite) else load_suite(suite)
    return run_batch(found, options, LocalExecutor(workers), on_progress, lambda memory: find_judge(found, reading.get("judge"), memory))


def run_batch(
    suite: Suite, options: BatchOptions, executor: Executor, on_progress: OnProgress | None = None, open_judge: OpenJudge | None = None
) -> BatchSummary:
    """Evaluate a data set with an executor; returns the figures of everything that is committed. Raises `InputError`.

    `open_judge` is asked for the judge of the suite, where it needs one.
    """
    import_arrow("pyarrow.parquet")
    if options.evidence_format is not None:
        require_format(options.evidence_format)
    if options.where is not None:
        read_filter(options.where)
    identity, judged = _identify(suite, options)
    judge = _open_judge(open_judge, options) if judged else None
    # A path has lost one of the two strokes.
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(options.output)):
        raise InputError("--output is a folder of this machine; addresses are read, not written")
    folder = OutputFolder(options.output)
    with folder.lock():
        before = folder.read_manifest()
        _refuse_other_batch(folder, before, identity, options)
        planned = _make_plan(folder, before, identity, options)
        # The manifest first: a folder without one is not taken for a batch.
        folder.write_manifest(planned.manifest)
        folder.write_suite(suite, identity.digest)
        folder.sweep(planned.manifest)
        folder.forget_judged()
        failures = _evaluate(planned, suite, options, executor, on_progress)
        # Workers that were killed leave parts behind.
        folder.sweep(planned.manifest)
        if not failures and judge is not None and options.judging is not None:
            settings = _make_settings(planned.manifest, suite, options)
            write_tally(folder, judge_sample(folder, planned.manifest, settings, judge, options.judging))
        if not failures:
            folder.write_manifest(msgspec.structs.replace(planned.manifest, finished=True, suites={identity.digest: identity}))
        return summarize_batch(folder, planned.manifest, evaluated=len(planned.tasks) - len(failures), failures=failures)


def open_batch(output: str | Path) -> BatchSummary:
    """Return the figures of a batch that was evaluated, finished or not. Raises `InputError` where there is none."""
    folder = OutputFolder(Path(output))
    manifest = folder.read_manifest() if folder.path.is_dir() else None
    if manifest is None:
        raise InputError(f"no batch at {str(output)!r}; `proctor batch SUITE DATASET --output DIR` makes one")
    import_arrow("pyarrow.parquet")
    return summarize_batch(folder, manifest)


class _Planned(NamedTuple):
    manifest: Manifest
    tasks: list[Task]


def _open_judge(open_judge: OpenJudge | None, options: BatchOptions) -> Judge:
    judge = open_judge(options.output) if open_judge is not None else None
    if judge is None:
        raise InputError(NO_JUDGE)
    return judge


def _identify(suite: Suite, options: BatchOptions) -> tuple[SuiteIdentity, bool]:
    """Return the identity of a suite, and whether it needs a judge. Raises `InputError` where nobody said how much that is asked."""
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
            "say how much it is asked: --judge-sample 2000, or --max-tokens 1000000"
        )
    return identify_suite(suite, registry, now=options.now, only_presence=stream.only_presence), judged


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
        told += f", --where {before.reading.where!r}" if before.reading.where is not None else ""
        told += "".join(f", --by {','.join(names)}" for names in before.reading.by)
        raise InputError(
            f"{place!r} holds results of another data set, or of one read in another way: {told}; "
            f"name the same (it may have grown, its files may have changed), or {elsewhere}"
        )
    if not before.finished and not options.resume:
        done = sum(folder.find_result(partition.id).exists() for partition in before.partitions)
        raise InputError(
            f"{place!r} holds a batch that was not finished ({done:,} of {len(before.partitions):,} partitions); "
            f"--resume goes on with it, or {elsewhere}"
        )


def _describe_reading(options: BatchOptions) -> Reading:
    return Reading(
        places=name_places(options.places),
        column=options.column,
        evidence_format=options.evidence_format,
        where=options.where,
        by=options.by,
        now=options.now,
    )


def _make_plan(folder: OutputFolder, before: Manifest | None, identity: SuiteIdentity, options: BatchOptions) -> _Planned:
    files = list_files(options.places, leave_out=folder.path)
    where = None if options.where is None else read_filter(options.where)
    if where is not None:
        files = list_fitting_files(files, where)
    # A data set that has grown is split as it was before: otherwise nothing of it would be known.
    known_size = None if before is None else before.partition_bytes
    partition_bytes = options.partition_bytes or known_size or choose_partition_bytes(files)
    partitions = plan_partitions(files, column=options.column, partition_bytes=partition_bytes, where=where)
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
    )
    return _Planned(manifest, tasks)


def _evaluate(planned: _Planned, suite: Suite, options: BatchOptions, executor: Executor, on_progress: OnProgress | None) -> list[str]:
    """Have every task done; returns why some of them were not."""
    manifest, tasks = planned
    settings = _make_settings(manifest, suite, options)
    progress = BatchProgress(partitions=len(tasks), carried=len(manifest.partitions) - len(tasks))
    failures: list[str] = []
    work = Work(setup=SETUP, payload=msgspec.msgpack.encode(settings))
    if on_progress is not None:
        on_progress(progress)
    try:
        for done in executor.map(work, [msgspec.msgpack.encode(task) for task in tasks]):
            progress.done += 1
            if done.error is not None:
                failures.append(_describe_failure(tasks[done.task].partition, done.error))
            else:
                found = decode_msgpack(done.result, Evaluated)
                progress.traces += found.traces
                progress.failed += found.failed + found.errors
            if on_progress is not None:
                on_progress(progress)
    except StopWork as error:
        raise InputError(str(error)) from error
    return failures


def _make_settings(manifest: Manifest, suite: Suite, options: BatchOptions) -> Settings:
    """Return what every worker is told."""
    return Settings(
        output=os.path.abspath(options.output),
        suite=manifest.suite.digest,
        started_at=manifest.started_at,
        now=options.now,
        column=options.column,
        evidence_format=options.evidence_format,
        where=options.where,
        by=options.by,
        prices=suite.prices,
        written=() if is_lazy(suite.cases) else tuple(Written(case.own_id, case.origin) for case in suite.cases),
    )


def _describe_failure(partition: Partition, error: str) -> str:
    name = partition.file.name
    return error if error.startswith(f"{name}: ") else f"{name}: {error}"
