"""The data source of `proctor view`: stored runs of a folder.

The folder is the only project. The log of a run is read once (`store/files/log_index.py`), then only what was appended. An attempt is
identified by its line number in the log, which only grows.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import msgspec

from proctor.actions.checking.mutate import mutate, read_run
from proctor.actions.doctor.snapshots import EXAMINATION, SERVERS, describe_changes, read_examination, read_snapshot
from proctor.actions.history.answers import Answer, AttemptOutcome, ReadAttempt, choose_attempt, compare_answers
from proctor.actions.history.compare import RunComparison, compare_tallies, how_much
from proctor.actions.history.compare_several import MOST_RUNS, SeveralRuns, join_comparisons
from proctor.actions.history.failures import MOST_LOOKED_AT, Failures, group_failures
from proctor.actions.history.overview import (
    MOST_TREND,
    Latency,
    Overview,
    SuiteChange,
    TraceCounts,
    TrendPoint,
    describe_latency,
    make_suite_change,
    make_trend_point,
)
from proctor.actions.workspace.run_history import StoredRun, case_result, describe_stored_run, open_run, suite_of
from proctor.actions.workspace.run_tally import RunTally, RunTotals
from proctor.errors import ProctorError
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json
from proctor.model.json_values import read_digits
from proctor.model.lazy_cases import find_scratch, is_lazy
from proctor.model.mutation import MutationResult
from proctor.model.run import RunEntry
from proctor.model.scratch import NameTable
from proctor.model.stamps import stamp_moment
from proctor.model.verdict import Outcome
from proctor.pages.places import EVERY_RUN, FIRST, Place, Record
from proctor.service.access.projects import Project
from proctor.service.decisions.record_verdicts import MUTATION_S
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import Page, show_row
from proctor.service.runs.examinations import Findings, show_findings
from proctor.service.runs.figures import MOST_ATTEMPTS
from proctor.service.runs.results import EVERY_ATTEMPT, FailingPlace, ReadResult
from proctor.service.runs.run import (
    LOCAL_PROJECT,
    AttemptFilter,
    RunResultSummary,
    RunResultSummaryPage,
    RunSearch,
    ShownRun,
    find_previous,
    find_stored_status,
    pair_newest,
    show_attempt,
    show_stored_run,
)
from proctor.service.traces.case_history import CaseInRun, describe_counts
from proctor.store.files.log_index import LogCounts, LogIndex, LogIndexes
from proctor.store.files.run_files import CASES, RESULTS, SUITE, RunFiles, RunFolder, open_regular
from proctor.store.files.run_references import Baselines
from proctor.store.runs.entry_previews import fold_text, make_search_text

T = TypeVar("T")

# --- suites, cached because reading a thousand cases takes most of a second

_MOST = 8
"""Cached suites."""
_LARGEST = 4_000_000
"""Bytes of a cached suite, unless its cases are in a separate file."""
_FRESH_S = 60.0
"""How long a suite is cached without looking at files it refers to."""


class ReadSuite:
    """A suite with its cases by id."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self._positions = NameTable(find_scratch(suite.cases))
        for position, case in enumerate(suite.cases):
            self._positions.add(case.id, position)

    def find_case(self, id: str) -> Case | None:
        """Return the first case with this id."""
        # The table yields the newest position first, and positions of names with the same hash.
        found = [position for position in self._positions.find(id) if self.suite.cases[position].id == id]
        return self.suite.cases[found[-1]] if found else None

    def find_cases(self, ids: Iterable[str]) -> dict[str, Case]:
        """Return the cases of the suite among these ids."""
        found = {id: self.find_case(id) for id in dict.fromkeys(ids)}
        return {id: case for id, case in found.items() if case is not None}


class FolderSuites:
    """A cache of suites."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Path, tuple[object, float, ReadSuite]] = OrderedDict()

    def read(self, run: RunFolder) -> ReadSuite:
        """Return the suite of a run. Raises `ProctorError`."""
        files = _stat_files(run)
        with self._lock:
            known = self._known.get(run.folder)
            if known is not None and known[0] == files and time.monotonic() - known[1] < _FRESH_S:
                self._known.move_to_end(run.folder)
                return known[2]
        # Read outside the lock: two requests may read the same suite; the later one is cached.
        read = ReadSuite(suite_of(run))
        if is_lazy(read.suite.cases) or (files[0] or (0, 0))[0] <= _LARGEST:
            with self._lock:
                self._known[run.folder] = (files, time.monotonic(), read)
                while len(self._known) > _MOST:
                    self._known.popitem(last=False)
        return read


def _stat_files(run: RunFolder) -> tuple[tuple[int, int] | None, ...]:
    """Return size and time of the files of the suite."""
    path = run.header.suite_path
    return (_stat_file(run.folder / SUITE), _stat_file(run.folder / CASES), None if path is None else _stat_file(Path(path)))


def _stat_file(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns


# --- comparisons

_MOST_REMEMBERED = 20_000
"""Cases of a cached comparison."""


class IndexedRun(NamedTuple):
    """A run with its log index and suite."""

    run: RunFolder
    log: LogIndex
    suite: ReadSuite


def check_runs(ids: Sequence[str]) -> None:
    """Reject fewer than two runs, too many, and duplicates."""
    if not 2 <= len(ids) <= MOST_RUNS or len(set(ids)) < len(ids):
        problem = [f"expected 2 to {MOST_RUNS} different runs, got {len(ids)}"]
        raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": problem})


def compare_folders(runs: Sequence[IndexedRun]) -> SeveralRuns:
    """Return stored runs compared with the first."""
    return join_comparisons([_compare_remembered(runs[0], run) for run in runs[1:]])


def _compare_remembered(base: IndexedRun, candidate: IndexedRun) -> RunComparison:
    """Return a cached comparison, unless one of the runs changed."""
    endings = (base.run.find_ending(), candidate.run.find_ending())
    key = ("comparison", base.run.folder, base.log.stamp, base.run.header, candidate.run.header, endings)
    return candidate.log.remember(
        repr(key), lambda: _compare(base, candidate), is_small=lambda found: len(found.comparison.changes) <= _MOST_REMEMBERED
    )


def _compare(base: IndexedRun, candidate: IndexedRun) -> RunComparison:
    before, after = RunTally.of(base.log.iterate_digests()), RunTally.of(candidate.log.iterate_digests())
    first, second = base.run.header, candidate.run.header
    found = compare_tallies((first, before), (second, after), candidate.suite.suite)
    changes = describe_changes(*(read_snapshot(run.run.folder, SERVERS) for run in (base, candidate)))
    return msgspec.structs.replace(
        found,
        server_changes=changes,
        base_incomplete=how_much(first, base.suite.suite, before, base.run.find_ending()),
        candidate_incomplete=how_much(second, candidate.suite.suite, after, candidate.run.find_ending()),
    )


def read_folder_answers(runs: Sequence[IndexedRun], case: str, attempt: int | None) -> tuple[Answer, ...]:
    """Return the answers to a case in these runs."""
    attempts: list[ReadAttempt] = []
    for number, (run, log, suite) in enumerate(runs):
        found = [(str(at), log.read_digest(at)) for at in log.find_numbers(case=case)]
        listed = tuple(AttemptOutcome(id=id, attempt=digest.attempt, outcome=digest.outcome) for id, digest in found if digest.case == case)
        chosen = choose_attempt(listed, is_base=number == 0, attempt=attempt)
        entry = None if chosen is None else log.read(int(chosen.id))
        attempts.append(ReadAttempt(run_id=run.header.run_id, attempts=listed, chosen=chosen, entry=entry, case=suite.find_case(case)))
    return compare_answers(attempts)


# --- runs

_MOST_BEFORE = 100
"""Number of runs searched for the previous one."""
_THRESHOLD = b"pass_rate"
"""Occurs in a stored suite if a case may pass although an attempt failed."""
_MOST_SEARCHED_BYTES = 16 * 1024 * 1024
"""Bytes of a stored suite that are searched for it."""


class FolderRuns:
    """The runs of one folder."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._files = RunFiles(home)
        self._logs = LogIndexes()
        self._suites = FolderSuites()

    def open(self, id: str) -> RunFolder:
        """Return a run by its full id. Raises `Refusal`: an address may name any path."""
        if id not in self._files.list_ids():
            raise not_found("run", id)
        return self._files.open(id)

    def open_log(self, id: str) -> LogIndex:
        """Return the log index of a run. Raises `Refusal` and `StoreError`."""
        return self._logs.open(self.open(id).folder / RESULTS)

    def open_indexed(self, id: str) -> IndexedRun:
        """Return a run with log index and suite. Raises `Refusal` and `ProctorError`."""
        run = self.open(id)
        return IndexedRun(run, self._logs.open(run.folder / RESULTS), self._suites.read(run))

    def warm_up(self, id: str | None) -> None:
        """Read log and suite of a run, default the newest. Raises `Refusal` and `ProctorError`."""
        ids = self._files.list_ids() if id is None else [id]
        if ids:
            self.open_indexed(ids[0])

    def show(self, id: str) -> ShownRun:
        """Return one run. Raises `Refusal`."""
        self.open(id)
        return self._show(id, self._read_baselines())

    def list_page(self, wanted: RunSearch, at: int, limit: int) -> tuple[list[ShownRun], bool]:
        """Return runs from a position on, newest first, and whether there are more."""
        baselines = self._read_baselines()
        found: list[ShownRun] = []
        passed = 0
        # Without a filter, only the runs shown are read.
        if wanted == RunSearch():
            ids = self._files.list_ids()
            return [self._show(id, baselines) for id in ids[at : at + limit]], len(ids) > at + limit
        for id in self._files.list_ids():
            run = self._show(id, baselines)
            if not _is_wanted(run, wanted):
                continue
            passed += 1
            if passed > at + limit:
                return found, True
            if passed > at:
                found.append(run)
        return found, False

    def find_previous(self, runs: Sequence[ShownRun]) -> dict[str, ShownRun]:
        """Return the previous completed run of the same kind for each, reading only the headers of the others."""
        earlier = [_describe_header(folder) for folder in self._iterate_completed()]
        baselines = self._read_baselines()
        found = ((run["id"], find_previous(run, earlier)) for run in runs)
        return {id: self._show(before["id"], baselines) for id, before in found if before is not None}

    def _iterate_completed(self) -> Iterator[RunFolder]:
        remaining = _MOST_BEFORE
        for id in self._files.list_ids():
            try:
                folder = self._files.open(id)
            except ProctorError:
                continue  # `list_page` shows the error
            if folder.read_end() == "completed":
                yield folder
                remaining -= 1
            if not remaining:
                return

    def _read_baselines(self) -> set[str]:
        return set(Baselines(self._home).read().values())

    def _count(self, run: RunFolder) -> tuple[dict[str, int], str | None]:
        counts = self._logs.count(run.folder / RESULTS)
        return counts.outcomes, counts.problem

    def _show(self, id: str, baselines: set[str]) -> ShownRun:
        stored = describe_stored_run(self._files, id, is_baseline=id in baselines, count=self._count)
        outcome = None
        if find_stored_status(stored) == "completed":
            folder = self._files.folder / id
            outcome = _decide_outcome(self._home, folder, stored, self._logs.count(folder / RESULTS))
        return show_stored_run(stored, outcome)


def _describe_header(folder: RunFolder) -> ShownRun:
    header = folder.header
    stored = StoredRun(run_id=folder.folder.name, header=header, ended="completed", finished=0, planned=None, counts={}, problem=None)
    return show_stored_run(stored, None)


def _decide_outcome(home: Path, folder: Path, stored: StoredRun, counts: LogCounts) -> Outcome:
    """Return the outcome as `proctor show` does, without reading the suite if the counts are enough."""
    outcomes = counts.outcomes
    if outcomes.get("fail", 0) or outcomes.get("error", 0):
        if not any(_may_set_threshold(folder / name) for name in (SUITE, CASES)):
            return "fail" if outcomes.get("fail", 0) else "error"
    elif outcomes.get("pass", 0) == counts.different == stored.planned:
        return "pass"
    results = folder / RESULTS
    return _find_outcome(home, stored.run_id, results.stat().st_size if results.exists() else 0)


def _may_set_threshold(path: Path) -> bool:
    try:
        with open(path, "rb", opener=open_regular) as file:
            text = file.read(_MOST_SEARCHED_BYTES + 1)
    except FileNotFoundError:
        return False
    # An unreadable file may contain it.
    except OSError:
        return True
    return len(text) > _MOST_SEARCHED_BYTES or _THRESHOLD in text


@functools.lru_cache(maxsize=512)
def _find_outcome(home: Path, run_id: str, size: int) -> Outcome:
    """Return the outcome from all results; `size` of the results is part of the cache key."""
    return open_run(home, run_id)[0].outcome


def _is_wanted(run: ShownRun, wanted: RunSearch) -> bool:
    """Return whether a run matches a filter."""
    if wanted.status not in (None, run["status"]) or wanted.name not in (None, run["name"]):
        return False
    if wanted.suite not in (None, run["suite_name"]) or (wanted.tag is not None and wanted.tag not in run["tags"]):
        return False
    low = (wanted.query or "").lower()
    return any(low in text.lower() for text in (run["name"], run["suite_name"], run["note"]))


def read_place(cursor: str | None) -> int:
    """Return the first row of a page from its cursor."""
    return read_digits(cursor, 9) or 0


def make_page(rows: Sequence[T], at: int, limit: int, *, more: bool) -> Page[T]:
    """Return a page of a list."""
    before = None if at == 0 else str(max(0, at - limit))
    return {"data": list(rows), "_meta": {"next": str(at + limit) if more else None, "prev": before, "limit": limit}}


# --- overview

_MOST_SUITES = 5


def make_trend(runs: Sequence[ShownRun]) -> tuple[TrendPoint, ...]:
    """Return the latest completed runs, oldest first; `runs` are newest first."""
    completed = [run for run in runs if run["status"] == "completed"]
    return tuple(make_trend_point(run, cast(Mapping[str, int], run["counts"])) for run in reversed(completed[:MOST_TREND]))


def make_folder_overview(project_id: str, runs: Sequence[ShownRun], since: str | None, open_run: Callable[[str], IndexedRun]) -> Overview:
    """Return the overview of the folder; `runs` are newest first."""
    moment = _read_moment(since)
    new = [run for run in runs if _is_since(run, moment)]
    counted: dict[str, int] = {}
    for run in new:
        counted[run["status"]] = counted.get(run["status"], 0) + 1
    return Overview(
        project_id=project_id,
        since=stamp_moment(moment.astimezone(UTC)),
        trend=make_trend(runs),
        alerts=None,
        new_runs=counted,
        more_runs=False,
        suites=_find_changes(new, runs, open_run),
        reasons=(),
        more_reasons=0,
    )


def _read_moment(since: str | None) -> datetime:
    if since is None:
        return datetime.now(UTC) - timedelta(days=1)
    try:
        moment = datetime.fromisoformat(since)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Refusal("VALIDATION_ERROR", "the time cannot be read", fields={"since": ["expected a time such as 2031-01-31"]}) from None


def _is_since(run: ShownRun, moment: datetime) -> bool:
    try:
        at = datetime.fromisoformat(run["created_at"])
    except ValueError:
        return False
    return (at if at.tzinfo else at.replace(tzinfo=UTC)) >= moment


def _find_changes(new: Sequence[ShownRun], runs: Sequence[ShownRun], open_run: Callable[[str], IndexedRun]) -> tuple[SuiteChange, ...]:
    previous = {run["id"]: before for run in new if (before := find_previous(run, runs)) is not None}
    changes: list[SuiteChange] = []
    for run, before in pair_newest(new, previous)[:_MOST_SUITES]:
        found = None if before is None else compare_folders([open_run(before["id"]), open_run(run["id"])]).comparisons[0].found
        changes.append(make_suite_change(cast(Mapping[str, Json], run), cast(Mapping[str, Json], before), found))
    return tuple(changes)


_MOST_RUNS = 1_000
"""Newest runs that an overview covers."""
_LARGE = 1_000_000
"""Bytes; what a page shows of larger attempts is cached."""


class FolderSource:
    """The runs of one folder."""

    is_local = True
    may_write = False

    def __init__(self, home: Path) -> None:
        self._home = home
        self._runs = FolderRuns(home)

    def warm_up(self, run_id: str | None) -> None:
        """Read what the first page needs; errors are shown by the page."""
        with contextlib.suppress(ProctorError, OSError):
            self._runs.warm_up(run_id)

    async def list_projects(self, cursor: str | None) -> Page[Project]:
        """Return the folder as the only project."""
        return make_page([await self.get_project(LOCAL_PROJECT)], 0, 1, more=False)

    async def get_project(self, id: str) -> Project:
        """Return the folder."""
        if id != LOCAL_PROJECT:
            raise not_found("project", id)
        folder = self._home.resolve()
        return {
            "id": LOCAL_PROJECT,
            "name": folder.parent.name or str(folder),
            "description": str(folder / "runs"),
            "paused": False,
            "settings": {},
            "created_at": "",
            "updated_at": "",
        }

    async def list_firing_alerts(self, project_id: str) -> Sequence[Record]:
        """Return nothing: a folder has no alerts."""
        return []

    async def read_overview(self, project_id: str, since: str | None) -> Overview:
        """Return the overview of the folder."""
        runs = (await self.list_runs(project_id, limit=_MOST_RUNS))["data"]
        return await _read(lambda: make_folder_overview(project_id, runs, since, self._runs.open_indexed))

    async def count_traces(self, project_id: str) -> TraceCounts | None:
        """Return None: a folder has no traces."""
        return None

    async def read_trend(self, project_id: str) -> tuple[TrendPoint, ...]:
        """Return the latest completed runs."""
        return make_trend((await self.list_runs(project_id, limit=_MOST_RUNS))["data"])

    async def list_runs(
        self, project_id: str, wanted: RunSearch = EVERY_RUN, *, cursor: str | None = None, limit: int = 50
    ) -> Page[ShownRun]:
        """Return a page of the stored runs, newest first."""
        at = read_place(cursor)
        rows, more = await _read(lambda: self._runs.list_page(wanted, at, limit))
        return make_page(rows, at, limit, more=more)

    async def get_run(self, id: str) -> ShownRun:
        """Return one stored run."""
        return await _read(lambda: self._runs.show(id))

    async def find_previous_runs(self, project_id: str, runs: Sequence[ShownRun]) -> Mapping[str, ShownRun]:
        """Return the previous run of the same kind for each."""
        return await _read(lambda: self._runs.find_previous(runs))

    async def cancel_run(self, id: str) -> None:
        """Refuse: a local run is stopped where it was started."""
        raise Refusal("FORBIDDEN", "stop this run where it was started")

    async def list_results(
        self, run_id: str, wanted: AttemptFilter = EVERY_ATTEMPT, *, place: Place = FIRST, limit: int = 50
    ) -> RunResultSummaryPage:
        """Return a page of the attempts of a run, newest first."""
        at = read_place(place.cursor if place.position is None else str(place.position))

        def read() -> tuple[list[RunResultSummary], int]:
            log = self._runs.open_log(run_id)
            numbers = _find_numbers(log, wanted)
            total = len(numbers)
            page_numbers = (numbers[row] for row in range(total - 1 - at, max(-1, total - 1 - at - limit), -1))
            return [_show_entry(run_id, number, log.read_digest(number)) for number in page_numbers], total

        rows, total = await _read(read)
        page = make_page(rows, at, limit, more=at + limit < total)
        begin = place.position if place.position is not None else 0 if place.cursor is None else None
        return {"data": page["data"], "_meta": {**page["_meta"], "position": begin, "total": total}}

    async def measure_latency(self, run_id: str) -> Latency:
        """Return the durations of attempts."""

        def read() -> Latency:
            log = self._runs.open_log(run_id)

            def describe() -> Latency:
                durations = log.list_durations()
                return describe_latency(durations, len(durations))

            return log.remember("latency", describe)

        return await _read(read)

    async def read_totals(self, run_id: str) -> RunTotals:
        """Return the totals of a run."""

        def read() -> RunTotals:
            _, log, suite = self._runs.open_indexed(run_id)
            return log.remember("totals", lambda: RunTally.of(log.iterate_digests()).add_up(suite.suite))

        return await _read(read)

    async def list_totals(self, runs: Sequence[ShownRun]) -> Mapping[str, RunTotals]:
        """Return nothing: the logs of all runs would have to be read."""
        return {}

    async def group_failures(self, run_id: str) -> Failures:
        """Return the failures of a run."""

        def read() -> Failures:
            _, log, suite = self._runs.open_indexed(run_id)

            def group() -> Failures:
                numbers = sorted([*log.find_numbers(outcome="fail"), *log.find_numbers(outcome="error")], reverse=True)
                newest = [(str(number), log.read_digest(number)) for number in numbers[:MOST_LOOKED_AT]]
                cases = suite.find_cases(entry.case for _, entry in newest)
                return group_failures(newest, cases, more=len(numbers) > len(newest))

            return log.remember("failures", group)

        return await _read(read)

    async def find_failing_place(self, run_id: str, result_id: str) -> FailingPlace | None:
        """Return the place of an attempt among the failing ones."""

        def read() -> FailingPlace | None:
            log = self._runs.open_log(run_id)
            failing = sorted([*log.find_numbers(outcome="fail"), *log.find_numbers(outcome="error")], reverse=True)
            number = _read_number(log, result_id)
            if number not in failing:
                return None
            at = failing.index(number)
            previous, following = failing[at - 1 : at] if at else [], failing[at + 1 : at + 2]
            return {
                "position": at + 1,
                "total": len(failing),
                "previous": str(previous[0]) if previous else None,
                "next": str(following[0]) if following else None,
            }

        return await _read(read)

    async def list_case_history(self, project_id: str, suite: str, case: str, *, cursor: str | None, limit: int) -> Page[CaseInRun]:
        """Return the runs of a suite that had a case."""
        at = read_place(cursor)
        runs = await self.list_runs(project_id, RunSearch(suite=suite), cursor=cursor, limit=limit)

        def read() -> list[CaseInRun]:
            found: list[CaseInRun] = []
            for run in runs["data"]:
                log = self._runs.open_log(run["id"])
                counts = {outcome: len(log.find_numbers(outcome=outcome, case=case)) for outcome in ("pass", "fail", "error", "skip")}
                if any(counts.values()):
                    found.append(show_row(CaseInRun, run, run_id=run["id"], cases=[case], **describe_counts([counts])))
            return found

        return make_page(await _read(read), at, limit, more=runs["_meta"]["next"] is not None)

    async def read_result(self, run_id: str, result_id: str) -> ReadResult:
        """Return one attempt."""
        return await _read(lambda: self._read_attempt(run_id, self._runs.open_indexed(run_id), result_id))

    async def show_result(self, run_id: str, result_id: str, view: Hashable, write: Callable[[ReadResult], Record]) -> Record:
        """Return what a page shows of an attempt; cached for large ones."""

        def show() -> Record:
            run = self._runs.open_indexed(run_id)

            def make() -> Record:
                return write(self._read_attempt(run_id, run, result_id))

            # The suite is part of the key: a new version may change the document of the attempt.
            is_large = run.log.measure(_read_number(run.log, result_id)) > _LARGE
            return run.log.remember(("shown", result_id, view, run.suite), make) if is_large else make()

        return await _read(show)

    def _read_attempt(self, run_id: str, found: IndexedRun, result_id: str) -> ReadResult:
        number = _read_number(found.log, result_id)
        entry = found.log.read(number)
        case = found.suite.find_case(entry.case) or Case(id=entry.case)
        return ReadResult(summary=_show_entry(run_id, number, entry), result=case_result(case, entry), entry=entry)

    async def compare_several(self, ids: Sequence[str]) -> SeveralRuns:
        """Return runs compared with the first."""
        check_runs(ids)
        return await _read(lambda: compare_folders([self._runs.open_indexed(id) for id in ids]))

    async def read_answers(self, ids: Sequence[str], case: str, *, attempt: int | None = None) -> tuple[Answer, ...]:
        """Return the answers to a case."""
        check_runs(ids)
        return await _read(lambda: read_folder_answers([self._runs.open_indexed(id) for id in ids], case, attempt))

    async def measure_suite(self, run_id: str) -> MutationResult:
        """Return which planted faults the suite detects."""

        def measure() -> MutationResult:
            suite = self._runs.open_indexed(run_id).suite.suite
            begun = time.monotonic()
            return mutate(
                suite,
                read_run(self._home, run_id, suite),
                most=MOST_ATTEMPTS,
                is_late=lambda: time.monotonic() - begun > MUTATION_S,
            )

        return await _read(measure)

    async def read_findings(self, run_id: str) -> Findings | None:
        """Return what an examination found."""

        def read() -> Findings | None:
            found = read_examination(read_snapshot(self._runs.open_indexed(run_id).run.folder, EXAMINATION))
            return None if found is None else show_findings(found)

        return await _read(read)

    async def find_event_address(self, run_id: str) -> str | None:
        """Return None: the page polls."""
        return None


async def _read(read: Callable[[], T]) -> T:
    """Read files outside the event loop; errors become refusals."""
    try:
        return await asyncio.to_thread(read)
    # A `Refusal` is a `ProctorError` too, and has its own hint.
    except Refusal:
        raise
    except ProctorError as error:
        raise Refusal("BAD_REQUEST", str(error), hint="`proctor list` shows which runs cannot be read, and why") from error


def _read_number(log: LogIndex, result_id: str) -> int:
    """Return the number of an attempt by its id. Raises `Refusal`."""
    number = read_place(result_id)
    # `read_place` reads `007` as 7 and any word as 0; an attempt has one address.
    if str(number) != result_id or not log.has_attempt(number):
        raise not_found("result", result_id)
    return number


def _find_numbers(log: LogIndex, wanted: AttemptFilter) -> Sequence[int]:
    """Return the numbers of matching attempts, in order."""
    numbers = log.find_numbers(outcome=wanted.outcome, case=wanted.case)
    if not wanted.text:
        return numbers
    text = fold_text(wanted.text)
    # Cached: a search reads every attempt, and the next page repeats it.
    return log.remember(
        ("text", text, wanted.outcome, wanted.case), lambda: [number for number in numbers if text in make_search_text(log.read(number))]
    )


def _show_entry(run_id: str, number: int, entry: RunEntry) -> RunResultSummary:
    return show_attempt(entry, id=str(number), run_id=run_id, created_at=entry.started_at)
