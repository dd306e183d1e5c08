"""Labels and notes on traces, results and attempts: create, list, change, delete.

Read access follows the subject; writing requires an organization key. A label on a judged claim stores the question and the judge's
opinion, from which `agreement.py` computes agreement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict, Unpack

import msgspec

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import select_visible
from proctor.service.access.transactions import read_visible, reading, writing
from proctor.service.hub import Hub
from proctor.service.labels.claims import SubjectKind, find_subject, read_claims
from proctor.service.paging import read_page
from proctor.service.refusals import Refusal
from proctor.service.resource import Page, Paging, about, list_fields, operation, show_row
from proctor.store.accounts.judged_claims import find_own_annotation
from proctor.store.sql.compressed_json import pack, unpack
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import annotation_rows

Label = Literal["pass", "fail", "skip"]
LONGEST_NOTE = 4_000


class Annotation(TypedDict):
    """A label or note."""

    id: str
    project_id: str
    agent_id: Annotated[str | None, about("none for an attempt of a run")]
    subject: Annotated[SubjectKind, about("a trace, a result of a trace, or an attempt of a run")]
    subject_id: str
    parent_id: Annotated[str, about("the trace, or the run, that it belongs to")]
    claim: Annotated[int | None, about("index of the assertion, from 0; none: the whole subject")]
    label: Annotated[Label | None, about("skip: reviewed but not decided")]
    note: str
    author: Annotated[str, about("the id of a key, or `local`")]
    created_at: str
    updated_at: str


class AnnotationInFull(Annotation):
    """An annotation with the judged claim."""

    judged: Annotated[dict[str, Json] | None, about("for a judged claim: the question and the answer of the judge")]


class NewAnnotation(msgspec.Struct, frozen=True, kw_only=True):
    """A label, a note, or both."""

    subject: SubjectKind
    subject_id: str
    claim: Annotated[int | None, about("index of the assertion of a result or an attempt, from 0", ge=0, le=10_000)] = None
    label: Label | None = None
    note: Annotated[str, about(max_length=LONGEST_NOTE)] = ""


class ChangedAnnotation(msgspec.Struct, frozen=True, kw_only=True):
    """Changed fields; omitted fields stay unchanged."""

    label: Label | None = None
    note: Annotated[str, about(max_length=LONGEST_NOTE)] = ""


@operation("annotations", "POST /api/annotations", status=201, doing="writing labels")
async def create_annotation(hub: Hub, caller: Caller, spec: NewAnnotation) -> Annotation:
    """Store a label or a note; requires an organization key. Labelling a claim again replaces the author's earlier label."""
    if spec.label is None and not spec.note.strip():
        raise Refusal("VALIDATION_ERROR", "nothing to store", fields={"label": ["expected a label, a note, or both"]})
    async with reading(hub, caller) as tx:
        subject = await find_subject(tx, spec.subject, spec.subject_id)
    if spec.claim is not None and subject.kind == "trace":
        raise Refusal("VALIDATION_ERROR", "a trace has no claims", fields={"claim": ["expected the subject to be a result or an attempt"]})
    claims = [] if spec.claim is None else await read_claims(hub, subject)
    # None if no judge decided it.
    judged = next((judged_claim for judged_claim in claims if judged_claim.number == spec.claim), None)
    question = None if judged is None else judged.hash_question()
    values = {"label": spec.label, "note": spec.note, "body": None if judged is None else pack(judged), "question": question}
    async with writing(hub, caller) as tx:
        # Again, since the subject may have been deleted.
        await find_subject(tx, spec.subject, spec.subject_id)
        earlier = None
        if spec.claim is not None:
            place = (subject.id, spec.claim)
            earlier = await find_own_annotation(tx.connection, tx.owner, subject.project_id, caller.actor, place, question)
        if earlier is not None:
            return show_annotation(await tx.change_row(annotation_rows, "annotation", earlier["id"], values, details={}))
        of_subject = {name: getattr(subject, name) for name in ("project_id", "agent_id", "parent_id")}
        own = {**of_subject, "subject": subject.kind, "subject_id": subject.id, "claim": spec.claim, "author": caller.actor}
        return show_annotation(await tx.insert_row(annotation_rows, "annotation", "ann", {**own, **values}))


@operation("annotations", "GET /api/annotations")
async def list_annotations(
    hub: Hub,
    caller: Caller,
    *,
    project_id: str | None = None,
    subject: SubjectKind | None = None,
    subject_id: str | None = None,
    parent_id: Annotated[str | None, about("the trace or the run")] = None,
    label: Label | None = None,
    **paging: Unpack[Paging],
) -> Page[Annotation]:
    """List annotations, newest first."""
    equal: dict[str, Any] = {"project_id": project_id, "subject": subject, "subject_id": subject_id, "parent_id": parent_id, "label": label}
    query = select_visible(annotation_rows, caller, columns=list_fields(Annotation), **equal)
    return await read_page(hub, query, annotation_rows, show_annotation, **paging)


async def list_labels_of_question(hub: Hub, caller: Caller, id: str) -> list[Annotation]:
    """List the labels that people gave to the question of an annotation, newest first."""
    row = await read_visible(hub, caller, annotation_rows, "annotation", id)
    if row["question"] is None:
        return []
    equal = {"project_id": row["project_id"], "question": row["question"]}
    query = select_visible(annotation_rows, caller, columns=list_fields(Annotation), **equal)
    return (await read_page(hub, query, annotation_rows, show_annotation, limit=100, cursor=None))["data"]


@operation("annotations", "GET /api/annotations/{annotation_id}", stored=True)
async def get_annotation(hub: Hub, caller: Caller, id: str) -> AnnotationInFull:
    """Read an annotation with the judged claim."""
    row = await read_visible(hub, caller, annotation_rows, "annotation", id)
    judged = None if row["body"] is None else {key: value for key, value in unpack(row["body"]).items() if key != "line"}
    return {**show_annotation(row), "judged": judged}


@operation("annotations", "PATCH /api/annotations/{annotation_id}", doing="changing labels")
async def change_annotation(hub: Hub, caller: Caller, id: str, changes: Annotated[Mapping[str, Json], ChangedAnnotation]) -> Annotation:
    """Change the label or the note; requires an organization key, which becomes its author."""
    async with writing(hub, caller) as tx:
        row = await tx.require_row(annotation_rows, "annotation", id, locked=True)
        after = {**row, **changes}
        if after["label"] is None and not str(after["note"]).strip():
            raise Refusal("VALIDATION_ERROR", "nothing to store", fields={"label": ["expected a label, a note, or both"]})
        values = {**changes, "author": caller.actor}
        return show_annotation(await tx.change_row(annotation_rows, "annotation", id, values, details={}))


@operation("annotations", "DELETE /api/annotations/{annotation_id}", doing="deleting labels")
async def delete_annotation(hub: Hub, caller: Caller, id: str) -> None:
    """Delete an annotation; requires an organization key."""
    async with writing(hub, caller) as tx:
        await tx.delete_row(annotation_rows, "annotation", id)


def show_annotation(row: Row) -> Annotation:
    """Return an annotation."""
    return show_row(Annotation, row, agent_id=row["agent_id"] or None)
