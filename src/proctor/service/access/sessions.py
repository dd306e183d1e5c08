"""Sessions of browsers: opened once with a key, and good for what that key may do, as long as the key itself is good.

The token of a session is random and lives in a cookie; the database has its SHA-256. A session ends when it is closed, when its time is
over, when its key is revoked or expires, and when many later ones were opened with the same key.
"""

from __future__ import annotations

import secrets

from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.access.keys import authenticate, make_caller
from proctor.service.access.tokens import hash_token
from proctor.service.hub import Hub, stamp
from proctor.service.refusals import Refusal
from proctor.store.accounts import sessions as rows

SESSION_S = 12 * 60 * 60
"""How long a session lasts: a working day."""
MOST_SESSIONS = 100
"""Sessions of one key: a team that shares it, each on several machines. Whoever has a key could otherwise fill the database with them."""


async def open_session(hub: Hub, key: str) -> tuple[Caller, str]:
    """Open a session for whoever shows this key; return the caller and the token for the cookie. Raises `Refusal` for a wrong key."""
    caller = await authenticate(hub, key)
    if caller is None or caller.key_id is None:
        raise Refusal("UNAUTHORIZED", "the key is unknown, was revoked, or has expired")
    if caller.kind not in ("organization", "project"):
        raise Refusal("FORBIDDEN", f"a {caller.kind} key does not open the pages; take an organization or a project key")
    token = secrets.token_urlsafe(32)
    values = {
        "hash": hash_token(token),
        "organization_id": caller.organization_id,
        "key_id": caller.key_id,
        "expires_at": stamp(hub.clock() + SESSION_S),
        "created_at": hub.now(),
    }
    async with hub.database.writing() as connection:
        await rows.delete_expired_sessions(connection, hub.now())
        await rows.delete_oldest_sessions(connection, caller.key_id, MOST_SESSIONS - 1)
        await rows.add_session(connection, values)
        await note(connection, hub, caller, "open", "session", caller.key_id)
    return caller, token


async def find_session_caller(hub: Hub, token: str) -> Caller | None:
    """Return the caller whose session this is; None when it is over, or its key was revoked or has expired."""
    async with hub.database.reading() as connection:
        row = await rows.find_key_of_session(connection, hash_token(token), hub.now())
    # By the key as it is now: a session can do no more than its key, and ends with it.
    return None if row is None else make_caller(hub, row)


async def close_session(hub: Hub, caller: Caller, token: str) -> None:
    """End a session at once. One that is over already is left as it is."""
    async with hub.database.writing() as connection:
        if await rows.delete_session(connection, hash_token(token)):
            await note(connection, hub, caller, "close", "session", caller.actor)
