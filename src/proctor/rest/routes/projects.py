"""`/api/projects`."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import BaseModel, Field

from proctor.rest.route_parts import Body, PageOf, TheCaller, TheHub, ThePaging, list_sent_fields, make_router
from proctor.service.access import projects

router = make_router("projects")


class Project(BaseModel):
    """A group of agents, cases, keys and runs."""

    id: str
    name: str
    description: str | None
    paused: bool = Field(description="rejects traces and starts no runs")
    settings: dict[str, Any]
    created_at: str
    updated_at: str


class NewProject(Body):
    """A new project."""

    name: str = Field(min_length=1, max_length=200)
    description: str | None = Field(None, max_length=4000)
    settings: dict[str, Any] = Field(default_factory=dict, description="targets, models and others, as in `proctor.yaml`")


class ProjectChanges(Body):
    """Changed fields; omitted fields stay unchanged."""

    name: str = Field("", min_length=1, max_length=200)
    description: str | None = Field(None, max_length=4000)
    paused: bool = False
    settings: dict[str, Any] = Field(default_factory=dict)


@router.post("/api/projects", response_model=Project, status_code=201)
async def create_project(hub: TheHub, caller: TheCaller, body: NewProject) -> object:
    """Create a project; requires an organization key."""
    return await projects.create_project(hub, caller, **body.model_dump())


@router.get("/api/projects", response_model=PageOf[Project])
async def list_projects(hub: TheHub, caller: TheCaller, paging: ThePaging) -> object:
    """List projects, newest first."""
    return await projects.list_projects(hub, caller, limit=paging.limit, cursor=paging.cursor)


@router.get("/api/projects/{project_id}", response_model=Project)
async def get_project(hub: TheHub, caller: TheCaller, project_id: str) -> object:
    """Read a project."""
    return await projects.get_project(hub, caller, project_id)


@router.patch("/api/projects/{project_id}", response_model=Project)
async def update_project(hub: TheHub, caller: TheCaller, project_id: str, body: ProjectChanges) -> object:
    """Change a project; requires an organization key."""
    return await projects.update_project(hub, caller, project_id, list_sent_fields(body))


@router.delete("/api/projects/{project_id}", status_code=204)
async def delete_project(hub: TheHub, caller: TheCaller, project_id: str) -> Response:
    """Delete a project with everything in it, and revoke its keys; requires an organization key."""
    await projects.delete_project(hub, caller, project_id)
    return Response(status_code=204)


@router.post("/api/projects/{project_id}/pause", response_model=Project)
async def pause_project(hub: TheHub, caller: TheCaller, project_id: str) -> object:
    """Reject traces and start no runs until it is resumed; requires an organization key."""
    return await projects.update_project(hub, caller, project_id, {"paused": True}, action="pause")


@router.post("/api/projects/{project_id}/resume", response_model=Project)
async def resume_project(hub: TheHub, caller: TheCaller, project_id: str) -> object:
    """Accept traces and start runs again; requires an organization key."""
    return await projects.update_project(hub, caller, project_id, {"paused": False}, action="resume")
