"""Simulators: descriptions of simulated systems, which can belong to several environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.verification.authoring.seeding import check_config
from proctor.service.verification.shared import resources
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import CONFIG, NAME, Field, one_of
from proctor.service.verification.shared.resources import Paging, authorize, require_record, rewrite_record
from proctor.simulators.type_names import ALIASES, TYPES

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
            one_of(*TYPES, aliases=ALIASES),
            f"kind of the system: {', '.join(TYPES[:-1])} or {TYPES[-1]}, in any case",
            required=True,
            null=False,
        ),
        "config": Field(CONFIG, "settings of its kind; `seed` is its initial data"),
    },
)


@Operation(SIMULATOR, "GET /simulators", gives=SIMULATOR.summary, pages=True, tool="list")
async def list_simulators(hub: Hub, caller: Caller, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List simulators, newest first."""
    return await resources.list_plain(hub, caller, SIMULATOR, **paging)


@Operation(SIMULATOR, "POST /simulators", takes=SIMULATOR.new, gives=SIMULATOR.whole, creates=True, tool="create")
async def create_simulator(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """Create a simulator."""
    authorize(caller)
    body = SIMULATOR.read(given)
    await check_config(hub, body)
    async with hub.database.writing() as connection:
        return SIMULATOR.show(await resources.store_record(connection, hub, caller, SIMULATOR, body))


@Operation(SIMULATOR, "GET /simulators/{simulator_id}", gives=SIMULATOR.whole, tool="get")
async def get_simulator(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a simulator."""
    return await resources.get_plain(hub, caller, SIMULATOR, id)


@Operation(SIMULATOR, "PATCH /simulators/{simulator_id}", takes=SIMULATOR.changes, gives=SIMULATOR.whole, tool="update")
async def update_simulator(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change a simulator; existing sandboxes do not change."""
    authorize(caller)
    changes = SIMULATOR.read(given, partial=True)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, SIMULATOR.kind, id, lock=True)
        await check_config(hub, {**row["body"], **changes})
        return SIMULATOR.show(await rewrite_record(connection, hub, caller, SIMULATOR, row, changes))


@Operation(SIMULATOR, "DELETE /simulators/{simulator_id}", tool="delete")
async def delete_simulator(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a simulator and remove it from its environments."""
    await resources.delete_plain(hub, caller, SIMULATOR, id)
