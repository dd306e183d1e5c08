"""Secrets as rows: encrypted before they come here."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.pages import Row
from proctor.store.sql.queries import insert_or_update
from proctor.store.sql.tables import secrets


async def put_secret(connection: AsyncConnection, values: dict[str, object]) -> Row:
    """Insert a secret under its name, or replace the one of that name in the project."""
    statement = insert_or_update(connection, secrets, values, key=("project_id", "name"), change=("value", "updated_at"))
    return dict((await connection.execute(statement.returning(*secrets.c))).mappings().one())


async def list_secrets(connection: AsyncConnection, organization_id: str, project_id: str) -> list[Row]:
    """Return the secrets of a project, by name."""
    query = sa.select(secrets).where(secrets.c.organization_id == organization_id, secrets.c.project_id == project_id)
    return [dict(row) for row in (await connection.execute(query.order_by(secrets.c.name))).mappings()]


async def delete_secret(connection: AsyncConnection, organization_id: str, project_id: str, name: str) -> bool:
    """Delete a secret and return whether there was one."""
    done = await connection.execute(
        sa.delete(secrets).where(secrets.c.organization_id == organization_id, secrets.c.project_id == project_id, secrets.c.name == name)
    )
    return done.rowcount > 0
