"""Keys as rows. Only the hash of a key is stored, so that a copy of the database does not give access."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.accounts.tenants import get_setting, set_setting
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import keys

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
    """Return the row of a key, revoked and expired ones too."""
    found = (await connection.execute(sa.select(keys).where(keys.c.hash == hash))).mappings().first()
    return None if found is None else dict(found)


async def revoke_key(connection: AsyncConnection, organization_id: str, id: str, now: str) -> Row | None:
    """Revoke a key of an organization. One that is revoked already keeps its time."""
    statement = (
        sa.update(keys)
        .where(keys.c.organization_id == organization_id, keys.c.id == id)
        .values(revoked_at=sa.func.coalesce(keys.c.revoked_at, now))
        .returning(*keys.c)
    )
    found = (await connection.execute(statement)).mappings().first()
    return None if found is None else dict(found)


async def revoke_keys_of_sandboxes(connection: AsyncConnection, sandboxes: list[str], now: str) -> list[str]:
    """Revoke the tokens of sandboxes and return their hashes."""
    statement = sa.update(keys).where(keys.c.sandbox_id.in_(sandboxes), keys.c.revoked_at.is_(None)).values(revoked_at=now)
    return list((await connection.execute(statement.returning(keys.c.hash))).scalars())


async def note_key_use(connection: AsyncConnection, id: str, now: str) -> None:
    """Write when a key was last used."""
    await connection.execute(sa.update(keys).where(keys.c.id == id).values(last_used_at=now))


async def had_organization_key(connection: AsyncConnection) -> bool:
    """Return whether an organization key was ever created; revoking it does not change that."""
    return await get_setting(connection, _CREATED) is not None
