"""Environments: which simulators belong together. As plain records; playgrounds are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification import resources
from proctor.service.verification.fields import Field, text
from proctor.service.verification.resources import Resource, authorize, required
from proctor.store.pages import Row
from proctor.store.records import link, linked, linking, unlink

ENVIRONMENT = Resource(
    kind="environment",
    prefix="env",
    what="environment",
    table={"name": Field(text(200), required=True, null=False), "description": Field(text(1000, 0))},
)
SIMULATORS = "environment_simulator"
USED_BY = "benchmark_environment"


async def list_environments(hub: Hub, caller: Caller, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """A page of environments, each with its simulators."""
    page, data = await resources.list_rows(hub, caller, ENVIRONMENT, limit=limit, cursor=cursor)
    async with hub.database.reading() as connection:
        simulators = await simulators_of(connection, caller, [entry["id"] for entry in data])
    return resources.page_of(page, [{**entry, "simulators": _listed(simulators[entry["id"]])} for entry in data])


async def create_environment(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """A new environment: `name`, `description?`."""
    return {**await resources.create_plain(hub, caller, ENVIRONMENT, given), "simulators": []}


async def get_environment(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One environment."""
    authorize(caller)
    async with hub.database.reading() as connection:
        return await _shown(connection, caller, await required(connection, caller, "environment", id))


async def update_environment(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change an environment."""
    await resources.update_plain(hub, caller, ENVIRONMENT, id, given)
    return await get_environment(hub, caller, id)


async def delete_environment(hub: Hub, caller: Caller, id: str) -> None:
    """Delete an environment that no benchmark names."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await required(connection, caller, "environment", id, lock=True)
        users = await linking(connection, caller.organization_id, USED_BY, [id], "benchmark")
        if users:
            raise Refusal("CONFLICT", f"the environment is used by the benchmark {users[0]['id']!r}")
        await resources.remove(connection, hub, caller, ENVIRONMENT, [id])


async def add_simulator(hub: Hub, caller: Caller, id: str, simulator_id: str) -> dict[str, Json]:
    """Put a simulator into an environment; one that is there stays."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await required(connection, caller, "environment", id, lock=True)
        await required(connection, caller, "simulator", simulator_id)
        if await link(connection, id, SIMULATORS, simulator_id, hub.now()):
            await note(connection, hub, caller, "add_simulator", "environment", id, {"simulator_id": simulator_id})
        return await _shown(connection, caller, row)


async def remove_simulator(hub: Hub, caller: Caller, id: str, simulator_id: str) -> dict[str, Json]:
    """Take a simulator out of an environment."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await required(connection, caller, "environment", id, lock=True)
        if not await unlink(connection, id, SIMULATORS, simulator_id):
            raise not_found("simulator in this environment", simulator_id)
        await note(connection, hub, caller, "remove_simulator", "environment", id, {"simulator_id": simulator_id})
        return await _shown(connection, caller, row)


async def simulators_of(connection: AsyncConnection, caller: Caller, environments: Sequence[str]) -> dict[str, list[Row]]:
    """The simulators of environments, by environment."""
    return await linked(connection, caller.organization_id, SIMULATORS, environments, "simulator")


async def _shown(connection: AsyncConnection, caller: Caller, row: Row) -> dict[str, Json]:
    simulators = await simulators_of(connection, caller, [row["id"]])
    return {**ENVIRONMENT.shown(row), "simulators": _listed(simulators[row["id"]])}


def _listed(rows: Sequence[Row]) -> list[Json]:
    return [{"id": row["id"], "type": row["body"]["type"], "name": row["body"]["name"]} for row in rows]
