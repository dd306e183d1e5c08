"""`/criteria`."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Response
from pydantic import Field

from proctor.formats.located import MAX_WEIGHT
from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, given, routed
from proctor.rest.routes.verification.bodies import Object, OfTask, Stamped, Written
from proctor.service.verification import criteria

router = routed("criteria")
Label = Annotated[str, Field(min_length=1, max_length=500)]
Weight = Annotated[float, Field(gt=0, le=MAX_WEIGHT)]
Axis = Annotated[str, Field(min_length=1, max_length=100)]
WhenMissing = Literal["fail", "error", "skip"]


class Criterion(Stamped):
    """One claim about the state after a task."""

    task_id: str
    label: str
    assertion: Object | str = Field(description="a typed assertion; a text in the legacy form")
    weight: float
    axis: str | None
    input_entity_id: str | None
    required: bool
    advisory: bool
    when_missing: WhenMissing


class NewCriterion(Written):
    """What a criterion is made of."""

    task_id: str
    label: Label = ""
    name: Label = Field("", description="another name of `label`")
    assertion: Object = Field(description="discriminated by `assert`")
    weight: Weight = 1.0
    axis: Axis | None = None
    input_entity_id: str | None = None
    required: bool = Field(False, description="failing it fails the task whatever the score")
    advisory: bool = Field(False, description="reported, but not counted")
    when_missing: WhenMissing = Field("fail", description="what it is when the state was not recorded")


class CriterionChanges(Written):
    """What changes; the rest stays."""

    label: Label = ""
    name: Label = ""
    assertion: Object = Field(default_factory=dict)
    weight: Weight = 1.0
    axis: Axis | None = None
    input_entity_id: str | None = None
    required: bool = False
    advisory: bool = False
    when_missing: WhenMissing = "fail"


@router.get("/criteria", response_model=PageOf[Criterion])
async def list_criteria(hub: TheHub, caller: TheCaller, paging: ThePaging, task_id: OfTask) -> object:
    """List criteria, newest first."""
    return await criteria.list_criteria(hub, caller, task_id=task_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/criteria", response_model=Criterion, status_code=201)
async def create_criterion(hub: TheHub, caller: TheCaller, body: NewCriterion) -> object:
    """Create a criterion of a task; an assertion that cannot be understood is refused with its path and the nearest name."""
    return await criteria.create_criterion(hub, caller, given(body))


@router.get("/criteria/{criterion_id}", response_model=Criterion)
async def get_criterion(hub: TheHub, caller: TheCaller, criterion_id: str) -> object:
    """Read a criterion."""
    return await criteria.get_criterion(hub, caller, criterion_id)


@router.patch("/criteria/{criterion_id}", response_model=Criterion)
async def update_criterion(hub: TheHub, caller: TheCaller, criterion_id: str, body: CriterionChanges) -> object:
    """Change a criterion; runs that were made before keep the one they were made with."""
    return await criteria.update_criterion(hub, caller, criterion_id, given(body))


@router.delete("/criteria/{criterion_id}", status_code=204)
async def delete_criterion(hub: TheHub, caller: TheCaller, criterion_id: str) -> Response:
    """Delete a criterion."""
    await criteria.delete_criterion(hub, caller, criterion_id)
    return Response(status_code=204)
