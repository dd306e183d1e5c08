"""`/api/cases`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Response
from pydantic import BaseModel, Field

from proctor.rest.route_parts import Body, PageOf, TheCaller, TheHub, ThePaging, list_sent_fields, make_router
from proctor.service.traces import cases

router = make_router("cases")
Document = str | dict[str, Any] | list[Any]


class When(Body):
    """Conditions for the traces of a case; all must hold."""

    input: str | None = Field(None, description="a regular expression (ECMAScript) that must match the input", max_length=4000)
    metadata: dict[str, Any] | None = Field(None, description="required metadata values by name")
    tags: list[str] | None = Field(None, description="required tags")


class CaseSummary(BaseModel):
    """A document that traces are evaluated against."""

    id: str
    project_id: str
    agent_id: str | None = Field(description="none: every agent of the project")
    name: str
    dialect: str
    version: int = Field(description="incremented with every change of the document")
    active: bool
    when: dict[str, Any] | None
    sample: float
    created_at: str
    updated_at: str


class Case(CaseSummary):
    """A case with its document."""

    document: str


class Problem(BaseModel):
    """A finding in a document."""

    message: str
    line: int | None
    column: int | None
    path: str
    level: str
    code: str | None
    expected: str | None
    nearest: list[str]
    hint: str | None


class WrittenCase(Case):
    """A case with the problems of its document."""

    warnings: list[Problem]


class NewCase(Body):
    """A new case."""

    project_id: str
    agent_id: str | None = Field(None, description="default: every agent of the project")
    name: str | None = Field(None, min_length=1, max_length=200, description="default: the name in the document")
    document: Document = Field(description="a suite of any dialect, as text (YAML, JSON) or as JSON")
    dialect: str | None = Field(None, description="native, mcplab, mibo, verial or mcpjam; default: detected")
    active: bool = True
    when: When | None = None
    sample: float = Field(1.0, ge=0, le=1, description="share of traces to evaluate")


class CaseChanges(Body):
    """Changed fields; omitted fields stay unchanged."""

    agent_id: str | None = None
    name: str = Field("", min_length=1, max_length=200)
    document: Document = ""
    dialect: str | None = None
    active: bool = True
    when: When | None = None
    sample: float = Field(1.0, ge=0, le=1)
    expected_version: int | None = Field(None, ge=1, le=2**53, description="answered 409 if the case has another version")


class CaseVersionSummary(BaseModel):
    """An earlier version of a case."""

    version: int
    dialect: str
    created_at: str


class CaseVersion(CaseVersionSummary):
    """A version with its document."""

    document: str


@router.post("/api/cases", response_model=WrittenCase, status_code=201)
async def create_case(hub: TheHub, caller: TheCaller, body: NewCase) -> object:
    """Create a case; requires an organization key. An invalid document is rejected with all of its problems."""
    spec = cases.CaseSpec(**body.model_dump(exclude={"when"}), when=read_when(body.when))
    return await cases.create_case(hub, caller, spec)


@router.get("/api/cases", response_model=PageOf[CaseSummary])
async def list_cases(
    hub: TheHub,
    caller: TheCaller,
    paging: ThePaging,
    project_id: Annotated[str | None, Query()] = None,
    agent_id: Annotated[str | None, Query()] = None,
    active: Annotated[bool | None, Query()] = None,
    query: Annotated[str | None, Query(description="part of the name")] = None,
) -> object:
    """List cases, newest first, without their documents."""
    of = {"project_id": project_id, "agent_id": agent_id}
    return await cases.list_cases(hub, caller, **of, active=active, query=query, limit=paging.limit, cursor=paging.cursor)


@router.get("/api/cases/{case_id}", response_model=Case)
async def get_case(hub: TheHub, caller: TheCaller, case_id: str) -> object:
    """Read a case."""
    return await cases.get_case(hub, caller, case_id)


@router.patch("/api/cases/{case_id}", response_model=WrittenCase)
async def update_case(hub: TheHub, caller: TheCaller, case_id: str, body: CaseChanges) -> object:
    """Change a case; requires an organization key. A change of the document creates a new version."""
    changes = list_sent_fields(body)
    if "when" in changes:
        changes["when"] = read_when(body.when)
    return await cases.update_case(hub, caller, case_id, changes)


@router.delete("/api/cases/{case_id}", status_code=204)
async def delete_case(hub: TheHub, caller: TheCaller, case_id: str) -> Response:
    """Delete a case and its versions; requires an organization key. Results stay."""
    await cases.delete_case(hub, caller, case_id)
    return Response(status_code=204)


@router.post("/api/cases/{case_id}/pause", response_model=WrittenCase)
async def pause_case(hub: TheHub, caller: TheCaller, case_id: str) -> object:
    """Stop evaluating traces against the case until it is resumed; requires an organization key."""
    return await cases.update_case(hub, caller, case_id, {"active": False}, action="pause")


@router.post("/api/cases/{case_id}/resume", response_model=WrittenCase)
async def resume_case(hub: TheHub, caller: TheCaller, case_id: str) -> object:
    """Evaluate traces against the case again; requires an organization key."""
    return await cases.update_case(hub, caller, case_id, {"active": True}, action="resume")


@router.get("/api/cases/{case_id}/versions", response_model=PageOf[CaseVersionSummary])
async def list_versions(hub: TheHub, caller: TheCaller, case_id: str, paging: ThePaging) -> object:
    """List the versions of a case, newest first."""
    return await cases.list_versions(hub, caller, case_id, limit=paging.limit, cursor=paging.cursor)


@router.get("/api/cases/{case_id}/versions/{version}", response_model=CaseVersion)
async def get_version(hub: TheHub, caller: TheCaller, case_id: str, version: Annotated[int, Path(ge=1, le=2**53)]) -> object:
    """Read a version of a case."""
    return await cases.get_version(hub, caller, case_id, version)


def read_when(when: When | None) -> dict[str, Any] | None:
    """Return the conditions that are set, or None."""
    return None if when is None else when.model_dump(exclude_none=True) or None
