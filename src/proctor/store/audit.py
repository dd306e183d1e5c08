"""Who changed what, and when. Written in the transaction of the change itself, so that there is never one without the other."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.tables import audit


async def add_note(connection: AsyncConnection, **columns: object) -> None:
    """Keep one note."""
    await connection.execute(audit.insert().values(**columns))


def notes(organization_id: str, *, resource: str | None = None, resource_id: str | None = None) -> sa.Select[Any]:
    """The notes of an organization, for a page."""
    query = sa.select(audit).where(audit.c.organization_id == organization_id)
    if resource is not None:
        query = query.where(audit.c.resource == resource)
    if resource_id is not None:
        query = query.where(audit.c.resource_id == resource_id)
    return query
