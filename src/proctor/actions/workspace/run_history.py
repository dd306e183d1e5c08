"""Lists and opens stored runs, and reads them as results."""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from proctor.actions.workspace.custom_checks import WORKSPACE_FILES, find_lenient_registry
from proctor.actions.workspace.suites import add_workspace, load_suite
from proctor.checks.registry import Registry
from proctor.errors import InputError, ProctorError
from proctor.evidence.unknowns.account import find_known
from proctor.formats.native.rows import HELD
from proctor.formats.native.text import write_case_lines, write_native, write_native_head
from proctor.formats.suites import read_suite
from proctor.model.case import Case, Suite
from proctor.model.lazy_cases import LazySequence, find_scratch, find_traits, is_lazy, pick_cases
from proctor.model.result import CaseResult, CaseVerdict, Ending, Incomplete, MissingAttempts, RunResult, Unmet
from proctor.model.run import RunEntry, RunHeader
from proctor.model.scratch import NameTable
from proctor.model.verdict import Outcome
from proctor.scoring.metrics import Tally
from proctor.scoring.score import score_axes
from proctor.scoring.statistics import count_planned_attempts, decide_outcome, find_incomplete
from proctor.sources.pyproject import has_workspace_table
from proctor.sources.tables.open import DataFiles
from proctor.store.files.run_files import CASES, EntryFile, RunFiles, RunFolder, left_nothing
from proctor.store.files.run_references import Baselines


class StoredSuite(msgspec.Struct, frozen=True):
    """A suite in stored form: its text, the lines of its cases if these are in a separate file, and the digest of both."""

    text: str
    digest: str
    lines: IO[bytes] | None = None

    def iterate_lines(self) -> Iterator[bytes]:
        """Yield the lines of the cases from the beginning."""
        if self.lines is not None:
            self.lines.seek(0)
            yield from self.lines

    def close(self) -> None:
        """Close the file of the lines."""
        if self.lines is not None:
            self.lines.close()


def write_stored_suite(suite: Suite, *, apart: bool | None = None) -> StoredSuite:
    """Write a suite in stored form; `apart` writes its cases as separate lines, by default if they are many."""
    if not (is_lazy(suite.cases) or len(suite.cases) > HELD if apart is None else apart):
        text = write_native(suite)
        return StoredSuite(text, hashlib.sha256(text.encode()).hexdigest())
    text = write_native_head(suite, {"from": CASES})
    digest = hashlib.sha256(text.encode())
    lines = tempfile.TemporaryFile(prefix="proctor-cases-")  # noqa: SIM115 - closed by the caller
    for line in write_case_lines(suite):
        digest.update(line)
        lines.write(line)
    return StoredSuite(text, digest.hexdigest(), lines)


def read_stored_suite(run: RunFolder, registry: Registry | None = None) -> Suite:
    """Return the suite that is stored with a run; `registry` knows the checks that it may name."""
    return read_suite(run.suite_text(), name=run.header.suite_name, registry=registry, source=DataFiles(run.folder))


def is_as_stored(suite: Suite, run: RunFolder) -> bool:
    """Return whether a suite is equal to the one that is stored with a run."""
    if not (run.folder / CASES).exists():
        return len(suite.cases) <= HELD and write_native(suite) == run.suite_text()
    stored = write_stored_suite(suite, apart=True)
    stored.close()
    return stored.digest == run.header.suite_hash


# The results of a run with very many attempts: stores file offsets and loads each result on demand.

_NOT_THERE = 0
"""No entry: an offset is stored as the first byte of the entry plus one."""


class StoredResults(Mapping[tuple[str, int], RunEntry]):
    """The results of a stored run, in the order of its suite; a mapping of case and attempt to the entry, which is loaded on demand."""

    def __init__(self, header: RunHeader, suite: Suite, entries: EntryFile, make: Callable[[Case, RunEntry], CaseResult]) -> None:
        """`make` returns the result of one entry."""
        self._suite, self._entries, self._make = suite, entries, make
        self._scratch = find_scratch(suite.cases)
        self._positions = NameTable(self._scratch)
        self._first = self._scratch.make_numbers("Q", 1)
        """For each case the number of its first planned attempt; the last value is their total."""
        self._count = 0
        for position, case in enumerate(suite.cases):
            self._positions.add(case.id, position)
            self._count += count_planned_attempts(case, header.repeat)
            self._first.append(self._count)
        self._planned = self._scratch.make_numbers("Q", self._count)
        """The offset of the entry of each planned attempt."""
        self._beyond: dict[tuple[int, str, int], int] = {}
        """Offsets of unplanned entries, by the position of the case, its id and the attempt."""
        self._answered = bytearray(len(suite.cases))
        self._unknown = 0
        for start, head in entries.iterate_heads():
            position = self._find(head.case)
            if position is None:
                self._unknown += 1
                self._beyond[len(self._answered), head.case, head.attempt] = start + 1
                continue
            self._answered[position] |= not left_nothing(head)
            place = self._first[position] + head.attempt
            # A negative number in a forged log would refer to an attempt of another case.
            if head.attempt >= 0 and place < self._first[position + 1]:
                self._planned[place] = start + 1
            else:
                self._beyond[position, head.case, head.attempt] = start + 1
        order = self._scratch.make_numbers("Q")
        # The planned places are already in order, so nothing is loaded and sorted.
        starts: Iterable[int] = (start for start in self._planned if start != _NOT_THERE)
        if self._beyond:
            extra = [(position, attempt, start) for (position, _, attempt), start in self._beyond.items()]
            for position in range(len(self._answered)):
                first, end = self._first[position], self._first[position + 1]
                extra += [(position, place - first, start) for place in range(first, end) if (start := self._planned[place]) != _NOT_THERE]
            starts = (start for _, _, start in sorted(extra))
        for start in starts:
            order.append(start)
        self.results = LazySequence(len(order), lambda number: self._read(order[number]), remember=16, traits=find_traits(suite.cases))

    def _read(self, place: int) -> CaseResult:
        entry = self._entries.read(place - 1)
        position = self._find(entry.case)
        return self._make(Case(id=entry.case) if position is None else self._suite.cases[position], entry)

    def _find(self, case_id: str) -> int | None:
        # The table has only hashes, so the name is compared.
        return next((position for position in self._positions.find(case_id) if self._suite.cases[position].id == case_id), None)

    def find_incomplete(self, ended: Ending) -> Incomplete | None:
        """Return the missing planned attempts, or None if all exist."""
        done = self._scratch.make_numbers("I", len(self._answered))
        lacking = self._scratch.make_numbers("I")
        finished = 0
        for position in range(len(self._answered)):
            first, end = self._first[position], self._first[position + 1]
            done[position] = count = sum(self._planned[place] != _NOT_THERE for place in range(first, end))
            finished += count
            if count < end - first:
                lacking.append(position)
        if not lacking:
            return None

        def make(number: int) -> MissingAttempts:
            position = lacking[number]
            planned = self._first[position + 1] - self._first[position]
            return MissingAttempts(case=self._suite.cases[position], planned=planned, finished=done[position])

        return Incomplete(
            ended=ended,
            attempts_finished=finished,
            attempts_planned=self._count,
            cases_finished=len(done) - len(lacking),
            cases_planned=len(done),
            missing=LazySequence(len(lacking), make),
        )

    def find_unmet(self) -> Unmet:
        """Return the cases without a decidable attempt, and the attempts of cases that are not in the suite."""
        silent = (self._suite.cases[position] for position, answered in enumerate(self._answered) if not answered)
        return Unmet(cases_without_evidence=sum(case.skip is None for case in silent), records_without_case=self._unknown)

    def __getitem__(self, key: tuple[str, int]) -> RunEntry:
        case_id, attempt = key
        position, start = self._find(case_id), _NOT_THERE
        if position is not None and attempt >= 0 and self._first[position] + attempt < self._first[position + 1]:
            start = self._planned[self._first[position] + attempt]
        if start == _NOT_THERE:
            start = self._beyond.get((len(self._answered) if position is None else position, case_id, attempt), _NOT_THERE)
        if start == _NOT_THERE:
            raise KeyError(key)
        return self._entries.read(start - 1)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((result.case.id, result.attempt) for result in self.results)

    def __len__(self) -> int:
        return len(self.results)


RESULTS_FOLDER = ".proctor"
DATABASE_FILE = "proctor.db"
MOST_HELD = 5_000
"""Attempts of a run that are held in memory."""
TARGET = "target"
"""The reader of the evidence of a run, unless the target names a more precise one."""

Entries = Mapping[tuple[str, int], RunEntry]
"""The entry of each attempt, by case and attempt."""
Count = Callable[[RunFolder], tuple[dict[str, int], str | None]]
"""How many attempts of a run ended in each outcome, and the unreadable part of its log."""


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """One stored run in a line."""

    run_id: str
    header: RunHeader | None
    """None if it cannot be read."""
    ended: str | None
    counts: dict[str, int]
    finished: int = 0
    planned: int | None = None
    """Planned attempts; None if the suite of the run cannot be read."""
    problem: str | None = None
    """Why the run cannot be read completely."""
    is_baseline: bool = False
    """Whether later runs of its suite are compared with it."""


def find_home(home: str | None, start: Path | None = None) -> Path:
    """Return where runs are stored: `.proctor` in the given folder, else next to the nearest workspace file, else here.

    A given folder that is called `.proctor`, or has runs but no `.proctor`, is used directly.
    """
    if home is not None:
        given_folder = Path(home)
        inner = given_folder / RESULTS_FOLDER
        is_results = given_folder.absolute().name == RESULTS_FOLDER or (not inner.is_dir() and RunFiles(given_folder).list_ids())
        return given_folder if is_results else inner
    current = (start or Path.cwd()).resolve()
    for folder in (current, *current.parents):
        if is_workspace_folder(folder):
            return folder / RESULTS_FOLDER
    return current / RESULTS_FOLDER


def find_database_home(home: str | None) -> Path:
    """Return the folder of the database: the given one, or its `.proctor` if only that has one; else as `find_home`."""
    home_folder = find_home(home)
    if home is None:
        return home_folder
    return home_folder if (home_folder / DATABASE_FILE).is_file() and not (Path(home) / DATABASE_FILE).is_file() else Path(home)


def get_workspace_folder(home: Path) -> Path:
    """Return the folder whose workspace file applies to the runs in `home`."""
    return home.parent if home.absolute().name == RESULTS_FOLDER else home


def is_workspace_folder(folder: Path) -> bool:
    """Whether a folder has a workspace file: `proctor.yaml`, or a `pyproject.toml` with the table `[tool.proctor]`."""
    return any((folder / name).is_file() for name in WORKSPACE_FILES) or has_workspace_table(folder)


def list_runs(home: Path, meant: str | None = None) -> Iterable[StoredRun]:
    """Return every stored run, newest first, or those of a reference; a broken run has its readable parts and the reason."""
    files = RunFiles(home)
    baselines = set(Baselines(home).read().values())
    for run_id in files.list_ids() if meant is None else files.list_meant(meant):
        yield describe_stored_run(files, run_id, is_baseline=run_id in baselines)


def describe_stored_run(files: RunFiles, run_id: str, *, is_baseline: bool, count: Count | None = None) -> StoredRun:
    """Return a run in a line; `count` has the counts of its log, if they are known already."""
    header, ending, problem, planned = None, None, None, None
    counts: dict[str, int] = {}
    try:
        run = files.open(run_id)
        header, ending = run.header, run.find_ending()
        planned = header.planned
        # Reading the suite is slow, and only needed for an incomplete run.
        if planned is None and ending != "completed":
            suite = read_stored_suite(run, find_lenient_registry())
            planned = sum(count_planned_attempts(case, header.repeat) for case in suite.cases)
        if count is not None:
            counts, problem = count(run)
        else:
            for entry in run.entries():
                counts[entry.outcome] = counts.get(entry.outcome, 0) + 1
    except ProctorError as error:
        # A broken run must not prevent the others from being listed.
        problem = str(error)
    finished = sum(counts.values())
    return StoredRun(
        run_id=run_id,
        header=header,
        ended=ending,
        counts=counts,
        finished=finished,
        planned=planned,
        problem=problem,
        is_baseline=is_baseline,
    )


def suite_of(run: RunFolder) -> Suite:
    """Return the suite a run was started with, with line numbers if its file is unchanged."""
    stored = add_workspace(read_stored_suite(run, find_lenient_registry()))
    return find_unchanged_suite(run, stored) or msgspec.structs.replace(stored, dialect=run.header.dialect, path=run.header.suite_path)


def find_unchanged_suite(run: RunFolder, stored: Suite) -> Suite | None:
    """Return the suite in the file that a run was started with, or None if that file has changed."""
    path = run.header.suite_path
    if path is None or not _is_plain(Path(path), run):
        return None
    try:
        current = load_suite(path)
    except InputError:
        return None  # the file is no longer readable; the stored copy is used
    if len(current.cases) != len(stored.cases):
        # The run may have been started with only some of the cases (`-k`).
        stored_ids = {case.id for case in stored.cases}
        current = msgspec.structs.replace(current, cases=pick_cases(current.cases, lambda case: case.id in stored_ids)[0])
    return current if is_as_stored(current, run) else None


def _is_plain(path: Path, run: RunFolder) -> bool:
    """Return whether a suite can be read there without blocking: a forged header may name any place."""
    if path.is_dir():
        # Every file below is read, which takes long for a folder such as the root of the disk.
        near = (find_home(None).parent.resolve(), *run.folder.resolve().parents[2:3])
        return any(path.resolve().is_relative_to(folder) for folder in near)
    # Pipes and devices are not files; kernel files are, but report size 0.
    return path.is_file() and path.stat().st_size > 0


def open_run(home: Path, run: str) -> tuple[RunResult, Entries]:
    """Return a stored run as a result, and the entry of each attempt."""
    folder = RunFiles(home).open(run)
    return read_result(folder, suite_of(folder), folder.find_ending())


def read_result(folder: RunFolder, suite: Suite, ended: Ending, *, held: int = MOST_HELD) -> tuple[RunResult, Entries]:
    """Return the result of a run from its folder, and the entry of each attempt; more than `held` attempts are loaded on demand."""
    if is_lazy(suite.cases) or (folder.header.planned or 0) > held:
        stored = StoredResults(folder.header, suite, folder.open_entries(), case_result)
        result = make_run_result(folder.header, suite, stored.results, stored.find_unmet(), stored.find_incomplete(ended))
        return result, stored
    # If an attempt has two entries, the last counts, as in `StoredResults`.
    entries = {(entry.case, entry.attempt): entry for entry in folder.entries()}
    return result_of(folder.header, suite, entries.values(), ended), entries


def result_of(header: RunHeader, suite: Suite, entries: Iterable[RunEntry], ended: Ending) -> RunResult:
    """Return the result of a whole run from its entries; a run without all planned attempts is incomplete and does not pass."""
    entries = list(entries)
    cases = {case.id: case for case in suite.cases}
    order = {case.id: number for number, case in enumerate(suite.cases)}
    results = [case_result(cases.get(entry.case) or Case(id=entry.case), entry) for entry in entries]
    results.sort(key=lambda result: (order.get(result.case.id, len(order)), result.attempt))
    incomplete = find_incomplete(suite.cases, header.repeat, ((entry.case, entry.attempt) for entry in entries), ended)
    return make_run_result(header, suite, tuple(results), unmet_of(suite, entries), incomplete)


def make_run_result(
    header: RunHeader, suite: Suite, results: Sequence[CaseResult], unmet: Unmet, incomplete: Incomplete | None
) -> RunResult:
    """Return the result of a run from the results of its attempts, in order."""
    tally = Tally(find_scratch(suite.cases))
    tally.add_all(results)
    return RunResult(
        suite_name=suite.name,
        suite_path=suite.path,
        dialect=suite.dialect,
        run_id=header.run_id,
        title=header.title,
        started_at=header.started_at,
        outcome=decide_outcome(tally.decide_outcome(), incomplete),
        score=tally.score,
        counts=tally.counts,
        cost=tally.cost,
        cases=results,
        summary=tally.list_summaries(),
        unmet=unmet,
        incomplete=incomplete,
        warnings=suite.warnings,
    )


def unmet_of(suite: Suite, entries: Sequence[RunEntry]) -> Unmet:
    """Return the cases of a stored run without a decidable attempt, and the attempts of cases that are not in the suite."""
    known = {case.id for case in suite.cases}
    answered = {entry.case for entry in entries if not left_nothing(entry)}
    return Unmet(
        cases_without_evidence=sum(case.skip is None and case.id not in answered for case in suite.cases),
        records_without_case=sum(entry.case not in known for entry in entries),
    )


def select_results(run: RunResult, chooses: Callable[[Case], bool]) -> RunResult:
    """Return the run with only the results of the chosen cases, and new counts."""
    results = tuple(result for result in run.cases if chooses(result.case))
    incomplete = _select_missing(run.incomplete, results, chooses)
    tally = Tally()
    tally.add_all(results)
    return msgspec.structs.replace(
        run,
        cases=results,
        outcome=decide_outcome(tally.decide_outcome(), incomplete),
        score=tally.score,
        counts=tally.counts,
        cost=tally.cost,
        summary=tally.list_summaries(),
        incomplete=incomplete,
    )


def _select_missing(run: Incomplete | None, results: Sequence[CaseResult], chooses: Callable[[Case], bool]) -> Incomplete | None:
    missing = () if run is None else tuple(each for each in run.missing if chooses(each.case))
    if run is None or not missing:
        return None
    lacking = {each.case.id for each in missing}
    complete_ids = {result.case.id for result in results} - lacking
    return Incomplete(
        ended=run.ended,
        attempts_finished=len(results),
        attempts_planned=len(results) + sum(each.planned - each.finished for each in missing),
        cases_finished=len(complete_ids),
        cases_planned=len(complete_ids) + len(lacking),
        missing=missing,
    )


def case_result(case: Case, entry: RunEntry) -> CaseResult:
    """One stored attempt as a result."""
    outcome: Outcome = entry.outcome  # type: ignore[assignment]  # stored as text, written from an outcome
    verdict: CaseVerdict | None = entry.verdict  # type: ignore[assignment]  # as above
    axes = None
    # The run may be compared with another suite: verdicts match assertions only if their numbers are equal.
    if case.scoring.mode == "weighted" and len(case.assertions) == len(entry.verdicts):
        pairs = zip(case.assertions, entry.verdicts, strict=True)
        axes = score_axes((a, v) for a, v in pairs if not a.advisory and v.outcome != "skip")
    return CaseResult(
        case,
        outcome,
        entry.score,
        entry.verdicts,
        None,
        verdict,
        axes,
        entry.attempt,
        entry.extracted,
        entry.code,
        entry.reason,
        entry.now,
        None if entry.evidence is None else find_known(entry.evidence, TARGET),
        entry.cost,
        simulated_user=None if entry.evidence is None else entry.evidence.simulated_user,
    )
