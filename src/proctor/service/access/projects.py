"""Projects: they group agents, cases, keys and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import DEFAULT_ORGANIZATION, Caller
from proctor.service.access.known_agents import forget_agents
from proctor.service.access.permissions import find_seen, list_seen, require_reader, require_writer
from proctor.service.access.places import change_place, empty_place, show_place
from proctor.service.field_checks import check_fields, refuse_emptying
from proctor.service.hub import Hub, new_id
from proctor.service.judge_memory import delete_folder
from proctor.service.paging import fetch_page_or_refuse, show_page
from proctor.service.refusals import not_found
from proctor.store.accounts.tenants import ensure_organization, insert_row
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import projects
from proctor.store.upkeep.retention import delete_agents_of, delete_project_rows, delete_runs_of, delete_traces_of

_CHANGEABLE = ("name", "description", "paused", "settings")
_SHOWN = ("id", "name", "description", "paused", "settings", "created_at", "updated_at")


async def create_project(
    hub: Hub, caller: Caller, *, name: str, description: str | None = None, settings: dict[str, Json] | None = None
) -> dict[str, Json]:
    """Create a project of the caller's organization."""
    require_writer(caller, "projects are created")
    check_fields({"name": name, "description": description, "settings": settings}, texts=("description",))
    async with hub.database.writing() as connection:
        row = await add_project(connection, hub, caller, {"name": name, "description": description, "settings": settings or {}})
    return _show_project(row)


async def add_project(connection: AsyncConnection, hub: Hub, caller: Caller, values: Mapping[str, Json]) -> Row:
    """Insert a project and note who made it. The caller has checked its values."""
    now = hub.now()
    if caller.organization_id == DEFAULT_ORGANIZATION:
        await ensure_organization(connection, DEFAULT_ORGANIZATION, "default", now)
    own = {"id": new_id("proj"), "organization_id": caller.organization_id}
    row = await insert_row(connection, projects, {**own, **values, "created_at": now, "updated_at": now})
    await note(connection, hub, caller, "create", "project", row["id"], {"name": values["name"]})
    return row


async def list_projects(hub: Hub, caller: Caller, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """Return a page of the projects that the caller may see."""
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
    """Change what is named in `changes`: name, description, paused, settings. A paused project takes no traces and starts no runs."""
    require_writer(caller, "projects are changed")
    values = {name: value for name, value in changes.items() if name in _CHANGEABLE}
    refuse_emptying(values, "name", "paused")
    check_fields(values, texts=("description",))
    async with hub.database.writing() as connection:
        row = await change_place(connection, hub, caller, projects, "project", id, values, action)
    forget_agents(hub, caller.organization_id)
    return _show_project(row)


async def delete_project(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a project with its agents, cases, traces, results, runs, secrets and its judge's memory, and revoke its keys."""
    require_writer(caller, "projects are deleted")
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
    # After the transaction: forgotten before, another request could read the old rows again while it is under way.
    forget_agents(hub, organization_id)
    for hash in hashes:
        hub.key_cache.forget(hash)
    # Last: files cannot be rolled back, and without its project nobody finds them.
    await asyncio.to_thread(delete_folder, hub.settings.home, id)


def _show_project(row: Row) -> dict[str, Json]:
    return show_place(row, _SHOWN)
