"""`/environments`."""

from __future__ import annotations

from fastapi import Response

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, given, routed
from proctor.rest.routes.verification.bodies import Description, Name, Shown, Stamped, Written
from proctor.service.verification import environments

router = routed("environments")


class InEnvironment(Shown):
    """A simulator of an environment."""

    id: str
    type: str
    name: str


class Environment(Stamped):
    """Simulators that belong together."""

    name: str
    description: str | None
    simulators: list[InEnvironment]


class NewEnvironment(Written):
    """What an environment is made of."""

    name: Name
    description: Description = None


class EnvironmentChanges(Written):
    """What changes; the rest stays."""

    name: Name = ""
    description: Description = None


@router.get("/environments", response_model=PageOf[Environment])
async def list_environments(hub: TheHub, caller: TheCaller, paging: ThePaging) -> object:
    """List environments, newest first."""
    return await environments.list_environments(hub, caller, limit=paging.limit, cursor=paging.cursor)


@router.post("/environments", response_model=Environment, status_code=201)
async def create_environment(hub: TheHub, caller: TheCaller, body: NewEnvironment) -> object:
    """Create an environment."""
    return await environments.create_environment(hub, caller, given(body))


@router.get("/environments/{environment_id}", response_model=Environment)
async def get_environment(hub: TheHub, caller: TheCaller, environment_id: str) -> object:
    """Read an environment."""
    return await environments.get_environment(hub, caller, environment_id)


@router.patch("/environments/{environment_id}", response_model=Environment)
async def update_environment(hub: TheHub, caller: TheCaller, environment_id: str, body: EnvironmentChanges) -> object:
    """Change an environment."""
    return await environments.update_environment(hub, caller, environment_id, given(body))


@router.delete("/environments/{environment_id}", status_code=204)
async def delete_environment(hub: TheHub, caller: TheCaller, environment_id: str) -> Response:
    """Delete an environment that no benchmark names."""
    await environments.delete_environment(hub, caller, environment_id)
    return Response(status_code=204)


@router.post("/environments/{environment_id}/simulators/{simulator_id}", response_model=Environment)
async def add_simulator(hub: TheHub, caller: TheCaller, environment_id: str, simulator_id: str) -> object:
    """Put a simulator into an environment."""
    return await environments.add_simulator(hub, caller, environment_id, simulator_id)


@router.delete("/environments/{environment_id}/simulators/{simulator_id}", response_model=Environment)
async def remove_simulator(hub: TheHub, caller: TheCaller, environment_id: str, simulator_id: str) -> object:
    """Take a simulator out of an environment."""
    return await environments.remove_simulator(hub, caller, environment_id, simulator_id)
