"""Screens over the runs of a folder, as `proctor run` stores them, for `proctor view`.

There is one project, the folder itself. The log of a run is read once (`store/files/log_index.py`), then only what was appended; a page
reads the attempts it shows. An attempt is identified by its line number in the log, which only grows.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from proctor.actions.history.answers import Answer
from proctor.actions.history.compare import find_reason
from proctor.actions.history.compare_several import SeveralRuns
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
from proctor.actions.workspace.run_history import StoredRun, case_result, describe_stored_run, open_run
from proctor.actions.workspace.run_tally import RunTally
from proctor.errors import ProctorError
from proctor.model.case import Case
from proctor.model.json_values import read_digits
from proctor.model.run import RunEntry
from proctor.model.stamps import stamp_moment
from proctor.pages.folder_comparisons import IndexedRun, check_runs, compare_folders, read_folder_answers
from proctor.pages.folder_suites import FolderSuites, ReadSuite
from proctor.pages.ports import EVERY_RUN, FIRST, Page, Place, Record, RunFilter
from proctor.service.refusals import Refusal, not_found
from proctor.service.runs.results import EVERY_ATTEMPT, AttemptFilter, ReadResult
from proctor.store.files.baselines import Baselines
from proctor.store.files.log_index import LogCounts, LogIndex, LogIndexes
from proctor.store.files.run_files import CASES, RESULTS, SUITE, RunFiles, RunFolder, open_regular
from proctor.store.runs.entry_previews import fold_text, make_search_text

# --- the runs of a folder in the shape of runs of the service, for `proctor view`. No log is read twice that has not changed

PROJECT = "local"
_MOST_BEFORE = 100
"""Runs among which the one before is looked for."""
_STATUSES = {
    "completed": "completed",
    "running": "running",
    "interrupted": "cancelled",
    "cancelled": "cancelled",
    "budget": "cancelled",
    "not_ended": "failed",
    "failed": "failed",
}
"""How a kept run ended, in the words of a run of the service."""
_THRESHOLD = b"pass_rate"
"""What the kept suite says where a case may pass although an attempt did not."""
_LARGEST_LOOKED_AT = 16 * 1024 * 1024
"""Bytes of a kept suite in which that word is looked for."""


class FolderRuns:
    """The runs of one folder, and what was found out about them."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._files = RunFiles(home)
        self._logs = LogIndexes()
        self._suites = FolderSuites()

    def open(self, id: str) -> RunFolder:
        """Return a run of the folder by its whole id. Raises `Refusal`: an address may name any path."""
        if id not in self._files.list_ids():
            raise not_found("run", id)
        return self._files.open(id)

    def open_log(self, id: str) -> LogIndex:
        """Return where the attempts of a run stand. Raises `Refusal` and `StoreError`."""
        return self._logs.open(self.open(id).folder / RESULTS)

    def open_indexed(self, id: str) -> IndexedRun:
        """Return a run with its log and its suite. Raises `Refusal` and `ProctorError`."""
        run = self.open(id)
        return IndexedRun(run, self._logs.open(run.folder / RESULTS), self._suites.read(run))

    def warm_up(self, id: str | None) -> None:
        """Read the log and the suite of a run, or of the newest one. Raises `Refusal` and `ProctorError`."""
        ids = self._files.list_ids() if id is None else [id]
        if ids:
            self.open_indexed(ids[0])

    def show(self, id: str) -> Record:
        """Return one run. Raises `Refusal`."""
        self.open(id)
        return self._show(id, self._read_baselines())

    def list_page(self, wanted: RunFilter, at: int, limit: int) -> tuple[list[Record], bool]:
        """Return the runs from a place of the list on, newest first, and whether there are more. Only those that are shown are read,
        unless how they ended decides whether they are.
        """
        baselines = self._read_baselines()
        found: list[Record] = []
        passed = 0
        # Without a filter the place in the list is a matter of counting, and the runs before it need not be read.
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
        """Return the latest completed run of the same suite that was made before this one; no log is read for it."""
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
                continue  # `list_page` says what is wrong with it
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
        kept = describe_stored_run(self._files, id, is_baseline=id in baselines, count=self._count)
        status = "failed" if kept.problem is not None else _STATUSES.get(kept.ended or "not_ended", "failed")
        outcome = None
        if status == "completed":
            folder = self._files.folder / id
            outcome = _decide_outcome(self._home, folder, kept, self._logs.count(folder / RESULTS))
        return _show_run(kept, status, outcome)


def _decide_outcome(home: Path, folder: Path, kept: StoredRun, counts: LogCounts) -> str:
    """Return how a run came out as `proctor show` says it; without reading the suite where the counts alone tell."""
    told = counts.outcomes
    if told.get("fail", 0) or told.get("error", 0):
        if not any(_may_say_threshold(folder / name) for name in (SUITE, CASES)):
            return "fail" if told.get("fail", 0) else "error"
    elif told.get("pass", 0) == counts.different == kept.planned:
        return "pass"
    results = folder / RESULTS
    return _find_outcome(home, kept.run_id, results.stat().st_size if results.exists() else 0)


def _may_say_threshold(path: Path) -> bool:
    try:
        with open(path, "rb", opener=open_regular) as file:
            text = file.read(_LARGEST_LOOKED_AT + 1)
    except FileNotFoundError:
        return False
    # What cannot be looked at may say it, so that everything that was kept decides.
    except OSError:
        return True
    return len(text) > _LARGEST_LOOKED_AT or _THRESHOLD in text


@functools.lru_cache(maxsize=512)
def _find_outcome(home: Path, run_id: str, size: int) -> str:
    """Return the same from everything that was kept; `size` of its results tells when it has changed."""
    return open_run(home, run_id)[0].outcome


def _show_run(kept: StoredRun, status: str, outcome: str | None) -> Record:
    """Return a kept run in the shape of a run of the service."""
    header = kept.header
    counts = {outcome: kept.counts.get(outcome, 0) for outcome in ("pass", "fail", "error", "skip")}
    started = "" if header is None else header.started_at
    return {
        "id": kept.run_id,
        "project_id": PROJECT,
        "suite_name": kept.run_id if header is None else header.suite_name,
        "dialect": "" if header is None else header.dialect,
        "target": "" if header is None else header.target,
        "status": status,
        "outcome": outcome,
        "error": kept.problem,
        "note": "" if header is None else header.note,
        "name": "" if header is None else header.name,
        "tags": [*(() if header is None else header.tags), *(("baseline",) if kept.is_baseline else ())],
        "cancel_requested": False,
        "created_at": started,
        "started_at": started,
        "completed_at": None,
        "repeat": 1 if header is None else header.repeat,
        "selection": None,
        "attempts": kept.finished if kept.planned is None else kept.planned,
        "finished": kept.finished,
        "counts": counts,
    }


def _is_wanted(run: Record, wanted: RunFilter) -> bool:
    """Return whether a run is one of those that somebody looks for."""
    if wanted.status not in (None, run["status"]) or wanted.name not in (None, run["name"]):
        return False
    if wanted.tag is not None and wanted.tag not in run["tags"]:
        return False
    low = (wanted.query or "").lower()
    return any(low in run[name].lower() for name in ("name", "suite_name", "note"))


def read_place(cursor: str | None) -> int:
    """Return the row at which a page begins; the cursor is its number."""
    return read_digits(cursor, 9) or 0


def make_page(rows: Sequence[Record], at: int, limit: int, *, more: bool) -> Record:
    """Return a page of a list that begins at a row."""
    before = None if at == 0 else str(max(0, at - limit))
    return {"data": list(rows), "_meta": {"next": str(at + limit) if more else None, "prev": before, "limit": limit}}


# ---


# --- what is going on in a folder of runs, for `proctor view`

_MOST_SUITES = 5
_NOTHING = TurnedCases(total=0, cases=())


def make_trend(runs: Sequence[Record]) -> tuple[TrendPoint, ...]:
    """Return the latest completed runs, oldest first; `runs` are newest first."""
    completed = [run for run in runs if run["status"] == "completed"]
    return tuple(make_trend_point(run, run["counts"]) for run in reversed(completed[:MOST_TREND]))


def make_folder_overview(project_id: str, runs: Sequence[Record], since: str | None, open_run: Callable[[str], IndexedRun]) -> Overview:
    """Return what is going on: `runs` are those of the folder, newest first."""
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
    # Of equal keys the last one stays: reversed, that is the newest run of a suite, else the oldest.
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
        # `remember` looks at the log of this run by itself; the log of the other one has to be part of the key.
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
    told = tuple(_add_reason(one, _find_failed(run, one.case), run.suite) for one in turned.cases)
    return TurnedCases(total=turned.total, cases=told)


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
"""Runs that an overview looks at, the newest first."""
_LARGE = 1_000_000
"""Bytes of an attempt from which on what is shown of it is remembered."""
_SHOWN = ("attempt", "outcome", "score", "verdict", "code", "reason", "started_at", "duration_ms")


class FolderSource:
    """The runs of one folder."""

    is_local = True
    may_write = False

    def __init__(self, home: Path) -> None:
        self._home = home
        self._runs = FolderRuns(home)

    def warm_up(self, run_id: str | None) -> None:
        """Read what the first page will ask for: of the run that is opened, or of the newest; what cannot be read is told by its page."""
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
        """Return what is going on in the folder."""
        shown = (await self.list_runs(project_id, limit=_MOST_RUNS))["data"]
        return await _read(lambda: make_folder_overview(project_id, shown, since, self._runs.open_indexed))

    async def read_trend(self, project_id: str) -> tuple[TrendPoint, ...]:
        """Return the latest completed runs."""
        return make_trend((await self.list_runs(project_id, limit=_MOST_RUNS))["data"])

    async def list_runs(self, project_id: str, wanted: RunFilter = EVERY_RUN, *, cursor: str | None = None, limit: int = 50) -> Page:
        """Return a page of the kept runs, newest first."""
        at = read_place(cursor)
        shown, more = await _read(lambda: self._runs.list_page(wanted, at, limit))
        return make_page(shown, at, limit, more=more)

    async def get_run(self, id: str) -> Record:
        """Return one kept run."""
        return await _read(lambda: self._runs.show(id))

    async def find_run_before(self, run: Record) -> Record | None:
        """Return the run that this one is compared with first."""
        return await _read(lambda: self._runs.find_before(run))

    async def cancel_run(self, id: str) -> None:
        """Refuse: a run of a folder is ended where it was started."""
        raise Refusal("FORBIDDEN", "runs of this folder are ended where they were started")

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
        """Return how long attempts took."""

        def read() -> Latency:
            log = self._runs.open_log(run_id)

            def describe() -> Latency:
                durations = log.list_durations()
                return describe_latency(durations, len(durations))

            return log.remember("latency", describe)

        return await _read(read)

    async def group_failures(self, run_id: str) -> Failures:
        """Return what went wrong in a run."""

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
        """Return what is shown of one attempt; of a large one it is remembered."""

        def show() -> Record:
            found = self._runs.open_indexed(run_id)

            def make() -> Record:
                return write(self._read_attempt(run_id, found, result_id))

            # The suite is part of the key below: read anew, it may say something else about the same attempt.
            is_large = found.log.measure(_read_number(found.log, result_id)) > _LARGE
            return found.log.remember(("shown", result_id, view, found.suite), make) if is_large else make()

        return await _read(show)

    def _read_attempt(self, run_id: str, found: IndexedRun, result_id: str) -> ReadResult:
        number = _read_number(found.log, result_id)
        entry = found.log.read(number)
        case = found.suite.find_case(entry.case) or Case(id=entry.case)
        return ReadResult(summary=_show_entry(run_id, number, entry), result=case_result(case, entry), entry=entry)

    async def compare_several(self, ids: Sequence[str]) -> SeveralRuns:
        """Return runs side by side."""
        check_runs(ids)
        return await _read(lambda: compare_folders([self._runs.open_indexed(id) for id in ids]))

    async def read_answers(self, ids: Sequence[str], case: str, *, attempt: int | None = None) -> tuple[Answer, ...]:
        """Return what was answered to a case."""
        check_runs(ids)
        return await _read(lambda: read_folder_answers([self._runs.open_indexed(id) for id in ids], case, attempt))

    async def find_event_address(self, run_id: str) -> str | None:
        """Return nothing: the page looks again from time to time."""
        return None


async def _read(read: Callable[[], T]) -> T:
    """Read files beside the event loop; what cannot be read is said, with what to do."""
    try:
        return await asyncio.to_thread(read)
    # A refusal is a `ProctorError` too, and says by itself what to do.
    except Refusal:
        raise
    except ProctorError as error:
        raise Refusal("BAD_REQUEST", str(error), hint="`proctor list` says which runs cannot be read, and why") from error


def _read_number(log: LogIndex, result_id: str) -> int:
    """Return the number of an attempt by its id. Raises `Refusal`."""
    number = read_place(result_id)
    # `read_place` takes `007` for 7 and any word for 0; an attempt has one address.
    if str(number) != result_id or not log.has_attempt(number):
        raise not_found("result", result_id)
    return number


def _find_numbers(log: LogIndex, wanted: AttemptFilter) -> Sequence[int]:
    """Return the numbers of the attempts that somebody looks for, in order."""
    numbers = log.find_numbers(outcome=wanted.outcome, case=wanted.case)
    if not wanted.text:
        return numbers
    text = fold_text(wanted.text)
    # What was found is remembered: every attempt has to be read for it, and the next page asks for the same.
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
