"""`/simulators`."""

from __future__ import annotations

from fastapi import Response
from pydantic import Field

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, given, routed
from proctor.rest.routes.verification.bodies import Name, Object, Stamped, Written
from proctor.service.verification import simulators

router = routed("environments")


class Simulator(Stamped):
    """A simulated system."""

    name: str
    type: str
    config: Object | None


class NewSimulator(Written):
    """What a simulator is made of."""

    name: Name
    type: str = Field(description="FHIR, HL7, X12, Voice, Fax, Payer, Files, Message or CDSHooks, in any case")
    config: Object | None = None


class SimulatorChanges(Written):
    """What changes; the rest stays."""

    name: Name = ""
    type: str = ""
    config: Object | None = None


@router.get("/simulators", response_model=PageOf[Simulator])
async def list_simulators(hub: TheHub, caller: TheCaller, paging: ThePaging) -> object:
    """List simulators, newest first."""
    return await simulators.list_simulators(hub, caller, limit=paging.limit, cursor=paging.cursor)


@router.post("/simulators", response_model=Simulator, status_code=201)
async def create_simulator(hub: TheHub, caller: TheCaller, body: NewSimulator) -> object:
    """Create a simulator."""
    return await simulators.create_simulator(hub, caller, given(body))


@router.get("/simulators/{simulator_id}", response_model=Simulator)
async def get_simulator(hub: TheHub, caller: TheCaller, simulator_id: str) -> object:
    """Read a simulator."""
    return await simulators.get_simulator(hub, caller, simulator_id)


@router.patch("/simulators/{simulator_id}", response_model=Simulator)
async def update_simulator(hub: TheHub, caller: TheCaller, simulator_id: str, body: SimulatorChanges) -> object:
    """Change a simulator."""
    return await simulators.update_simulator(hub, caller, simulator_id, given(body))


@router.delete("/simulators/{simulator_id}", status_code=204)
async def delete_simulator(hub: TheHub, caller: TheCaller, simulator_id: str) -> Response:
    """Delete a simulator; environments that had it have one less."""
    await simulators.delete_simulator(hub, caller, simulator_id)
    return Response(status_code=204)
