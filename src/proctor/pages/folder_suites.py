"""The suites of the runs of a folder, for `proctor view`: read once, as reading a thousand cases takes most of a second."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from proctor.actions.workspace.run_history import suite_of
from proctor.model.case import Case, Suite
from proctor.model.lazy_cases import find_scratch, is_lazy
from proctor.model.name_table import NameTable
from proctor.store.files.run_files import CASES, SUITE, RunFolder

_MOST = 8
"""Suites that are remembered."""
_LARGEST = 4_000_000
"""Bytes of a suite that is remembered; one whose cases are a file of their own is not held, and may be larger."""
_FRESH_S = 60.0
"""How long a suite is believed: the file it came from may name others, which are not looked at for every page."""


class ReadSuite:
    """A suite, and where its cases are by their ids."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self._positions = NameTable(find_scratch(suite.cases))
        for position, case in enumerate(suite.cases):
            self._positions.add(case.id, position)

    def find_case(self, id: str) -> Case | None:
        """Return the first case with this id."""
        # The table yields the newest position first, and also those of other names with the same hash.
        found = [position for position in self._positions.find(id) if self.suite.cases[position].id == id]
        return self.suite.cases[found[-1]] if found else None

    def find_cases(self, ids: Iterable[str]) -> dict[str, Case]:
        """Return those of these cases that the suite has."""
        found = {id: self.find_case(id) for id in dict.fromkeys(ids)}
        return {id: case for id, case in found.items() if case is not None}


class FolderSuites:
    """The suites that were asked for last."""

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
        # Not under the lock, so that no other page waits for it: two may read the same suite, and the later one is remembered.
        read = ReadSuite(suite_of(run))
        if is_lazy(read.suite.cases) or (files[0] or (0, 0))[0] <= _LARGEST:
            with self._lock:
                self._known[run.folder] = (files, time.monotonic(), read)
                while len(self._known) > _MOST:
                    self._known.popitem(last=False)
        return read


def _look_at_files(run: RunFolder) -> tuple[tuple[int, int] | None, ...]:
    """Return size and time of every file that says what the suite is."""
    path = run.header.suite_path
    return (_look_at(run.folder / SUITE), _look_at(run.folder / CASES), None if path is None else _look_at(Path(path)))


def _look_at(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns
