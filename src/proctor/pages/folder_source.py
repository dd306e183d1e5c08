"""The data source of `proctor view`: stored runs of a folder.

The folder is the only project. The log of a run is read once (`store/files/log_index.py`), then only what was appended. An attempt is
identified by its line number in the log, which only grows.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

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
from proctor.model.lazy_cases import find_scratch
from proctor.model.mutation import MutationResult
from proctor.model.run import RunEntry
from proctor.model.scratch import NameTable
from proctor.model.verdict import Outcome
from proctor.pages.places import EVERY_RUN, FIRST, Place, Record
from proctor.service.access.projects import Project
from proctor.service.decisions.record_verdicts import MUTATION_S
from proctor.service.hub import stamp
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import Page, show_row
from proctor.service.runs.examinations import Findings, show_findings
from proctor.service.runs.figures import MOST_ATTEMPTS, RunFacts
from proctor.service.runs.results import EVERY_ATTEMPT, FailingPlace, ReadResult
from proctor.service.runs.run import (
    LOCAL_PROJECT,
    AttemptFilter,
    RunResultSummary,
    RunResultSummaryPage,
    RunSearch,
    ShownRun,
    find_previous,
    pair_newest,
    show_attempt,
    show_stored_run,
)
from proctor.service.traces.case_history import CaseInRun, describe_counts
from proctor.service.traces.search import read_moment
from proctor.store.files.log_index import LogIndex, LogIndexes
from proctor.store.files.run_files import CASES, RESULTS, SUITE, RunFiles, RunFolder, open_regular
from proctor.store.files.run_references import Baselines
from proctor.store.runs.entry_previews import fold_text, make_search_text

T = TypeVar("T")
Parameters = ParamSpec("Parameters")
_DAY_S = 86_400
_MOST_SUITES = 8
"""Cached suites: reading a thousand cases takes most of a second."""
_FRESH_S = 60
"""How long a suite is cached without looking at files it refers to."""
_MOST_REMEMBERED = 20_000
"""Cases of a cached comparison."""
_MOST_BEFORE = 100
"""Number of runs searched for the previous one."""
_THRESHOLD = b"pass_rate"
"""Occurs in a stored suite if a case may pass although an attempt failed."""
_MOST_SEARCHED = 16 * 1024 * 1024
"""Bytes of a stored suite that are searched for it."""
_MOST_RUNS = 1_000
"""Newest runs that an overview covers."""
_MOST_CHANGES = 5
"""Suites whose changes an overview shows."""
_LARGE = 1_000_000
"""Bytes; what a page shows of larger attempts is cached."""


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


def _stat_file(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns


class IndexedRun(NamedTuple):
    """A run with its log index and suite."""

    run: RunFolder
    log: LogIndex
    suite: ReadSuite


def compare_folders(runs: Sequence[IndexedRun]) -> SeveralRuns:
    """Return stored runs compared with the first."""
    return join_comparisons([_compare_remembered(runs[0], run) for run in runs[1:]])


def _compare_remembered(base: IndexedRun, candidate: IndexedRun) -> RunComparison:
    """Return a cached comparison, unless one of the runs changed."""
    endings = (base.run.find_ending(), candidate.run.find_ending())
    key = ("comparison", base.run.folder, base.log.stamp, base.run.header, candidate.run.header, endings)

    def compare() -> RunComparison:
        before, after = RunTally.of(base.log.iterate_digests()), RunTally.of(candidate.log.iterate_digests())
        first, second = base.run.header, candidate.run.header
        return msgspec.structs.replace(
            compare_tallies((first, before), (second, after), candidate.suite.suite),
            server_changes=describe_changes(*(read_snapshot(each.run.folder, SERVERS) for each in (base, candidate))),
            base_incomplete=how_much(first, base.suite.suite, before, endings[0]),
            candidate_incomplete=how_much(second, candidate.suite.suite, after, endings[1]),
        )

    return candidate.log.remember(repr(key), compare, is_small=lambda found: len(found.comparison.changes) <= _MOST_REMEMBERED)


def _may_set_threshold(path: Path) -> bool:
    try:
        with open(path, "rb", opener=open_regular) as file:
            text = file.read(_MOST_SEARCHED + 1)
    except FileNotFoundError:
        return False
    # An unreadable file may contain it.
    except OSError:
        return True
    return len(text) > _MOST_SEARCHED or _THRESHOLD in text


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


def _read_place(cursor: str | None) -> int:
    """Return the first row of a page from its cursor."""
    return read_digits(cursor, 9) or 0


def _make_page(rows: Sequence[T], at: int, limit: int, *, more: bool) -> Page[T]:
    before = None if at == 0 else str(max(0, at - limit))
    return {"data": list(rows), "_meta": {"next": str(at + limit) if more else None, "prev": before, "limit": limit}}


def _make_trend(runs: Sequence[ShownRun]) -> tuple[TrendPoint, ...]:
    """Return the latest completed runs, oldest first; `runs` are newest first."""
    completed = [run for run in runs if run["status"] == "completed"]
    return tuple(make_trend_point(run, cast(Mapping[str, int], run["counts"])) for run in reversed(completed[:MOST_TREND]))


def _in_thread(
    read: Callable[Concatenate[FolderSource, Parameters], T],
) -> Callable[Concatenate[FolderSource, Parameters], Coroutine[Any, Any, T]]:
    """Make a method that reads files run outside the event loop; its errors become refusals."""

    @functools.wraps(read)
    async def call(source: FolderSource, *arguments: Parameters.args, **options: Parameters.kwargs) -> T:
        try:
            return await asyncio.to_thread(read, source, *arguments, **options)
        # A `Refusal` is a `ProctorError` too, and has its own hint.
        except Refusal:
            raise
        except ProctorError as error:
            raise Refusal("BAD_REQUEST", str(error), hint="`proctor list` shows which runs cannot be read, and why") from error

    return call


class FolderSource:
    """The runs of one folder."""

    is_local = True
    may_write = False

    def __init__(self, home: Path) -> None:
        self._home = home
        self._files = RunFiles(home)
        self._logs = LogIndexes()
        self._read_suite = functools.lru_cache(_MOST_SUITES)(self._read_new_suite)

    # Internal: these block.

    def _read_new_suite(self, folder: Path, *_stamps: object) -> ReadSuite:
        return ReadSuite(suite_of(self._files.open(str(folder))))

    def _open(self, id: str) -> RunFolder:
        """Return a run by its full id. Raises `Refusal`: an address may name any path."""
        if id not in self._files.list_ids():
            raise not_found("run", id)
        return self._files.open(id)

    def _open_log(self, id: str) -> LogIndex:
        return self._logs.open(self._open(id).folder / RESULTS)

    def open_indexed(self, id: str) -> IndexedRun:
        """Return a run with log index and suite. Raises `Refusal` and `ProctorError`."""
        run = self._open(id)
        own_file = None if run.header.suite_path is None else _stat_file(Path(run.header.suite_path))
        stamps = (_stat_file(run.folder / SUITE), _stat_file(run.folder / CASES), own_file)
        suite = self._read_suite(run.folder.absolute(), *stamps, time.monotonic() // _FRESH_S)
        return IndexedRun(run, self._logs.open(run.folder / RESULTS), suite)

    def _open_several(self, ids: Sequence[str]) -> list[IndexedRun]:
        """Return runs to compare; reject fewer than two, too many, and duplicates."""
        if not 2 <= len(ids) <= MOST_RUNS or len(set(ids)) < len(ids):
            problem = [f"expected 2 to {MOST_RUNS} different runs, got {len(ids)}"]
            raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": problem})
        return [self.open_indexed(id) for id in ids]

    def _read_baselines(self) -> set[str]:
        return set(Baselines(self._home).read().values())

    def _count(self, run: RunFolder) -> tuple[dict[str, int], str | None]:
        counts = self._logs.count(run.folder / RESULTS)
        return counts.outcomes, counts.problem

    def _show(self, id: str, baselines: set[str]) -> ShownRun:
        stored = describe_stored_run(self._files, id, is_baseline=id in baselines, count=self._count)
        shown = show_stored_run(stored, None)
        return {**shown, "outcome": self._decide_outcome(stored)} if shown["status"] == "completed" else shown

    def _decide_outcome(self, stored: StoredRun) -> Outcome:
        """Return the outcome as `proctor show` does, without reading the suite if the counts are enough."""
        folder = self._files.folder / stored.run_id
        counts = self._logs.count(folder / RESULTS)
        outcomes = counts.outcomes
        if outcomes.get("fail", 0) or outcomes.get("error", 0):
            if not any(_may_set_threshold(folder / name) for name in (SUITE, CASES)):
                return "fail" if outcomes.get("fail", 0) else "error"
        elif outcomes.get("pass", 0) == counts.different == stored.planned:
            return "pass"
        size = _stat_file(folder / RESULTS)
        return _find_outcome(self._home, stored.run_id, size[0] if size is not None else 0)

    def _list_page(self, wanted: RunSearch, cursor: str | None, limit: int) -> Page[ShownRun]:
        at, baselines, ids = _read_place(cursor), self._read_baselines(), self._files.list_ids()
        if wanted == EVERY_RUN:
            # Only the runs shown are read.
            rows = [self._show(id, baselines) for id in ids[at : at + limit]]
            return _make_page(rows, at, limit, more=len(ids) > at + limit)
        matching = (run for run in (self._show(id, baselines) for id in ids) if _is_wanted(run, wanted))
        rows = list(islice(matching, at, at + limit + 1))
        return _make_page(rows[:limit], at, limit, more=len(rows) > limit)

    def _iterate_completed(self) -> Iterator[ShownRun]:
        """Yield completed runs by their headers alone, newest first."""
        for id in self._files.list_ids():
            try:
                folder = self._files.open(id)
            except ProctorError:
                continue  # the list shows the error
            if folder.read_end() == "completed":
                stored = StoredRun(run_id=id, header=folder.header, ended="completed", finished=0, planned=None, counts={}, problem=None)
                yield show_stored_run(stored, None)

    def _read_attempt(self, run_id: str, found: IndexedRun, result_id: str) -> ReadResult:
        number = _read_number(found.log, result_id)
        entry = found.log.read(number)
        case = found.suite.find_case(entry.case) or Case(id=entry.case)
        return ReadResult(summary=_show_entry(run_id, number, entry), result=case_result(case, entry), entry=entry)

    def warm_up(self, run_id: str | None) -> None:
        """Read what the first page needs, default for the newest run; errors are shown by the page."""
        with contextlib.suppress(ProctorError, OSError):
            ids = self._files.list_ids() if run_id is None else [run_id]
            if ids:
                self.open_indexed(ids[0])

    # For screens.

    async def list_projects(self, cursor: str | None) -> Page[Project]:
        """Return the folder as the only project."""
        return _make_page([await self.get_project(LOCAL_PROJECT)], 0, 1, more=False)

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

    async def count_traces(self, project_id: str) -> TraceCounts | None:
        """Return None: a folder has no traces."""
        return None

    async def list_facts(self, runs: Sequence[ShownRun]) -> Mapping[str, RunFacts]:
        """Return nothing: the logs of all runs would have to be read."""
        return {}

    async def find_event_address(self, run_id: str) -> str | None:
        """Return None: the page polls."""
        return None

    async def cancel_run(self, id: str) -> None:
        """Refuse: a local run is stopped where it was started."""
        raise Refusal("FORBIDDEN", "stop this run where it was started")

    @_in_thread
    def read_overview(self, project_id: str, since: str | None) -> Overview:
        """Return the overview of the folder."""
        runs = self._list_page(EVERY_RUN, None, _MOST_RUNS)["data"]
        moment = stamp(time.time() - _DAY_S) if since is None else read_moment(since, "since")
        new = [run for run in runs if run["created_at"] >= moment]
        previous = {run["id"]: before for run in new if (before := find_previous(run, runs)) is not None}
        changes = [
            make_suite_change(
                cast(Mapping[str, Json], run),
                cast(Mapping[str, Json], before),
                None if before is None else _compare_remembered(self.open_indexed(before["id"]), self.open_indexed(run["id"])),
            )
            for run, before in pair_newest(new, previous)[:_MOST_CHANGES]
        ]
        return Overview(
            project_id=project_id,
            since=moment,
            trend=_make_trend(runs),
            alerts=None,
            new_runs=Counter(run["status"] for run in new),
            more_runs=False,
            suites=tuple(changes),
            reasons=(),
            more_reasons=0,
        )

    @_in_thread
    def read_trend(self, project_id: str) -> tuple[TrendPoint, ...]:
        """Return the latest completed runs."""
        return _make_trend(self._list_page(EVERY_RUN, None, _MOST_RUNS)["data"])

    @_in_thread
    def list_runs(self, project_id: str, wanted: RunSearch = EVERY_RUN, *, cursor: str | None = None, limit: int = 50) -> Page[ShownRun]:
        """Return a page of the stored runs, newest first."""
        return self._list_page(wanted, cursor, limit)

    @_in_thread
    def get_run(self, id: str) -> ShownRun:
        """Return one stored run."""
        self._open(id)
        return self._show(id, self._read_baselines())

    @_in_thread
    def find_previous_runs(self, project_id: str, runs: Sequence[ShownRun]) -> Mapping[str, ShownRun]:
        """Return the previous completed run of the same kind for each, reading only the headers of the others."""
        earlier = list(islice(self._iterate_completed(), _MOST_BEFORE))
        baselines = self._read_baselines()
        found = ((run["id"], find_previous(run, earlier)) for run in runs)
        return {id: self._show(before["id"], baselines) for id, before in found if before is not None}

    @_in_thread
    def list_results(
        self, run_id: str, wanted: AttemptFilter = EVERY_ATTEMPT, *, place: Place = FIRST, limit: int = 50
    ) -> RunResultSummaryPage:
        """Return a page of the attempts of a run, newest first."""
        at = _read_place(place.cursor) if place.position is None else place.position
        log = self._open_log(run_id)
        numbers = _find_numbers(log, wanted)
        total = len(numbers)
        page_numbers = [numbers[row] for row in range(total - 1 - at, max(-1, total - 1 - at - limit), -1)]
        rows = [_show_entry(run_id, number, log.read_digest(number)) for number in page_numbers]
        page = _make_page(rows, at, limit, more=at + limit < total)
        begin = place.position if place.position is not None else 0 if place.cursor is None else None
        return {"data": page["data"], "_meta": {**page["_meta"], "position": begin, "total": total}}

    @_in_thread
    def measure_latency(self, run_id: str) -> Latency:
        """Return the durations of attempts."""
        log = self._open_log(run_id)
        return log.remember("latency", lambda: describe_latency(durations := log.list_durations(), len(durations)))

    @_in_thread
    def read_totals(self, run_id: str) -> RunTotals:
        """Return the totals of a run."""
        _, log, suite = self.open_indexed(run_id)
        return log.remember("totals", lambda: RunTally.of(log.iterate_digests()).add_up(suite.suite))

    @_in_thread
    def group_failures(self, run_id: str) -> Failures:
        """Return the failures of a run."""
        _, log, suite = self.open_indexed(run_id)

        def group() -> Failures:
            numbers = _find_failing(log)
            newest = [(str(number), log.read_digest(number)) for number in numbers[:MOST_LOOKED_AT]]
            cases = suite.find_cases(entry.case for _, entry in newest)
            return group_failures(newest, cases, more=len(numbers) > len(newest))

        return log.remember("failures", group)

    @_in_thread
    def find_failing_place(self, run_id: str, result_id: str) -> FailingPlace | None:
        """Return the place of an attempt among the failing ones."""
        log = self._open_log(run_id)
        failing = _find_failing(log)
        number = _read_number(log, result_id)
        if number not in failing:
            return None
        at = failing.index(number)
        return {
            "position": at + 1,
            "total": len(failing),
            "previous": str(failing[at - 1]) if at else None,
            "next": str(failing[at + 1]) if at + 1 < len(failing) else None,
        }

    @_in_thread
    def list_case_history(self, project_id: str, suite: str, case: str, *, cursor: str | None, limit: int) -> Page[CaseInRun]:
        """Return the runs of a suite that had a case."""
        runs = self._list_page(RunSearch(suite=suite), cursor, limit)
        found: list[CaseInRun] = []
        for run in runs["data"]:
            log = self._open_log(run["id"])
            counts = {outcome: len(log.find_numbers(outcome=outcome, case=case)) for outcome in ("pass", "fail", "error", "skip")}
            if any(counts.values()):
                found.append(show_row(CaseInRun, run, run_id=run["id"], cases=[case], **describe_counts([counts])))
        return {"data": found, "_meta": runs["_meta"]}

    @_in_thread
    def read_result(self, run_id: str, result_id: str) -> ReadResult:
        """Return one attempt."""
        return self._read_attempt(run_id, self.open_indexed(run_id), result_id)

    @_in_thread
    def show_result(self, run_id: str, result_id: str, view: Hashable, write: Callable[[ReadResult], Record]) -> Record:
        """Return what a page shows of an attempt; cached for large ones."""
        run = self.open_indexed(run_id)

        def make() -> Record:
            return write(self._read_attempt(run_id, run, result_id))

        # The suite is part of the key: a new version may change the document of the attempt.
        is_large = run.log.measure(_read_number(run.log, result_id)) > _LARGE
        return run.log.remember(("shown", result_id, view, run.suite), make) if is_large else make()

    @_in_thread
    def compare_several(self, ids: Sequence[str]) -> SeveralRuns:
        """Return runs compared with the first."""
        return compare_folders(self._open_several(ids))

    @_in_thread
    def read_answers(self, ids: Sequence[str], case: str, *, attempt: int | None = None) -> tuple[Answer, ...]:
        """Return the answers to a case in these runs."""
        attempts: list[ReadAttempt] = []
        for run, log, suite in self._open_several(ids):
            found = [(str(at), log.read_digest(at)) for at in log.find_numbers(case=case)]
            listed = tuple(
                AttemptOutcome(id=id, attempt=digest.attempt, outcome=digest.outcome) for id, digest in found if digest.case == case
            )
            chosen = choose_attempt(listed, is_base=not attempts, attempt=attempt)
            entry = None if chosen is None else log.read(int(chosen.id))
            attempts.append(ReadAttempt(run_id=run.header.run_id, attempts=listed, chosen=chosen, entry=entry, case=suite.find_case(case)))
        return compare_answers(attempts)

    @_in_thread
    def measure_suite(self, run_id: str) -> MutationResult:
        """Return which planted faults the suite detects."""
        suite = self.open_indexed(run_id).suite.suite
        end = time.monotonic() + MUTATION_S
        return mutate(suite, read_run(self._home, run_id, suite), most=MOST_ATTEMPTS, is_late=lambda: time.monotonic() > end)

    @_in_thread
    def read_findings(self, run_id: str) -> Findings | None:
        """Return what an examination found."""
        found = read_examination(read_snapshot(self._open(run_id).folder, EXAMINATION))
        return None if found is None else show_findings(found)


def _read_number(log: LogIndex, result_id: str) -> int:
    """Return the number of an attempt by its id. Raises `Refusal`."""
    number = _read_place(result_id)
    # `007` is read as 7 and any word as 0; an attempt has one address.
    if str(number) != result_id or not log.has_attempt(number):
        raise not_found("result", result_id)
    return number


def _find_failing(log: LogIndex) -> list[int]:
    """Return the numbers of failing attempts, newest first."""
    return sorted([*log.find_numbers(outcome="fail"), *log.find_numbers(outcome="error")], reverse=True)


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
