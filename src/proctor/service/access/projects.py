"""Projects: they group agents, cases, keys and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import DEFAULT_ORGANIZATION, Caller
from proctor.service.access.known_agents import forget_agents
from proctor.service.access.permissions import find_seen, list_seen, query_seen, require_reader, require_writer
from proctor.service.field_checks import check_fields, refuse_emptying
from proctor.service.hub import Hub, new_id
from proctor.service.judge_memory import delete_folder
from proctor.service.paging import fetch_page_or_refuse, require_row, show_page
from proctor.service.refusals import Refusal, not_found
from proctor.store.accounts.tenants import change_row, ensure_organization, insert_row
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import agents, cases, projects, runs, traces
from proctor.store.sql.text_search import MOST_LOOKED_AT, find_in_table, find_record_by_id
from proctor.store.upkeep.retention import delete_agents_of, delete_project_rows, delete_runs_of, delete_traces_of

LONGEST_TEXT = 200
MOST_OF_A_KIND = 10
_PLACES = (
    ("project", projects, ("name",)),
    ("agent", agents, ("name", "service_name", "external_ref")),
    ("case", cases, ("name",)),
    ("run", runs, ("suite_name", "name", "note")),
    ("trace", traces, ("external_id", "input_text")),
)
"""Each kind, its table, and the columns that are searched; the first non-empty one is shown."""


async def search_everywhere(hub: Hub, caller: Caller, text: str) -> dict[str, Json]:
    """Return objects with this id, or with a name that contains this text, the newest few of each kind."""
    require_reader(caller)
    text = text.strip()
    if not 1 <= len(text) <= LONGEST_TEXT or "\0" in text:
        raise Refusal("VALIDATION_ERROR", "invalid search text", fields={"q": [f"expected 1 to {LONGEST_TEXT} characters"]})
    found: list[dict[str, Json]] = []
    async with hub.database.reading() as connection:
        for kind, table, names in _PLACES:
            # Keys limited to some agents have no access to runs.
            if kind == "run" and caller.agent_ids is not None:
                continue
            for row in await find_in_table(connection, query_seen(table, caller), table, text, names, MOST_OF_A_KIND):
                title = next((row[name] for name in names if row[name]), row["id"])
                place = row["id"] if kind == "project" else row["project_id"]
                found.append({"kind": kind, "id": row["id"], "name": title, "project_id": place, "created_at": row["created_at"]})
        record = await find_record_by_id(connection, caller.organization_id, text) if caller.kind == "organization" else None
        if record is not None:
            title = record["body"].get("name") or record["body"].get("label") or record["slug"] or record["id"]
            found.append(
                {"kind": record["kind"], "id": record["id"], "name": title, "project_id": None, "created_at": record["created_at"]}
            )
    return {"data": found, "looked_at": MOST_LOOKED_AT}


async def change_place(
    connection: AsyncConnection, hub: Hub, caller: Caller, table: sa.Table, what: str, id: str, values: Mapping[str, Json], action: str
) -> Row:
    """Change a project or agent, audit it, and return the new row."""
    row = await change_row(connection, table, caller.organization_id, id, {**values, "updated_at": hub.now()})
    if row is None:
        raise not_found(what, id)
    await note(connection, hub, caller, action, what, id, {"fields": sorted(values)})
    return row


async def empty_place(
    hub: Hub, caller: Caller, table: sa.Table, what: str, id: str, step: Callable[[AsyncConnection], Awaitable[int]]
) -> None:
    """Delete the many rows of a project or agent before the row itself, in small transactions.

    `step` deletes some rows and returns how many. An interrupted deletion can be repeated.
    """
    async with hub.database.reading() as connection:
        await require_row(connection, table, caller.organization_id, what, id)
    gone = 1
    while gone:
        async with hub.database.writing() as connection:
            gone = await step(connection)


def show_place(row: Row, names: Sequence[str]) -> dict[str, Json]:
    """Return a project or agent with its settings."""
    return {**{name: row[name] for name in names}, "settings": row["settings"] or {}}


_CHANGEABLE = ("name", "description", "paused", "settings")
_SHOWN = ("id", "name", "description", "paused", "settings", "created_at", "updated_at")


async def create_project(
    hub: Hub, caller: Caller, *, name: str, description: str | None = None, settings: dict[str, Json] | None = None
) -> dict[str, Json]:
    """Create a project of the caller's organization."""
    require_writer(caller, "creating projects")
    check_fields({"name": name, "description": description, "settings": settings}, texts=("description",))
    async with hub.database.writing() as connection:
        row = await add_project(connection, hub, caller, {"name": name, "description": description, "settings": settings or {}})
    return _show_project(row)


async def add_project(connection: AsyncConnection, hub: Hub, caller: Caller, values: Mapping[str, Json]) -> Row:
    """Insert a project and audit it. The caller has checked its values."""
    now = hub.now()
    if caller.organization_id == DEFAULT_ORGANIZATION:
        await ensure_organization(connection, DEFAULT_ORGANIZATION, "default", now)
    own = {"id": new_id("proj"), "organization_id": caller.organization_id}
    row = await insert_row(connection, projects, {**own, **values, "created_at": now, "updated_at": now})
    await note(connection, hub, caller, "create", "project", row["id"], {"name": values["name"]})
    return row


async def list_projects(hub: Hub, caller: Caller, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """Return a page of the visible projects."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        return show_page(
            await fetch_page_or_refuse(connection, list_seen(projects, caller), projects, limit=limit, cursor=cursor), _show_project
        )


async def get_project(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one project."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        return _show_project(await find_seen(connection, projects, caller, "project", id))


async def update_project(hub: Hub, caller: Caller, id: str, changes: Mapping[str, Json], *, action: str = "update") -> dict[str, Json]:
    """Change the fields in `changes`: name, description, paused, settings. A paused project rejects traces and starts no runs."""
    require_writer(caller, "changing projects")
    values = {name: value for name, value in changes.items() if name in _CHANGEABLE}
    refuse_emptying(values, "name", "paused")
    check_fields(values, texts=("description",))
    async with hub.database.writing() as connection:
        row = await change_place(connection, hub, caller, projects, "project", id, values, action)
    forget_agents(hub, caller.organization_id)
    return _show_project(row)


async def delete_project(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a project with its agents, cases, traces, results, runs, secrets and its judge's memory, and revoke its keys."""
    require_writer(caller, "deleting projects")
    organization_id = caller.organization_id

    async def one_step(connection: AsyncConnection) -> int:
        traces = await delete_traces_of(connection, organization_id, project_id=id)
        return traces + await delete_runs_of(connection, organization_id, id)

    await empty_place(hub, caller, projects, "project", id, one_step)
    async with hub.database.writing() as connection:
        await delete_agents_of(connection, organization_id, project_id=id)
        hashes = await delete_project_rows(connection, organization_id, id, hub.now())
        if hashes is None:
            raise not_found("project", id)
        await note(connection, hub, caller, "delete", "project", id)
    # After the transaction: otherwise another request could cache the old rows again.
    forget_agents(hub, organization_id)
    for hash in hashes:
        hub.key_cache.forget(hash)
    # Last, since files cannot be rolled back.
    await asyncio.to_thread(delete_folder, hub.settings.home, id)


def _show_project(row: Row) -> dict[str, Json]:
    return show_place(row, _SHOWN)
