"""Records of resources: the five standard operations, and building blocks within a transaction.

An organization key is required. A record of another organization does not exist for the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, Unpack

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub, new_id
from proctor.service.paging import fetch_page_or_refuse
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.shared.declaration import Resource
from proctor.store.sql.pages import Page, Row
from proctor.store.sql.tables import records
from proctor.store.sql.verification_records import NewRecord, add_record, change_record, delete_records, find_record, records_of


class Paging(TypedDict, total=False):
    """The requested page of a list."""

    limit: int | None
    cursor: str | None


def authorize(caller: Caller, doing: str = "using the verification API") -> None:
    """Reject every key but organization keys."""
    if caller.kind != "organization":
        raise Refusal("FORBIDDEN", f"{doing} requires an organization key")


async def require_record(
    connection: AsyncConnection, caller: Caller, kind: str, id: str, *, what: str | None = None, lock: bool = False
) -> Row:
    """Return a record of the caller's organization."""
    found = await find_record(connection, caller.organization_id, kind, id, lock=lock)
    if found is None:
        raise not_found(what or kind.replace("_", " "), id)
    return found


async def list_rows(
    hub: Hub, caller: Caller, resource: Resource, *, parent_id: str | None = None, **paging: Unpack[Paging]
) -> tuple[Page, list[dict[str, Json]]]:
    """Return a page of records, also as JSON; limited to a parent if given."""
    authorize(caller)
    async with hub.database.reading() as connection:
        if parent_id is not None and resource.parent is not None:
            parent = resource.fields[resource.parent].kind.refers
            assert parent is not None  # it is the id of a record
            await require_record(connection, caller, parent, parent_id)
        query = records_of(caller.organization_id, resource.kind, parent_id=parent_id)
        found = await fetch_page_or_refuse(connection, query, records, **paging)
    return found, [resource.show(row) for row in found.rows]


def make_page(found: Page, data: list[dict[str, Json]]) -> dict[str, Json]:
    """Return a page as JSON."""
    return {"data": data, "_meta": {"next": found.next, "prev": found.prev, "limit": found.limit}}


async def list_plain(
    hub: Hub, caller: Caller, resource: Resource, *, parent_id: str | None = None, **paging: Unpack[Paging]
) -> dict[str, Json]:
    """List records of a resource without special rules."""
    return make_page(*await list_rows(hub, caller, resource, parent_id=parent_id, **paging))


async def create_plain(hub: Hub, caller: Caller, resource: Resource, given: Mapping[str, Json]) -> dict[str, Json]:
    """Create a record of a resource without special rules."""
    authorize(caller)
    body = resource.read(given)
    async with hub.database.writing() as connection:
        row = await store_record(connection, hub, caller, resource, body)
    return resource.show(row)


async def get_plain(hub: Hub, caller: Caller, resource: Resource, id: str) -> dict[str, Json]:
    """Read a record of a resource without special rules."""
    authorize(caller)
    async with hub.database.reading() as connection:
        return resource.show(await require_record(connection, caller, resource.kind, id, what=resource.called))


async def update_plain(hub: Hub, caller: Caller, resource: Resource, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change a record of a resource without special rules."""
    authorize(caller)
    changes = resource.read(given, partial=True)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, resource.kind, id, what=resource.called, lock=True)
        return resource.show(await rewrite_record(connection, hub, caller, resource, row, changes))


async def delete_plain(hub: Hub, caller: Caller, resource: Resource, id: str) -> None:
    """Delete a record without dependents."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await require_record(connection, caller, resource.kind, id, what=resource.called, lock=True)
        await remove_records(connection, hub, caller, resource, [id])


# --- inside a transaction ---------------------------------------------------------------------------------------------


async def store_record(
    connection: AsyncConnection,
    hub: Hub,
    caller: Caller,
    resource: Resource,
    body: dict[str, Json],
    *,
    slug: str | None = None,
    blob: bytes | None = None,
    id: str | None = None,
) -> Row:
    """Store a new record of the caller's organization, below the parent in its body."""
    parent_id: str | None = None
    if resource.parent is not None:
        body = dict(body)
        parent_id = body.pop(resource.parent, None)
    # The unique constraint decides, so that one of two concurrent requests is rejected.
    try:
        row = await add_record(
            connection,
            NewRecord(
                id=id or new_id(resource.prefix),
                organization_id=caller.organization_id,
                kind=resource.kind,
                body=body,
                parent_id=parent_id,
                slug=slug,
                blob=blob,
            ),
            now=hub.now(),
        )
    except IntegrityError:
        raise _refuse_taken_slug(resource, slug) from None
    await note(connection, hub, caller, "create", resource.kind, row["id"])
    return row


async def rewrite_record(
    connection: AsyncConnection,
    hub: Hub,
    caller: Caller,
    resource: Resource,
    row: Row,
    changes: Mapping[str, Json],
    *,
    action: str = "update",
    **columns: object,
) -> Row:
    """Change fields of a record's body, and columns."""
    try:
        changed = await change_record(
            connection, caller.organization_id, row["id"], now=hub.now(), body={**row["body"], **changes}, **columns
        )
    except IntegrityError:
        raise _refuse_taken_slug(resource, str(columns.get("slug"))) from None
    assert changed is not None  # it was locked
    await note(connection, hub, caller, action, resource.kind, row["id"], {"fields": sorted(changes)} if changes else None)
    return changed


async def remove_records(connection: AsyncConnection, hub: Hub, caller: Caller, resource: Resource, ids: list[str]) -> None:
    """Delete records, with an audit note for the first."""
    await delete_records(connection, caller.organization_id, ids)
    await note(connection, hub, caller, "delete", resource.kind, ids[0])


def _refuse_taken_slug(resource: Resource, slug: str | None) -> Refusal:
    return Refusal("CONFLICT", f"there is already a {resource.called} called {slug!r}")
