"""Rows that belong to an organization: found, inserted, changed and deleted only with its id.

A row of another organization is treated as missing. Permissions are checked in `service`, not here.

The audit log (who changed what, and when) is written in the transaction of the change, so that neither exists without the other. Secrets
arrive encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.pages import Row, fetch_all, fetch_first
from proctor.store.sql.queries import ListQuery, insert_or_ignore, insert_or_update, list_query
from proctor.store.sql.tables import audit, meta, organizations, secrets


def query_owned(table: sa.Table, organization_id: str, **equal: object) -> sa.Select[Any]:
    """Return a query for the rows of an organization with these column values; None matches an empty column."""
    return sa.select(table).where(table.c.organization_id == organization_id, *(table.c[name] == value for name, value in equal.items()))


async def find_row(connection: AsyncConnection, table: sa.Table, organization_id: str, id: str, **equal: object) -> Row | None:
    """Return one row of an organization."""
    return await fetch_first(connection, query_owned(table, organization_id, id=id, **equal))


async def lock_row(connection: AsyncConnection, table: sa.Table, organization_id: str, id: str, **equal: object) -> Row | None:
    """Return one row of an organization and lock it until the transaction ends."""
    # PostgreSQL waits for a concurrent change. SQLite has one writer, and ignores this. Keys never change, so
    # rows that only refer to this one are not blocked.
    query = query_owned(table, organization_id, id=id, **equal).with_for_update(key_share=True)
    return await fetch_first(connection, query)


async def insert_row(connection: AsyncConnection, table: sa.Table, values: Mapping[str, object]) -> Row:
    """Insert a row and return it as stored."""
    row = (await connection.execute(sa.insert(table).values(values).returning(*table.c))).mappings().one()
    return dict(row)


async def change_row(
    connection: AsyncConnection, table: sa.Table, organization_id: str, id: str, values: Mapping[str, object]
) -> Row | None:
    """Change a row of an organization and return the new row, or None if it does not exist."""
    statement = sa.update(table).where(table.c.organization_id == organization_id, table.c.id == id).values(values).returning(*table.c)
    return await fetch_first(connection, statement)


async def delete_row(connection: AsyncConnection, table: sa.Table, organization_id: str, id: str) -> bool:
    """Delete a row of an organization and return whether it existed."""
    done = await connection.execute(sa.delete(table).where(table.c.organization_id == organization_id, table.c.id == id))
    return done.rowcount > 0


async def ensure_organization(connection: AsyncConnection, id: str, name: str, now: str) -> None:
    """Create the organization unless it exists."""
    values = {"id": id, "name": name, "created_at": now, "updated_at": now}
    await connection.execute(insert_or_ignore(connection, organizations, values, key=("id",)))


async def find_organization(connection: AsyncConnection, id_or_name: str) -> str | None:
    """Return the id of an organization, by its id or its name; if two have the same name, the older one."""
    query = sa.select(organizations.c.id).where(sa.or_(organizations.c.id == id_or_name, organizations.c.name == id_or_name))
    exact_first = sa.case((organizations.c.id == id_or_name, 0), else_=1)
    return (await connection.execute(query.order_by(exact_first, organizations.c.created_at, organizations.c.id))).scalars().first()


async def has_several_organizations(connection: AsyncConnection) -> bool:
    """Return whether there is more than one organization."""
    return len((await connection.execute(sa.select(organizations.c.id).limit(2))).all()) > 1


async def get_setting(connection: AsyncConnection, name: str) -> str | None:
    """Return a setting of the database itself."""
    return (await connection.execute(sa.select(meta.c.value).where(meta.c.name == name))).scalar_one_or_none()


async def set_setting(connection: AsyncConnection, name: str, value: str) -> None:
    """Write a setting of the database itself."""
    await connection.execute(insert_or_update(connection, meta, {"name": name, "value": value}, key=("name",), change=("value",)))


async def add_note(connection: AsyncConnection, **columns: object) -> None:
    """Write one note."""
    await connection.execute(audit.insert().values(**columns))


def list_notes_query(organization_id: str, *, resource: str | None = None, resource_id: str | None = None) -> ListQuery:
    """Return a query for the notes of an organization, for a page."""
    return list_query(audit, {"organization_id": organization_id, "resource": resource, "resource_id": resource_id})


async def put_secret(connection: AsyncConnection, values: dict[str, object]) -> Row:
    """Insert a secret, or replace the one with the same name in the project."""
    statement = insert_or_update(connection, secrets, values, key=("project_id", "name"), change=("value", "updated_at"))
    return dict((await connection.execute(statement.returning(*secrets.c))).mappings().one())


async def list_secrets(connection: AsyncConnection, organization_id: str, project_id: str) -> list[Row]:
    """Return the secrets of a project, by name."""
    query = sa.select(secrets).where(secrets.c.organization_id == organization_id, secrets.c.project_id == project_id)
    return await fetch_all(connection, query.order_by(secrets.c.name))


async def delete_secret(connection: AsyncConnection, organization_id: str, project_id: str, name: str) -> bool:
    """Delete a secret and return whether it existed."""
    done = await connection.execute(
        sa.delete(secrets).where(secrets.c.organization_id == organization_id, secrets.c.project_id == project_id, secrets.c.name == name)
    )
    return done.rowcount > 0
