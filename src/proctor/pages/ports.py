"""What screens ask for. `service_source.py` answers from the service for its caller, `folder_source.py` from the runs of a folder.

Lists are pages as REST has them: `data` and `_meta` with the cursors of the neighbours. Whatever is not there, or not for this reader,
is refused (`Refusal`) by the verbs below.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import msgspec
from starlette.requests import Request

from proctor.actions.history.answers import Answer
from proctor.actions.history.compare_several import SeveralRuns
from proctor.actions.history.failures import Failures
from proctor.actions.history.latency import Latency
from proctor.actions.history.overview import Overview, TrendPoint
from proctor.service.runs.results import EVERY_ATTEMPT, AttemptFilter, ReadResult

Page = dict[str, Any]
Record = dict[str, Any]


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are listed; what is None does not count."""

    status: str | None = None
    name: str | None = None
    tag: str | None = None
    query: str | None = None
    """Looked for in the names of runs and suites, and in notes."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a page of a list begins: at a cursor, or at a position counted from the newest row."""

    cursor: str | None = None
    position: int | None = None


EVERY_RUN = RunFilter()
FIRST = Place()


class Source(Protocol):
    """Projects, runs and results, as one reader may see them."""

    @property
    def is_local(self) -> bool:
        """Whether this is the folder of the reader's own machine: no login, one project, nothing to change."""
        ...

    @property
    def may_write(self) -> bool:
        """Whether the reader may start and cancel runs."""
        ...

    async def list_projects(self, cursor: str | None) -> Page:
        """Return a page of projects, newest first."""
        ...

    async def get_project(self, id: str) -> Record:
        """Return one project."""
        ...

    async def list_firing_alerts(self, project_id: str) -> list[Record]:
        """Return the alert rules of a project that fire just now."""
        ...

    async def read_overview(self, project_id: str, since: str | None) -> Overview:
        """Return what is going on in a project, and what has changed since a moment; None: a day ago."""
        ...

    async def read_trend(self, project_id: str) -> tuple[TrendPoint, ...]:
        """Return the latest completed runs of a project, oldest first."""
        ...

    async def list_runs(self, project_id: str, wanted: RunFilter = EVERY_RUN, *, cursor: str | None = None, limit: int = 50) -> Page:
        """Return a page of the runs of a project, newest first."""
        ...

    async def get_run(self, id: str) -> Record:
        """Return one run."""
        ...

    async def find_run_before(self, run: Record) -> Record | None:
        """Return the latest completed run of the same suite that was made before this one, among the newest of the project."""
        ...

    async def cancel_run(self, id: str) -> None:
        """End a run."""
        ...

    async def list_results(self, run_id: str, wanted: AttemptFilter = EVERY_ATTEMPT, *, place: Place = FIRST, limit: int = 50) -> Page:
        """Return a page of the finished attempts of a run, newest first; `_meta` has its position and how many there are, if known."""
        ...

    async def group_failures(self, run_id: str) -> Failures:
        """Return what went wrong in a run, by reason."""
        ...

    async def read_result(self, run_id: str, result_id: str) -> ReadResult:
        """Return one attempt with its verdicts and evidence."""
        ...

    async def show_result(self, run_id: str, result_id: str, view: Hashable, write: Callable[[ReadResult], Record]) -> Record:
        """Return what `write` makes of one attempt, which may be remembered by the name of `view`."""
        ...

    async def compare_several(self, ids: Sequence[str]) -> SeveralRuns:
        """Return runs side by side; the first is the base of the others."""
        ...

    async def read_answers(self, ids: Sequence[str], case: str, *, attempt: int | None = None) -> tuple[Answer, ...]:
        """Return what was answered to a case in each of these runs, beside the answer in the first of them."""
        ...

    async def measure_latency(self, run_id: str) -> Latency:
        """Return how long the attempts of a run took."""
        ...

    async def find_event_address(self, run_id: str) -> str | None:
        """Return where what happens to a run from now on can be followed; None: look again from time to time."""
        ...


MakeSource = Callable[[Request], Source | None]
"""Returns the source for whoever asks; None for a stranger, who is shown the way in."""
