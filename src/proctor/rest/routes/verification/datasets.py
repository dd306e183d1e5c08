"""`/datasets` and their entities."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import Field

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, given, routed
from proctor.rest.routes.verification.bodies import Description, Name, Object, Stamped, Written
from proctor.service.verification import datasets

router = routed("datasets")
Data = dict[str, Any] | list[Any] | None


class DatasetSummary(Stamped):
    """What a simulated system is filled with, without the content."""

    name: str
    description: str | None
    type: str
    format: str = Field(description="the same in the words of the MCP tool")
    config: Object | None
    parent_id: str | None = Field(description="of a branch: what it is a copy of")


class Dataset(DatasetSummary):
    """The same with its content."""

    data: Data


class NewDataset(Written):
    """What a dataset is made of."""

    name: Name
    description: Description = None
    type: str = Field("FHIR", description="FHIR or Files, in any case")
    format: str = Field("FHIR", description="another name of `type`")
    config: Object | None = None
    data: Data = Field(None, description="of a FHIR dataset: a Bundle")


class DatasetChanges(Written):
    """What changes; the rest stays."""

    name: Name = ""
    description: Description = None
    type: str = ""
    format: str = ""
    config: Object | None = None
    data: Data = None


class Entity(Stamped):
    """One record of a dataset that tasks can be about."""

    dataset_id: str
    name: str | None
    data: Object = Field(description="what `{entity.field}` in a criterion reads from")


class NewEntity(Written):
    """What an entity is made of."""

    name: Name | None = None
    data: Object = Field(default_factory=dict)


class EntityChanges(Written):
    """What changes; the rest stays."""

    name: Name | None = None
    data: Object = Field(default_factory=dict)


@router.get("/datasets", response_model=PageOf[DatasetSummary])
async def list_datasets(hub: TheHub, caller: TheCaller, paging: ThePaging) -> object:
    """List datasets, newest first, without their data."""
    return await datasets.list_datasets(hub, caller, limit=paging.limit, cursor=paging.cursor)


@router.post("/datasets", response_model=Dataset, status_code=201)
async def create_dataset(hub: TheHub, caller: TheCaller, body: NewDataset) -> object:
    """Create a dataset."""
    return await datasets.create_dataset(hub, caller, given(body))


@router.get("/datasets/{dataset_id}", response_model=Dataset)
async def get_dataset(hub: TheHub, caller: TheCaller, dataset_id: str) -> object:
    """Read a dataset with its data."""
    return await datasets.get_dataset(hub, caller, dataset_id)


@router.patch("/datasets/{dataset_id}", response_model=Dataset)
async def update_dataset(hub: TheHub, caller: TheCaller, dataset_id: str, body: DatasetChanges) -> object:
    """Change a dataset."""
    return await datasets.update_dataset(hub, caller, dataset_id, given(body))


@router.delete("/datasets/{dataset_id}", status_code=204)
async def delete_dataset(hub: TheHub, caller: TheCaller, dataset_id: str) -> Response:
    """Delete a dataset and its entities; refused while a criterion needs one of them."""
    await datasets.delete_dataset(hub, caller, dataset_id)
    return Response(status_code=204)


@router.get("/datasets/{dataset_id}/entities", response_model=PageOf[Entity])
async def list_entities(hub: TheHub, caller: TheCaller, dataset_id: str, paging: ThePaging) -> object:
    """List the entities of a dataset, newest first."""
    return await datasets.list_entities(hub, caller, dataset_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/datasets/{dataset_id}/entities", response_model=Entity, status_code=201)
async def create_entity(hub: TheHub, caller: TheCaller, dataset_id: str, body: NewEntity) -> object:
    """Create an entity of a dataset."""
    return await datasets.create_entity(hub, caller, dataset_id, given(body))


@router.get("/datasets/{dataset_id}/entities/{entity_id}", response_model=Entity)
async def get_entity(hub: TheHub, caller: TheCaller, dataset_id: str, entity_id: str) -> object:
    """Read an entity."""
    return await datasets.get_entity(hub, caller, dataset_id, entity_id)


@router.patch("/datasets/{dataset_id}/entities/{entity_id}", response_model=Entity)
async def update_entity(hub: TheHub, caller: TheCaller, dataset_id: str, entity_id: str, body: EntityChanges) -> object:
    """Change an entity; refused where a criterion would lose a field it reads."""
    return await datasets.update_entity(hub, caller, dataset_id, entity_id, given(body))


@router.delete("/datasets/{dataset_id}/entities/{entity_id}", status_code=204)
async def delete_entity(hub: TheHub, caller: TheCaller, dataset_id: str, entity_id: str) -> Response:
    """Delete an entity; refused while a criterion needs it."""
    await datasets.delete_entity(hub, caller, dataset_id, entity_id)
    return Response(status_code=204)
