"""`/api/annotations`: labels and notes on traces, results and attempts, and the agreement of judges with them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import BaseModel, Field

from proctor.rest.route_parts import Body, PageOf, TheCaller, TheHub, ThePaging, list_sent_fields, make_router, make_stored_response
from proctor.service.labels import agreement, queue
from proctor.service.labels import annotations as verbs

router = make_router("annotations")
Subject = Literal["trace", "result", "attempt"]
Label = Literal["pass", "fail", "skip"]
_LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Lines of JSON.", "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
}


class Annotation(BaseModel):
    """A label or note."""

    id: str
    project_id: str
    agent_id: str | None = Field(description="none for an attempt of a run")
    subject: Subject = Field(description="a trace, a result of a trace, or an attempt of a run")
    subject_id: str
    parent_id: str = Field(description="the trace, or the run, that it belongs to")
    claim: int | None = Field(description="index of the assertion, from 0; none: the whole subject")
    label: Label | None = Field(description="skip: reviewed but not decided")
    note: str
    author: str = Field(description="the id of a key, or `local`")
    created_at: str
    updated_at: str


class AnnotationInFull(Annotation):
    """An annotation with the judged claim."""

    judged: dict[str, Any] | None = Field(description="for a judged claim: the question and the answer of the judge")


class NewAnnotation(Body):
    """A label, a note, or both."""

    subject: Subject
    subject_id: str
    claim: int | None = Field(None, ge=0, le=10_000, description="index of the assertion of a result or an attempt, from 0")
    label: Label | None = None
    note: str = Field("", max_length=verbs.LONGEST_NOTE)


class ChangedAnnotation(Body):
    """Changed fields; omitted fields stay unchanged."""

    label: Label | None = None
    note: str = Field("", max_length=verbs.LONGEST_NOTE)


class WaitingClaim(BaseModel):
    """A judged claim without a label."""

    subject: Subject
    subject_id: str
    claim: int
    outcome: str
    score: float


class LabelQueue(BaseModel):
    """Unlabelled claims, in labelling order."""

    waiting: list[WaitingClaim]
    looked_at: int = Field(description="number of newest results and attempts that were searched")
    more: bool = Field(description="whether there are older ones")


class FigureShown(BaseModel):
    """A figure with its interval."""

    value: float | None
    low: float | None
    high: float | None


class AgreementShown(BaseModel):
    """Agreement of the judge with human labels."""

    labels: int
    repeated: int = Field(description="labels replaced by a later label of the same question")
    skipped: int
    more: bool = Field(description="whether there are older labels that were not used")
    threshold: float | None = Field(description="minimum passing score; none: the judge answers yes or no")
    best_threshold: float | None = Field(description="the threshold with the best agreement, if there are enough labels")
    undecided: int
    strength: str | None
    figures: dict[str, FigureShown] = Field(description="accuracy, kappa and others, each with its interval of 95 % confidence")


@router.post("/api/annotations", response_model=Annotation, status_code=201)
async def create_annotation(hub: TheHub, caller: TheCaller, body: NewAnnotation) -> object:
    """Store a label or a note; requires an organization key. Labelling a claim again replaces the author's earlier label."""
    return await verbs.create_annotation(hub, caller, verbs.NewAnnotation(**body.model_dump()))


@router.get("/api/annotations", response_model=PageOf[Annotation])
async def list_annotations(
    hub: TheHub,
    caller: TheCaller,
    paging: ThePaging,
    project_id: Annotated[str | None, Query()] = None,
    subject: Annotated[Subject | None, Query()] = None,
    subject_id: Annotated[str | None, Query()] = None,
    label: Annotated[Label | None, Query()] = None,
) -> object:
    """List annotations, newest first."""
    more: dict[str, Any] = {"subject": subject, "subject_id": subject_id, "label": label, "limit": paging.limit, "cursor": paging.cursor}
    return await verbs.list_annotations(hub, caller, project_id=project_id, **more)


@router.get("/api/annotations/queue", response_model=LabelQueue)
async def list_waiting_claims(hub: TheHub, caller: TheCaller, project_id: Annotated[str, Query()]) -> object:
    """List unlabelled judged claims: passed and failed alternately, the least certain first."""
    return await queue.list_waiting(hub, caller, project_id)


@router.get("/api/annotations/agreement", response_model=AgreementShown)
async def get_agreement(hub: TheHub, caller: TheCaller, project_id: Annotated[str, Query()]) -> object:
    """Compute the agreement of the judge with the labels of a project."""
    return agreement.show_agreement(await agreement.read_agreement(hub, caller, project_id))


@router.get("/api/annotations/export", response_class=Response, responses=_LINES)
async def export_labels(hub: TheHub, caller: TheCaller, project_id: Annotated[str, Query()]) -> Response:
    """Export the labels of a project as the file that `proctor judge calibrate` reads."""
    found = await agreement.read_agreement(hub, caller, project_id, figures=False)
    headers = {"content-disposition": 'attachment; filename="labels.jsonl"'}
    return Response(agreement.write_labels(found), media_type="application/x-ndjson", headers=headers)


@router.get("/api/annotations/{annotation_id}", response_model=AnnotationInFull)
async def get_annotation(hub: TheHub, caller: TheCaller, annotation_id: str) -> Response:
    """Read an annotation with the judged claim."""
    return make_stored_response(await verbs.get_annotation(hub, caller, annotation_id))


@router.patch("/api/annotations/{annotation_id}", response_model=Annotation)
async def change_annotation(hub: TheHub, caller: TheCaller, annotation_id: str, body: ChangedAnnotation) -> object:
    """Change the label or the note; requires an organization key, which becomes its author."""
    return await verbs.change_annotation(hub, caller, annotation_id, list_sent_fields(body))


@router.delete("/api/annotations/{annotation_id}", status_code=204)
async def delete_annotation(hub: TheHub, caller: TheCaller, annotation_id: str) -> Response:
    """Delete an annotation; requires an organization key."""
    await verbs.delete_annotation(hub, caller, annotation_id)
    return Response(status_code=204)
