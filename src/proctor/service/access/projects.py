"""Projects: they group agents, cases, keys and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, TypedDict, Unpack

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_visible, require_writer, select_visible
from proctor.service.access.transactions import read_visible, reading, writing
from proctor.service.field_checks import check_settings
from proctor.service.hub import Hub
from proctor.service.judge_memory import delete_folder
from proctor.service.paging import read_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import Page, Paging, about, operation, show_row
from proctor.store.runs.retention import delete_agents_of, delete_project_rows, delete_some_of
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import agents, cases, projects, runs, traces
from proctor.store.sql.text_search import MOST_LOOKED_AT, find_in_table, find_record_by_id

LONGEST_TEXT = 200
MOST_OF_A_KIND = 10
_PLACES = (
    ("project", projects, ("name",)),
    ("agent", agents, ("name", "service_name", "external_ref")),
    ("case", cases, ("name",)),
    ("run", runs, ("suite_name", "name", "note")),
    ("trace", traces, ("input_text", "external_id")),
)
"""Each kind, its table, and the columns that are searched; the first non-empty one is shown."""


class Found(TypedDict):
    """An object with that id or name."""

    kind: Annotated[str, about("project, agent, case, run, trace, or a noun of the verification API")]
    id: str
    name: str
    project_id: Annotated[str | None, about("none: it belongs to the organization")]
    created_at: str


class FoundEverywhere(TypedDict):
    """The newest ten matches of each kind."""

    data: list[Found]
    looked_at: Annotated[int, about("names are searched among this many newest objects of each kind; ids among all")]


@operation("search", "GET /api/search", name="search")
async def search_everywhere(
    hub: Hub, caller: Caller, q: Annotated[str, about("an id, or a part of a name", min_length=1, max_length=LONGEST_TEXT)]
) -> FoundEverywhere:
    """Find projects, agents, cases, runs and traces by id or part of their name; benchmark objects by id or slug."""
    text = q.strip()
    if not 1 <= len(text) <= LONGEST_TEXT or "\0" in text:
        raise Refusal("VALIDATION_ERROR", "invalid search text", fields={"q": [f"expected 1 to {LONGEST_TEXT} characters"]})
    results_by_kind: list[Found] = []
    async with hub.database.reading() as connection:
        for kind, table, names in _PLACES:
            # Keys limited to some agents have no access to runs.
            if kind == "run" and caller.agent_ids is not None:
                continue
            for row in await find_in_table(connection, query_visible(table, caller), table, text, names, MOST_OF_A_KIND):
                present = [row[name] for name in names if row[name]] or [row["id"]]
                # Runs of one suite differ by name and note.
                title = " · ".join(present) if kind == "run" else present[0]
                place = row["id"] if kind == "project" else row["project_id"]
                results_by_kind.append({"kind": kind, "id": row["id"], "name": title, "project_id": place, "created_at": row["created_at"]})
        record = await find_record_by_id(connection, caller.organization_id, text) if caller.kind == "organization" else None
        if record is not None:
            title = record["body"].get("name") or record["body"].get("label") or record["slug"] or record["id"]
            results_by_kind.append(
                {"kind": record["kind"], "id": record["id"], "name": title, "project_id": None, "created_at": record["created_at"]}
            )
    return {"data": results_by_kind, "looked_at": MOST_LOOKED_AT}


async def empty_place(
    hub: Hub, caller: Caller, table: sa.Table, what: str, id: str, step: Callable[[AsyncConnection], Awaitable[int]]
) -> None:
    """Delete the many rows of a project or agent before the row itself, in small transactions.

    `step` deletes some rows and returns how many. An interrupted deletion can be repeated.
    """
    async with reading(hub, caller) as tx:
        await tx.require_row(table, what, id)
    deleted = 1
    while deleted:
        async with hub.database.writing() as connection:
            deleted = await step(connection)


Name = Annotated[str, about(min_length=1, max_length=200)]
Description = Annotated[str | None, about(max_length=4000)]


class Project(TypedDict):
    """A group of agents, cases, keys and runs."""

    id: str
    name: str
    description: str | None
    paused: Annotated[bool, about("rejects traces and starts no runs")]
    settings: dict[str, Json]
    created_at: str
    updated_at: str


class NewProject(msgspec.Struct, frozen=True, kw_only=True):
    """A new project."""

    name: Name
    description: Description = None
    settings: Annotated[
        dict[str, Json],
        about(
            "targets, models and others, as in `proctor.yaml`; use ${NAME} for secrets",
            examples=[{"targets": {"support": {"type": "http", "url": "https://agent.example.com/chat", "response_path": "text"}}}],
        ),
    ] = {}


class ProjectChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changed fields; omitted fields stay unchanged."""

    name: Name = ""
    description: Description = None
    paused: bool = False
    settings: dict[str, Json] = {}


@operation("projects", "POST /api/projects", status=201, doing="creating projects")
async def create_project(hub: Hub, caller: Caller, spec: NewProject) -> Project:
    """Create a project; requires an organization key."""
    check_settings(spec.settings)
    async with writing(hub, caller) as tx:
        await tx.ensure_organization()
        return _show_project(await tx.insert_row(projects, "project", "proj", msgspec.structs.asdict(spec), {"name": spec.name}))


@operation("projects", "GET /api/projects")
async def list_projects(hub: Hub, caller: Caller, **paging: Unpack[Paging]) -> Page[Project]:
    """List projects, newest first."""
    return await read_page(hub, select_visible(projects, caller), projects, _show_project, **paging)


@operation("projects", "GET /api/projects/{project_id}")
async def get_project(hub: Hub, caller: Caller, id: str) -> Project:
    """Read a project."""
    return _show_project(await read_visible(hub, caller, projects, "project", id))


@operation("projects", "PATCH /api/projects/{project_id}")
async def update_project(hub: Hub, caller: Caller, id: str, changes: Annotated[Mapping[str, Json], ProjectChanges]) -> Project:
    """Change a project; requires an organization key."""
    return await _change_project(hub, caller, id, changes, "update")


@operation("projects", "POST /api/projects/{project_id}/pause")
async def pause_project(hub: Hub, caller: Caller, id: str) -> Project:
    """Reject traces and start no runs until it is resumed; requires an organization key."""
    return await _change_project(hub, caller, id, {"paused": True}, "pause")


@operation("projects", "POST /api/projects/{project_id}/resume")
async def resume_project(hub: Hub, caller: Caller, id: str) -> Project:
    """Accept traces and start runs again; requires an organization key."""
    return await _change_project(hub, caller, id, {"paused": False}, "resume")


async def _change_project(hub: Hub, caller: Caller, id: str, changes: Mapping[str, Json], action: str) -> Project:
    require_writer(caller, "changing projects")
    values = {name: value for name, value in changes.items() if name in ProjectChanges.__struct_fields__}
    check_settings(values.get("settings"))
    async with writing(hub, caller) as tx:
        row = await tx.change_row(projects, "project", id, values, action)
    hub.agent_cache.forget(caller.organization_id)
    return _show_project(row)


@operation("projects", "DELETE /api/projects/{project_id}", doing="deleting projects")
async def delete_project(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a project with everything in it, and revoke its keys; requires an organization key."""
    organization_id = caller.organization_id

    async def one_step(connection: AsyncConnection) -> int:
        traces = await delete_some_of(connection, "trace", organization_id, project_id=id)
        return traces + await delete_some_of(connection, "run", organization_id, project_id=id)

    await empty_place(hub, caller, projects, "project", id, one_step)
    async with writing(hub, caller) as tx:
        await delete_agents_of(tx.connection, organization_id, project_id=id)
        hashes = await delete_project_rows(tx.connection, organization_id, id, hub.now())
        if hashes is None:
            raise not_found("project", id)
        await tx.note("delete", "project", id)
    # After the transaction: otherwise another request could cache the old rows again.
    hub.agent_cache.forget(organization_id)
    for hash in hashes:
        hub.key_cache.forget(hash)
    # Last, since files cannot be rolled back.
    await asyncio.to_thread(delete_folder, hub.settings.home, id)


def _show_project(row: Row) -> Project:
    return show_row(Project, row, settings=row["settings"] or {})
