"""Screens over the runs of a folder, as `proctor run` stores them, for `proctor view`.

There is one project, the folder itself. The log of a run is read once (`store/files/log_index.py`), then only what was appended; a page
reads the attempts it shows. An attempt is identified by its line number in the log, which only grows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TypeVar

from proctor.actions.history.answers import Answer
from proctor.actions.history.compare import find_reason
from proctor.actions.history.compare_several import SeveralRuns
from proctor.actions.history.failures import MOST_LOOKED_AT, Failures, group_failures
from proctor.actions.history.latency import Latency, describe_latency
from proctor.actions.history.overview import Overview, TrendPoint
from proctor.actions.workspace.run_history import case_result
from proctor.errors import ProctorError
from proctor.model.case import Case
from proctor.model.run import RunEntry
from proctor.pages.folder_comparisons import IndexedRun, check_runs, compare_folders, read_folder_answers
from proctor.pages.folder_overview import make_folder_overview, make_trend
from proctor.pages.folder_runs import PROJECT, FolderRuns, make_page, read_place
from proctor.pages.ports import EVERY_RUN, FIRST, Page, Place, Record, RunFilter
from proctor.service.refusals import Refusal, not_found
from proctor.service.runs.results import EVERY_ATTEMPT, AttemptFilter, ReadResult
from proctor.store.files.log_index import LogIndex
from proctor.store.runs.entry_texts import fold_text, make_search_text

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
