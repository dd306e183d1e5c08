"""Evaluates partitions: the suite is prepared once, then one partition after another is read, decided and committed.

The result of a partition is written under a temporary name and renamed when it is complete, so that after a crash there is one committed
result or none. Its footer names the suite that decided it, and holds the sketch for the summary.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from proctor.actions.checking.check_stream import CheckStream
from proctor.actions.workspace.custom_checks import find_registry
from proctor.batches.gathering import MAX_TRACE_BYTES, GatheredError, GatheredTrace, Spills, SpillWriter, digest_trace, gather_spans
from proctor.batches.output_folder import OutputFolder, Reading, make_metadata, name_errors, name_result, name_spill
from proctor.batches.output_store import describe_full, is_full
from proctor.batches.result_table import ErrorTable, ResultTable
from proctor.batches.sketch import TREND, LineNames, Sketch, count_most_slices
from proctor.batches.slicer import Slicer, list_extra_columns, make_finder
from proctor.batches.suite_identity import require_own_checks
from proctor.checks.registry import CheckEntry, Decide, Registry
from proctor.errors import EvidenceError, InputError
from proctor.model.batch import TracePlace
from proctor.model.cost import PriceList
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.judgement import PendingVerdict
from proctor.model.mapping import DeclaredEvidence
from proctor.model.problem import Origin
from proctor.model.result import CaseResult
from proctor.model.typed import decode_msgpack
from proctor.model.verdict import Verdict
from proctor.processes.executor import DoTask, StopWork
from proctor.sources.datasets.cells import Cells, read_cells
from proctor.sources.datasets.columns import EMPTY_CELL
from proctor.sources.datasets.files import import_arrow
from proctor.sources.datasets.plan import Partition
from proctor.sources.datasets.row_filter import read_filter
from proctor.sources.datasets.rows import FilterNames, RowChoice, read_folder_keys
from proctor.sources.records import RecordReader

# Checks of the first pass of a batch: a claim that needs a judge is deferred, and its case is decided by the others.

NOT_SAMPLED = Verdict("skip", 0.0, "not judged: a batch asks about a sample, which is in `judged`", "not_sampled")


class WithoutJudge(Registry):
    """The checks of another registry; a check that needs a judge returns `NOT_SAMPLED`."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    def get_for(self, name: str, spec: msgspec.Struct) -> CheckEntry:
        """Return the check that a spec belongs to."""
        entry = self._registry.get_for(name, spec)
        return msgspec.structs.replace(entry, prepare=_defer_judged(entry.prepare)) if entry.judged else entry


def _defer_judged(prepare: Callable[[Any], Decide]) -> Callable[[Any], Decide]:
    def prepare_without_judge(spec: Any) -> Decide:
        decide = prepare(spec)

        def decide_without_judge(evidence: Evidence) -> Verdict:
            verdict = decide(evidence)
            return NOT_SAMPLED if isinstance(verdict, PendingVerdict) else verdict

        return decide_without_judge

    return prepare_without_judge


SETUP = "proctor.batches.worker:open_worker"


class Written(msgspec.Struct, frozen=True, array_like=True):
    """Where a case is defined, and its id there, by which a record may name it."""

    own_id: str | None
    origin: Origin


class Settings(Reading, frozen=True, kw_only=True):
    """Settings of every worker of a batch."""

    output: str
    suite: str
    """The digest of the suite, which is stored in the output."""
    started_at: str
    prices: PriceList | None = None
    declared: DeclaredEvidence | None = None
    """How evidence is read, by the suite, the command line or the workspace."""
    written: tuple[Written, ...] = ()
    """For each case what its stored text lacks; empty for lazy cases."""
    sources: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The id and the files of every partition whose spans are gathered."""
    shares: int = 0
    """How many shares their traces are decided in."""
    own_checks: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """The files of custom checks with their digests; they must exist on the worker."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One partition, and the cases whose earlier results are carried over."""

    partition: Partition
    carried: tuple[str, ...] = ()


class Evaluated(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one partition, for the progress display."""

    records: int
    traces: int
    failed: int
    """Results that did not pass."""
    errors: int


class _EarlierResult(NamedTuple):
    """The part of an earlier result of a partition that is carried over."""

    sketch: Sketch
    cases: frozenset[str]
    rows: Any


def open_worker(payload: bytes) -> DoTask:
    """Return the function that evaluates one partition; called once in every process."""
    settings = decode_msgpack(payload, Settings)
    try:
        evaluator = Evaluator(settings)
    except FileNotFoundError as error:
        raise InputError(
            f"{settings.output!r} is not there where work is done ({error.filename}): all workers must reach the folder of --output"
        ) from error
    # Results have no reference cycles, so garbage collection finds nothing.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)

    def evaluate(task: bytes) -> bytes:
        try:
            return msgspec.msgpack.encode(evaluator.evaluate(decode_msgpack(task, Task)))
        except OSError as error:
            # A full disk ends the batch, instead of failing the partitions one by one.
            if is_full(error):
                raise StopWork(describe_full(settings.output, error)) from error
            raise

    return evaluate


class Evaluator:
    """A prepared suite, and the folder of its results."""

    def __init__(self, settings: Settings, *, with_judge: bool = False) -> None:
        """Without `with_judge`, claims that need a judge are deferred."""
        self.settings = settings
        self._folder = OutputFolder(settings.output if "://" in settings.output else Path(settings.output))
        known = find_registry()
        require_own_checks(settings.own_checks)
        suite = self._folder.read_suite(settings.suite, known)
        self.registry = registry = known if with_judge else WithoutJudge(known)
        pairs = zip(suite.cases, settings.written, strict=True) if settings.written else ()
        cases = tuple(msgspec.structs.replace(case, own_id=place.own_id, origin=place.origin) for case, place in pairs)
        suite = msgspec.structs.replace(suite, prices=settings.prices, cases=cases or suite.cases)
        self.stream = CheckStream(suite, now=settings.now, registry=registry, clock=lambda: settings.started_at)
        self.reader = RecordReader(
            settings.evidence_format, declared=settings.declared, repeated_keys=not self.stream.only_presence, holds_spans=False
        )
        self._case_ids = [case.id for case in suite.cases]
        where = None if settings.where is None else read_filter(settings.where)
        self.choice = RowChoice(where=where, extra=list_extra_columns((*settings.by, settings.carry)))

    def make_slicer(self, partition: Partition, sketch: Sketch) -> Slicer:
        """Return the slicer that counts the traces of a partition by shared values."""
        keys, groupings = read_folder_keys(partition.file.path), tuple(dict.fromkeys((TREND, *self.settings.by)))
        return Slicer(sketch.tables, groupings, keys, self.choice.extra, cases=len(self._case_ids))

    def evaluate(self, task: Task) -> Evaluated:
        """Evaluate one partition and commit its result. Raises `ChangedFile` and `OSError`."""
        if task.partition.spans:
            return self._gather(task.partition)
        partition = task.partition
        earlier = self._read_earlier(task)
        carried = frozenset(task.carried) if earlier is not None else frozenset[str]()
        part = self._folder.store.begin(name_result(partition.id))
        sketch = Sketch()
        is_share = partition.file.kind == "spans"
        table = ResultTable(part, None if is_share or partition.parts else partition.file.name, sketch, self.settings.carry)
        errors = ErrorTable(self._folder.store.begin(name_errors(partition.id)))
        only = {number for number, id in enumerate(self._case_ids) if id not in carried} if carried else None
        try:
            for piece in partition.list_parts():
                deciding = _Deciding(self, piece, table, errors, sketch, only)
                if is_share:
                    self._decide_share(piece, deciding)
                else:
                    self._decide_file(piece, deciding, sketch)
                deciding.slicer.settle()
            table.flush()  # before the sketch is written, which includes these counts
            table.finish(make_metadata(partition.id, self.settings.suite, sketch))
            if earlier is not None:
                self._carry_over(part, partition, sketch, earlier)
            self._folder.commit(part, partition.id, errors.finish())
        finally:
            table.close()
            errors.close()
            for unfinished in (part, errors.path):
                unfinished.unlink(missing_ok=True)
        failed = sum(sum(case.counts.get(outcome, 0) for outcome in ("fail", "error")) for case in sketch.cases.values())
        return Evaluated(records=sketch.records, traces=sketch.traces, failed=failed, errors=sketch.errors)

    def _decide_file(self, partition: Partition, deciding: _Deciding, sketch: Sketch) -> None:
        """Decide the records of a part of one file. Raises `ChangedFile` and `OSError`."""
        where = self.choice.where
        names_seen = None if where is None or partition.file.kind != "lines" else FilterNames(where, partition.file.path)
        for cells in read_cells(partition, self.settings.column, msgspec.structs.replace(self.choice, names_seen=names_seen)):
            deciding.decide_cells(cells)
        deciding.decide_grouped()
        if names_seen is not None and names_seen.lines:
            names = LineNames(lines=names_seen.lines, missing=sorted(names_seen.missing), unlike=names_seen.mismatched)
            sketch.merge(Sketch(names=names))

    def _gather(self, partition: Partition) -> Evaluated:
        """Sort the spans of one partition into shares. Raises `ChangedFile` and `OSError`."""
        name = name_spill(partition.id, self.settings.shares)
        spill = SpillWriter(self._folder.store.begin(name), self.settings.shares)
        try:
            records = 0
            for number, part in enumerate(partition.list_parts()):
                spill.file = number
                records += gather_spans(self.reader, part, self.settings.column, self.choice, spill)
            self._folder.store.put(spill.finish(), name)
        finally:
            spill.close()
            spill.path.unlink(missing_ok=True)
        return Evaluated(records=records, traces=0, failed=0, errors=0)

    def open_spills(self) -> Spills:
        """Return the gathered spans of all partitions."""
        names = [name_spill(id, self.settings.shares) for id, _ in self.settings.sources]
        return Spills([functools.partial(self._folder.store.open, name) for name in names])

    def _decide_share(self, partition: Partition, deciding: _Deciding) -> None:
        """Decide the traces of one share of the gathered spans; errors without a trace are reported with the first share."""
        files = [names for _, names in self.settings.sources]
        spills = self.open_spills()
        if partition.start == 0:
            for error in spills.read_errors():
                deciding.repeat_error(error)
        for trace in spills.read_share(partition.start, partition.end):
            deciding.decide_trace(trace, files[trace.source][trace.file])

    def _read_earlier(self, task: Task) -> _EarlierResult | None:
        """Return the part of an earlier result that is carried over; None if there is none, or it is unreadable."""
        if not task.carried:
            return None
        arrow, compute = import_arrow("pyarrow"), import_arrow("pyarrow.compute")
        footer = self._folder.read_footer(task.partition.id)
        try:
            rows = self._folder.read_result(task.partition.id)
        except (OSError, arrow.ArrowException):
            # Damaged after a complete footer: everything is decided again.
            return None
        rows = rows.filter(compute.is_in(rows["case"], arrow.array(sorted(task.carried), arrow.string())))
        if footer is None or not all(
            table.can_carry(count_most_slices(len(self._case_ids), names)) for names, table in footer.sketch.tables.items()
        ):
            return None
        return _EarlierResult(footer.sketch, frozenset(task.carried), rows)

    def _carry_over(self, part: Path, partition: Partition, sketch: Sketch, earlier: _EarlierResult) -> None:
        """Rewrite a result with the rows of cases that were decided earlier, in the order of a single evaluation."""
        arrow, parquet, compute = (import_arrow(name) for name in ("pyarrow", "pyarrow.parquet", "pyarrow.compute"))
        sketch.take_cases(earlier.sketch, earlier.cases)
        # Without `partitioning=None`, pyarrow interprets output folders such as `day=1` as columns.
        rows = arrow.concat_tables([parquet.read_table(part, partitioning=None), earlier.rows])
        order = compute.index_in(rows["case"], arrow.array(self._case_ids, arrow.string()))
        files = arrow.array([piece.file.name for piece in partition.list_parts()], arrow.string())
        rows = rows.append_column("order", order).append_column("number", compute.index_in(rows["file"], files))
        rows = rows.sort_by([(name, "ascending") for name in ("number", "file", "row", "offset", "run", "order")])
        rows = rows.drop_columns(["order", "number"]).replace_schema_metadata(make_metadata(partition.id, self.settings.suite, sketch))
        parquet.write_table(rows, part, compression="zstd")


class _Deciding:
    def __init__(
        self, evaluator: Evaluator, partition: Partition, table: ResultTable, errors: ErrorTable, sketch: Sketch, only: set[int] | None
    ) -> None:
        self._stream, self._reader = evaluator.stream, evaluator.reader
        self._table, self._sketch, self._only = table, sketch, only
        self._stream.other_inputs = sketch.other_inputs
        file = partition.file
        self._file = table.file = file.name
        self._reader.begin_file(file.local_lines)
        self._row = partition.first_row
        # For later parts of a file of lines, the number of lines before is unknown; the place is the byte offset.
        self._counts_rows = partition.broken is None and (file.kind != "lines" or partition.start == 0)
        self._errors = errors
        self._id: str | None = None
        self.slicer = evaluator.make_slicer(partition, sketch)
        keys, extra = read_folder_keys(file.path), evaluator.choice.extra
        self._carried = [make_finder(name, keys, extra) for name in evaluator.settings.carry]
        self._path, self._sample = file.path, evaluator.settings.sample
        self._extra: tuple[Json, ...] | None = None

    def decide_cells(self, cells: Cells) -> None:
        """Decide these records."""
        decode, offsets, ids, extra, row = self._reader.decode_plain, cells.offsets, cells.ids, cells.extra, self._row
        results: list[CaseResult] = []
        for number, record in enumerate(cells.records):
            row += 1
            offset = None if offsets is None else offsets[number]
            self._id = None if ids is None else ids[number]
            self._extra = None if extra is None else extra[number]
            if self._sample is not None and record and self._is_left_out(self._id or f"{self._path} {row if offset is None else offset}"):
                continue
            if type(record) is not bytes:
                assert isinstance(record, EvidenceError)
                self._note_error(row, offset, record.code, record.message, cells.lost or 1)
                self._sketch.records += cells.lost or 1
            elif record and (evidence := decode(record)) is not None:
                self._decide(evidence, row, offset, 0, results)
                self._sketch.records += 1
            elif record and (offsets is None or not record.isspace()):
                self._read_record(record, row, offset, results)
                self._sketch.records += 1
        # One error represents all lost rows; the rows after them keep their own numbers.
        self._row = row + max(0, cells.lost - 1)
        self._sketch.left_out += cells.left_out

    def decide_grouped(self) -> None:
        """Decide the runs whose lines a mapping groups; the place of each is that of its first line."""
        results: list[CaseResult] = []
        self._id = self._extra = None
        for record in self._reader.complete_all(self._reader.end_lines()):
            if record.evidence is not None:
                self._decide(record.evidence, record.source.line, None, 0, results)
            elif record.error is not None:
                self._note_error(record.source.line, None, record.error.code, record.error.message)

    def decide_trace(self, trace: GatheredTrace, file: str) -> None:
        """Decide a trace whose spans were gathered; its place is that of the first of them."""
        self._file = self._table.file = file
        self._id, self._extra = trace.trace, trace.extra
        if self._is_left_out(trace.trace):
            return
        self._sketch.records += 1
        results: list[CaseResult] = []
        try:
            if trace.size > MAX_TRACE_BYTES:
                raise EvidenceError(f"the trace {trace.trace!r} is larger than {MAX_TRACE_BYTES // 2**20} MB", code="too_large")
            self._sketch.incomplete += trace.lost is not None
            for evidence in trace.read_evidence(self._stream.prepared.parts):
                self._decide(evidence, trace.row, trace.offset, trace.run, results)
        except EvidenceError as error:
            self._note_error(trace.row, trace.offset, error.code, error.message)

    def _is_left_out(self, place: str) -> bool:
        """Return whether a record is not in the sample, and count it."""
        left_out = self._sample is not None and digest_trace(place) >= self._sample * 2**64
        self._sketch.left_out += left_out
        return left_out

    def repeat_error(self, error: GatheredError) -> None:
        """Record an error that occurred while spans were gathered."""
        self._file = error.file
        self._note_error(error.row, error.offset, error.code, error.reason, error.rows)

    def _read_record(self, data: bytes, row: int, offset: int | None, results: list[CaseResult]) -> None:
        """Decide every run of a record that is not plain evidence in our own format."""
        if data.isspace():
            # A blank line is not a record; an empty row of a table is.
            self._note_error(row, offset, EMPTY_CELL.code, EMPTY_CELL.message)
            return
        is_empty = not self._reader.groups_lines
        for run, record in enumerate(self._reader.complete_all(self._reader.read_record(data, Source(self._file, row)))):
            is_empty = False
            if record.evidence is not None:
                self._decide(record.evidence, row, offset, run, results)
            elif record.error is not None:
                self._note_error(row, offset, record.error.code, record.error.message)
        if is_empty:
            self._note_error(row, offset, "empty_record", "it holds no run of an agent: a list, or a page, without entries")

    def _decide(self, evidence: Evidence, row: int | None, offset: int | None, run: int, results: list[CaseResult]) -> None:
        self._sketch.traces += 1
        carried = [find(evidence, self._extra) for find in self._carried]
        known = self._stream.unmet.records_without_case if self._only is not None else 0
        self._stream.decide_evidence(evidence, Source(self._file, row), results, self._only)
        self.slicer.add(evidence, results, self._extra)
        shown_row = row if self._counts_rows else None
        for result in results:
            if result.case.id:
                self._table.add(result, evidence, shown_row, offset, run, self._id, carried)
            else:
                # The wording of `proctor check`, without the place, which has its own columns.
                self._note_error(row, offset, result.code or "", (result.reason or "").removeprefix(f"{self._file}:{row}: "))
        # If only some cases are decided, a trace without results may answer another case; the count decides.
        if not results and (self._only is None or self._stream.unmet.records_without_case > known):
            self._note_error(row, offset, "unmatched_evidence", f"it names the case {evidence.case!r}, which is not in the suite")
        results.clear()

    def _note_error(self, row: int | None, offset: int | None, code: str, reason: str, rows: int = 1) -> None:
        shown_row = row if self._counts_rows else None
        # A reason may quote half a surrogate pair of the record, and Arrow accepts only UTF-8.
        reason = reason.encode("utf-8", "replace").decode()
        self._errors.add({"file": self._file, "row": shown_row, "offset": offset, "rows": rows, "code": code, "reason": reason})
        self._sketch.count_fault(code, reason, TracePlace(file=self._file, row=shown_row, offset=offset), rows)
