"""The data source of screens that reads from the service, for the caller of the request."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import msgspec
from starlette.requests import Request

from proctor.actions.history.overview import Overview
from proctor.pages.places import EVERY_RUN, FIRST, Place, Record
from proctor.pages.words import quote_part
from proctor.service import overview
from proctor.service.access import projects
from proctor.service.access.callers import Caller
from proctor.service.access.projects import Project
from proctor.service.hub import Hub
from proctor.service.resource import Page
from proctor.service.runs import comparisons, examinations, figures, requests, results
from proctor.service.runs.results import ReadResult
from proctor.service.runs.run import AttemptFilter, Run, RunResultSummaryPage, RunSearch, ShownRun
from proctor.service.traces import case_history
from proctor.service.traces.case_history import CaseInRun

Answer = TypeVar("Answer")
Parameters = ParamSpec("Parameters")


def _for_caller(
    operation: Callable[Concatenate[Hub, Caller, Parameters], Coroutine[Any, Any, Answer]],
) -> Callable[Concatenate[ServiceSource, Parameters], Coroutine[Any, Any, Answer]]:
    """Return the method that calls an operation of the service for the caller of the source."""

    async def call(source: ServiceSource, *arguments: Parameters.args, **options: Parameters.kwargs) -> Answer:
        return await operation(source.hub, source.caller, *arguments, **options)

    return call


class ServiceSource:
    """The service, for one caller."""

    is_local = False

    def __init__(self, hub: Hub, caller: Caller) -> None:
        self.hub = hub
        self.caller = caller

    @classmethod
    def of_request(cls, request: Request) -> ServiceSource | None:
        """Return the source for the caller; None if the request has no caller."""
        caller: Caller | None = getattr(request.state, "caller", None)
        return None if caller is None else cls(request.app.state.hub, caller)

    @property
    def may_write(self) -> bool:
        """Whether the caller may make changes."""
        return self.caller.kind == "organization"

    get_project = _for_caller(projects.get_project)
    count_traces = _for_caller(overview.count_week)
    read_trend = _for_caller(overview.read_trend)
    get_run = _for_caller(requests.get_run)
    cancel_run = _for_caller(requests.cancel_run)
    read_totals = _for_caller(figures.read_totals)
    group_failures = _for_caller(figures.group_run_failures)
    measure_latency = _for_caller(figures.measure_latency)
    measure_suite = _for_caller(figures.measure_run)
    find_failing_place = _for_caller(results.find_failing_place)
    read_result = _for_caller(results.read_run_result)
    compare_several = _for_caller(comparisons.read_several)
    read_answers = _for_caller(comparisons.read_answers)
    read_findings = _for_caller(examinations.read_findings)

    async def list_projects(self, cursor: str | None) -> Page[Project]:
        """Return a page of projects."""
        return await projects.list_projects(self.hub, self.caller, cursor=cursor)

    async def list_firing_alerts(self, project_id: str) -> Sequence[Record]:
        """Return the firing rules among the newest hundred, if the caller may read them."""
        return await overview.list_firing_rules(self.hub, self.caller, project_id) or []

    async def read_overview(self, project_id: str, since: str | None) -> Overview:
        """Return the overview of a project."""
        return await overview.read_overview(self.hub, self.caller, project_id, since=since)

    async def list_runs(
        self, project_id: str, wanted: RunSearch = EVERY_RUN, *, cursor: str | None = None, limit: int = 50
    ) -> Page[ShownRun]:
        """Return a page of runs."""
        search = msgspec.structs.replace(wanted, project_id=project_id)
        return cast(Page[ShownRun], await requests.list_runs(self.hub, self.caller, search, cursor=cursor, limit=limit))

    async def find_previous_runs(self, project_id: str, runs: Sequence[ShownRun]) -> Mapping[str, ShownRun]:
        """Return the previous run of the same kind for each."""
        return await requests.find_previous_runs(self.hub, self.caller, project_id, cast(Sequence[Run], runs))

    async def list_results(
        self, run_id: str, wanted: AttemptFilter = results.EVERY_ATTEMPT, *, place: Place = FIRST, limit: int = 50
    ) -> RunResultSummaryPage:
        """Return a page of attempts."""
        read = results.list_run_results
        return await read(self.hub, self.caller, run_id, wanted, limit=limit, cursor=place.cursor, position=place.position)

    async def list_facts(self, runs: Sequence[ShownRun]) -> Mapping[str, figures.RunFacts]:
        """Return the stored figures of runs."""
        return await figures.list_facts(self.hub, [run["id"] for run in runs])

    async def list_case_history(self, project_id: str, suite: str, case: str, *, cursor: str | None, limit: int) -> Page[CaseInRun]:
        """Return the runs of a suite that had a case."""
        read = case_history.list_suite_case_history
        return await read(self.hub, self.caller, project_id, suite=suite, case=case, cursor=cursor, limit=limit)

    async def show_result(self, run_id: str, result_id: str, view: Hashable, write: Callable[[ReadResult], Record]) -> Record:
        """Return what a page shows of an attempt."""
        return await results.show_run_result(self.hub, self.caller, run_id, result_id, view=view, write=write)

    async def find_event_address(self, run_id: str) -> str | None:
        """Return the REST event stream, which accepts a session."""
        own_id, last = await results.find_last_event(self.hub, self.caller, run_id)
        return f"/api/runs/{quote_part(own_id)}/events?after={last}"
