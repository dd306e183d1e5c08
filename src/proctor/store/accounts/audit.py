"""The audit log: who changed what, and when. Written in the transaction of the change, so that there is never one without the other."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.queries import ListQuery, list_query
from proctor.store.sql.tables import audit


async def add_note(connection: AsyncConnection, **columns: object) -> None:
    """Write one note."""
    await connection.execute(audit.insert().values(**columns))


def list_notes_query(organization_id: str, *, resource: str | None = None, resource_id: str | None = None) -> ListQuery:
    """Return a query for the notes of an organization, for a page."""
    return list_query(audit, {"organization_id": organization_id, "resource": resource, "resource_id": resource_id})
