"""`/api/audit`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, Field

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, make_router
from proctor.service.access.audit import list_notes

router = make_router("audit")


class Note(BaseModel):
    """One write: author, action and object."""

    id: str
    at: str
    actor: str = Field(description="the id of a key, or `local`")
    action: str
    resource: str
    resource_id: str
    details: dict[str, Any] | None


@router.get("/api/audit", response_model=PageOf[Note])
async def list_audit(
    hub: TheHub,
    caller: TheCaller,
    paging: ThePaging,
    resource: Annotated[str | None, Query(description="project, agent, case, key, ...")] = None,
    resource_id: Annotated[str | None, Query()] = None,
) -> object:
    """List writes, newest first; requires an organization key."""
    return await list_notes(hub, caller, resource=resource, resource_id=resource_id, limit=paging.limit, cursor=paging.cursor)
