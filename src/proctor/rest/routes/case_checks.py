"""`/api/cases`: checks of a document that is not stored (`validate`, `try`), and a case over time (`backtest`, `history`)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from proctor.actions.workspace.run_names import LONGEST
from proctor.rest.route_parts import Body, PageOf, TheCaller, TheHub, ThePaging, make_router
from proctor.rest.routes.cases import Document, Problem, When, read_when
from proctor.rest.routes.runs import Counts, Run
from proctor.service.runs import requests as backtests
from proctor.service.runs.names import MOST_TAGS
from proctor.service.runs.requests import LONGEST_NOTE
from proctor.service.traces import case_history
from proctor.service.traces.case_trial import MOST_TRACES, Trial, try_document, validate_document

router = make_router("cases")
_Key = Annotated[str | None, Query(description="the id of one case inside the document; default: all", max_length=1000)]
_DIALECT = Field(None, description="native, mcplab, mibo, verial or mcpjam; default: detected")


class SentDocument(Body):
    """A document that is not stored."""

    document: Document = Field(description="a suite of any dialect, as text (YAML, JSON) or as JSON")
    dialect: str | None = _DIALECT


class ReadCase(BaseModel):
    """A case inside a document."""

    id: str
    name: str
    assertions: int


class Validation(BaseModel):
    """The result of reading a document."""

    valid: bool
    problems: list[Problem] = Field(description="the first 100, in document order; only warnings if valid")
    name: str | None
    dialect: str | None
    case_count: int
    cases: list[ReadCase] = Field(description="the first 1,000")


class TrialRequest(Body):
    """A document, and the traces to try it on: the newest of an agent or of the project."""

    project_id: str
    agent_id: str | None = Field(None, description="default: every agent of the project")
    document: Document
    dialect: str | None = _DIALECT
    when: When | None = None
    limit: int = Field(10, ge=1, le=MOST_TRACES, description="number of traces")


class TriedAssertion(BaseModel):
    """One assertion on one trace."""

    label: str
    outcome: str
    code: str | None
    reason: str


class TriedResult(BaseModel):
    """One case on one trace."""

    case: str
    outcome: str
    score: float | None
    code: str | None
    reason: str | None
    assertions: list[TriedAssertion]


class TriedTrace(BaseModel):
    """One trace."""

    id: str
    agent_id: str
    external_id: str
    input_text: str | None
    created_at: str
    is_for: bool = Field(description="whether `when` matches; the cases are decided only on matching traces")
    error: str | None = Field(description="why nothing was decided: a code and a message")
    results: list[TriedResult] = Field(description="the first 50 cases")
    more_results: int


class TrialResult(BaseModel):
    """The results of a trial, which are not stored."""

    dialect: str
    counts: dict[str, int] = Field(description="number of results by outcome, over all traces")
    traces: list[TriedTrace]


class NewBacktest(Body):
    """The stored traces that a case is decided on: the newest of its agent or project."""

    agent_id: str | None = Field(None, description="default: the agent of the case, or every agent of its project")
    since: str | None = Field(None, max_length=100, description="traces from this time on; ISO 8601")
    until: str | None = Field(None, max_length=100, description="traces before this time; default: now")
    limit: int | None = Field(
        None,
        ge=1,
        le=backtests.MOST_TRACES,
        description=f"number of newest traces; default: {backtests.USUAL_TRACES:,}. Required for a case with a judge: "
        f"at most {backtests.MOST_JUDGED_TRACES}",
    )
    note: str = Field("", max_length=LONGEST_NOTE)
    name: str = Field("", max_length=LONGEST, description="name of the run")
    tags: list[str] = Field([], max_length=MOST_TAGS, description="tags, to find the run by `@tag`")


class _PassRate(BaseModel):
    counts: Counts
    decided: int = Field(description="attempts that passed, failed or errored; skipped ones do not count")
    passed: int
    pass_rate: float | None = Field(description="none if nothing was decided")
    low: float | None = Field(description="of the pass rate, with 95 % confidence (Wilson)")
    high: float | None


class CaseInRun(_PassRate):
    """The results of a case in one run."""

    run_id: str
    suite_name: str
    name: str
    target: str | None
    status: str
    created_at: str
    completed_at: str | None
    cases: list[str] = Field(description="ids of the document's cases in the run")
    flaky: bool = Field(description="whether a case passed in some attempts only")


class CaseOnDay(_PassRate):
    """The results of a case on the traces of one day."""

    day: str = Field(description="UTC")
    versions: list[int] = Field(description="versions of the case that decided them")
    newest_only: bool = Field(description="whether only the newest 10,000 results of the day are counted")


@router.post("/api/cases/validate", response_model=Validation)
async def validate_case(caller: TheCaller, body: SentDocument) -> object:
    """Validate a document without storing it; requires an organization key. Problems have a line, a column and the nearest known word."""
    return await validate_document(caller, body.document, dialect=body.dialect)


@router.post("/api/cases/try", response_model=TrialResult)
async def try_case(hub: TheHub, caller: TheCaller, body: TrialRequest) -> object:
    """Decide a document on the newest stored traces without storing anything or calling a judge; requires an organization key."""
    return await try_document(hub, caller, Trial(**body.model_dump(exclude={"when"}), when=read_when(body.when)))


@router.post("/api/cases/{case_id}/backtest", response_model=Run, status_code=202)
async def start_backtest(hub: TheHub, caller: TheCaller, case_id: str, body: NewBacktest) -> object:
    """Queue a run that decides the case, active or paused, on stored traces; requires an organization key.

    No agent is called. Each trace is an attempt of the run; `sample` of the case is ignored.
    """
    return await backtests.start_backtest(hub, caller, case_id, backtests.BacktestSpec(**body.model_dump()))


@router.get("/api/cases/{case_id}/history", response_model=PageOf[CaseInRun])
async def list_case_history(hub: TheHub, caller: TheCaller, case_id: str, paging: ThePaging, key: _Key = None) -> object:
    """List the runs of the project that had the case, newest first, each with its pass rate; found by the ids inside the document."""
    return await case_history.list_run_history(hub, caller, case_id, key=key, limit=paging.limit, cursor=paging.cursor)


@router.get("/api/cases/{case_id}/history/traces", response_model=PageOf[CaseOnDay])
async def list_case_trace_history(hub: TheHub, caller: TheCaller, case_id: str, paging: ThePaging, key: _Key = None) -> object:
    """List the days on which traces were decided against the case, newest first, each with its pass rate."""
    return await case_history.list_trace_history(hub, caller, case_id, key=key, limit=paging.limit, cursor=paging.cursor)
