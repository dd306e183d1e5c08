"""Simulators: what a simulated system is, as a plain record. One exists on its own and can belong to several environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.verification import resources
from proctor.service.verification.declaration import Operation, Resource, ToolWords
from proctor.service.verification.fields import CONFIG, NAME, Field, one_of
from proctor.service.verification.resources import Paging

TYPES = ("FHIR", "HL7", "X12", "Voice", "Fax", "Payer", "Files", "Message", "CDSHooks")
"""The kinds there are, as they are written back; read in any case."""
_ALIASES = {"Clearinghouse": "X12", "SFTP": "Files", "Portal": "Payer", "WebPortal": "Payer", "Messages": "Message", "CDS": "CDSHooks"}

SIMULATOR = Resource(
    kind="simulator",
    prefix="sim",
    name="Simulator",
    about="A simulated system.",
    tag="environments",
    tool=ToolWords("simulators", "Simulators", f"Author simulated systems. Types: {', '.join(TYPES)}, in any case."),
    fields={
        "name": NAME,
        "type": Field(
            one_of(*TYPES, aliases=_ALIASES),
            f"what kind of system: {', '.join(TYPES[:-1])} or {TYPES[-1]}, in any case",
            required=True,
            null=False,
        ),
        "config": Field(CONFIG, "settings of its kind"),
    },
)


@Operation(SIMULATOR, "GET /simulators", gives=SIMULATOR.summary, pages=True, tool="list")
async def list_simulators(hub: Hub, caller: Caller, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List simulators, newest first."""
    return await resources.list_plain(hub, caller, SIMULATOR, **paging)


@Operation(SIMULATOR, "POST /simulators", takes=SIMULATOR.new, gives=SIMULATOR.whole, creates=True, tool="create")
async def create_simulator(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """Create a simulator."""
    return await resources.create_plain(hub, caller, SIMULATOR, given)


@Operation(SIMULATOR, "GET /simulators/{simulator_id}", gives=SIMULATOR.whole, tool="get")
async def get_simulator(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a simulator."""
    return await resources.get_plain(hub, caller, SIMULATOR, id)


@Operation(SIMULATOR, "PATCH /simulators/{simulator_id}", takes=SIMULATOR.changes, gives=SIMULATOR.whole, tool="update")
async def update_simulator(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change a simulator."""
    return await resources.update_plain(hub, caller, SIMULATOR, id, given)


@Operation(SIMULATOR, "DELETE /simulators/{simulator_id}", tool="delete")
async def delete_simulator(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a simulator; environments that had it have one less."""
    await resources.delete_plain(hub, caller, SIMULATOR, id)
