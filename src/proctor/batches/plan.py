"""Plans a batch: the partitions of its data set, and which of them have a valid result from an earlier batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from proctor import __version__
from proctor.actions.checking.check_stream import wall_clock
from proctor.batches.judging import JudgeBounds
from proctor.batches.output_folder import Manifest, OutputFolder, Reading, name_spill
from proctor.batches.slicer import list_extra_columns
from proctor.batches.suite_identity import SuiteIdentity, hash_parts
from proctor.batches.worker import Task
from proctor.errors import InputError
from proctor.model.mapping import DeclaredEvidence
from proctor.model.show import nearest
from proctor.report.words.wording import count_noun
from proctor.sources.datasets.cells import Cells, read_cells
from proctor.sources.datasets.files import SUFFIXES, DataFile, Skipped, find_local_path, import_arrow, list_files, name_places, open_file
from proctor.sources.datasets.plan import Partition, choose_partition_bytes, merge_small_files, plan_partitions, plan_shares
from proctor.sources.datasets.row_filter import Condition, list_names, read_filter
from proctor.sources.datasets.rows import decode_line, list_fitting_files, read_folder_keys

_OWN_NAMES = ("day", "model", "case")


class Planned(NamedTuple):
    """A plan, and its tasks."""

    manifest: Manifest
    tasks: list[Task]
    """Partitions to decide, and partitions of spans to gather."""
    shares: list[Task]
    """Shares to decide after all spans are gathered."""


def refuse_other_batch(folder: OutputFolder, before: Manifest | None, identity: SuiteIdentity, options: BatchOptions) -> None:
    """Raise `InputError` if the folder has results that this batch would not continue."""
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
        described = ", ".join(before.reading.places)
        described += f", --where {before.reading.where!r}" if before.reading.where is not None else ""
        described += "".join(f", --by {','.join(names)}" for names in before.reading.by)
        raise InputError(
            f"{place!r} holds results of another data set, or of one read in another way: {described}; "
            f"name the same (it may have grown, its files may have changed), or {elsewhere}"
        )
    if not before.finished and not options.resume:
        done = len(folder.sum_footers(before).results)
        raise InputError(
            f"{place!r} holds a batch that was not finished ({done:,} of {len(before.partitions):,} partitions); "
            f"--resume goes on with it, or {elsewhere}"
        )


def _describe_reading(options: BatchOptions) -> Reading:
    reading = Reading(**{name: getattr(options, name) for name in Reading.__struct_fields__})
    return msgspec.structs.replace(reading, places=name_places(options.places))


def make_plan(
    folder: OutputFolder, before: Manifest | None, identity: SuiteIdentity, options: BatchOptions, *, read_again: bool = False
) -> Planned:
    """Plan a batch that continues an earlier one; `read_again` if traces are read again after everything is decided."""
    left_out = Skipped()
    files, ruled_out, partition_bytes, planned = _plan_files(folder, before, options, left_out)
    shares = plan_shares([part for part in planned if part.spans], partition_bytes, before.shares if before is not None else None)
    merged = merge_small_files(planned, partition_bytes, (*before.partitions, *before.sources) if before is not None else ())
    sources = [partition for partition in merged if partition.spans]
    partitions = [partition for partition in merged if not partition.spans] + shares
    if not partitions:
        raise InputError(f"nothing to evaluate: no row in {count_noun(len(files), 'file')} of the data set")
    known = {**before.suites, before.suite.digest: before.suite} if before is not None else {}
    tasks = _list_tasks(folder, partitions, identity, known, before)
    last = [task for task in tasks if task.partition.file.kind == "spans"]
    tasks = [task for task in tasks if task.partition.file.kind != "spans"]
    if last or read_again:
        gathered = folder.list_spills()
        tasks += [Task(partition=source) for source in sources if name_spill(source.id, len(shares)) not in gathered]
    # A resumed batch keeps its first clock, so that all partitions agree about today.
    started_at = before.started_at if before is not None and not before.finished else wall_clock()
    manifest = Manifest(
        version=__version__,
        reading=_describe_reading(options),
        suite=identity,
        suites={**known, identity.digest: identity},
        started_at=started_at,
        partition_bytes=partition_bytes,
        partitions=tuple(partitions),
        sources=tuple(sources),
        shares=len(shares),
        ruled_out=ruled_out,
        warnings=tuple(left_out.describe(", ".join(SUFFIXES))),
        judged=read_again,
    )
    return Planned(manifest, tasks, last)


def _plan_files(
    folder: OutputFolder, before: Manifest | None, options: BatchOptions, left_out: Skipped
) -> tuple[list[DataFile], int, int, list[Partition]]:
    """Return the files of the data set, how many were ruled out, how large its partitions are, and the partitions."""
    files = list_files(options.places, leave_out=folder.path, left_out=left_out)
    where = None if options.where is None else read_filter(options.where)
    listed = len(files)
    if where is not None:
        files = list_fitting_files(files, where)
    # A data set that has grown is split as before: otherwise no earlier result would match.
    known_size = None if before is None else before.partition_bytes
    mapped = options.declared.map if options.declared is not None else None
    partition_bytes = options.partition_bytes or known_size or choose_partition_bytes(files)
    if mapped is not None and mapped.group is not None:
        if options.limit is not None or options.sample is not None:
            raise InputError("--limit and --sample choose single lines, and the mapping makes one run of several")
        # The lines of one run may be anywhere in a file.
        partition_bytes = 1 << 62
    same_split = before is not None and before.partition_bytes == partition_bytes
    planned = plan_partitions(
        files,
        column=options.column,
        # Rows that a mapping reads are not spans, whatever their columns are called.
        evidence_format="plain" if mapped is not None else options.evidence_format,
        partition_bytes=partition_bytes,
        where=where,
        known=_list_known(before) if before is not None and same_split and options.limit is None else None,
    )
    if options.limit is not None:
        planned = _cut_off(planned, options.limit, options.column)
    if where is not None:
        _refuse_parts_of_traces(planned, where)
    if before is None:
        _refuse_misspelt_slices(planned, options)
    return files, listed - len(files), partition_bytes, planned


def _refuse_parts_of_traces(planned: Sequence[Partition], where: Condition) -> None:
    """Raise `InputError` if a condition would select single spans of a trace."""
    for partition in planned:
        columns = [name for name in list_names(where) if name not in read_folder_keys(partition.file.path)] if partition.spans else []
        if columns:
            raise InputError(
                f"--where needs {columns[0]!r} of every row, and a row of {partition.file.name} is one span: traces would be decided "
                "without their other spans; ask for keys of folders (day=2026-10-01) alone, or name the files"
            )


def _cut_off(planned: Sequence[Partition], limit: int, column: str | None) -> list[Partition]:
    """Return the partitions with the first records; raises `InputError` for spans, which are parts of records."""
    chosen: list[Partition] = []
    for partition in planned:
        if partition.spans:
            raise InputError(f"--limit counts records, and a row of {partition.file.name} is one span; use --sample, or name fewer files")
        id = hash_parts([partition.id.encode(), str(limit).encode()])[:24]
        chosen.append(msgspec.structs.replace(partition, id=id, limit=limit))
        limit -= sum(len(cells.records) for cells in read_cells(chosen[-1], column))
        if limit <= 0:
            break
    return chosen


def _refuse_misspelt_slices(planned: Sequence[Partition], options: BatchOptions) -> None:
    """Raise `InputError` for a name of `--by` that is in no schema, folder or first record, if one of them has a similar name."""
    keys = {key for partition in planned for key in read_folder_keys(partition.file.path)}
    columns = [name for name in list_extra_columns(options.by) if name not in _OWN_NAMES and name not in keys]
    readable = [partition for partition in planned if partition.broken is None and not partition.spans] if columns else []
    # From the beginning, the middle and the end, because a data set may have changed its names.
    looked_at = {readable[position].id: readable[position] for position in (0, len(readable) // 2, -1)} if readable else {}
    names = {*_OWN_NAMES, *keys}
    for partition in looked_at.values():
        names |= _list_some_names(partition, options.column)
    for name in columns if readable else ():
        near = nearest(name, sorted(names)) if names.isdisjoint((name, name.partition(".")[0])) else ()
        if near and not any(f"metadata.{name}" in group for group in options.by):
            raise InputError(f"--by {name!r}: no such column or key; nearest: {near[0]!r}; write metadata.{name} if some traces have it")


def _list_some_names(partition: Partition, column: str | None) -> set[str]:
    """Return the columns of a partition, and the keys and the keys of metadata of its first records."""
    names: set[str] = set()
    if partition.file.kind == "parquet":
        with open_file(partition.file.root, partition.file.path) as source:
            names.update(import_arrow("pyarrow.parquet").read_schema(source).names)
    for record in next(iter(read_cells(partition, column)), Cells([])).records:
        decoded = decode_line(record) if isinstance(record, bytes) else None
        metadata = decoded.get("metadata") if isinstance(decoded, dict) else None
        names.update(decoded if isinstance(decoded, dict) else (), metadata if isinstance(metadata, dict) else ())
    return names


def _list_tasks(
    folder: OutputFolder, partitions: Sequence[Partition], identity: SuiteIdentity, known: dict[str, SuiteIdentity], before: Manifest | None
) -> list[Task]:
    """Return the partitions without a result, or with the result of another suite."""
    if before is None:
        return [Task(partition=partition) for partition in partitions]
    index = folder.read_index()
    unread = [partition for partition in partitions if index is None or partition.id not in index.results]
    suites = {partition.id: footer.suite for partition, footer in zip(unread, folder.read_footers(unread), strict=True) if footer}
    tasks: list[Task] = []
    for partition in partitions:
        suite = index.suite if index is not None and partition.id in index.results else suites.get(partition.id)
        if suite is None or suite not in known:
            tasks.append(Task(partition=partition))
        elif suite != identity.digest:
            tasks.append(Task(partition=partition, carried=tuple(sorted(identity.list_carried(known[suite])))))
    return tasks


def _list_known(before: Manifest) -> dict[DataFile, list[Partition]]:
    """Return the partitions of files from the earlier plan: an unchanged file is not opened again."""
    known: dict[DataFile, list[Partition]] = {}
    for part in (part for partition in (*before.partitions, *before.sources) for part in partition.list_parts()):
        if part.broken is None and part.file.kind != "spans":
            known.setdefault(msgspec.structs.replace(part.file, name=""), []).append(part)
    return known


class BatchOptions(Reading, frozen=True, kw_only=True):
    """Options of a batch."""

    output: Path | str
    """A folder of this machine, or the address of one in an object store."""
    judging: JudgeBounds | None = None
    """Limits of the judged sample, if the suite has claims in plain language."""
    resume: bool = False
    declared: DeclaredEvidence | None = None
    """How evidence is read, by the suite, the command line or the workspace."""
    partition_bytes: int | None = None
    """The approximate size of a partition; by default it depends on the size of the data set."""


def name_output(output: str | Path) -> str | Path:
    """Return the folder of a path or an address. Raises `InputError` for an address that was turned into a path."""
    # As a path, the address has lost one of its two slashes.
    if isinstance(output, Path) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(output)):
        raise InputError(f"{str(output)!r} was an address before it became a path; hand it over as text")
    if isinstance(output, str):
        output = find_local_path(output) or output
    return output if isinstance(output, str) and "://" in output else Path(output)
