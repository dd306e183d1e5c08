"""Tasks of a benchmark: what the agent is told, which entities it is about, and by which criteria it is verified."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.paging import paged
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification import resources
from proctor.service.verification.criteria import shown_in_task
from proctor.service.verification.datasets import ENTITY
from proctor.service.verification.fields import Field, an_object, number, read_fields, text, texts
from proctor.service.verification.resources import Parent, Resource, authorize, required
from proctor.service.verification.soundness import ENTITIES, check_tasks, entities_of
from proctor.store.pages import Row
from proctor.store.records import children, count_children, link, linked_query, unlink
from proctor.store.tables import records

MOST_TASKS = 500
MOST_ENTITIES = 100

TASK = Resource(
    kind="task",
    prefix="task",
    what="task",
    table={
        "benchmark_id": Field(text(200), required=True, null=False),
        "name": Field(text(200), required=True, null=False),
        "task_item": Field(an_object),
        "scenario": Field(an_object),
        "tags": Field(texts, default=[], null=False),
        "timeout": Field(number(most=1e7)),
    },
    parent=Parent("benchmark_id", "benchmark", "benchmark"),
)
_BINDING = {"entity_id": Field(text(200), required=True, null=False)}


async def list_tasks(
    hub: Hub, caller: Caller, *, benchmark_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """A page of tasks, of one benchmark where it is named."""
    page, data = await resources.list_rows(hub, caller, TASK, parent_id=benchmark_id, limit=limit, cursor=cursor)
    async with hub.database.reading() as connection:
        bound = await entities_of(connection, caller, [entry["id"] for entry in data])
    return resources.page_of(page, [{**entry, "entities": [ENTITY.shown(row) for row in bound[entry["id"]]]} for entry in data])


async def create_task(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """A new task: `benchmark_id`, `name`, `task_item?`, `scenario?`, `tags?`, `timeout?`."""
    authorize(caller)
    body = TASK.read(given)
    async with hub.database.writing() as connection:
        await required(connection, caller, "benchmark", body["benchmark_id"], lock=True)
        if await count_children(connection, caller.organization_id, "task", body["benchmark_id"]) >= MOST_TASKS:
            raise Refusal("CONFLICT", f"a benchmark has at most {MOST_TASKS} tasks")
        row = await resources.keep(connection, hub, caller, TASK, body)
    return {**TASK.shown(row), "entities": []}


async def get_task(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One task with its entities and its criteria."""
    authorize(caller)
    async with hub.database.reading() as connection:
        row = await required(connection, caller, "task", id)
        criteria = await children(connection, caller.organization_id, "criterion", id)
        return {**await _shown(connection, caller, row), "criteria": [shown_in_task(criterion) for criterion in criteria]}


async def update_task(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change a task; runs that were started before keep the one they started with."""
    authorize(caller)
    changes = TASK.read(given, partial=True)
    async with hub.database.writing() as connection:
        row = await required(connection, caller, "task", id, lock=True)
        row = await resources.rewrite(connection, hub, caller, TASK, row, changes)
        return await _shown(connection, caller, row)


async def delete_task(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a task and its criteria."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await required(connection, caller, "task", id, lock=True)
        criteria = [row["id"] for row in await children(connection, caller.organization_id, "criterion", id)]
        await resources.remove(connection, hub, caller, TASK, [id, *criteria])


# --- entities ---------------------------------------------------------------------------------------------------------


async def list_task_entities(hub: Hub, caller: Caller, id: str, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """A page of the entities that are bound to a task."""
    authorize(caller)
    async with hub.database.reading() as connection:
        await required(connection, caller, "task", id)
        query = linked_query(caller.organization_id, ENTITIES, id, "entity")
        page = await paged(connection, query, records, limit=limit, cursor=cursor)
    return resources.page_of(page, [ENTITY.shown(row) for row in page.rows])


async def bind_entity(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Bind an entity to a task (`entity_id`); one that is bound stays bound."""
    authorize(caller)
    entity_id = read_fields(_BINDING, given, "binding")["entity_id"]
    async with hub.database.writing() as connection:
        await required(connection, caller, "task", id, lock=True)
        entity = await required(connection, caller, "entity", entity_id)
        if await link(connection, id, ENTITIES, entity_id, hub.now()):
            if len((await entities_of(connection, caller, [id]))[id]) > MOST_ENTITIES:
                raise Refusal("CONFLICT", f"a task has at most {MOST_ENTITIES} entities")
            await check_tasks(connection, caller, [id], "the entity cannot be bound")
            await note(connection, hub, caller, "bind_entity", "task", id, {"entity_id": entity_id})
        return ENTITY.shown(entity)


async def unbind_entity(hub: Hub, caller: Caller, id: str, entity_id: str) -> None:
    """Take an entity off a task; refused while a criterion needs it."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await required(connection, caller, "task", id, lock=True)
        if not await unlink(connection, id, ENTITIES, entity_id):
            raise not_found("entity of this task", entity_id)
        await check_tasks(connection, caller, [id], "the entity cannot be taken off the task")
        await note(connection, hub, caller, "unbind_entity", "task", id, {"entity_id": entity_id})


async def _shown(connection: AsyncConnection, caller: Caller, row: Row) -> dict[str, Json]:
    bound = await entities_of(connection, caller, [row["id"]])
    return {**TASK.shown(row), "entities": [ENTITY.shown(entity) for entity in bound[row["id"]]]}
