"""`/tasks` and the entities bound to them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response
from pydantic import Field

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, given, routed
from proctor.rest.routes.verification.bodies import Name, Object, OfBenchmark, Seconds, Shown, Stamped, Written
from proctor.rest.routes.verification.datasets import Entity
from proctor.service.verification import tasks

router = routed("tasks")
Tags = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=100)]


class TaskSummary(Stamped):
    """Something for an agent to do."""

    benchmark_id: str
    name: str
    task_item: Object | None = Field(description="what the agent is given")
    scenario: Object | None
    entities: list[Entity]
    tags: list[str]
    timeout: float | None


class InTask(Shown):
    """A criterion of a task."""

    id: str
    task_id: str
    label: str
    assertion: Object | str
    weight: float
    created_at: str


class Task(TaskSummary):
    """The same with its criteria."""

    criteria: list[InTask]


class NewTask(Written):
    """What a task is made of."""

    benchmark_id: str
    name: Name
    task_item: Object | None = None
    scenario: Object | None = None
    tags: Tags = Field(default_factory=list)
    timeout: Seconds | None = Field(None, description="instead of the benchmark's")


class TaskChanges(Written):
    """What changes; the rest stays, and null clears."""

    name: Name = ""
    task_item: Object | None = None
    scenario: Object | None = None
    tags: Tags = Field(default_factory=list)
    timeout: Seconds | None = None


class Binding(Written):
    """An entity to bind."""

    entity_id: str


@router.get("/tasks", response_model=PageOf[TaskSummary])
async def list_tasks(hub: TheHub, caller: TheCaller, paging: ThePaging, benchmark_id: OfBenchmark) -> object:
    """List tasks, newest first."""
    return await tasks.list_tasks(hub, caller, benchmark_id=benchmark_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/tasks", response_model=TaskSummary, status_code=201)
async def create_task(hub: TheHub, caller: TheCaller, body: NewTask) -> object:
    """Create a task of a benchmark."""
    return await tasks.create_task(hub, caller, given(body))


@router.get("/tasks/{task_id}", response_model=Task)
async def get_task(hub: TheHub, caller: TheCaller, task_id: str) -> object:
    """Read a task with its criteria."""
    return await tasks.get_task(hub, caller, task_id)


@router.patch("/tasks/{task_id}", response_model=TaskSummary)
async def update_task(hub: TheHub, caller: TheCaller, task_id: str, body: TaskChanges) -> object:
    """Change a task; runs that were made before keep the one they were made with."""
    return await tasks.update_task(hub, caller, task_id, given(body))


@router.delete("/tasks/{task_id}", status_code=204)
async def delete_task(hub: TheHub, caller: TheCaller, task_id: str) -> Response:
    """Delete a task and its criteria."""
    await tasks.delete_task(hub, caller, task_id)
    return Response(status_code=204)


@router.get("/tasks/{task_id}/entities", response_model=PageOf[Entity])
async def list_task_entities(hub: TheHub, caller: TheCaller, task_id: str, paging: ThePaging) -> object:
    """List the entities bound to a task, newest first."""
    return await tasks.list_task_entities(hub, caller, task_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/tasks/{task_id}/entities", response_model=Entity, status_code=201)
async def bind_entity(hub: TheHub, caller: TheCaller, task_id: str, body: Binding) -> object:
    """Bind an entity to a task."""
    return await tasks.bind_entity(hub, caller, task_id, given(body))


@router.delete("/tasks/{task_id}/entities/{entity_id}", status_code=204)
async def unbind_entity(hub: TheHub, caller: TheCaller, task_id: str, entity_id: str) -> Response:
    """Take an entity off a task; refused while a criterion needs it."""
    await tasks.unbind_entity(hub, caller, task_id, entity_id)
    return Response(status_code=204)
