"""`/api/keys`."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from proctor.rest.route_parts import Body, PageOf, TheCaller, TheHub, ThePaging, make_router
from proctor.service.access import keys

router = make_router("keys")
Kind = Literal["organization", "project", "solver", "run"]


class Key(BaseModel):
    """A key, masked."""

    id: str
    kind: str
    name: str
    masked: str = Field(description="its prefix and its last four characters")
    project_id: str | None
    agent_ids: list[str] | None
    solver_id: str | None
    benchmark_run_id: str | None
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    created_at: str


class CreatedKey(Key):
    """A new key, shown only once."""

    key: str = Field(description="the key itself; it cannot be shown again")


class NewKey(Body):
    """A new key."""

    kind: Kind
    name: str = Field(min_length=1, max_length=200)
    project_id: str | None = Field(None, description="for a project key")
    agent_ids: list[str] | None = Field(None, max_length=100, description="for a project key: the agents it is limited to")
    solver_id: str | None = Field(None, description="for a solver key")
    benchmark_run_id: str | None = Field(None, description="for a run token")
    expires_at: str | None = Field(None, description="ISO 8601; default: never")


@router.post("/api/keys", response_model=CreatedKey, status_code=201)
async def create_key(hub: TheHub, caller: TheCaller, body: NewKey) -> object:
    """Create a key; requires an organization key. It is shown only in this response."""
    row, plain = await keys.create_key(hub, caller, keys.KeySpec(**body.model_dump()))
    return {**row, "key": plain}


@router.get("/api/keys", response_model=PageOf[Key])
async def list_keys(
    hub: TheHub,
    caller: TheCaller,
    paging: ThePaging,
    kind: Annotated[Kind | Literal["sandbox"] | None, Query(description="default: all except tokens of runs and sandboxes")] = None,
    project_id: Annotated[str | None, Query()] = None,
    solver_id: Annotated[str | None, Query()] = None,
) -> object:
    """List keys, masked, newest first; requires an organization key."""
    wanted = {"kind": kind, "project_id": project_id, "solver_id": solver_id}
    return await keys.list_keys(hub, caller, **wanted, limit=paging.limit, cursor=paging.cursor)


@router.get("/api/keys/{key_id}", response_model=Key)
async def get_key(hub: TheHub, caller: TheCaller, key_id: str) -> object:
    """Read a key, masked; requires an organization key."""
    return await keys.get_key(hub, caller, key_id)


@router.delete("/api/keys/{key_id}", response_model=Key)
async def revoke_key(hub: TheHub, caller: TheCaller, key_id: str) -> object:
    """Revoke a key; requires an organization key. It stays listed."""
    return await keys.revoke_key(hub, caller, key_id)
