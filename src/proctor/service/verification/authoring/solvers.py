"""Solvers: agents of an organization, with keys that only start benchmark runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.keys import KeySpec, create_key, get_key, list_keys, revoke_key
from proctor.service.hub import Hub
from proctor.service.refusals import not_found
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import FLAG, Field, Kind, Shape, matching, read_fields, read_only, read_only_id, text
from proctor.service.verification.shared.resources import Paging, Records, Rules, Transaction, declare_standard, writing
from proctor.store.sql.pages import Row

UNLISTED = "unlisted"
"""The link of a solver that is not on leaderboards; it outlives the solver."""
_ALIAS = matching(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,98}[A-Za-z0-9])?", "letters, digits, hyphens, dots and underscores, at most 100")
_EMAIL = matching(r"[^@\s]{1,200}@[^@\s]{1,200}", "an e-mail address")


SOLVER = Resource(
    kind="solver",
    prefix="slv",
    name="Solver",
    about="An agent of an organization.",
    tag="solvers",
    tool=ToolWords("solvers", "Solvers", "The agents of an organization, whose keys start runs of published benchmarks."),
    fields={
        "alias": Field(_ALIAS, "unique in the organization", required=True, null=False, compute=lambda row: row["slug"]),
        "real_name": Field(text(200), "public name"),
        "agent_description": Field(text(2000, 0), "description"),
        "agent_version": Field(text(200), "version of the agent"),
        "contact_email": Field(Kind({"type": "string"}, lambda value: text(400).read(_EMAIL.read(value))), "contact address"),
        "unlisted": Field(FLAG, "exclude all its runs from leaderboards (default false)", default=False, null=False),
    },
)
_NEW_KEY = Shape("NewSolverKey", "The name of a key.", {"name": Field(text(200), "default: the alias of the solver")})
_KEY = Shape(
    "SolverKey",
    "A key of a solver, masked.",
    {
        "id": read_only("string"),
        "name": read_only("string"),
        "prefix": read_only("string"),
        "suffix": read_only("string"),
        "solver_id": read_only_id("solver"),
        "created_at": read_only("string"),
        # Verial writes this one name in camelCase.
        "createdAt": read_only("string", in_tool=False),
        "last_used_at": read_only("string", null=True),
        "revoked_at": read_only("string", null=True),
    },
)
_FRESH_KEY = _KEY.extend("FreshSolverKey", "A key of a solver in full, shown only once.", {"key": read_only("string")})


async def _link_unlisted(tx: Transaction, row: Row) -> None:
    if row["body"].get("unlisted"):
        await tx.link(row["id"], UNLISTED, "leaderboards")
    else:
        await tx.unlink(row["id"], UNLISTED)


async def _name_by_alias(tx: Transaction, body: dict[str, Json], row: Row | None) -> dict[str, Json]:
    return {"slug": body.pop("alias") if row is None else body.pop("alias", row["slug"])}


list_solvers, _, get_solver, _, _ = declare_standard(
    SOLVER,
    "/solvers",
    Rules(check=_name_by_alias, link=_link_unlisted),
    list="List solvers, newest first.",
    create="Create a solver.",
    get="Read a solver.",
    update="Change a solver.",
)


@Operation(SOLVER, "DELETE /solvers/{solver_id}", tool="delete")
async def delete_solver(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a solver and revoke its keys; its runs stay."""
    await get_solver(hub, caller, id)
    # Keys first: an interruption leaves no key of a deleted solver.
    cursor = None
    while True:
        page = await list_keys(hub, caller, kind="solver", solver_id=id, limit=100, cursor=cursor)
        for key in page["data"]:
            if key["revoked_at"] is None:
                await revoke_key(hub, caller, key["id"])
        cursor = page["_meta"]["next"]
        if cursor is None:
            break
    async with writing(hub, caller) as tx:
        row = await tx.require(SOLVER.kind, id, lock=True)
        await tx.remove(SOLVER, [id])
        # Deleting a record deletes its links, but an opt-out must stay.
        await _link_unlisted(tx, row)


@Operation(
    SOLVER, "POST /solvers/{solver_id}/api-keys", takes=_NEW_KEY, takes_optional=True, gives=_FRESH_KEY, creates=True, tool="createKey"
)
async def create_solver_key(hub: Hub, caller: Caller, id: str, request_body: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """Create a key of a solver; `key` is shown only once."""
    solver = await get_solver(hub, caller, id)
    name = read_fields(_NEW_KEY.fields, request_body or {}, "key")["name"] or solver["alias"]
    row, plain = await create_key(hub, caller, KeySpec(kind="solver", name=name, solver_id=id))
    return {**_show_key(row), "key": plain}


@Operation(SOLVER, "GET /solvers/{solver_id}/api-keys", gives=_KEY, pages=True, tool="listKeys")
async def list_solver_keys(hub: Hub, caller: Caller, id: str, **paging: Unpack[Paging]) -> Records:
    """List the keys of a solver, masked, newest first."""
    await get_solver(hub, caller, id)
    page = await list_keys(hub, caller, kind="solver", solver_id=id, **paging)
    return {**page, "data": [_show_key(key) for key in page["data"]]}


@Operation(SOLVER, "DELETE /solvers/{solver_id}/api-keys/{key_id}", gives=_KEY, tool="revokeKey")
async def revoke_solver_key(hub: Hub, caller: Caller, id: str, key_id: str) -> dict[str, Json]:
    """Revoke a key of a solver."""
    await get_solver(hub, caller, id)
    if (await get_key(hub, caller, key_id))["solver_id"] != id:
        raise not_found("key", key_id)
    return _show_key(await revoke_key(hub, caller, key_id))


def _show_key(key: Mapping[str, Json]) -> dict[str, Json]:
    prefix, _, suffix = str(key["masked"]).partition("...")
    shown = {**key, "prefix": prefix, "suffix": suffix, "createdAt": key["created_at"]}
    return {name: shown[name] for name in _KEY.fields}
