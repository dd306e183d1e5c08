"""The data source of screens: `service_source.py` reads from the service, `folder_source.py` from stored runs of a folder.

Lists are pages as in REST: `data` and `_meta` with cursors. Missing or forbidden objects raise `Refusal`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from starlette.requests import Request

from proctor.actions.history.answers import Answer
from proctor.actions.history.compare_several import SeveralRuns
from proctor.actions.history.failures import Failures
from proctor.actions.history.overview import Latency, Overview, TraceCounts, TrendPoint
from proctor.actions.workspace.run_tally import RunTotals
from proctor.model.mutation import MutationResult
from proctor.service.access.projects import Project
from proctor.service.resource import Page
from proctor.service.runs.examinations import Findings
from proctor.service.runs.results import EVERY_ATTEMPT, FailingPlace, ReadResult
from proctor.service.runs.run import AttemptFilter, RunResultSummaryPage, RunSearch, ShownRun
from proctor.service.traces.case_history import CaseInRun

Record = Mapping[str, Any]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a page: a cursor, or a position counted from the newest row."""

    cursor: str | None = None
    position: int | None = None


EVERY_RUN = RunSearch()
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

    async def list_projects(self, cursor: str | None) -> Page[Project]:
        """Return a page of projects, newest first."""
        ...

    async def get_project(self, id: str) -> Project:
        """Return one project."""
        ...

    async def list_firing_alerts(self, project_id: str) -> Sequence[Record]:
        """Return the firing alert rules of a project."""
        ...

    async def read_overview(self, project_id: str, since: str | None) -> Overview:
        """Return a summary of a project and the changes since a moment (default: a day ago)."""
        ...

    async def count_traces(self, project_id: str) -> TraceCounts | None:
        """Return the traces of the last seven days by outcome; None in a folder."""
        ...

    async def read_trend(self, project_id: str) -> tuple[TrendPoint, ...]:
        """Return the latest completed runs of a project, oldest first."""
        ...

    async def list_runs(
        self, project_id: str, wanted: RunSearch = EVERY_RUN, *, cursor: str | None = None, limit: int = 50
    ) -> Page[ShownRun]:
        """Return a page of the runs of a project, newest first."""
        ...

    async def get_run(self, id: str) -> ShownRun:
        """Return one run."""
        ...

    async def find_previous_runs(self, project_id: str, runs: Sequence[ShownRun]) -> Mapping[str, ShownRun]:
        """Return the previous completed run of the same kind for each of these runs, by id."""
        ...

    async def cancel_run(self, id: str) -> None:
        """Cancel a run."""
        ...

    async def list_results(
        self, run_id: str, wanted: AttemptFilter = EVERY_ATTEMPT, *, place: Place = FIRST, limit: int = 50
    ) -> RunResultSummaryPage:
        """Return a page of the finished attempts of a run, newest first; `_meta` has its position and how many there are, if known."""
        ...

    async def read_totals(self, run_id: str) -> RunTotals:
        """Return the cases, tokens and cost of a run."""
        ...

    async def group_failures(self, run_id: str) -> Failures:
        """Return the failures of a run, grouped by reason."""
        ...

    async def find_failing_place(self, run_id: str, result_id: str) -> FailingPlace | None:
        """Return the place of an attempt among the failing ones of its run; None if it passed."""
        ...

    async def list_case_history(self, project_id: str, suite: str, case: str, *, cursor: str | None, limit: int) -> Page[CaseInRun]:
        """Return the runs of a suite that had a case, newest first."""
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

    async def measure_suite(self, run_id: str) -> MutationResult:
        """Return which planted faults the suite of an ended run detects."""
        ...

    async def read_findings(self, run_id: str) -> Findings | None:
        """Return what an examination found; None for another run, or before its end."""
        ...

    async def find_event_address(self, run_id: str) -> str | None:
        """Return the address of the event stream of a run; None: poll."""
        ...


MakeSource = Callable[[Request], Source | None]
"""Returns the source for a request; None without a login."""
