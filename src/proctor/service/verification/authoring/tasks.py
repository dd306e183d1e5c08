"""Tasks of a benchmark: instructions for the agent, entities, and criteria."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.paging import show_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.criteria import ENTITIES, IN_TASK, check_tasks, show_in_task
from proctor.service.verification.authoring.datasets import ENTITY
from proctor.service.verification.authoring.environments import list_parts
from proctor.service.verification.authoring.seeding import make_surroundings
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import (
    LONGEST_TEXT,
    NAME,
    OBJECT,
    TEXTS,
    Field,
    Shape,
    id_of,
    invalid,
    nested_field,
    number,
    read_fields,
    text,
)
from proctor.service.verification.shared.resources import Paging, Records, Rules, Transaction, declare_standard, reading, writing
from proctor.simulators import seeds
from proctor.simulators.ports import Desk, find_simulator
from proctor.simulators.rows import NO_ROWS, Draft
from proctor.simulators.seeds import NotHeld, ScenarioStep, describe_spec_error, find_kind
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import linked_query


def read_scenario(value: Json) -> tuple[ScenarioStep, ...]:
    """Return the steps of a scenario. Raises `Refusal` with the place of a problem."""
    try:
        return seeds.read_scenario(value)
    except SpecError as error:
        place = f"scenario.{error.field}" if error.field else "scenario"
        raise invalid("task", {place: [describe_spec_error(error.move_to(None))]}) from None


async def _check_steps(hub: Hub, fields: Mapping[str, Json]) -> dict[str, Any]:
    for place, step in _list_places(fields.get("scenario")):
        try:
            desk = Desk(Draft(NO_ROWS, step.kind), make_surroundings(hub))
            await asyncio.to_thread(find_simulator(step.kind).perform, step.step, step.given, desk)
        except NotHeld:
            continue
        except SpecError as error:
            raise invalid("task", {place: [f"{step.step}: {describe_spec_error(error)}"]}) from None
    return {}


async def check_systems_of_tasks(tx: Transaction, benchmark: Mapping[str, Json]) -> None:
    """Reject a benchmark with a task whose environment lacks a system of its scenario."""
    if benchmark["environment_id"] is None:
        return
    kinds = await _list_kinds(tx, benchmark["environment_id"])
    for task in benchmark["tasks"]:
        for place, step in _list_places(task.get("scenario")):
            if step.kind not in kinds:
                add = f"POST /environments/{benchmark['environment_id']}/simulators/SIMULATOR_ID"
                raise Refusal(
                    "CONFLICT", f"the task {task['id']!r}: {place}: {step.step}: {_describe_lack(step.kind, kinds)}; add it: {add}"
                )


def _describe_lack(kind: str, kinds: list[str]) -> str:
    return f"the environment has no simulator of kind {kind}; it has {', '.join(kinds) or 'none'}"


def _list_places(value: Json) -> Iterator[tuple[str, ScenarioStep]]:
    for index, step in enumerate(read_scenario(value)):
        yield f"scenario.steps.{index}" if "steps" in value else f"scenario.{step.step}", step


async def _list_kinds(tx: Transaction, environment_id: str | None) -> list[str]:
    if environment_id is None:
        return []
    rows = (await list_parts(tx, "simulator", [environment_id]))[environment_id]
    return [kind for row in rows if (kind := find_kind(row["body"]["type"])) is not None]


MOST_TASKS = 500
MOST_ENTITIES = 100

TASK = Resource(
    kind="task",
    prefix="task",
    name="Task",
    about="A task for an agent.",
    tag="tasks",
    tool=ToolWords(
        "tasks",
        "Tasks",
        "Author the tasks of a benchmark: the input of the agent (`taskItem`) and its entities. On update null clears a field.",
    ),
    fields={
        "benchmark_id": Field(id_of("benchmark"), "the benchmark it belongs to", required=True, null=False, changeable=False),
        "name": NAME,
        "task_item": Field(OBJECT, "input of the agent; usually `instruction`, `trigger`, `expected_inputs`"),
        "instruction": Field(
            text(LONGEST_TEXT),
            "the instruction of the first generation; stored as `instruction` of `task_item`",
            shown=False,
        ),
        "scenario": Field(OBJECT, "steps that happen in the simulated systems when the task starts, or later"),
        "entities": nested_field(ENTITY.whole, "its entities"),
        "tags": Field(TEXTS, "tags for searching", default=[], null=False),
        "timeout": Field(number(most=1e7), "seconds, instead of the benchmark's; a longer task fails"),
        "criteria": nested_field(IN_TASK, "its criteria", full=True),
    },
    parent="benchmark_id",
)
_BINDING = Shape(
    "Binding", "An entity to bind.", {"entity_id": Field(id_of("entity"), "an entity of a dataset", required=True, null=False)}
)


async def _check_task(tx: Transaction, body: dict[str, Json], row: Row | None) -> dict[str, Json]:
    _place_instruction(body, None if row is None else row["body"].get("task_item"))
    if body.get("scenario"):
        benchmark_id = body["benchmark_id"] if row is None else row["parent_id"]
        benchmark = await tx.require("benchmark", benchmark_id)
        kinds = await _list_kinds(tx, benchmark["body"].get("environment_id"))
        for place, step in _list_places(body["scenario"]):
            # An environment without systems may still get them.
            if kinds and step.kind not in kinds:
                raise invalid("task", {place: [f"{step.step}: {_describe_lack(step.kind, kinds)}"]})
    return {}


async def _show_tasks(tx: Transaction, rows: Sequence[Row], full: bool) -> list[dict[str, Json]]:
    bound = await tx.linked(ENTITIES, [row["id"] for row in rows], "entity")
    shown: list[dict[str, Json]] = [{**TASK.show(row), "entities": [ENTITY.show(each) for each in bound[row["id"]]]} for row in rows]
    if full:
        criteria = await tx.children("criterion", rows[0]["id"])
        shown[0]["criteria"] = [show_in_task(criterion) for criterion in criteria]
    return shown


async def _list_criteria(tx: Transaction, id: str) -> list[str]:
    return [row["id"] for row in await tx.children("criterion", id)]


create_task = declare_standard(
    TASK,
    "/tasks",
    Rules(most=MOST_TASKS, prepare=_check_steps, check=_check_task, show=_show_tasks, drop=_list_criteria),
    within="benchmark_id",
    list="List tasks, newest first.",
    create="Create a task of a benchmark.",
    get="Read a task with its criteria.",
    update="Change a task; existing runs keep their copy.",
    delete="Delete a task and its criteria.",
).create


@Operation(TASK, "GET /tasks/{task_id}/entities", gives=ENTITY.summary, pages=True, tool="listEntities")
async def list_task_entities(hub: Hub, caller: Caller, id: str, **paging: Unpack[Paging]) -> Records:
    """List the entities bound to a task, newest first."""
    async with reading(hub, caller) as tx:
        await tx.require("task", id)
        page = await tx.fetch_page(linked_query(caller.organization_id, ENTITIES, id, "entity"), **paging)
    return show_page(page, ENTITY.show)


@Operation(TASK, "POST /tasks/{task_id}/entities", takes=_BINDING, gives=ENTITY.whole, creates=True, tool="addEntity")
async def bind_entity(hub: Hub, caller: Caller, id: str, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Bind an entity to a task. Idempotent."""
    entity_id = read_fields(_BINDING.fields, request_body, "binding")["entity_id"]
    async with writing(hub, caller) as tx:
        task = await tx.require("task", id, lock=True)
        entity = await tx.require("entity", entity_id)
        if await tx.link(id, ENTITIES, entity_id):
            if len((await tx.linked(ENTITIES, [id], "entity"))[id]) > MOST_ENTITIES:
                raise Refusal("CONFLICT", f"a task has at most {MOST_ENTITIES} entities")
            await check_tasks(tx, [task], "the entity cannot be bound")
            await tx.note("bind_entity", "task", id, {"entity_id": entity_id})
        return ENTITY.show(entity)


@Operation(TASK, "DELETE /tasks/{task_id}/entities/{entity_id}", tool="removeEntity")
async def unbind_entity(hub: Hub, caller: Caller, id: str, entity_id: str) -> None:
    """Unbind an entity from a task; rejected while a criterion needs it."""
    async with writing(hub, caller) as tx:
        task = await tx.require("task", id, lock=True)
        if not await tx.unlink(id, ENTITIES, entity_id):
            raise not_found("entity of this task", entity_id)
        await check_tasks(tx, [task], "the entity cannot be unbound")
        await tx.note("unbind_entity", "task", id, {"entity_id": entity_id})


def _place_instruction(fields: dict[str, Json], before: Json) -> None:
    """Move the instruction into `task_item`, which is `before` if the fields do not change it."""
    stated = fields.pop("instruction", None)
    if stated is None:
        return
    item: dict[str, Json] = fields.get("task_item", before) or {}
    if "task_item" in fields and item.get("instruction", stated) != stated:
        raise invalid("task", {"instruction": ["differs from task_item.instruction; send one of them"]})
    fields["task_item"] = {**item, "instruction": stated}
