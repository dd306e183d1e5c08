"""Criteria: one typed assertion each, with a weight and an axis. Invalid assertions are rejected.

An eval of the earlier generation is a criterion whose assertion is a text (`legacy_evals.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.formats.text.located import MAX_WEIGHT
from proctor.model.evidence import Json
from proctor.model.show import kind_of
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.authoring.soundness import (
    find_criterion_problems,
    list_entities_of,
    make_criterion_document,
    make_entity_document,
)
from proctor.service.verification.shared import resources
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import FLAG, LONGEST_TEXT, OBJECT, Field, Kind, id_of, invalid, number, one_of, text
from proctor.service.verification.shared.resources import Paging, authorize, require_record
from proctor.store.sql.compressed_json import from_json
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import count_children

MOST_CRITERIA = 200


def _read_assertion(value: Json) -> Json:
    """Return an object; JSON text counts as one."""
    if isinstance(value, str) and value.lstrip().startswith("{") and len(value) <= LONGEST_TEXT * 10:
        try:
            value = from_json(value)
        except Exception:
            raise ValueError("starts like JSON, but is not valid") from None
    if isinstance(value, str):
        raise ValueError("expected an object with 'assert'; sentences are stored as evals (POST /evals)")
    if not isinstance(value, dict):
        raise ValueError(f"expected an object with 'assert', got {kind_of(value)}")
    return OBJECT.read(value)


CRITERION = Resource(
    kind="criterion",
    prefix="crit",
    name="Criterion",
    about="One claim about the state after a task.",
    tag="criteria",
    tool=ToolWords(
        "criteria",
        "Criteria",
        "Author the criteria of a task: typed assertions on the end state of simulated systems, decided without a model. "
        "One assertion per criterion; create benchmark, task and then criteria. `assertion.assert` is one of fhir-resource-state, "
        "hl7-structural, portal-state-match, sftp-file-present, voice-transcript, x12-response, fax-document, message-sent, cds-card, "
        "records-match. An invalid assertion is rejected with the path and the nearest known word.",
    ),
    fields={
        "task_id": Field(id_of("task"), "the task it belongs to", required=True, null=False, changeable=False),
        "label": Field(text(500), "a short title", required=True, null=False, also="name"),
        "assertion": Field(
            Kind(OBJECT.schema, _read_assertion),
            "the assertion, discriminated by `assert`",
            required=True,
            null=False,
            example={
                "assert": "fhir-resource-state",
                "resource_type": "Appointment",
                "search": {"status": "booked"},
                "fields": [{"path": "participant.0.actor.display", "expected": "Dr. Rivera"}],
            },
            tool={"type": ["object", "string"]},
            shown_as={"type": ["object", "string"]},
        ),
        "weight": Field(number(most=MAX_WEIGHT), "relative to the other criteria of the task, above 0 (default 1)", default=1, null=False),
        "axis": Field(text(100), "a dimension of the score, such as correctness or safety"),
        "input_entity_id": Field(id_of("entity"), "the entity of the task that `{entity.field}` in the assertion reads from"),
        "required": Field(FLAG, "whether failing it fails the task", default=False, null=False),
        "advisory": Field(FLAG, "whether it is reported but not scored", default=False, null=False),
        "when_missing": Field(
            one_of("fail", "error", "skip", exact=True),
            "the outcome if the state was not recorded",
            default="fail",
            null=False,
        ),
    },
    parent="task_id",
)
IN_TASK = CRITERION.whole.pick("InTask", "A criterion of a task.", "id", "task_id", "label", "assertion", "weight", "created_at")


@Operation(CRITERION, "GET /criteria", gives=CRITERION.summary, pages=True, within="task_id", tool="list")
async def list_criteria(hub: Hub, caller: Caller, *, task_id: str | None = None, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List criteria, newest first."""
    return await resources.list_plain(hub, caller, CRITERION, parent_id=task_id, **paging)


@Operation(CRITERION, "POST /criteria", takes=CRITERION.new, gives=CRITERION.whole, creates=True, tool="create")
async def create_criterion(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """Create a criterion of a task; an invalid assertion is rejected with its path and the nearest known name."""
    authorize(caller)
    return await add_criterion(hub, caller, CRITERION.read(given))


async def add_criterion(hub: Hub, caller: Caller, body: dict[str, Json]) -> dict[str, Json]:
    """Store a criterion with checked fields."""
    async with hub.database.writing() as connection:
        await require_record(connection, caller, "task", body["task_id"], lock=True)
        if await count_children(connection, caller.organization_id, "criterion", body["task_id"]) >= MOST_CRITERIA:
            raise Refusal("CONFLICT", f"a task has at most {MOST_CRITERIA} criteria")
        await _refuse_unsound(connection, caller, body["task_id"], body)
        return CRITERION.show(await resources.store_record(connection, hub, caller, CRITERION, body))


@Operation(CRITERION, "GET /criteria/{criterion_id}", gives=CRITERION.whole, tool="get")
async def get_criterion(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a criterion."""
    return await resources.get_plain(hub, caller, CRITERION, id)


@Operation(CRITERION, "PATCH /criteria/{criterion_id}", takes=CRITERION.changes, gives=CRITERION.whole, tool="update")
async def update_criterion(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change a criterion; existing runs keep their copy."""
    authorize(caller)
    return await change_criterion(hub, caller, id, CRITERION.read(given, partial=True))


async def change_criterion(hub: Hub, caller: Caller, id: str, changes: dict[str, Json]) -> dict[str, Json]:
    """Change checked fields of a criterion."""
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "criterion", id, lock=True)
        await _refuse_unsound(connection, caller, row["parent_id"], {**row["body"], **changes})
        return CRITERION.show(await resources.rewrite_record(connection, hub, caller, CRITERION, row, changes))


@Operation(CRITERION, "DELETE /criteria/{criterion_id}", tool="delete")
async def delete_criterion(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a criterion."""
    await resources.delete_plain(hub, caller, CRITERION, id)


def show_in_task(row: Row) -> dict[str, Json]:
    """Return a criterion as its task lists it."""
    found = CRITERION.show(row)
    return {name: found[name] for name in IN_TASK.fields}


async def _refuse_unsound(connection: AsyncConnection, caller: Caller, task_id: str, body: Mapping[str, Json]) -> None:
    bound = await list_entities_of(connection, caller, [task_id])
    entities = [make_entity_document(row) for row in bound[task_id]]
    wanted = body.get("input_entity_id")
    if wanted is not None and all(entity["id"] != wanted for entity in entities):
        reason = "the task has no such entity; bind it first (POST /tasks/{id}/entities)"
        raise invalid("criterion", {"input_entity_id": [reason]})
    problems = find_criterion_problems(make_criterion_document("criterion", body), entities)
    if problems:
        raise invalid("criterion", problems)
