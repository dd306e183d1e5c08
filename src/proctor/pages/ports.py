"""The data source of screens: `service_source.py` reads from the service, `folder_source.py` from stored runs of a folder.

Lists are pages as in REST: `data` and `_meta` with cursors. Missing or forbidden objects raise `Refusal`.
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
    """A filter of runs; None matches all."""

    status: str | None = None
    name: str | None = None
    tag: str | None = None
    query: str | None = None
    """Text in the names of runs and suites, and in notes."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a page: a cursor, or a position counted from the newest row."""

    cursor: str | None = None
    position: int | None = None


EVERY_RUN = RunFilter()
FIRST = Place()


class Source(Protocol):
    """Projects, runs and results visible to one caller."""

    @property
    def is_local(self) -> bool:
        """Whether this is a local folder: no login, one project, read-only."""
        ...

    @property
    def may_write(self) -> bool:
        """Whether the caller may make changes."""
        ...

    async def list_projects(self, cursor: str | None) -> Page:
        """Return a page of projects, newest first."""
        ...

    async def get_project(self, id: str) -> Record:
        """Return one project."""
        ...

    async def list_firing_alerts(self, project_id: str) -> list[Record]:
        """Return the firing alert rules of a project."""
        ...

    async def read_overview(self, project_id: str, since: str | None) -> Overview:
        """Return a summary of a project and the changes since a moment (default: a day ago)."""
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
        """Return the previous completed run of the same suite, among the newest of the project."""
        ...

    async def cancel_run(self, id: str) -> None:
        """Cancel a run."""
        ...

    async def list_results(self, run_id: str, wanted: AttemptFilter = EVERY_ATTEMPT, *, place: Place = FIRST, limit: int = 50) -> Page:
        """Return a page of the finished attempts of a run, newest first; `_meta` has its position and how many there are, if known."""
        ...

    async def group_failures(self, run_id: str) -> Failures:
        """Return the failures of a run, grouped by reason."""
        ...

    async def read_result(self, run_id: str, result_id: str) -> ReadResult:
        """Return one attempt with its verdicts and evidence."""
        ...

    async def show_result(self, run_id: str, result_id: str, view: Hashable, write: Callable[[ReadResult], Record]) -> Record:
        """Return what `write` makes of an attempt; may be cached under `view`."""
        ...

    async def compare_several(self, ids: Sequence[str]) -> SeveralRuns:
        """Return runs compared with the first of them."""
        ...

    async def read_answers(self, ids: Sequence[str], case: str, *, attempt: int | None = None) -> tuple[Answer, ...]:
        """Return the answers to a case in these runs, compared with the first run."""
        ...

    async def measure_latency(self, run_id: str) -> Latency:
        """Return the durations of the attempts of a run."""
        ...

    async def find_event_address(self, run_id: str) -> str | None:
        """Return the address of the event stream of a run; None: poll."""
        ...


MakeSource = Callable[[Request], Source | None]
"""Returns the source for a request; None without a login."""
