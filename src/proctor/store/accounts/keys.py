"""Keys and browser sessions as rows. Only their hashes are stored, so that a copy of the database does not give access."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.accounts.tenants import get_setting, set_setting
from proctor.store.sql.pages import Row, fetch_first
from proctor.store.sql.tables import keys, sessions

_CREATED = "keys_created"


async def add_key(connection: AsyncConnection, values: dict[str, object]) -> Row:
    """Insert a key. Of an organization's key, also note for ever that there was one; other keys do not count, because they would lock out
    the local user while no key with the rights of an organization key exists.
    """
    row = (await connection.execute(keys.insert().values(values).returning(*keys.c))).mappings().one()
    if row["kind"] == "organization":
        await set_setting(connection, _CREATED, "yes")
    return dict(row)


async def find_key_by_hash(connection: AsyncConnection, hash: str) -> Row | None:
    """Return the row of a key, including revoked and expired ones."""
    return await fetch_first(connection, sa.select(keys).where(keys.c.hash == hash))


async def revoke_key(connection: AsyncConnection, organization_id: str, id: str, now: str) -> Row | None:
    """Revoke a key of an organization. The time of an earlier revocation stays."""
    statement = (
        sa.update(keys)
        .where(keys.c.organization_id == organization_id, keys.c.id == id)
        .values(revoked_at=sa.func.coalesce(keys.c.revoked_at, now))
        .returning(*keys.c)
    )
    return await fetch_first(connection, statement)


async def revoke_keys_of_sandboxes(connection: AsyncConnection, sandboxes: list[str], now: str) -> list[str]:
    """Revoke the tokens of sandboxes and return their hashes."""
    statement = sa.update(keys).where(keys.c.sandbox_id.in_(sandboxes), keys.c.revoked_at.is_(None)).values(revoked_at=now)
    return list((await connection.execute(statement.returning(keys.c.hash))).scalars())


async def note_key_use(connection: AsyncConnection, id: str, now: str) -> None:
    """Store when a key was last used."""
    await connection.execute(sa.update(keys).where(keys.c.id == id).values(last_used_at=now))


async def had_organization_key(connection: AsyncConnection) -> bool:
    """Return whether an organization key was ever created; revoking it does not change that."""
    return await get_setting(connection, _CREATED) is not None


async def add_session(connection: AsyncConnection, values: dict[str, Any]) -> None:
    """Insert a session."""
    await connection.execute(sessions.insert().values(values))


async def find_key_of_session(connection: AsyncConnection, hash: str, now: str) -> Row | None:
    """Return the row of the key of a session, including revoked and expired keys; None for an expired session."""
    query = sa.select(keys).join(sessions, sessions.c.key_id == keys.c.id).where(sessions.c.hash == hash, sessions.c.expires_at > now)
    return await fetch_first(connection, query)


async def delete_session(connection: AsyncConnection, hash: str) -> bool:
    """Delete a session and return whether it existed."""
    return (await connection.execute(sa.delete(sessions).where(sessions.c.hash == hash))).rowcount > 0


async def delete_expired_sessions(connection: AsyncConnection, now: str) -> None:
    """Delete expired sessions."""
    await connection.execute(sa.delete(sessions).where(sessions.c.expires_at <= now))


async def delete_oldest_sessions(connection: AsyncConnection, key_id: str, keep: int) -> None:
    """Delete the sessions of a key except the last `keep`."""
    newest = (
        sa.select(sessions.c.hash).where(sessions.c.key_id == key_id).order_by(sessions.c.created_at.desc(), sessions.c.hash).limit(keep)
    )
    await connection.execute(sa.delete(sessions).where(sessions.c.key_id == key_id, sessions.c.hash.not_in(newest)))
