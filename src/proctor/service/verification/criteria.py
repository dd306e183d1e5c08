"""Criteria: one typed assertion each, with a weight and an axis. What cannot be understood is refused when it is written.

Criteria and the evals of the generation before are one kind of record: an eval is a criterion whose assertion is a text
(`legacy_evals.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.formats.located import MAX_WEIGHT
from proctor.model.evidence import Json
from proctor.model.show import kind_of
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification import resources
from proctor.service.verification.fields import LONGEST_TEXT, Field, an_object, flag, invalid, number, one_of, text
from proctor.service.verification.resources import Parent, Resource, authorize, required
from proctor.service.verification.soundness import criterion_document, criterion_problems, entities_of, entity_document
from proctor.store.bodies import from_json
from proctor.store.pages import Row
from proctor.store.records import count_children

MOST_CRITERIA = 200


def _assertion(value: Json) -> Json:
    """An object; JSON written as text counts as one."""
    if isinstance(value, str) and value.lstrip().startswith("{") and len(value) <= LONGEST_TEXT * 10:
        try:
            value = from_json(value)
        except Exception:
            raise ValueError("it begins like JSON, but is none") from None
    if isinstance(value, str):
        raise ValueError("expected an object with 'assert'; sentences are kept as evals (POST /evals)")
    if not isinstance(value, dict):
        raise ValueError(f"expected an object with 'assert', got {kind_of(value)}")
    return an_object(value)


CRITERION = Resource(
    kind="criterion",
    prefix="crit",
    what="criterion",
    table={
        "task_id": Field(text(200), required=True, null=False),
        "label": Field(text(500), required=True, null=False),
        "assertion": Field(_assertion, required=True, null=False),
        "weight": Field(number(most=MAX_WEIGHT), default=1, null=False),
        "axis": Field(text(100)),
        "input_entity_id": Field(text(200)),
        "required": Field(flag, default=False, null=False),
        "advisory": Field(flag, default=False, null=False),
        "when_missing": Field(one_of("fail", "error", "skip"), default="fail", null=False),
    },
    parent=Parent("task_id", "task", "task"),
)


async def list_criteria(
    hub: Hub, caller: Caller, *, task_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """A page of criteria, of one task where it is named."""
    return await resources.list_plain(hub, caller, CRITERION, parent_id=task_id, limit=limit, cursor=cursor)


async def create_criterion(hub: Hub, caller: Caller, given: Mapping[str, Json], *, resource: Resource = CRITERION) -> dict[str, Json]:
    """A new criterion: `task_id`, `label` (also called `name`), `assertion`, `weight?`, `axis?`, `input_entity_id?`."""
    authorize(caller)
    body = resource.read(_with_label(given))
    async with hub.database.writing() as connection:
        await required(connection, caller, "task", body["task_id"], lock=True)
        if await count_children(connection, caller.organization_id, "criterion", body["task_id"]) >= MOST_CRITERIA:
            raise Refusal("CONFLICT", f"a task has at most {MOST_CRITERIA} criteria")
        await _refuse_unsound(connection, caller, body["task_id"], body)
        return resource.shown(await resources.keep(connection, hub, caller, resource, body))


async def get_criterion(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One criterion."""
    return await resources.get_plain(hub, caller, CRITERION, id)


async def update_criterion(
    hub: Hub, caller: Caller, id: str, given: Mapping[str, Json], *, resource: Resource = CRITERION
) -> dict[str, Json]:
    """Change a criterion; runs that were started before keep the one they started with."""
    authorize(caller)
    changes = resource.read(_with_label(given), partial=True)
    async with hub.database.writing() as connection:
        row = await required(connection, caller, "criterion", id, lock=True)
        await _refuse_unsound(connection, caller, row["parent_id"], {**row["body"], **changes})
        return resource.shown(await resources.rewrite(connection, hub, caller, resource, row, changes))


async def delete_criterion(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a criterion."""
    await resources.delete_plain(hub, caller, CRITERION, id)


def shown_in_task(row: Row) -> dict[str, Json]:
    """A criterion as its task lists it."""
    shown = CRITERION.shown(row)
    return {name: shown[name] for name in ("id", "task_id", "label", "assertion", "weight", "created_at")}


async def _refuse_unsound(connection: AsyncConnection, caller: Caller, task_id: str, body: Mapping[str, Json]) -> None:
    bound = await entities_of(connection, caller, [task_id])
    entities = [entity_document(row) for row in bound[task_id]]
    wanted = body.get("input_entity_id")
    if wanted is not None and all(entity["id"] != wanted for entity in entities):
        told = "the task has no such entity; bind it first (POST /tasks/{id}/entities)"
        raise invalid("criterion", {"input_entity_id": [told]})
    problems = criterion_problems(criterion_document("criterion", body), entities)
    if problems:
        raise invalid("criterion", problems)


def _with_label(given: Mapping[str, Json]) -> dict[str, Json]:
    fields = dict(given)
    if "name" in fields and "label" not in fields:
        fields["label"] = fields.pop("name")
    return fields
