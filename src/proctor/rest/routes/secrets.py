"""`/api/projects/{project_id}/secrets`: stored encrypted, used as `${NAME}`, never shown."""

from __future__ import annotations

from fastapi import Response
from pydantic import BaseModel, Field

from proctor.rest.route_parts import Body, TheCaller, TheHub, make_router
from proctor.service.access import secrets

router = make_router("secrets")


class Secret(BaseModel):
    """A secret without its value."""

    id: str
    project_id: str
    name: str
    created_at: str
    updated_at: str


class Secrets(BaseModel):
    """The secrets of a project."""

    data: list[Secret]


class SecretValue(Body):
    """The value of a secret."""

    value: str = Field(min_length=1, description="encrypted at rest; it cannot be read again")


@router.get("/api/projects/{project_id}/secrets", response_model=Secrets)
async def list_secrets(hub: TheHub, caller: TheCaller, project_id: str) -> object:
    """List the names of a project's secrets; requires an organization key."""
    return {"data": await secrets.list_secrets(hub, caller, project_id)}


@router.put("/api/projects/{project_id}/secrets/{name}", response_model=Secret)
async def set_secret(hub: TheHub, caller: TheCaller, project_id: str, name: str, body: SecretValue) -> object:
    """Create or replace a secret; requires an organization key. Settings and suites refer to it as `${NAME}`."""
    return await secrets.set_secret(hub, caller, project_id, name, body.value)


@router.delete("/api/projects/{project_id}/secrets/{name}", status_code=204)
async def delete_secret(hub: TheHub, caller: TheCaller, project_id: str, name: str) -> Response:
    """Delete a secret; requires an organization key."""
    await secrets.delete_secret(hub, caller, project_id, name)
    return Response(status_code=204)
