"""Places are projects and agents: rows of an organization that much else belongs to, changed, emptied and shown the same way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import not_found
from proctor.service.rows import require_row
from proctor.store.accounts.tenants import change_row
from proctor.store.sql.pages import Row


async def change_place(
    connection: AsyncConnection, hub: Hub, caller: Caller, table: sa.Table, what: str, id: str, values: Mapping[str, Json], action: str
) -> Row:
    """Change a place, note it, and return it as it is then."""
    row = await change_row(connection, table, caller.organization_id, id, {**values, "updated_at": hub.now()})
    if row is None:
        raise not_found(what, id)
    await note(connection, hub, caller, action, what, id, {"fields": sorted(values)})
    return row


async def empty_place(
    hub: Hub, caller: Caller, table: sa.Table, what: str, id: str, step: Callable[[AsyncConnection], Awaitable[int]]
) -> None:
    """Delete what there is much of, before the place itself goes: in small steps, so that others get their turn.

    `step` deletes some and says how many. Who is interrupted here asks again.
    """
    async with hub.database.reading() as connection:
        await require_row(connection, table, caller.organization_id, what, id)
    gone = 1
    while gone:
        async with hub.database.writing() as connection:
            gone = await step(connection)


def show_place(row: Row, names: Sequence[str]) -> dict[str, Json]:
    """Return a place with its settings, which are an object also where there are none."""
    return {**{name: row[name] for name in names}, "settings": row["settings"] or {}}
