"""Browser sessions as rows. Only the hash of a token is stored, so that a copy of the database does not give access."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.pages import Row
from proctor.store.sql.tables import keys, sessions


async def add_session(connection: AsyncConnection, values: dict[str, Any]) -> None:
    """Insert a session."""
    await connection.execute(sessions.insert().values(values))


async def find_key_of_session(connection: AsyncConnection, hash: str, now: str) -> Row | None:
    """Return the row of the key that a session was opened with, revoked and expired ones too; None for a session that is over."""
    query = sa.select(keys).join(sessions, sessions.c.key_id == keys.c.id).where(sessions.c.hash == hash, sessions.c.expires_at > now)
    found = (await connection.execute(query)).mappings().first()
    return None if found is None else dict(found)


async def delete_session(connection: AsyncConnection, hash: str) -> bool:
    """Delete a session and return whether there was one."""
    return (await connection.execute(sa.delete(sessions).where(sessions.c.hash == hash))).rowcount > 0


async def delete_expired_sessions(connection: AsyncConnection, now: str) -> None:
    """Delete the sessions whose time is over."""
    await connection.execute(sa.delete(sessions).where(sessions.c.expires_at <= now))


async def delete_oldest_sessions(connection: AsyncConnection, key_id: str, keep: int) -> None:
    """Delete the sessions of a key but for the last `keep` that were opened."""
    newest = (
        sa.select(sessions.c.hash).where(sessions.c.key_id == key_id).order_by(sessions.c.created_at.desc(), sessions.c.hash).limit(keep)
    )
    await connection.execute(sa.delete(sessions).where(sessions.c.key_id == key_id, sessions.c.hash.not_in(newest)))
