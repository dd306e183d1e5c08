"""The runs of a folder in the shape of runs of the service, for `proctor view`. No log is read twice that has not changed."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from proctor.actions.workspace.run_history import KeptRun, describe_kept_run, open_run
from proctor.errors import ProctorError
from proctor.model.json_values import read_digits
from proctor.pages.folder_comparisons import IndexedRun
from proctor.pages.folder_suites import FolderSuites
from proctor.pages.ports import Record, RunFilter
from proctor.service.refusals import not_found
from proctor.store.files.baselines import Baselines
from proctor.store.files.log_index import LogCounts, LogIndex, LogIndexes
from proctor.store.files.run_entries import open_regular
from proctor.store.files.run_files import CASES, RESULTS, SUITE, RunFiles, RunFolder

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
        kept = describe_kept_run(self._files, id, is_baseline=id in baselines, count=self._count)
        status = "failed" if kept.problem is not None else _STATUSES.get(kept.ended or "not_ended", "failed")
        outcome = None
        if status == "completed":
            folder = self._files.folder / id
            outcome = _decide_outcome(self._home, folder, kept, self._logs.count(folder / RESULTS))
        return _show_run(kept, status, outcome)


def _decide_outcome(home: Path, folder: Path, kept: KeptRun, counts: LogCounts) -> str:
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


def _show_run(kept: KeptRun, status: str, outcome: str | None) -> Record:
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
