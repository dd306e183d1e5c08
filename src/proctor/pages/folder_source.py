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
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

from proctor.actions.history.answers import Answer, AttemptOutcome, ReadAttempt, choose_attempt, compare_answers
from proctor.actions.history.compare import RunComparison, add_incomplete, compare_tallies, find_reason, how_much
from proctor.actions.history.compare_several import MOST_RUNS, SeveralRuns, join_comparisons
from proctor.actions.history.failures import MOST_LOOKED_AT, Failures, group_failures
from proctor.actions.history.latency import Latency, describe_latency
from proctor.actions.history.overview import (
    MOST_TREND,
    Overview,
    SuiteChange,
    TrendPoint,
    TurnedCase,
    TurnedCases,
    find_turned,
    make_trend_point,
)
from proctor.actions.workspace.run_history import StoredRun, case_result, describe_stored_run, open_run, suite_of
from proctor.actions.workspace.run_tally import RunTally
from proctor.errors import ProctorError
from proctor.model.case import Case, Suite
from proctor.model.json_values import read_digits
from proctor.model.lazy_cases import find_scratch, is_lazy
from proctor.model.name_table import NameTable
from proctor.model.run import RunEntry
from proctor.model.stamps import stamp_moment
from proctor.pages.ports import EVERY_RUN, FIRST, Page, Place, Record, RunFilter
from proctor.service.refusals import Refusal, not_found
from proctor.service.runs.results import EVERY_ATTEMPT, AttemptFilter, ReadResult
from proctor.store.files.baselines import Baselines
from proctor.store.files.log_index import LogCounts, LogIndex, LogIndexes
from proctor.store.files.run_files import CASES, RESULTS, SUITE, RunFiles, RunFolder, open_regular
from proctor.store.runs.entry_previews import fold_text, make_search_text

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
        files = _look_at_files(run)
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


def _look_at_files(run: RunFolder) -> tuple[tuple[int, int] | None, ...]:
    """Return size and time of the files of the suite."""
    path = run.header.suite_path
    return (_look_at(run.folder / SUITE), _look_at(run.folder / CASES), None if path is None else _look_at(Path(path)))


def _look_at(path: Path) -> tuple[int, int] | None:
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
    return add_incomplete(
        found,
        base=how_much(first, base.suite.suite, before, base.run.find_ending()),
        candidate=how_much(second, candidate.suite.suite, after, candidate.run.find_ending()),
    )


def read_folder_answers(runs: Sequence[IndexedRun], case: str, attempt: int | None) -> tuple[Answer, ...]:
    """Return the answers to a case in these runs."""
    read: list[ReadAttempt] = []
    for number, (run, log, suite) in enumerate(runs):
        found = [(str(at), log.read_digest(at)) for at in log.find_numbers(case=case)]
        listed = tuple(AttemptOutcome(id=id, attempt=one.attempt, outcome=one.outcome) for id, one in found if one.case == case)
        chosen = choose_attempt(listed, is_base=number == 0, attempt=attempt)
        entry = None if chosen is None else log.read(int(chosen.id))
        read.append(ReadAttempt(run_id=run.header.run_id, attempts=listed, chosen=chosen, entry=entry, case=suite.find_case(case)))
    return compare_answers(read)


# --- runs

PROJECT = "local"
_MOST_BEFORE = 100
"""Number of runs searched for the previous one."""
_STATUSES = {
    "completed": "completed",
    "running": "running",
    "interrupted": "cancelled",
    "cancelled": "cancelled",
    "budget": "cancelled",
    "not_ended": "failed",
    "failed": "failed",
}
"""The status of a stored run in the terms of the service."""
_THRESHOLD = b"pass_rate"
"""Occurs in a stored suite if a case may pass although an attempt failed."""
_LARGEST_LOOKED_AT = 16 * 1024 * 1024
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

    def show(self, id: str) -> Record:
        """Return one run. Raises `Refusal`."""
        self.open(id)
        return self._show(id, self._read_baselines())

    def list_page(self, wanted: RunFilter, at: int, limit: int) -> tuple[list[Record], bool]:
        """Return runs from a position on, newest first, and whether there are more."""
        baselines = self._read_baselines()
        found: list[Record] = []
        passed = 0
        # Without a filter, only the runs shown are read.
        if wanted == RunFilter():
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

    def find_before(self, run: Record) -> Record | None:
        """Return the previous completed run of the same suite, without reading logs."""
        for folder in self._iterate_completed():
            header = folder.header
            is_older = (header.started_at, header.run_id) < (run["created_at"], run["id"])
            if is_older and header.suite_name == run["suite_name"]:
                return {"id": folder.folder.name, "suite_name": header.suite_name, "created_at": header.started_at}
        return None

    def _iterate_completed(self) -> Iterator[RunFolder]:
        left = _MOST_BEFORE
        for id in self._files.list_ids():
            try:
                folder = self._files.open(id)
            except ProctorError:
                continue  # `list_page` shows the error
            if folder.read_end() == "completed":
                yield folder
                left -= 1
            if not left:
                return

    def _read_baselines(self) -> set[str]:
        return set(Baselines(self._home).read().values())

    def _count(self, run: RunFolder) -> tuple[dict[str, int], str | None]:
        counts = self._logs.count(run.folder / RESULTS)
        return counts.outcomes, counts.problem

    def _show(self, id: str, baselines: set[str]) -> Record:
        stored = describe_stored_run(self._files, id, is_baseline=id in baselines, count=self._count)
        status = "failed" if stored.problem is not None else _STATUSES.get(stored.ended or "not_ended", "failed")
        outcome = None
        if status == "completed":
            folder = self._files.folder / id
            outcome = _decide_outcome(self._home, folder, stored, self._logs.count(folder / RESULTS))
        return _show_run(stored, status, outcome)


def _decide_outcome(home: Path, folder: Path, stored: StoredRun, counts: LogCounts) -> str:
    """Return the outcome as `proctor show` does, without reading the suite if the counts are enough."""
    outcomes = counts.outcomes
    if outcomes.get("fail", 0) or outcomes.get("error", 0):
        if not any(_may_say_threshold(folder / name) for name in (SUITE, CASES)):
            return "fail" if outcomes.get("fail", 0) else "error"
    elif outcomes.get("pass", 0) == counts.different == stored.planned:
        return "pass"
    results = folder / RESULTS
    return _find_outcome(home, stored.run_id, results.stat().st_size if results.exists() else 0)


def _may_say_threshold(path: Path) -> bool:
    try:
        with open(path, "rb", opener=open_regular) as file:
            text = file.read(_LARGEST_LOOKED_AT + 1)
    except FileNotFoundError:
        return False
    # An unreadable file may contain it.
    except OSError:
        return True
    return len(text) > _LARGEST_LOOKED_AT or _THRESHOLD in text


@functools.lru_cache(maxsize=512)
def _find_outcome(home: Path, run_id: str, size: int) -> str:
    """Return the outcome from all results; `size` of the results is part of the cache key."""
    return open_run(home, run_id)[0].outcome


def _show_run(stored: StoredRun, status: str, outcome: str | None) -> Record:
    """Return a stored run in the shape of a run of the service."""
    header = stored.header
    counts = {outcome: stored.counts.get(outcome, 0) for outcome in ("pass", "fail", "error", "skip")}
    started = "" if header is None else header.started_at
    return {
        "id": stored.run_id,
        "project_id": PROJECT,
        "suite_name": stored.run_id if header is None else header.suite_name,
        "dialect": "" if header is None else header.dialect,
        "target": "" if header is None else header.target,
        "status": status,
        "outcome": outcome,
        "error": stored.problem,
        "note": "" if header is None else header.note,
        "name": "" if header is None else header.name,
        "tags": [*(() if header is None else header.tags), *(("baseline",) if stored.is_baseline else ())],
        "cancel_requested": False,
        "created_at": started,
        "started_at": started,
        "completed_at": None,
        "repeat": 1 if header is None else header.repeat,
        "selection": None,
        "attempts": stored.finished if stored.planned is None else stored.planned,
        "finished": stored.finished,
        "counts": counts,
    }


def _is_wanted(run: Record, wanted: RunFilter) -> bool:
    """Return whether a run matches a filter."""
    if wanted.status not in (None, run["status"]) or wanted.name not in (None, run["name"]):
        return False
    if wanted.tag is not None and wanted.tag not in run["tags"]:
        return False
    low = (wanted.query or "").lower()
    return any(low in run[name].lower() for name in ("name", "suite_name", "note"))


def read_place(cursor: str | None) -> int:
    """Return the first row of a page from its cursor."""
    return read_digits(cursor, 9) or 0


def make_page(rows: Sequence[Record], at: int, limit: int, *, more: bool) -> Record:
    """Return a page of a list."""
    before = None if at == 0 else str(max(0, at - limit))
    return {"data": list(rows), "_meta": {"next": str(at + limit) if more else None, "prev": before, "limit": limit}}


# --- overview

_MOST_SUITES = 5
_NOTHING = TurnedCases(total=0, cases=())


def make_trend(runs: Sequence[Record]) -> tuple[TrendPoint, ...]:
    """Return the latest completed runs, oldest first; `runs` are newest first."""
    completed = [run for run in runs if run["status"] == "completed"]
    return tuple(make_trend_point(run, run["counts"]) for run in reversed(completed[:MOST_TREND]))


def make_folder_overview(project_id: str, runs: Sequence[Record], since: str | None, open_run: Callable[[str], IndexedRun]) -> Overview:
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
        suites=_find_changes(new, [run for run in runs if not _is_since(run, moment)], open_run),
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


def _is_since(run: Record, moment: datetime) -> bool:
    try:
        at = datetime.fromisoformat(run["created_at"])
    except ValueError:
        return False
    return (at if at.tzinfo else at.replace(tzinfo=UTC)) >= moment


def _find_changes(new: Sequence[Record], old: Sequence[Record], open_run: Callable[[str], IndexedRun]) -> tuple[SuiteChange, ...]:
    completed = [run for run in new if run["status"] == "completed"]
    # The last of equal keys wins: reversed, that is the newest run of a suite, else the oldest.
    newest = {run["suite_name"]: run["id"] for run in reversed(completed)}
    oldest = {run["suite_name"]: run["id"] for run in completed}
    earlier = {run["suite_name"]: run["id"] for run in reversed(old) if run["status"] == "completed"}
    changes: list[SuiteChange] = []
    for suite, id in list(newest.items())[:_MOST_SUITES]:
        before = earlier.get(suite) or (oldest[suite] if oldest[suite] != id else None)
        changes.append(_compare_suite(suite, id, before, open_run))
    return tuple(changes)


def _compare_suite(suite_name: str, id: str, before_id: str | None, open_run: Callable[[str], IndexedRun]) -> SuiteChange:
    turned = (_NOTHING, _NOTHING, _NOTHING)
    if before_id is not None:
        run, before = open_run(id), open_run(before_id)
        # `remember` invalidates with the log of this run; the other log is part of the key.
        key = ("turned", before_id, before.log.stamp)
        turned = run.log.remember(key, lambda: _find_turned(before, run))
    return SuiteChange(
        suite_name=suite_name,
        run_id=id,
        before_id=before_id,
        newly_failing=turned[0],
        newly_passing=turned[1],
        newly_flaky=turned[2],
    )


def _find_turned(before: IndexedRun, run: IndexedRun) -> tuple[TurnedCases, TurnedCases, TurnedCases]:
    thresholds = {case.id: case.pass_threshold for case in run.suite.suite.cases if case.pass_threshold is not None}
    earlier, counts = (RunTally.of(one.log.iterate_digests()).count_by_case() for one in (before, run))
    turned = find_turned(earlier, counts, thresholds)
    return (_add_reasons(turned[0], run), *turned[1:])


def _add_reasons(turned: TurnedCases, run: IndexedRun) -> TurnedCases:
    cases = tuple(_add_reason(one, _find_failed(run, one.case), run.suite) for one in turned.cases)
    return TurnedCases(total=turned.total, cases=cases)


def _find_failed(run: IndexedRun, case: str) -> RunEntry | None:
    """Return the first attempt of a case that did not pass."""
    numbers = sorted(number for outcome in ("fail", "error") for number in run.log.find_numbers(outcome=outcome, case=case))
    entries = (run.log.read_digest(number) for number in numbers)
    return next((entry for entry in entries if entry.case == case), None)


def _add_reason(turned: TurnedCase, failed: RunEntry | None, suite: ReadSuite) -> TurnedCase:
    if failed is None:
        return turned
    return TurnedCase(case=turned.case, before=turned.before, after=turned.after, reason=find_reason(failed, suite.find_case(turned.case)))


T = TypeVar("T")
_MOST_RUNS = 1_000
"""Newest runs that an overview covers."""
_LARGE = 1_000_000
"""Bytes; what a page shows of larger attempts is cached."""
_SHOWN = ("attempt", "outcome", "score", "verdict", "code", "reason", "started_at", "duration_ms")


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

    async def list_projects(self, cursor: str | None) -> Page:
        """Return the folder as the only project."""
        return make_page([await self.get_project(PROJECT)], 0, 1, more=False)

    async def get_project(self, id: str) -> Record:
        """Return the folder."""
        if id != PROJECT:
            raise not_found("project", id)
        folder = self._home.resolve()
        return {"id": PROJECT, "name": folder.parent.name or str(folder), "description": str(folder / "runs"), "paused": False}

    async def list_firing_alerts(self, project_id: str) -> list[Record]:
        """Return nothing: a folder has no alerts."""
        return []

    async def read_overview(self, project_id: str, since: str | None) -> Overview:
        """Return the overview of the folder."""
        shown = (await self.list_runs(project_id, limit=_MOST_RUNS))["data"]
        return await _read(lambda: make_folder_overview(project_id, shown, since, self._runs.open_indexed))

    async def read_trend(self, project_id: str) -> tuple[TrendPoint, ...]:
        """Return the latest completed runs."""
        return make_trend((await self.list_runs(project_id, limit=_MOST_RUNS))["data"])

    async def list_runs(self, project_id: str, wanted: RunFilter = EVERY_RUN, *, cursor: str | None = None, limit: int = 50) -> Page:
        """Return a page of the stored runs, newest first."""
        at = read_place(cursor)
        shown, more = await _read(lambda: self._runs.list_page(wanted, at, limit))
        return make_page(shown, at, limit, more=more)

    async def get_run(self, id: str) -> Record:
        """Return one stored run."""
        return await _read(lambda: self._runs.show(id))

    async def find_run_before(self, run: Record) -> Record | None:
        """Return the previous run of the same suite."""
        return await _read(lambda: self._runs.find_before(run))

    async def cancel_run(self, id: str) -> None:
        """Refuse: a local run is stopped where it was started."""
        raise Refusal("FORBIDDEN", "stop this run where it was started")

    async def list_results(self, run_id: str, wanted: AttemptFilter = EVERY_ATTEMPT, *, place: Place = FIRST, limit: int = 50) -> Page:
        """Return a page of the attempts of a run, newest first."""
        at = read_place(place.cursor if place.position is None else str(place.position))

        def read() -> tuple[list[Record], int]:
            log = self._runs.open_log(run_id)
            numbers = _find_numbers(log, wanted)
            total = len(numbers)
            shown = (numbers[row] for row in range(total - 1 - at, max(-1, total - 1 - at - limit), -1))
            return [_show_entry(run_id, number, log.read_digest(number)) for number in shown], total

        rows, total = await _read(read)
        page = make_page(rows, at, limit, more=at + limit < total)
        begin = place.position if place.position is not None else 0 if place.cursor is None else None
        return {**page, "_meta": {**page["_meta"], "position": begin, "total": total}}

    async def measure_latency(self, run_id: str) -> Latency:
        """Return the durations of attempts."""

        def read() -> Latency:
            log = self._runs.open_log(run_id)

            def describe() -> Latency:
                durations = log.list_durations()
                return describe_latency(durations, len(durations))

            return log.remember("latency", describe)

        return await _read(read)

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

    async def read_result(self, run_id: str, result_id: str) -> ReadResult:
        """Return one attempt."""
        return await _read(lambda: self._read_attempt(run_id, self._runs.open_indexed(run_id), result_id))

    async def show_result(self, run_id: str, result_id: str, view: Hashable, write: Callable[[ReadResult], Record]) -> Record:
        """Return what a page shows of an attempt; cached for large ones."""

        def show() -> Record:
            found = self._runs.open_indexed(run_id)

            def make() -> Record:
                return write(self._read_attempt(run_id, found, result_id))

            # The suite is part of the key: a new version may change the document of the attempt.
            is_large = found.log.measure(_read_number(found.log, result_id)) > _LARGE
            return found.log.remember(("shown", result_id, view, found.suite), make) if is_large else make()

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


def _show_entry(run_id: str, number: int, entry: RunEntry) -> Record:
    shown = {name: getattr(entry, name) for name in _SHOWN}
    return {
        "id": str(number),
        "run_id": run_id,
        "case": entry.case,
        **shown,
        "reason": entry.reason or find_reason(entry, None) or None,
        "created_at": entry.started_at,
    }
