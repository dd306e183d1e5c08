"""The data source of screens that reads from the service, for the caller of the request."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import cast

import msgspec
from starlette.requests import Request

from proctor.actions.history.answers import Answer
from proctor.actions.history.compare_several import SeveralRuns
from proctor.actions.history.failures import Failures
from proctor.actions.history.overview import Latency, Overview, TraceCounts, TrendPoint
from proctor.actions.workspace.run_tally import RunTotals
from proctor.model.mutation import MutationResult
from proctor.pages.places import EVERY_RUN, FIRST, Place, Record
from proctor.pages.words import quote_part
from proctor.service import overview
from proctor.service.access import projects
from proctor.service.access.callers import Caller
from proctor.service.access.projects import Project
from proctor.service.hub import Hub
from proctor.service.resource import Page
from proctor.service.runs import comparisons, examinations, figures, requests, results
from proctor.service.runs.results import FailingPlace, ReadResult
from proctor.service.runs.run import AttemptFilter, Run, RunResultSummaryPage, RunSearch, ShownRun
from proctor.service.traces import case_history
from proctor.service.traces.case_history import CaseInRun


class ServiceSource:
    """The service, for one caller."""

    is_local = False

    def __init__(self, hub: Hub, caller: Caller) -> None:
        self._hub = hub
        self._caller = caller

    @classmethod
    def of_request(cls, request: Request) -> ServiceSource | None:
        """Return the source for the caller; None if the request has no caller."""
        caller: Caller | None = getattr(request.state, "caller", None)
        return None if caller is None else cls(cast(Hub, request.app.state.hub), caller)

    @property
    def may_write(self) -> bool:
        """Whether the caller may make changes."""
        return self._caller.kind == "organization"

    async def list_projects(self, cursor: str | None) -> Page[Project]:
        """Return a page of projects."""
        return await projects.list_projects(self._hub, self._caller, cursor=cursor)

    async def get_project(self, id: str) -> Project:
        """Return one project."""
        return await projects.get_project(self._hub, self._caller, id)

    async def list_firing_alerts(self, project_id: str) -> Sequence[Record]:
        """Return the firing rules among the newest hundred, if the caller may read them."""
        return await overview.list_firing_rules(self._hub, self._caller, project_id) or []

    async def read_overview(self, project_id: str, since: str | None) -> Overview:
        """Return the overview of a project."""
        return await overview.read_overview(self._hub, self._caller, project_id, since=since)

    async def count_traces(self, project_id: str) -> TraceCounts | None:
        """Return the traces of the last seven days by outcome."""
        return await overview.count_week(self._hub, self._caller, project_id)

    async def read_trend(self, project_id: str) -> tuple[TrendPoint, ...]:
        """Return the latest completed runs."""
        return await overview.read_trend(self._hub, self._caller, project_id)

    async def list_runs(
        self, project_id: str, wanted: RunSearch = EVERY_RUN, *, cursor: str | None = None, limit: int = 50
    ) -> Page[ShownRun]:
        """Return a page of runs."""
        search = msgspec.structs.replace(wanted, project_id=project_id)
        return cast(Page[ShownRun], await requests.list_runs(self._hub, self._caller, search, cursor=cursor, limit=limit))

    async def get_run(self, id: str) -> ShownRun:
        """Return one run."""
        return await requests.get_run(self._hub, self._caller, id)

    async def find_previous_runs(self, project_id: str, runs: Sequence[ShownRun]) -> Mapping[str, ShownRun]:
        """Return the previous run of the same kind for each."""
        return await requests.find_previous_runs(self._hub, self._caller, project_id, cast(Sequence[Run], runs))

    async def cancel_run(self, id: str) -> None:
        """Cancel a run."""
        await requests.cancel_run(self._hub, self._caller, id)

    async def list_results(
        self, run_id: str, wanted: AttemptFilter = results.EVERY_ATTEMPT, *, place: Place = FIRST, limit: int = 50
    ) -> RunResultSummaryPage:
        """Return a page of attempts."""
        return await results.list_run_results(
            self._hub, self._caller, run_id, wanted, limit=limit, cursor=place.cursor, position=place.position
        )

    async def read_totals(self, run_id: str) -> RunTotals:
        """Return the totals of a run."""
        return await figures.read_totals(self._hub, self._caller, run_id)

    async def list_totals(self, runs: Sequence[ShownRun]) -> Mapping[str, RunTotals]:
        """Return the stored totals of runs."""
        return await figures.list_totals(self._hub, [run["id"] for run in runs])

    async def group_failures(self, run_id: str) -> Failures:
        """Return the failures by reason."""
        return await figures.group_run_failures(self._hub, self._caller, run_id)

    async def find_failing_place(self, run_id: str, result_id: str) -> FailingPlace | None:
        """Return the place of an attempt among the failing ones."""
        return await results.find_failing_place(self._hub, self._caller, run_id, result_id)

    async def list_case_history(self, project_id: str, suite: str, case: str, *, cursor: str | None, limit: int) -> Page[CaseInRun]:
        """Return the runs of a suite that had a case."""
        history = case_history.list_suite_case_history
        return await history(self._hub, self._caller, project_id, suite=suite, case=case, cursor=cursor, limit=limit)

    async def read_result(self, run_id: str, result_id: str) -> ReadResult:
        """Return one attempt."""
        return await results.read_run_result(self._hub, self._caller, run_id, result_id)

    async def show_result(self, run_id: str, result_id: str, view: Hashable, write: Callable[[ReadResult], Record]) -> Record:
        """Return what a page shows of an attempt."""
        return await results.show_run_result(self._hub, self._caller, run_id, result_id, view=view, write=write)

    async def compare_several(self, ids: Sequence[str]) -> SeveralRuns:
        """Return runs compared with the first."""
        return await comparisons.read_several(self._hub, self._caller, ids)

    async def read_answers(self, ids: Sequence[str], case: str, *, attempt: int | None = None) -> tuple[Answer, ...]:
        """Return the answers to a case."""
        return await comparisons.read_answers(self._hub, self._caller, ids, case, attempt=attempt)

    async def measure_latency(self, run_id: str) -> Latency:
        """Return the durations of attempts."""
        return await figures.measure_latency(self._hub, self._caller, run_id)

    async def measure_suite(self, run_id: str) -> MutationResult:
        """Return which planted faults the suite detects."""
        return await figures.measure_run(self._hub, self._caller, run_id)

    async def read_findings(self, run_id: str) -> examinations.Findings | None:
        """Return what an examination found."""
        return await examinations.read_findings(self._hub, self._caller, run_id)

    async def find_event_address(self, run_id: str) -> str | None:
        """Return the REST event stream, which accepts a session."""
        own_id, last = await results.find_last_event(self._hub, self._caller, run_id)
        return f"/api/runs/{quote_part(own_id)}/events?after={last}"
