"""Simulators: what a simulated system is, as a plain record. One exists on its own and can belong to several environments."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.verification import resources
from proctor.service.verification.fields import Field, a_config, one_of, text
from proctor.service.verification.resources import Resource

TYPES = ("FHIR", "HL7", "X12", "Voice", "Fax", "Payer", "Files", "Message", "CDSHooks")
"""The kinds there are, as they are written back; read in any case."""
_ALIASES = {"Clearinghouse": "X12", "SFTP": "Files", "Portal": "Payer", "WebPortal": "Payer", "Messages": "Message", "CDS": "CDSHooks"}

SIMULATOR = Resource(
    kind="simulator",
    prefix="sim",
    what="simulator",
    table={
        "name": Field(text(200), required=True, null=False),
        "type": Field(one_of(*TYPES, aliases=_ALIASES), required=True, null=False),
        "config": Field(a_config),
    },
)


async def list_simulators(hub: Hub, caller: Caller, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """A page of simulators."""
    return await resources.list_plain(hub, caller, SIMULATOR, limit=limit, cursor=cursor)


async def create_simulator(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """A new simulator: `name`, `type`, `config?`."""
    return await resources.create_plain(hub, caller, SIMULATOR, given)


async def get_simulator(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One simulator."""
    return await resources.get_plain(hub, caller, SIMULATOR, id)


async def update_simulator(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change a simulator."""
    return await resources.update_plain(hub, caller, SIMULATOR, id, given)


async def delete_simulator(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a simulator; environments that had it have one less."""
    await resources.delete_plain(hub, caller, SIMULATOR, id)
