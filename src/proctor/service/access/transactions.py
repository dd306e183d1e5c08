"""Transactions of a caller on the rows of its organization, with notes in the audit log."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Self

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.cassettes.redaction import redact
from proctor.model.evidence import Json
from proctor.service.access.callers import DEFAULT_ORGANIZATION, Caller
from proctor.service.access.permissions import query_visible
from proctor.service.hub import Hub, new_id
from proctor.service.refusals import not_found
from proctor.store.accounts import tenants as store
from proctor.store.sql.pages import Row, fetch_first
from proctor.store.sql.tables import agents, projects


class Transaction:
    """A transaction of one caller. Rows of other organizations do not exist in it."""

    def __init__(self, connection: AsyncConnection, hub: Hub, caller: Caller) -> None:
        self.connection, self.hub, self.caller = connection, hub, caller
        self.owner = caller.organization_id

    @classmethod
    @contextlib.asynccontextmanager
    async def reading(cls, hub: Hub, caller: Caller) -> AsyncGenerator[Self]:
        """Yield a reading transaction of a caller."""
        async with hub.database.reading() as connection:
            yield cls(connection, hub, caller)

    @classmethod
    @contextlib.asynccontextmanager
    async def writing(cls, hub: Hub, caller: Caller) -> AsyncGenerator[Self]:
        """Yield a writing transaction of a caller."""
        async with hub.database.writing() as connection:
            yield cls(connection, hub, caller)

    def act_for(self, organization_id: str) -> Self:
        """Return this transaction for another organization; audit notes keep the key of the caller."""
        return type(self)(self.connection, self.hub, msgspec.structs.replace(self.caller, organization_id=organization_id))

    async def note(self, action: str, resource: str, id: str, details: dict[str, Json] | None = None) -> None:
        """Record that the caller did `action` (create, update, delete, revoke, ...), without content or secrets."""
        await store.add_note(
            self.connection,
            id=new_id("aud"),
            organization_id=self.owner,
            at=self.hub.now(),
            actor=self.caller.actor,
            action=action,
            resource=resource,
            resource_id=id,
            details=redact(details) if details else None,
        )

    async def require_row(self, table: sa.Table, what: str, id: str, *, locked: bool = False, **equal: object) -> Row:
        """Return one row, `locked` until the end. Raises `Refusal` if there is none."""
        row = await (store.lock_row if locked else store.find_row)(self.connection, table, self.owner, id, **equal)
        if row is None:
            raise not_found(what, id)
        return row

    async def find_visible(self, table: sa.Table, what: str, id: str, *, columns: Sequence[str] | None = None) -> Row:
        """Return one row that the caller may see, or some columns of it. Raises `Refusal` as for a missing row."""
        query = query_visible(table, self.caller, id=id)
        row = await fetch_first(
            self.connection, query if columns is None else query.with_only_columns(*(table.c[name] for name in columns))
        )
        if row is None:
            raise not_found(what, id)
        return row

    async def check_place(self, project_id: str, agent_id: str | None = None) -> None:
        """Reject a project, or an agent in it, that does not exist."""
        await self.require_row(projects, "project", project_id)
        if agent_id is not None:
            await self.require_row(agents, "agent", agent_id, project_id=project_id)

    async def ensure_organization(self) -> None:
        """Create the default organization, which has no row before it stores something."""
        if self.owner == DEFAULT_ORGANIZATION:
            await store.ensure_organization(self.connection, DEFAULT_ORGANIZATION, "default", self.hub.now())

    async def insert_row(
        self, table: sa.Table, what: str, prefix: str, values: Mapping[str, object], details: dict[str, Json] | None = None
    ) -> Row:
        """Insert a row with a new id and note it."""
        now = self.hub.now()
        own = {"id": new_id(prefix), "organization_id": self.owner, "created_at": now, "updated_at": now}
        row = await store.insert_row(self.connection, table, {**own, **values})
        await self.note("create", what, row["id"], details)
        return row

    async def change_row(
        self,
        table: sa.Table,
        what: str,
        id: str,
        values: Mapping[str, object],
        action: str = "update",
        details: dict[str, Json] | None = None,
    ) -> Row:
        """Change a row and note it, by default with the names of the changed columns. Raises `Refusal` if it does not exist."""
        row = await store.change_row(self.connection, table, self.owner, id, {**values, "updated_at": self.hub.now()})
        if row is None:
            raise not_found(what, id)
        await self.note(action, what, id, {"fields": sorted(values)} if details is None else details)
        return row

    async def delete_row(self, table: sa.Table, what: str, id: str) -> None:
        """Delete a row and note it. Raises `Refusal` if it does not exist."""
        if not await store.delete_row(self.connection, table, self.owner, id):
            raise not_found(what, id)
        await self.note("delete", what, id)


reading, writing = Transaction.reading, Transaction.writing


async def read_visible(hub: Hub, caller: Caller, table: sa.Table, what: str, id: str) -> Row:
    """Return one row that the caller may see. Raises `Refusal` as for a missing row."""
    async with reading(hub, caller) as tx:
        return await tx.find_visible(table, what, id)
