"""Screens over the runs of a folder, as `proctor run` keeps them: for `proctor view`.

There is one project, the folder itself. Runs are read from their files when they are asked for; a run that is still being written is read
again from time to time. An attempt goes by its number in the file, which only grows.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from proctor.actions.answers import Answer
from proctor.actions.compare_several import SeveralRuns
from proctor.actions.failures import MOST_LOOKED_AT, Failures, group_failures
from proctor.actions.history import KeptRun, case_result, list_runs, open_run, suite_of
from proctor.actions.latency import Latency, describe_latency, find_ms
from proctor.actions.overview import Overview, TrendPoint
from proctor.errors import ProctorError
from proctor.model.case import Case
from proctor.model.run import RunEntry
from proctor.pages.folder_comparisons import check_runs, compare_folders, read_folder_answers
from proctor.pages.folder_overview import make_folder_overview, make_trend
from proctor.pages.ports import EVERY_RUN, FIRST, Page, Place, Record, RunFilter
from proctor.service.refusals import Refusal, not_found
from proctor.service.runs.results import EVERY_ATTEMPT, AttemptFilter, ReadResult
from proctor.store.entry_texts import fold_text, make_search_text
from proctor.store.run_files import RESULTS, RunFiles, RunFolder

T = TypeVar("T")
PROJECT = "local"
_MOST_RUNS = 1_000
"""Runs that an overview looks at, the newest first."""
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
_SHOWN = ("attempt", "outcome", "score", "verdict", "code", "reason", "started_at", "duration_ms")


class FolderSource:
    """The runs of one folder."""

    is_local = True
    may_write = False

    def __init__(self, home: Path) -> None:
        self._home = home

    async def list_projects(self, cursor: str | None) -> Page:
        """Return the folder as the only project."""
        return _make_page([await self.get_project(PROJECT)], None, 1)

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
        return await _read(lambda: make_folder_overview(project_id, shown, since, self._open))

    async def read_trend(self, project_id: str) -> tuple[TrendPoint, ...]:
        """Return the latest completed runs."""
        return make_trend((await self.list_runs(project_id, limit=_MOST_RUNS))["data"])

    async def list_runs(self, project_id: str, wanted: RunFilter = EVERY_RUN, *, cursor: str | None = None, limit: int = 50) -> Page:
        """Return a page of the kept runs, newest first."""
        shown = await _read(lambda: [_show_run(self._home, kept) for kept in list_runs(self._home)])
        return _make_page([run for run in shown if _is_wanted(run, wanted)], cursor, limit)

    async def get_run(self, id: str) -> Record:
        """Return one kept run."""
        return await _read(lambda: _show_run(self._home, self._read_line(id)))

    async def cancel_run(self, id: str) -> None:
        """Refuse: a run of a folder is ended where it was started."""
        raise Refusal("FORBIDDEN", "runs of this folder are ended where they were started")

    async def list_results(self, run_id: str, wanted: AttemptFilter = EVERY_ATTEMPT, *, place: Place = FIRST, limit: int = 50) -> Page:
        """Return a page of the attempts of a run, newest first."""

        def read() -> list[Record]:
            entries = enumerate(self._open(run_id).entries())
            return [_show_entry(run_id, number, entry) for number, entry in entries if _is_like(entry, wanted)][::-1]

        rows = await _read(read)
        page = _make_page(rows, place.cursor if place.position is None else str(place.position), limit)
        begin = place.position if place.position is not None else 0 if place.cursor is None else None
        return {**page, "_meta": {**page["_meta"], "position": begin, "total": len(rows)}}

    async def measure_latency(self, run_id: str) -> Latency:
        """Return how long attempts took."""

        def read() -> Latency:
            durations = [find_ms(entry) for entry in self._open(run_id).entries()]
            return describe_latency(durations, len(durations))

        return await _read(read)

    async def group_failures(self, run_id: str) -> Failures:
        """Return what went wrong in a run."""

        def read() -> Failures:
            run = self._open(run_id)
            failed = [(str(number), entry) for number, entry in enumerate(run.entries()) if entry.outcome in ("fail", "error")]
            newest = failed[::-1][:MOST_LOOKED_AT]
            return group_failures(newest, {case.id: case for case in suite_of(run).cases}, more=len(failed) > len(newest))

        return await _read(read)

    async def read_result(self, run_id: str, result_id: str) -> ReadResult:
        """Return one attempt."""

        def read() -> ReadResult:
            run = self._open(run_id)
            for number, entry in enumerate(run.entries()):
                if str(number) == result_id:
                    case = next((case for case in suite_of(run).cases if case.id == entry.case), None) or Case(id=entry.case)
                    return ReadResult(summary=_show_entry(run_id, number, entry), result=case_result(case, entry), entry=entry)
            raise not_found("result", result_id)

        return await _read(read)

    async def compare_several(self, ids: Sequence[str]) -> SeveralRuns:
        """Return runs side by side."""
        check_runs(ids)
        return await _read(lambda: compare_folders(self._home, [self._open(id).folder.name for id in ids]))

    async def read_answers(self, ids: Sequence[str], case: str, *, attempt: int | None = None) -> tuple[Answer, ...]:
        """Return what was answered to a case."""
        check_runs(ids)
        return await _read(lambda: read_folder_answers([self._open(id) for id in ids], case, attempt))

    async def find_event_address(self, run_id: str) -> str | None:
        """Return nothing: the page looks again from time to time."""
        return None

    def _open(self, id: str) -> RunFolder:
        """Return a run of the folder by its whole id. Raises `Refusal`: an address may name any path."""
        files = RunFiles(self._home)
        if id not in files.list_ids():
            raise not_found("run", id)
        return files.open(id)

    def _read_line(self, id: str) -> KeptRun:
        self._open(id)
        found = next(iter(list_runs(self._home, id)), None)
        if found is None:
            raise not_found("run", id)
        return found


async def _read(read: Callable[[], T]) -> T:
    """Read files beside the event loop; what cannot be read is said, with what to do."""
    try:
        return await asyncio.to_thread(read)
    except Refusal:
        raise
    except ProctorError as error:
        raise Refusal("BAD_REQUEST", str(error), hint="`proctor list` says which runs cannot be read, and why") from error


@functools.lru_cache(maxsize=512)
def _find_outcome(home: Path, run_id: str, size: int) -> str:
    """Return how a run came out as `proctor show` says it; `size` of its results tells when it has changed."""
    return open_run(home, run_id)[0].outcome


def _show_run(home: Path, kept: KeptRun) -> Record:
    """Return a kept run in the shape of a run of the service."""
    header = kept.header
    counts = {outcome: kept.counts.get(outcome, 0) for outcome in ("pass", "fail", "error", "skip")}
    status = "failed" if kept.problem is not None else _STATUSES.get(kept.ended or "not_ended", "failed")
    started = "" if header is None else header.started_at
    outcome = None
    if status == "completed" and kept.problem is None:
        results = RunFiles(home).folder / kept.run_id / RESULTS
        outcome = _find_outcome(home, kept.run_id, results.stat().st_size if results.exists() else 0)
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


def _is_like(entry: RunEntry, wanted: AttemptFilter) -> bool:
    """Return whether an attempt is one of those that somebody looks for."""
    if wanted.outcome not in (None, entry.outcome) or wanted.case not in (None, entry.case):
        return False
    return not wanted.text or fold_text(wanted.text) in make_search_text(entry)


def _show_entry(run_id: str, number: int, entry: RunEntry) -> Record:
    shown = {name: getattr(entry, name) for name in _SHOWN}
    return {"id": str(number), "run_id": run_id, "case": entry.case, **shown, "created_at": entry.started_at}


def _make_page(rows: list[Any], cursor: str | None, limit: int) -> Page:
    """Return the page of a list that begins at a row; the cursor is its number."""
    at = int(cursor) if cursor and cursor.isascii() and cursor.isdigit() and len(cursor) < 10 else 0
    following = at + limit
    before = None if at == 0 else str(max(0, at - limit))
    return {
        "data": rows[at:following],
        "_meta": {"next": str(following) if following < len(rows) else None, "prev": before, "limit": limit},
    }
