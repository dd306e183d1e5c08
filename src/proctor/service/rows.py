"""Rows that must be there for a verb to go on."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.service.refusals import not_found
from proctor.store.accounts.tenants import find_row, lock_row
from proctor.store.sql.pages import Row


async def require_row(
    connection: AsyncConnection, table: sa.Table, organization_id: str, what: str, id: str, *, locked: bool = False, **equal: object
) -> Row:
    """Return one row of an organization, `locked` until the transaction ends. Raises `Refusal` when it is not there."""
    row = await (lock_row if locked else find_row)(connection, table, organization_id, id, **equal)
    if row is None:
        raise not_found(what, id)
    return row
