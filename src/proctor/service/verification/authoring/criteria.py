"""Criteria: one typed assertion each, with a weight and an axis. Invalid assertions are rejected.

An eval of the earlier generation is a criterion whose assertion is a text (`legacy_evals.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.formats.text.json_text import read_json
from proctor.formats.text.located import MAX_WEIGHT, Reading
from proctor.formats.verial import suite as verial
from proctor.model.evidence import Json
from proctor.service.refusals import Refusal
from proctor.service.verification.shared.declaration import Resource, ToolWords
from proctor.service.verification.shared.fields import FLAG, OBJECT, Field, id_of, invalid, number, one_of, text
from proctor.service.verification.shared.resources import Rules, Transaction, declare_standard
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.pages import Row

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
    problems: dict[str, list[str]] = {}
    for problem in reading.problems:
        path = problem.origin.path or _CRITERION
        if path.startswith(_CRITERION) and (problem.level == "error" or problem.code in _REFUSED):
            message = problem.message.removesuffix("; the criterion will fail")
            if "bound to no entity" in message:
                message += "; bind one to the task (POST /tasks/{id}/entities), and name it in input_entity_id if there are several"
            near = f"; nearest: {', '.join(problem.nearest)}" if problem.nearest else ""
            hint = f"; {problem.hint}" if problem.hint else ""
            problems.setdefault(path.removeprefix(_CRITERION).lstrip(".") or "assertion", []).append(message + near + hint)
    return problems


async def check_tasks(tx: Transaction, tasks: Sequence[Row], refused: str) -> None:
    """Reject a change of entities that makes a criterion of these tasks invalid."""
    ids = [task["id"] for task in tasks]
    entities = await tx.linked(ENTITIES, ids, "entity")
    for row in await tx.children("criterion", ids):
        bound = [make_entity_document(entity) for entity in entities[row["parent_id"]]]
        problems = find_criterion_problems(make_criterion_document(row["id"], row["body"]), bound)
        if problems:
            path, texts = next(iter(problems.items()))
            raise Refusal("CONFLICT", f"{refused}: the criterion {row['id']!r} needs it ({path}: {texts[0]})")


MOST_CRITERIA = 200


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
            OBJECT,
            "the assertion, discriminated by `assert`",
            required=True,
            null=False,
            example={
                "assert": "fhir-resource-state",
                "resource_type": "Appointment",
                "search": {"status": "booked"},
                "fields": [{"path": "participant.0.actor.display", "expected": "Dr. Rivera"}],
            },
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


async def check_criterion(tx: Transaction, body: Mapping[str, Json], row: Row | None) -> dict[str, Json]:
    """Reject a criterion whose assertion is invalid for the entities of its task."""
    task_id = body["task_id"] if row is None else row["parent_id"]
    body = {**(row["body"] if row else {}), **body}
    bound = await tx.linked(ENTITIES, [task_id], "entity")
    entities = [make_entity_document(entity) for entity in bound[task_id]]
    entity_id = body.get("input_entity_id")
    if entity_id is not None and all(entity["id"] != entity_id for entity in entities):
        reason = "the task has no such entity; bind it first (POST /tasks/{id}/entities)"
        raise invalid("criterion", {"input_entity_id": [reason]})
    problems = find_criterion_problems(make_criterion_document("criterion", body), entities)
    if problems:
        raise invalid("criterion", problems)
    return {}


create_criterion = declare_standard(
    CRITERION,
    "/criteria",
    Rules(most=MOST_CRITERIA, check=check_criterion),
    within="task_id",
    list="List criteria, newest first.",
    create="Create a criterion of a task; an invalid assertion is rejected with its path and the nearest known name.",
    get="Read a criterion.",
    update="Change a criterion; existing runs keep their copy.",
    delete="Delete a criterion.",
).create


def show_in_task(row: Row) -> dict[str, Json]:
    """Return a criterion as its task lists it."""
    shown = CRITERION.show(row)
    return {name: shown[name] for name in IN_TASK.fields}
