"""Checks criteria when they are written, and when the entities they read change.

The reader of Verial files is used. There an invalid criterion fails; here it is rejected with its path and the nearest known word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.formats.text.json_text import read_json
from proctor.formats.text.located import Reading
from proctor.formats.verial import suite as verial
from proctor.model.evidence import Json
from proctor.model.problem import Problem
from proctor.service.access.callers import Caller
from proctor.service.refusals import Refusal
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import children, linked, linking

ENTITIES = "task_entity"
"""The link from a task to a bound entity."""

_CRITERION = "$.criteria[0]"
_REFUSED = ("unsupported_assertion", "unknown_key", "unknown_entity")


def make_criterion_document(id: str, body: Mapping[str, Json]) -> dict[str, Json]:
    """Return a criterion as in a Verial document."""
    return {"id": id, **{name: value for name, value in body.items() if name != "task_id" and value is not None}}


def make_entity_document(row: Row) -> dict[str, Json]:
    """Return an entity as in a Verial document: its fields next to its id, and under `data`."""
    body: dict[str, Json] = row["body"]
    data: dict[str, Json] = body.get("data") or {}
    name = {} if body.get("name") is None else {"name": body["name"]}
    return {**name, **data, "id": row["id"], "data": data}


def find_criterion_problems(criterion: Mapping[str, Json], entities: Sequence[Mapping[str, Json]]) -> dict[str, list[str]]:
    """Return the problems of a criterion by path."""
    text = to_json({"task": {"name": "task", "entities": list(entities)}, "criteria": [dict(criterion)]}).decode()
    reading = Reading(file=None, text="")
    document = read_json(text, reading)
    if document is not None:
        verial.read(document, reading, name="task")
    found: dict[str, list[str]] = {}
    for problem in reading.problems:
        path = problem.origin.path or _CRITERION
        if path.startswith(_CRITERION) and (problem.level == "error" or problem.code in _REFUSED):
            found.setdefault(path.removeprefix(_CRITERION).lstrip(".") or "assertion", []).append(_describe_problem(problem))
    return found


def _describe_problem(problem: Problem) -> str:
    message = problem.message.removesuffix("; the criterion will fail")
    if "bound to no entity" in message:
        message += "; bind one to the task (POST /tasks/{id}/entities), and name it in input_entity_id if there are several"
    near = f"; nearest: {', '.join(problem.nearest)}" if problem.nearest else ""
    hint = f"; {problem.hint}" if problem.hint else ""
    return message + near + hint


async def list_entities_of(connection: AsyncConnection, caller: Caller, tasks: Iterable[str]) -> dict[str, list[Row]]:
    """Return the entities bound to tasks, by task, in the order they were bound."""
    return await linked(connection, caller.organization_id, ENTITIES, tasks, "entity")


async def find_tasks_with(connection: AsyncConnection, caller: Caller, entities: Iterable[str]) -> list[str]:
    """Return the ids of tasks that one of these entities is bound to."""
    return [row["id"] for row in await linking(connection, caller.organization_id, ENTITIES, entities, "task")]


async def check_tasks(connection: AsyncConnection, caller: Caller, tasks: Sequence[str], refused: str) -> None:
    """Reject a change of entities that makes a criterion of these tasks invalid."""
    entities = await list_entities_of(connection, caller, tasks)
    for row in await children(connection, caller.organization_id, "criterion", tasks):
        bound = [make_entity_document(entity) for entity in entities[row["parent_id"]]]
        problems = find_criterion_problems(make_criterion_document(row["id"], row["body"]), bound)
        if problems:
            path, texts = next(iter(problems.items()))
            raise Refusal("CONFLICT", f"{refused}: the criterion {row['id']!r} needs it ({path}: {texts[0]})")
