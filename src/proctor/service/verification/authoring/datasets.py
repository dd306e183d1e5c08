"""Datasets and their entities: the initial data of simulated systems, and the records that tasks refer to.

`data` may be large: it is stored separately, and lists omit it. An entity has a `name` and `data`, which `{entity.field}` in a criterion
reads. Linking a dataset to a sandbox makes a branch: a copy with its origin in `parent_id`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Unpack

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.criteria import check_tasks, find_tasks_with
from proctor.service.verification.shared import resources
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import (
    CONFIG,
    DESCRIPTION,
    NAME,
    OBJECT,
    OBJECT_OR_LIST,
    Field,
    id_of,
    one_of,
    read_only,
    read_only_id,
    text,
)
from proctor.service.verification.shared.resources import Paging, authorize, require_record
from proctor.simulators.seeds import ALIASES, LIVE_TYPES, find_kind
from proctor.store.sql.compressed_json import pack, unpack
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import children, count_children, read_blob

MOST_ENTITIES = 10_000
_NO_DATA = object()

DATASET = Resource(
    kind="dataset",
    prefix="ds",
    name="Dataset",
    about="The initial data of a simulated system.",
    tag="datasets",
    tool=ToolWords(
        "datasets", "Datasets", "Author datasets: the initial data of a simulated system, and the entities in it that tasks refer to."
    ),
    fields={
        "name": NAME,
        "description": DESCRIPTION,
        # REST has `type`, the MCP tool `format`.
        "type": Field(
            one_of(*LIVE_TYPES, aliases=ALIASES), f"one of {', '.join(LIVE_TYPES)}, in any case", default="FHIR", null=False, also="format"
        ),
        "format": read_only("string", "the type as the MCP tool names it", compute=lambda row: find_kind(row["body"]["type"])),
        "config": Field(CONFIG, "settings"),
        "parent_id": read_only_id("dataset", "for a branch: the original dataset", null=True),
        "data": Field(OBJECT_OR_LIST, "the seed of a system of its type; a Bundle for FHIR", full=True),
    },
)
ENTITY = Resource(
    kind="entity",
    prefix="ent",
    name="Entity",
    about="A record of a dataset that tasks can refer to.",
    fields={
        "dataset_id": Field(id_of("dataset"), "the dataset it belongs to", required=True, null=False, changeable=False),
        "name": Field(text(200), "its name"),
        "data": Field(OBJECT, "the fields of an entity, which `{entity.field}` in a criterion reads", default={}, null=False),
    },
    parent="dataset_id",
)


@Operation(DATASET, "GET /datasets", gives=DATASET.summary, pages=True, tool="list")
async def list_datasets(hub: Hub, caller: Caller, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List datasets, newest first, without their data."""
    return await resources.list_plain(hub, caller, DATASET, **paging)


@Operation(DATASET, "POST /datasets", takes=DATASET.new, gives=DATASET.whole, large=True, creates=True, tool="create")
async def create_dataset(hub: Hub, caller: Caller, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Create a dataset."""
    authorize(caller)
    body, blob = await asyncio.to_thread(_read_packed, request_body, partial=False)
    data = body.pop("data")
    async with hub.database.writing() as connection:
        row = await resources.store_record(connection, hub, caller, DATASET, body, blob=blob)
    return show_dataset(row, data)


@Operation(DATASET, "GET /datasets/{dataset_id}", gives=DATASET.whole, large=True, tool="get")
async def get_dataset(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a dataset with its data."""
    authorize(caller)
    async with hub.database.reading() as connection:
        row = await require_record(connection, caller, "dataset", id)
        return show_dataset(row, await _read_data(connection, caller, id))


@Operation(DATASET, "PATCH /datasets/{dataset_id}", takes=DATASET.changes, gives=DATASET.whole, large=True, tool="update")
async def update_dataset(hub: Hub, caller: Caller, id: str, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Change a dataset; existing branches do not change."""
    authorize(caller)
    changes, blob = await asyncio.to_thread(_read_packed, request_body, partial=True)
    columns: dict[str, Any] = {}
    if "data" in changes:
        del changes["data"]
        columns["blob"] = blob
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "dataset", id, lock=True)
        row = await resources.rewrite_record(connection, hub, caller, DATASET, row, changes, **columns)
        return show_dataset(row, await _read_data(connection, caller, id))


@Operation(DATASET, "DELETE /datasets/{dataset_id}", tool="delete")
async def delete_dataset(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a dataset and its entities; rejected while a criterion needs one of them."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await require_record(connection, caller, "dataset", id, lock=True)
        entities = [row["id"] for row in await children(connection, caller.organization_id, "entity", id)]
        # Before deleting, which deletes the links.
        tasks = await find_tasks_with(connection, caller, entities)
        await resources.remove_records(connection, hub, caller, DATASET, [id, *entities])
        # Checked afterwards; a refusal rolls back the transaction.
        await check_tasks(connection, caller, tasks, "the dataset cannot be deleted")


def _read_packed(request_body: Mapping[str, Json], *, partial: bool) -> tuple[dict[str, Json], bytes | None]:
    """Return the fields of a request, and its packed data, which takes long if large."""
    body = DATASET.read(request_body, partial=partial)
    data = body.get("data")
    return body, None if data is None else pack(data)


async def branch_dataset(connection: AsyncConnection, hub: Hub, caller: Caller, row: Row) -> Row:
    """Store a copy of a dataset for a sandbox."""
    blob = await read_blob(connection, caller.organization_id, row["id"])
    return await resources.store_record(connection, hub, caller, DATASET, {**row["body"], "parent_id": row["id"]}, blob=blob)


@Operation(DATASET, "GET /datasets/{dataset_id}/entities", gives=ENTITY.summary, pages=True, tool="listEntities")
async def list_entities(hub: Hub, caller: Caller, dataset_id: str, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List the entities of a dataset, newest first."""
    return await resources.list_plain(hub, caller, ENTITY, parent_id=dataset_id, **paging)


@Operation(
    DATASET,
    "POST /datasets/{dataset_id}/entities",
    takes=ENTITY.new_within("dataset_id"),
    gives=ENTITY.whole,
    creates=True,
    tool="createEntity",
)
async def create_entity(hub: Hub, caller: Caller, dataset_id: str, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Create an entity of a dataset."""
    authorize(caller)
    body = ENTITY.read({**request_body, "dataset_id": dataset_id})
    async with hub.database.writing() as connection:
        await require_record(connection, caller, "dataset", dataset_id, lock=True)
        if await count_children(connection, caller.organization_id, "entity", dataset_id) >= MOST_ENTITIES:
            raise Refusal("CONFLICT", f"a dataset has at most {MOST_ENTITIES} entities")
        return ENTITY.show(await resources.store_record(connection, hub, caller, ENTITY, body))


@Operation(DATASET, "GET /datasets/{dataset_id}/entities/{entity_id}", gives=ENTITY.whole)
async def get_entity(hub: Hub, caller: Caller, dataset_id: str, id: str) -> dict[str, Json]:
    """Read an entity."""
    authorize(caller)
    async with hub.database.reading() as connection:
        return ENTITY.show(await _find_entity(connection, caller, dataset_id, id))


@Operation(DATASET, "PATCH /datasets/{dataset_id}/entities/{entity_id}", takes=ENTITY.changes, gives=ENTITY.whole, tool="updateEntity")
async def update_entity(hub: Hub, caller: Caller, dataset_id: str, id: str, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Change an entity; rejected if a criterion would lose a field."""
    authorize(caller)
    changes = ENTITY.read(request_body, partial=True)
    async with hub.database.writing() as connection:
        row = await _find_entity(connection, caller, dataset_id, id, lock=True)
        row = await resources.rewrite_record(connection, hub, caller, ENTITY, row, changes)
        await check_tasks(connection, caller, await find_tasks_with(connection, caller, [id]), "the entity cannot be changed")
        return ENTITY.show(row)


@Operation(DATASET, "DELETE /datasets/{dataset_id}/entities/{entity_id}", tool="deleteEntity")
async def delete_entity(hub: Hub, caller: Caller, dataset_id: str, id: str) -> None:
    """Delete an entity; rejected while a criterion needs it."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await _find_entity(connection, caller, dataset_id, id, lock=True)
        tasks = await find_tasks_with(connection, caller, [id])
        await resources.remove_records(connection, hub, caller, ENTITY, [id])
        await check_tasks(connection, caller, tasks, "the entity cannot be deleted")


async def _find_entity(connection: AsyncConnection, caller: Caller, dataset_id: str, id: str, *, lock: bool = False) -> Row:
    row = await require_record(connection, caller, "entity", id, lock=lock)
    if row["parent_id"] != dataset_id:
        raise not_found("entity", id)
    return row


async def _read_data(connection: AsyncConnection, caller: Caller, id: str) -> Json:
    blob = await read_blob(connection, caller.organization_id, id)
    return None if blob is None else await asyncio.to_thread(unpack, blob)


def show_dataset(row: Row, data: Json = _NO_DATA) -> dict[str, Json]:
    """Return a dataset, with its data if given."""
    return DATASET.show(row) if data is _NO_DATA else {**DATASET.show(row), "data": data}
