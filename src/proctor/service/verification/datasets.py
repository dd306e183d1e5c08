"""Datasets and their entities: what a simulated system is filled with, and the records in it that tasks are about.

`data` may be large: it is kept apart, and lists leave it out. An entity has a `name` and `data`; `{entity.field}` in a criterion reads from
that data. Linking a dataset to a sandbox makes a branch: a copy that names its origin in `parent_id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification import resources
from proctor.service.verification.fields import Field, a_config, an_object, an_object_or_list, one_of, text
from proctor.service.verification.resources import Parent, Resource, authorize, required
from proctor.service.verification.soundness import check_tasks, tasks_with
from proctor.store.bodies import pack, unpack
from proctor.store.pages import Row
from proctor.store.records import children, count_children, read_blob

MOST_ENTITIES = 10_000
_NO_DATA = object()
_FORMATS = {"FHIR": "fhir", "Files": "files"}

DATASET = Resource(
    kind="dataset",
    prefix="ds",
    what="dataset",
    table={
        "name": Field(text(200), required=True, null=False),
        "description": Field(text(1000, 0)),
        "type": Field(one_of("FHIR", "Files"), default="FHIR", null=False),
        "config": Field(a_config),
        "data": Field(an_object_or_list),
    },
)
ENTITY = Resource(
    kind="entity",
    prefix="ent",
    what="entity",
    table={
        "dataset_id": Field(text(200), required=True, null=False),
        "name": Field(text(200)),
        "data": Field(an_object, default={}, null=False),
    },
    parent=Parent("dataset_id", "dataset", "dataset"),
)


async def list_datasets(hub: Hub, caller: Caller, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """A page of datasets, without their data."""
    authorize(caller)
    page, _ = await resources.list_rows(hub, caller, DATASET, limit=limit, cursor=cursor)
    return resources.page_of(page, [shown_dataset(row) for row in page.rows])


async def create_dataset(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """A new dataset: `name`, `type` (also called `format`), `description?`, `config?`, `data?`."""
    authorize(caller)
    body = DATASET.read(_with_type(given))
    data = body.pop("data")
    async with hub.database.writing() as connection:
        row = await resources.keep(connection, hub, caller, DATASET, body, blob=None if data is None else pack(data))
    return shown_dataset(row, data)


async def get_dataset(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One dataset with its data."""
    authorize(caller)
    async with hub.database.reading() as connection:
        row = await required(connection, caller, "dataset", id)
        return shown_dataset(row, await _data(connection, caller, id))


async def update_dataset(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change a dataset; branches that were made of it keep what they have."""
    authorize(caller)
    changes = DATASET.read(_with_type(given), partial=True)
    columns: dict[str, Any] = {}
    if "data" in changes:
        data = changes.pop("data")
        columns["blob"] = None if data is None else pack(data)
    async with hub.database.writing() as connection:
        row = await required(connection, caller, "dataset", id, lock=True)
        row = await resources.rewrite(connection, hub, caller, DATASET, row, changes, **columns)
        return shown_dataset(row, await _data(connection, caller, id))


async def delete_dataset(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a dataset and its entities; refused while a criterion needs one of them."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await required(connection, caller, "dataset", id, lock=True)
        entities = [row["id"] for row in await children(connection, caller.organization_id, "entity", id)]
        tasks = await tasks_with(connection, caller, entities)
        await resources.remove(connection, hub, caller, DATASET, [id, *entities])
        await check_tasks(connection, caller, tasks, "the dataset cannot be deleted")


async def branch_dataset(connection: AsyncConnection, hub: Hub, caller: Caller, row: Row) -> Row:
    """A copy of a dataset for a sandbox to change."""
    blob = await read_blob(connection, caller.organization_id, row["id"])
    return await resources.keep(connection, hub, caller, DATASET, {**row["body"], "parent_id": row["id"]}, blob=blob)


# --- entities ---------------------------------------------------------------------------------------------------------


async def list_entities(
    hub: Hub, caller: Caller, dataset_id: str, *, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """A page of a dataset's entities."""
    return await resources.list_plain(hub, caller, ENTITY, parent_id=dataset_id, limit=limit, cursor=cursor)


async def create_entity(hub: Hub, caller: Caller, dataset_id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """A new entity of a dataset: `name?`, `data?`."""
    authorize(caller)
    body = ENTITY.read({**given, "dataset_id": dataset_id})
    async with hub.database.writing() as connection:
        await required(connection, caller, "dataset", dataset_id, lock=True)
        if await count_children(connection, caller.organization_id, "entity", dataset_id) >= MOST_ENTITIES:
            raise Refusal("CONFLICT", f"a dataset has at most {MOST_ENTITIES} entities")
        return ENTITY.shown(await resources.keep(connection, hub, caller, ENTITY, body))


async def get_entity(hub: Hub, caller: Caller, dataset_id: str, id: str) -> dict[str, Json]:
    """One entity of a dataset."""
    authorize(caller)
    async with hub.database.reading() as connection:
        return ENTITY.shown(await _entity(connection, caller, dataset_id, id))


async def update_entity(hub: Hub, caller: Caller, dataset_id: str, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change an entity; refused where a criterion would lose a field it reads."""
    authorize(caller)
    changes = ENTITY.read(given, partial=True)
    async with hub.database.writing() as connection:
        row = await _entity(connection, caller, dataset_id, id, lock=True)
        row = await resources.rewrite(connection, hub, caller, ENTITY, row, changes)
        await check_tasks(connection, caller, await tasks_with(connection, caller, [id]), "the entity cannot be changed")
        return ENTITY.shown(row)


async def delete_entity(hub: Hub, caller: Caller, dataset_id: str, id: str) -> None:
    """Delete an entity; refused while a criterion needs it."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await _entity(connection, caller, dataset_id, id, lock=True)
        tasks = await tasks_with(connection, caller, [id])
        await resources.remove(connection, hub, caller, ENTITY, [id])
        await check_tasks(connection, caller, tasks, "the entity cannot be deleted")


async def _entity(connection: AsyncConnection, caller: Caller, dataset_id: str, id: str, *, lock: bool = False) -> Row:
    row = await required(connection, caller, "entity", id, lock=lock)
    if row["parent_id"] != dataset_id:
        raise not_found("entity", id)
    return row


async def _data(connection: AsyncConnection, caller: Caller, id: str) -> Json:
    blob = await read_blob(connection, caller.organization_id, id)
    return None if blob is None else unpack(blob)


def shown_dataset(row: Row, data: Json = _NO_DATA) -> dict[str, Json]:
    """A dataset in the shape of the wire; with its data where that was read."""
    found = DATASET.shown(row)
    found |= {"format": _FORMATS[found["type"]], "parent_id": row["body"].get("parent_id")}
    if data is _NO_DATA:
        del found["data"]
    else:
        found["data"] = data
    return found


def _with_type(given: Mapping[str, Json]) -> dict[str, Json]:
    """REST says `type`, the MCP tool says `format`."""
    fields = dict(given)
    if "format" in fields and "type" not in fields:
        fields["type"] = fields.pop("format")
    return fields
