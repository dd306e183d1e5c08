"""Keys: created, listed masked, revoked, and authenticated; and browser sessions opened with them.

A key is a prefix and 43 random characters. It is shown once; the database has its SHA-256, which is enough for random keys.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from typing import Annotated, Literal, TypedDict, Unpack

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import StoreError
from proctor.service.access.callers import DEFAULT_ORGANIZATION, LOCAL, Caller, CallerKind
from proctor.service.access.permissions import require_writer
from proctor.service.access.transactions import Transaction, reading, writing
from proctor.service.field_checks import read_moment
from proctor.service.hub import Hub, new_id, stamp
from proctor.service.paging import read_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import Page, Paging, about, operation, show_row
from proctor.store.accounts import keys as store
from proctor.store.accounts.tenants import ensure_organization, find_organization
from proctor.store.sql.pages import Row
from proctor.store.sql.queries import list_query
from proctor.store.sql.tables import agents, keys, records

_LONGEST = 200
"""Characters of a token that are hashed; issued tokens are shorter."""


def hash_token(token: str) -> str:
    """Return the stored hash of a key or token."""
    # Random, so that no slow hash is needed; a lookup by hash reveals nothing about a guess.
    return hashlib.sha256(token[:_LONGEST].encode("utf-8", errors="surrogatepass")).hexdigest()


PREFIXES: dict[str, str] = {
    "organization": "proctor_org_",
    "project": "proctor_proj_",
    "solver": "vrl_slv_",
    "run": "vrl_run_",
    "sandbox": "vrl_sbx_",
}
"""How new keys begin. A key is found by its hash: older ones (`vk_`, `mibo_`) stay valid."""
_REFERENCES = {"project": "project_id", "solver": "solver_id", "run": "benchmark_run_id", "sandbox": "sandbox_id"}
"""The field that each kind of key requires."""
_LONGEST_NAME = 200
_NOTE_USE_EVERY_S = 60.0
"""Precision of `last_used_at` in seconds: every update is a write."""


class Key(TypedDict):
    """A key, masked."""

    id: str
    kind: str
    name: str
    masked: Annotated[str, about("its prefix and its last four characters")]
    project_id: str | None
    agent_ids: list[str] | None
    solver_id: str | None
    benchmark_run_id: str | None
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    created_at: str


class CreatedKey(Key):
    """A new key, shown only once."""

    key: Annotated[str, about("the key itself; it cannot be shown again")]


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new key."""

    kind: Annotated[
        CallerKind,
        Literal["organization", "project", "solver", "run"],
        about(
            "organization: full access; project: sends traces and reads its project; solver: starts benchmark runs; run: one benchmark run"
        ),
    ]
    name: Annotated[str, about(min_length=1, max_length=200)]
    project_id: Annotated[str | None, about("for a project key")] = None
    agent_ids: Annotated[list[str] | None, about("for a project key: the agents it is limited to", max_length=100)] = None
    solver_id: Annotated[str | None, about("for a solver key")] = None
    benchmark_run_id: Annotated[str | None, about("for a run token")] = None
    expires_at: Annotated[str | None, about("ISO 8601; default: never")] = None


class KeySpec(NewKey, frozen=True, kw_only=True):
    """A new key, or the token of a sandbox."""

    sandbox_id: str | None = None


async def name_actors(hub: Hub, caller: Caller, actors: Iterable[str]) -> dict[str, str]:
    """Return the names of those actors that are keys of the caller's organization, by id."""
    query = sa.select(keys.c.id, keys.c.name).where(keys.c.organization_id == caller.organization_id, keys.c.id.in_(set(actors)))
    async with hub.database.reading() as connection:
        return {id: name for id, name in (await connection.execute(query)).all() if name}


@operation("keys", "POST /api/keys", status=201, name="create_key")
async def add_key(hub: Hub, caller: Caller, spec: NewKey) -> CreatedKey:
    """Create a key; requires an organization key. It is shown only in this response."""
    row, plain = await create_key(hub, caller, KeySpec(**msgspec.structs.asdict(spec)))
    return {**row, "key": plain}


async def create_key(hub: Hub, caller: Caller, spec: KeySpec) -> tuple[Key, str]:
    """Create a key of the caller's organization and return it masked and in full, which is shown only once."""
    require_writer(caller, "creating keys")
    kind, name = spec.kind, spec.name
    fields: dict[str, list[str]] = {}
    if kind not in PREFIXES:
        fields["kind"] = [f"expected one of {', '.join(PREFIXES)}, got {kind!r}"]
    if not name.strip() or len(name) > _LONGEST_NAME or "\0" in name:
        fields["name"] = [f"expected 1 to {_LONGEST_NAME} characters"]
    for owner, field in _REFERENCES.items():
        value = getattr(spec, field)
        if owner == kind and not value:
            fields[field] = [f"required for a {kind} key"]
        # A run token may name its solver.
        elif owner != kind and value and not (owner == "solver" and kind == "run"):
            fields[field] = [f"not allowed for a {kind} key"]
    if spec.agent_ids is not None and kind != "project":
        fields["agent_ids"] = ["only project keys can be limited to agents"]
    elif spec.agent_ids is not None and not spec.agent_ids:
        fields["agent_ids"] = ["expected at least one agent; omit it for all agents"]
    if fields:
        raise Refusal("VALIDATION_ERROR", "the key is invalid", fields=fields)
    if spec.expires_at is not None:
        expires_at = read_moment(spec.expires_at, "expires_at")
        if expires_at <= hub.now():
            raise Refusal("VALIDATION_ERROR", "the key is invalid", fields={"expires_at": ["must be in the future"]})
        spec = msgspec.structs.replace(spec, expires_at=expires_at)
    async with writing(hub, caller) as tx:
        if spec.project_id is not None:
            await tx.check_place(spec.project_id)
        for agent_id in spec.agent_ids or ():
            await tx.require_row(agents, "agent", agent_id, project_id=spec.project_id)
        for field in ("solver_id", "benchmark_run_id", "sandbox_id"):
            if (id := getattr(spec, field)) is not None:
                record_kind = field.removesuffix("_id")
                await tx.require_row(records, record_kind.replace("_", " "), id, kind=record_kind)
        return await issue_key(tx.connection, hub, caller, spec)


async def issue_key(connection: AsyncConnection, hub: Hub, caller: Caller, spec: KeySpec) -> tuple[Key, str]:
    """Create a key within the transaction of a caller that has checked its references."""
    tx = Transaction(connection, hub, caller)
    plain = PREFIXES[spec.kind] + secrets.token_urlsafe(32)
    await tx.ensure_organization()
    token = {"prefix": PREFIXES[spec.kind], "suffix": plain[-4:], "hash": hash_token(plain)}
    own = {"id": new_id("key"), "organization_id": tx.owner, "created_at": hub.now()}
    row = await store.add_key(connection, {**own, **token, **msgspec.structs.asdict(spec), "agent_ids": spec.agent_ids or None})
    await tx.note("create", "key", row["id"], {"kind": spec.kind, "name": spec.name})
    return show_key(row), plain


@operation("keys", "GET /api/keys", doing="listing keys")
async def list_keys(
    hub: Hub,
    caller: Caller,
    *,
    kind: Annotated[str | None, about("default: all except tokens of runs and sandboxes"), CallerKind] = None,
    project_id: str | None = None,
    solver_id: str | None = None,
    **paging: Unpack[Paging],
) -> Page[Key]:
    """List keys, masked, newest first; requires an organization key."""
    conditions = {"organization_id": caller.organization_id, "kind": kind, "project_id": project_id, "solver_id": solver_id}
    # There are many run tokens, and the index of all others excludes them.
    along = () if kind is not None else (keys.c.kind != sa.literal_column("'run'"),)
    query = list_query(keys, conditions, along=along, filters=() if kind is not None else (keys.c.kind != "sandbox",))
    return await read_page(hub, query, keys, show_key, **paging)


@operation("keys", "GET /api/keys/{key_id}", doing="reading keys")
async def get_key(hub: Hub, caller: Caller, id: str) -> Key:
    """Read a key, masked; requires an organization key."""
    async with reading(hub, caller) as tx:
        return show_key(await tx.require_row(keys, "key", id))


@operation("keys", "DELETE /api/keys/{key_id}", doing="revoking keys")
async def revoke_key(hub: Hub, caller: Caller, id: str) -> Key:
    """Revoke a key; requires an organization key. It stays listed."""
    async with writing(hub, caller) as tx:
        row = await store.revoke_key(tx.connection, tx.owner, id, hub.now())
        if row is None:
            raise not_found("key", id)
        await tx.note("revoke", "key", id)
    # After the commit: a request that read the key before would otherwise cache it as valid.
    hub.key_cache.forget(row["hash"])
    return show_key(row)


async def authenticate(hub: Hub, presented: str) -> Caller | None:
    """Return the caller of a key; None if it is unknown, revoked or expired."""
    # Every input is hashed, so that the time taken reveals nothing.
    hash = hash_token(presented)
    now = hub.clock()
    row = hub.key_cache.get(hash, now)
    if row is None:
        # A key that is revoked during the read is not cached: `changes` differs then.
        changes = hub.key_cache.changes
        async with hub.database.reading() as connection:
            row = await store.find_key_by_hash(connection, hash)
        if row is not None:
            hub.key_cache.put(hash, row, now, changes)
    caller = None if row is None else make_caller(hub, row)
    if row is not None and caller is not None:
        await _note_use(hub, row)
    return caller


def make_caller(hub: Hub, row: Row) -> Caller | None:
    """Return the caller of a key's row; None if the key was revoked or has expired."""
    if row["revoked_at"] is not None or (row["expires_at"] is not None and row["expires_at"] <= hub.now()):
        return None
    same = {name: row[name] for name in ("organization_id", "kind", *_REFERENCES.values())}
    return Caller(**same, key_id=row["id"], agent_ids=tuple(row["agent_ids"]) if row["agent_ids"] else None)


async def find_local_caller(hub: Hub) -> Caller | None:
    """Return the local user until an organization key was created, then None. Only for services on loopback."""
    # Revoking the last key must not open the service again.
    if hub.key_cache.has_organization_key:
        return None
    async with hub.database.reading() as connection:
        hub.key_cache.has_organization_key = await store.had_organization_key(connection)
    return None if hub.key_cache.has_organization_key else LOCAL


async def get_organization_caller(hub: Hub, id_or_name: str | None = None, *, create: bool = False) -> Caller:
    """Return the administrator of an organization, for commands with direct database access; `create` creates a missing one."""
    if id_or_name is None or id_or_name == DEFAULT_ORGANIZATION:
        return LOCAL
    async with hub.database.writing() as connection:
        organization = await find_organization(connection, id_or_name)
        if organization is None and create:
            organization = new_id("org")
            await ensure_organization(connection, organization, id_or_name, hub.now())
    if organization is None:
        raise not_found("organization", id_or_name)
    return Caller(organization_id=organization)


def show_key(row: Row) -> Key:
    """Return a key as it is listed, without its hash."""
    return show_row(Key, row, masked=f"{row['prefix']}...{row['suffix']}")


async def _note_use(hub: Hub, row: Row) -> None:
    if not hub.key_cache.should_note_use(row["id"], hub.clock(), _NOTE_USE_EVERY_S):
        return
    # Another process may have recorded it.
    if row["last_used_at"] is not None and row["last_used_at"] > stamp(hub.clock() - _NOTE_USE_EVERY_S):
        return
    try:
        async with hub.database.writing() as connection:
            await store.note_key_use(connection, row["id"], hub.now())
    except StoreError:
        # A full disk prevents the update, not the request.
        pass


# --- browser sessions: opened with a key, with the access and lifetime of the key


SESSION_S = 12 * 60 * 60
"""Seconds that a session lasts: a working day."""
MOST_SESSIONS = 100
"""Sessions of one key, which bounds the table."""


async def open_session(hub: Hub, key: str) -> tuple[Caller, str]:
    """Open a session with a key; return the caller and the token for the cookie. Raises `Refusal` for a wrong key."""
    caller = await authenticate(hub, key)
    if caller is None or caller.key_id is None:
        raise Refusal("UNAUTHORIZED", "the key is unknown, revoked or expired")
    if caller.kind not in ("organization", "project"):
        raise Refusal("FORBIDDEN", f"a {caller.kind} key cannot open the pages; use an organization or project key")
    token = secrets.token_urlsafe(32)
    values = {
        "hash": hash_token(token),
        "organization_id": caller.organization_id,
        "key_id": caller.key_id,
        "expires_at": stamp(hub.clock() + SESSION_S),
        "created_at": hub.now(),
    }
    async with writing(hub, caller) as tx:
        await store.delete_expired_sessions(tx.connection, hub.now())
        await store.delete_oldest_sessions(tx.connection, caller.key_id, MOST_SESSIONS - 1)
        await store.add_session(tx.connection, values)
        await tx.note("open", "session", caller.key_id)
    return caller, token


async def find_session_caller(hub: Hub, token: str) -> Caller | None:
    """Return the caller of a session; None if it or its key has ended."""
    async with hub.database.reading() as connection:
        row = await store.find_key_of_session(connection, hash_token(token), hub.now())
    # By the present key: a session has no more access than its key, and ends with it.
    return None if row is None else make_caller(hub, row)


async def close_session(hub: Hub, caller: Caller, token: str) -> None:
    """End a session. Idempotent."""
    async with writing(hub, caller) as tx:
        if await store.delete_session(tx.connection, hash_token(token)):
            await tx.note("close", "session", caller.actor)
