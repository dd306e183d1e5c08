"""The audit log: every write with its author."""

from __future__ import annotations

from typing import Annotated, TypedDict, Unpack

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse, show_page
from proctor.service.resource import Page, Paging, about, operation, show_row
from proctor.store.accounts.tenants import list_notes_query
from proctor.store.sql.tables import audit


class Note(TypedDict):
    """One write: author, action and object."""

    id: str
    at: str
    actor: Annotated[str, about("the id of a key, or `local`")]
    action: str
    resource: str
    resource_id: str
    details: dict[str, Json] | None


@operation("audit", "GET /api/audit", name="list_audit", doing="reading the audit log")
async def list_notes(
    hub: Hub,
    caller: Caller,
    *,
    resource: Annotated[str | None, about("project, agent, case, key, ...")] = None,
    resource_id: str | None = None,
    **paging: Unpack[Paging],
) -> Page[Note]:
    """List writes, newest first; requires an organization key."""
    async with hub.database.reading() as connection:
        query = list_notes_query(caller.organization_id, resource=resource, resource_id=resource_id)
        page = await fetch_page_or_refuse(connection, query, audit, **paging, time="at")
    return show_page(page, lambda row: show_row(Note, row))
