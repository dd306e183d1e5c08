"""`/playgrounds` and `/sandboxes`: instances of environments and simulators."""

from __future__ import annotations

from fastapi import Response
from pydantic import Field

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, given, routed
from proctor.rest.routes.verification.bodies import Object, OfPlayground, Stamped, Written
from proctor.rest.routes.verification.datasets import DatasetSummary
from proctor.service.verification import playgrounds

router = routed("playgrounds")


class Sandbox(Stamped):
    """An instance of a simulator."""

    simulator_id: str
    playground_id: str | None = Field(description="none: it stands alone")
    status: str
    credentials: Object | None


class PlaygroundSummary(Stamped):
    """An instance of an environment."""

    environment_id: str
    status: str


class Playground(PlaygroundSummary):
    """The same with its sandboxes."""

    sandboxes: list[Sandbox]


class SandboxEvent(Stamped):
    """Something that happened in a sandbox."""

    sandbox_id: str


class NewPlayground(Written):
    """Of which environment."""

    environment_id: str


class NewSandbox(Written):
    """Of which simulator."""

    simulator_id: str


@router.get("/playgrounds", response_model=PageOf[PlaygroundSummary])
async def list_playgrounds(hub: TheHub, caller: TheCaller, paging: ThePaging) -> object:
    """List playgrounds, newest first."""
    return await playgrounds.list_playgrounds(hub, caller, limit=paging.limit, cursor=paging.cursor)


@router.post("/playgrounds", response_model=Playground, status_code=201)
async def create_playground(hub: TheHub, caller: TheCaller, body: NewPlayground) -> object:
    """Create a playground of an environment, with one sandbox per simulator."""
    return await playgrounds.create_playground(hub, caller, given(body))


@router.get("/playgrounds/{playground_id}", response_model=Playground)
async def get_playground(hub: TheHub, caller: TheCaller, playground_id: str) -> object:
    """Read a playground with its sandboxes."""
    return await playgrounds.get_playground(hub, caller, playground_id)


@router.post("/playgrounds/{playground_id}/teardown", response_model=Playground)
async def tear_down_playground(hub: TheHub, caller: TheCaller, playground_id: str) -> object:
    """End a playground; its logs are kept."""
    return await playgrounds.tear_down_playground(hub, caller, playground_id)


@router.get("/sandboxes", response_model=PageOf[Sandbox])
async def list_sandboxes(hub: TheHub, caller: TheCaller, paging: ThePaging, playground_id: OfPlayground) -> object:
    """List sandboxes, newest first."""
    return await playgrounds.list_sandboxes(hub, caller, playground_id=playground_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/sandboxes", response_model=Sandbox, status_code=201)
async def create_sandbox(hub: TheHub, caller: TheCaller, body: NewSandbox) -> object:
    """Create a sandbox that stands alone."""
    return await playgrounds.create_sandbox(hub, caller, given(body))


@router.get("/sandboxes/{sandbox_id}", response_model=Sandbox)
async def get_sandbox(hub: TheHub, caller: TheCaller, sandbox_id: str) -> object:
    """Read a sandbox."""
    return await playgrounds.get_sandbox(hub, caller, sandbox_id)


@router.get("/sandboxes/{sandbox_id}/events", response_model=PageOf[SandboxEvent])
async def list_sandbox_events(hub: TheHub, caller: TheCaller, sandbox_id: str, paging: ThePaging) -> object:
    """List what happened in a sandbox, newest first."""
    return await playgrounds.list_sandbox_events(hub, caller, sandbox_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/sandboxes/{sandbox_id}/teardown", response_model=Sandbox)
async def tear_down_sandbox(hub: TheHub, caller: TheCaller, sandbox_id: str) -> object:
    """End a sandbox."""
    return await playgrounds.tear_down_sandbox(hub, caller, sandbox_id)


@router.post("/sandboxes/{sandbox_id}/datasets/{dataset_id}", response_model=DatasetSummary, status_code=201)
async def add_dataset(hub: TheHub, caller: TheCaller, sandbox_id: str, dataset_id: str) -> object:
    """Give a sandbox a branch of a dataset."""
    return await playgrounds.add_dataset(hub, caller, sandbox_id, dataset_id)


@router.delete("/sandboxes/{sandbox_id}/datasets/{dataset_id}", status_code=204)
async def remove_dataset(hub: TheHub, caller: TheCaller, sandbox_id: str, dataset_id: str) -> Response:
    """Take a dataset from a sandbox; its branch is deleted."""
    await playgrounds.remove_dataset(hub, caller, sandbox_id, dataset_id)
    return Response(status_code=204)
