"""Datasets and their entities: the initial data of simulated systems, and the records that tasks refer to.

`data` may be large: it is stored separately, and lists omit it. An entity has a `name` and `data`, which `{entity.field}` in a criterion
reads. Linking a dataset to a sandbox makes a branch: a copy with its origin in `parent_id`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import not_found
from proctor.service.verification.authoring.criteria import ENTITIES, check_tasks
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
from proctor.service.verification.shared.resources import (
    Paging,
    Records,
    Rules,
    Transaction,
    declare_standard,
    list_plain,
    reading,
    writing,
)
from proctor.simulators.seeds import ALIASES, LIVE_TYPES, find_kind
from proctor.store.sql.compressed_json import pack, unpack
from proctor.store.sql.pages import Row

MOST_ENTITIES = 10_000

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


async def _pack_data(hub: Hub, fields: dict[str, Json]) -> dict[str, Any]:
    if "data" not in fields:
        return {}
    data = fields.pop("data")
    return {"blob": None if data is None else await asyncio.to_thread(pack, data)}


async def _show_datasets(tx: Transaction, rows: Sequence[Row], full: bool) -> list[dict[str, Json]]:
    shown = [DATASET.show(row) for row in rows]
    if full:
        blob = await tx.read_blob(rows[0]["id"])
        shown[0]["data"] = None if blob is None else await asyncio.to_thread(unpack, blob)
    return shown


async def _drop_entities(tx: Transaction, id: str) -> Sequence[str]:
    entities = [row["id"] for row in await tx.children("entity", id)]
    # Before deleting, which deletes the links.
    tasks = await tx.linking(ENTITIES, entities, "task")
    await tx.delete(entities)
    # Checked afterwards; a refusal rolls back the transaction.
    await check_tasks(tx, tasks, "the dataset cannot be deleted")
    return ()


list_datasets, create_dataset, _, _, delete_dataset = declare_standard(
    DATASET,
    "/datasets",
    Rules(prepare=_pack_data, show=_show_datasets, shows_written=True, large=True, drop=_drop_entities),
    list="List datasets, newest first, without their data.",
    create="Create a dataset.",
    get="Read a dataset with its data.",
    update="Change a dataset; existing branches do not change.",
    delete="Delete a dataset and its entities; rejected while a criterion needs one of them.",
)


@Operation(DATASET, "GET /datasets/{dataset_id}/entities", gives=ENTITY.summary, pages=True, tool="listEntities")
async def list_entities(hub: Hub, caller: Caller, dataset_id: str, **paging: Unpack[Paging]) -> Records:
    """List the entities of a dataset, newest first."""
    return await list_plain(hub, caller, ENTITY, parent_id=dataset_id, **paging)


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
    body = ENTITY.read({**request_body, "dataset_id": dataset_id})
    async with writing(hub, caller) as tx:
        await tx.require("dataset", dataset_id, lock=True)
        await tx.refuse_more_children("entity", dataset_id, MOST_ENTITIES, f"a dataset has at most {MOST_ENTITIES} entities")
        return ENTITY.show(await tx.add(ENTITY, body))


@Operation(DATASET, "GET /datasets/{dataset_id}/entities/{entity_id}", gives=ENTITY.whole)
async def get_entity(hub: Hub, caller: Caller, dataset_id: str, id: str) -> dict[str, Json]:
    """Read an entity."""
    async with reading(hub, caller) as tx:
        return ENTITY.show(await _find_entity(tx, dataset_id, id))


@Operation(DATASET, "PATCH /datasets/{dataset_id}/entities/{entity_id}", takes=ENTITY.changes, gives=ENTITY.whole, tool="updateEntity")
async def update_entity(hub: Hub, caller: Caller, dataset_id: str, id: str, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Change an entity; rejected if a criterion would lose a field."""
    changes = ENTITY.read(request_body, partial=True)
    async with writing(hub, caller) as tx:
        row = await _find_entity(tx, dataset_id, id, lock=True)
        row = await tx.change(ENTITY, row, changes)
        await check_tasks(tx, await tx.linking(ENTITIES, [id], "task"), "the entity cannot be changed")
        return ENTITY.show(row)


@Operation(DATASET, "DELETE /datasets/{dataset_id}/entities/{entity_id}", tool="deleteEntity")
async def delete_entity(hub: Hub, caller: Caller, dataset_id: str, id: str) -> None:
    """Delete an entity; rejected while a criterion needs it."""
    async with writing(hub, caller) as tx:
        await _find_entity(tx, dataset_id, id, lock=True)
        tasks = await tx.linking(ENTITIES, [id], "task")
        await tx.remove(ENTITY, [id])
        await check_tasks(tx, tasks, "the entity cannot be deleted")


async def _find_entity(tx: Transaction, dataset_id: str, id: str, *, lock: bool = False) -> Row:
    row = await tx.require("entity", id, lock=lock)
    if row["parent_id"] != dataset_id:
        raise not_found("entity", id)
    return row
