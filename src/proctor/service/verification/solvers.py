"""Solvers: the agents of an organization, each with keys of its own that start benchmark runs and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping

from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.service.access.callers import Caller
from proctor.service.access.keys import create_key, get_key, list_keys, revoke_key
from proctor.service.hub import Hub
from proctor.service.refusals import not_found
from proctor.service.verification import resources
from proctor.service.verification.fields import Field, read_fields, text
from proctor.service.verification.resources import Resource, authorize, required
from proctor.store.pages import Row

_ALIAS = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,98}[A-Za-z0-9])?")
_EMAIL = re.compile(r"[^@\s]{1,200}@[^@\s]{1,200}")


def _alias(value: Json) -> str:
    if not isinstance(value, str) or not _ALIAS.fullmatch(value):
        raise ValueError(f"expected letters, digits, hyphens, dots and underscores, at most 100, got {show(value, 60)}")
    return value


def _email(value: Json) -> str:
    if not isinstance(value, str) or not _EMAIL.fullmatch(value):
        raise ValueError(f"expected an e-mail address, got {show(value, 60)}")
    return text(400)(value)


SOLVER = Resource(
    kind="solver",
    prefix="slv",
    what="solver",
    table={
        "alias": Field(_alias, required=True, null=False),
        "real_name": Field(text(200)),
        "agent_description": Field(text(2000, 0)),
        "agent_version": Field(text(200)),
        "contact_email": Field(_email),
    },
)
_NEW_KEY = {"name": Field(text(200))}


async def list_solvers(hub: Hub, caller: Caller, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """A page of solvers."""
    page, _ = await resources.list_rows(hub, caller, SOLVER, limit=limit, cursor=cursor)
    return resources.page_of(page, [_shown(row) for row in page.rows])


async def create_solver(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """A new solver: `alias`, `real_name?`, `agent_description?`, `agent_version?`, `contact_email?`."""
    authorize(caller)
    body = SOLVER.read(given)
    async with hub.database.writing() as connection:
        return _shown(await resources.keep(connection, hub, caller, SOLVER, body, slug=body.pop("alias")))


async def get_solver(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One solver."""
    authorize(caller)
    async with hub.database.reading() as connection:
        return _shown(await required(connection, caller, "solver", id))


async def update_solver(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change a solver."""
    authorize(caller)
    changes = SOLVER.read(given, partial=True)
    async with hub.database.writing() as connection:
        row = await required(connection, caller, "solver", id, lock=True)
        alias = changes.pop("alias", row["slug"])
        return _shown(await resources.rewrite(connection, hub, caller, SOLVER, row, changes, slug=alias))


async def delete_solver(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a solver; its keys are revoked first, its runs stay."""
    authorize(caller)
    await get_solver(hub, caller, id)
    cursor = None
    while True:
        page = await list_keys(hub, caller, kind="solver", solver_id=id, limit=100, cursor=cursor)
        for key in page["data"]:
            if key["revoked_at"] is None:
                await revoke_key(hub, caller, key["id"])
        cursor = page["_meta"]["next"]
        if cursor is None:
            break
    await resources.delete_plain(hub, caller, SOLVER, id)


# --- keys -------------------------------------------------------------------------------------------------------------


async def create_solver_key(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """A new key of a solver (`name?`); `key` is shown this once."""
    authorize(caller)
    solver = await get_solver(hub, caller, id)
    name = read_fields(_NEW_KEY, given or {}, "key")["name"] or solver["alias"]
    row, plain = await create_key(hub, caller, "solver", name, solver_id=id)
    return {**_shown_key(row), "key": plain}


async def list_solver_keys(hub: Hub, caller: Caller, id: str, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """A page of a solver's keys, masked."""
    await get_solver(hub, caller, id)
    page = await list_keys(hub, caller, kind="solver", solver_id=id, limit=limit, cursor=cursor)
    return {**page, "data": [_shown_key(key) for key in page["data"]]}


async def revoke_solver_key(hub: Hub, caller: Caller, id: str, key_id: str) -> dict[str, Json]:
    """The key opens nothing from now on."""
    await get_solver(hub, caller, id)
    if (await get_key(hub, caller, key_id))["solver_id"] != id:
        raise not_found("key", key_id)
    return _shown_key(await revoke_key(hub, caller, key_id))


def _shown(row: Row) -> dict[str, Json]:
    return {**SOLVER.shown(row), "alias": row["slug"]}


def _shown_key(key: Mapping[str, Json]) -> dict[str, Json]:
    prefix, _, suffix = str(key["masked"]).partition("...")
    shown: dict[str, Json] = {"id": key["id"], "name": key["name"], "prefix": prefix, "suffix": suffix, "solver_id": key["solver_id"]}
    times = {name: key[name] for name in ("created_at", "last_used_at", "revoked_at")}
    # Verial writes this one name in camelCase.
    return {**shown, **times, "createdAt": key["created_at"]}
