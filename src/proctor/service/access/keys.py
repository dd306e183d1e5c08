"""Keys: made, listed masked, revoked, and recognised when they are presented.

A key is a prefix that its clients know and 43 random characters. It is shown once; the database has its SHA-256 (it is random, so nothing
slower is needed, and looking up a hash tells nothing about how much of a guess was right).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import StoreError
from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import DEFAULT_ORGANIZATION, LOCAL, Caller, CallerKind
from proctor.service.hub import Hub, new_id, stamp
from proctor.service.paging import fetch_page_or_refuse, require_row, show_page
from proctor.service.refusals import Refusal, not_found
from proctor.store.accounts import keys as rows
from proctor.store.accounts import sessions as session_rows
from proctor.store.accounts.tenants import ensure_organization, find_organization
from proctor.store.sql.list_queries import list_query
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import agents, keys, projects, records

_LONGEST = 200
"""Characters of a token that are looked at; those given out are shorter."""


def hash_token(token: str) -> str:
    """Return the hash under which a key or token is kept."""
    # It is random, so that nothing slower is needed; and looking up a hash tells nothing about how much of a guess was right.
    return hashlib.sha256(token[:_LONGEST].encode("utf-8", errors="surrogatepass")).hexdigest()


PREFIXES: dict[str, str] = {"organization": "vk_", "project": "mibo_", "solver": "vrl_slv_", "run": "vrl_run_", "sandbox": "vrl_sbx_"}
_LONGEST_NAME = 200
_NOTE_USE_EVERY_S = 60.0
"""How exact `last_used_at` is: a key is used with every request, and each note is a write."""


class KeySpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a key is for."""

    kind: CallerKind
    name: str
    project_id: str | None = None
    """Of a project key."""
    agent_ids: Sequence[str] | None = None
    """Of a project key: the only agents it is for; None for all of the project."""
    solver_id: str | None = None
    benchmark_run_id: str | None = None
    """Of the token of a run."""
    sandbox_id: str | None = None
    """Of the token of a sandbox."""
    expires_at: str | None = None
    """ISO 8601; None: never."""


async def create_key(hub: Hub, caller: Caller, spec: KeySpec) -> tuple[dict[str, Json], str]:
    """Create a key of the caller's organization and return it twice: as it is listed, and in full, which nobody can ask for again."""
    if caller.kind != "organization":
        raise Refusal("FORBIDDEN", "keys are created with an organization key")
    _check_shape(spec)
    spec = msgspec.structs.replace(spec, expires_at=_read_expiry(hub, spec.expires_at))
    async with hub.database.writing() as connection:
        await _check_references(connection, caller.organization_id, spec)
        return await issue_key(connection, hub, caller, spec)


async def issue_key(connection: AsyncConnection, hub: Hub, caller: Caller, spec: KeySpec) -> tuple[dict[str, Json], str]:
    """Do `create_key` inside a transaction of another verb that has checked what it refers to, such as a run that gives out its token."""
    prefix = PREFIXES[spec.kind]
    plain = prefix + secrets.token_urlsafe(32)
    now = hub.now()
    # The organization of the local user has no row before something of it is kept.
    if caller.organization_id == DEFAULT_ORGANIZATION:
        await ensure_organization(connection, DEFAULT_ORGANIZATION, "default", now)
    row = await rows.add_key(
        connection,
        {
            "id": new_id("key"),
            "organization_id": caller.organization_id,
            "kind": spec.kind,
            "name": spec.name,
            "prefix": prefix,
            "suffix": plain[-4:],
            "hash": hash_token(plain),
            "project_id": spec.project_id,
            "agent_ids": list(spec.agent_ids) if spec.agent_ids else None,
            "solver_id": spec.solver_id,
            "benchmark_run_id": spec.benchmark_run_id,
            "sandbox_id": spec.sandbox_id,
            "expires_at": spec.expires_at,
            "created_at": now,
        },
    )
    await note(connection, hub, caller, "create", "key", row["id"], {"kind": spec.kind, "name": spec.name})
    return show_key(row), plain


async def list_keys(
    hub: Hub,
    caller: Caller,
    *,
    kind: str | None = None,
    project_id: str | None = None,
    solver_id: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> dict[str, Json]:
    """Return a page of the keys of the caller's organization, masked. Tokens of runs and sandboxes only when asked for by kind."""
    if caller.kind != "organization":
        raise Refusal("FORBIDDEN", "keys are listed with an organization key")
    wanted = {"organization_id": caller.organization_id, "kind": kind, "project_id": project_id, "solver_id": solver_id}
    # Tokens of runs are many, and not in the index of all others.
    along = () if kind is not None else (keys.c.kind != sa.literal_column("'run'"),)
    query = list_query(keys, wanted, along=along, beside=() if kind is not None else (keys.c.kind != "sandbox",))
    async with hub.database.reading() as connection:
        return show_page(await fetch_page_or_refuse(connection, query, keys, limit=limit, cursor=cursor), show_key)


async def get_key(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one key of the caller's organization, masked."""
    if caller.kind != "organization":
        raise Refusal("FORBIDDEN", "keys are read with an organization key")
    async with hub.database.reading() as connection:
        row = await require_row(connection, keys, caller.organization_id, "key", id)
    return show_key(row)


async def revoke_key(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Revoke a key at once; in other processes after a few seconds. Revoking again changes nothing."""
    if caller.kind != "organization":
        raise Refusal("FORBIDDEN", "keys are revoked with an organization key")
    async with hub.database.writing() as connection:
        row = await rows.revoke_key(connection, caller.organization_id, id, hub.now())
        if row is None:
            raise not_found("key", id)
        await note(connection, hub, caller, "revoke", "key", id)
    # After the commit: whoever read the key just before it would otherwise keep it in memory as a valid one.
    hub.key_cache.forget(row["hash"])
    return show_key(row)


async def authenticate(hub: Hub, presented: str) -> Caller | None:
    """Return the caller who presents this key; None when it is no key, was revoked, or has expired."""
    # Everything is hashed, whatever it looks like, so that what is wrong with a key does not show in the time this takes.
    hash = hash_token(presented)
    row = await _find_row(hub, hash)
    caller = None if row is None else make_caller(hub, row)
    if row is not None and caller is not None:
        await _note_use(hub, row)
    return caller


def make_caller(hub: Hub, row: Row) -> Caller | None:
    """Return the caller whom the row of a key stands for; None when the key was revoked or has expired."""
    if row["revoked_at"] is not None or _is_expired(hub, row):
        return None
    return Caller(
        organization_id=row["organization_id"],
        kind=row["kind"],
        key_id=row["id"],
        project_id=row["project_id"],
        agent_ids=tuple(row["agent_ids"]) if row["agent_ids"] else None,
        solver_id=row["solver_id"],
        benchmark_run_id=row["benchmark_run_id"],
        sandbox_id=row["sandbox_id"],
    )


async def find_local_caller(hub: Hub) -> Caller | None:
    """Return the caller without a key: the local user until an organization key was created, then None. For services on loopback only."""
    # Once closed, closed for good: revoking the last key must not let everybody in again.
    if hub.key_cache.closed:
        return None
    async with hub.database.reading() as connection:
        hub.key_cache.closed = await rows.had_organization_key(connection)
    return None if hub.key_cache.closed else LOCAL


async def get_organization_caller(hub: Hub, id_or_name: str | None = None, *, create: bool = False) -> Caller:
    """Return the administrator of an organization, for commands that have the database itself. `create` makes one that is not there."""
    if id_or_name is None or id_or_name == DEFAULT_ORGANIZATION:
        return LOCAL
    async with hub.database.writing() as connection:
        found = await find_organization(connection, id_or_name)
        if found is None and create:
            found = new_id("org")
            await ensure_organization(connection, found, id_or_name, hub.now())
    if found is None:
        raise not_found("organization", id_or_name)
    return Caller(organization_id=found)


def show_key(row: Row) -> dict[str, Json]:
    """Return a key as it is listed, never with its hash."""
    shown = ("id", "kind", "name", "project_id", "agent_ids", "solver_id", "benchmark_run_id")
    times = ("expires_at", "revoked_at", "last_used_at", "created_at")
    masked = f"{row['prefix']}...{row['suffix']}"
    return {**{name: row[name] for name in shown}, "masked": masked, **{name: row[name] for name in times}}


async def _find_row(hub: Hub, hash: str) -> Row | None:
    now = hub.clock()
    row = hub.key_cache.get(hash, now)
    if row is None:
        # A key that is revoked while we read is not remembered as valid: the count of changes tells.
        changes = hub.key_cache.changes
        async with hub.database.reading() as connection:
            row = await rows.find_key_by_hash(connection, hash)
        if row is not None:
            hub.key_cache.put(hash, row, now, changes)
    return row


def _is_expired(hub: Hub, row: Row) -> bool:
    return row["expires_at"] is not None and row["expires_at"] <= hub.now()


async def _note_use(hub: Hub, row: Row) -> None:
    if not hub.key_cache.should_note_use(row["id"], hub.clock(), _NOTE_USE_EVERY_S):
        return
    # Another process may have noted it.
    if row["last_used_at"] is not None and row["last_used_at"] > stamp(hub.clock() - _NOTE_USE_EVERY_S):
        return
    try:
        async with hub.database.writing() as connection:
            await rows.note_key_use(connection, row["id"], hub.now())
    except StoreError:
        # A full disk keeps the note from being written, not the caller from reading.
        pass


def _check_shape(spec: KeySpec) -> None:
    kind, name = spec.kind, spec.name
    fields: dict[str, list[str]] = {}
    if kind not in PREFIXES:
        fields["kind"] = [f"expected one of {', '.join(PREFIXES)}, got {kind!r}"]
    if not name.strip() or len(name) > _LONGEST_NAME or "\0" in name:
        fields["name"] = [f"expected 1 to {_LONGEST_NAME} characters"]
    for owner, field in {"project": "project_id", "solver": "solver_id", "run": "benchmark_run_id", "sandbox": "sandbox_id"}.items():
        value = getattr(spec, field)
        if owner == kind and not value:
            fields[field] = [f"a {kind} key needs it"]
        # The token of a run may name the solver that it was given to.
        elif owner != kind and value and not (owner == "solver" and kind == "run"):
            fields[field] = [f"a key of kind {kind!r} does not have it"]
    if spec.agent_ids is not None and kind != "project":
        fields["agent_ids"] = ["only project keys are restricted to agents"]
    elif spec.agent_ids is not None and not spec.agent_ids:
        fields["agent_ids"] = ["expected at least one agent; leave it out for all of them"]
    if fields:
        raise Refusal("VALIDATION_ERROR", "the key cannot be created", fields=fields)


def _read_expiry(hub: Hub, expires_at: str | None) -> str | None:
    if expires_at is None:
        return None
    try:
        at = datetime.fromisoformat(expires_at)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        if seconds <= hub.clock():
            raise Refusal("VALIDATION_ERROR", "the key cannot be created", fields={"expires_at": ["it has passed already"]})
        return stamp(seconds)
    except (ValueError, OverflowError):
        told = [f"expected a time such as 2031-01-31T12:00:00Z, got {expires_at[:80]!r}"]
        raise Refusal("VALIDATION_ERROR", "the key cannot be created", fields={"expires_at": told}) from None


async def _check_references(connection: AsyncConnection, organization_id: str, spec: KeySpec) -> None:
    """Refuse a key for what another organization has, or nobody: as if it were not there."""
    project_id, run_id = spec.project_id, spec.benchmark_run_id
    if project_id is not None:
        await require_row(connection, projects, organization_id, "project", project_id)
    for agent_id in spec.agent_ids or ():
        await require_row(connection, agents, organization_id, "agent", agent_id, project_id=project_id)
    if spec.solver_id is not None:
        await require_row(connection, records, organization_id, "solver", spec.solver_id, kind="solver")
    if run_id is not None:
        await require_row(connection, records, organization_id, "benchmark run", run_id, kind="benchmark_run")
    if spec.sandbox_id is not None:
        await require_row(connection, records, organization_id, "sandbox", spec.sandbox_id, kind="sandbox")


# --- sessions of browsers: opened once with a key, and good for what that key may do, as long as the key itself is good


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
        await session_rows.delete_expired_sessions(connection, hub.now())
        await session_rows.delete_oldest_sessions(connection, caller.key_id, MOST_SESSIONS - 1)
        await session_rows.add_session(connection, values)
        await note(connection, hub, caller, "open", "session", caller.key_id)
    return caller, token


async def find_session_caller(hub: Hub, token: str) -> Caller | None:
    """Return the caller whose session this is; None when it is over, or its key was revoked or has expired."""
    async with hub.database.reading() as connection:
        row = await session_rows.find_key_of_session(connection, hash_token(token), hub.now())
    # By the key as it is now: a session can do no more than its key, and ends with it.
    return None if row is None else make_caller(hub, row)


async def close_session(hub: Hub, caller: Caller, token: str) -> None:
    """End a session at once. One that is over already is left as it is."""
    async with hub.database.writing() as connection:
        if await session_rows.delete_session(connection, hash_token(token)):
            await note(connection, hub, caller, "close", "session", caller.actor)
