"""Environments: groups of simulators and datasets, from which playgrounds are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.datasets import DATASET
from proctor.service.verification.authoring.seeding import check_config
from proctor.service.verification.shared import resources
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import CONFIG, DESCRIPTION, NAME, Field, nested_field, one_of
from proctor.service.verification.shared.resources import Paging, authorize, require_record, rewrite_record
from proctor.simulators.seeds import ALIASES, TYPES, find_kind
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import link, linked, linking, unlink

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


ENVIRONMENT = Resource(
    kind="environment",
    prefix="env",
    name="Environment",
    about="A group of simulators.",
    tag="environments",
    tool=ToolWords(
        "environments",
        "Environments",
        "Author environments, which group simulators. Create the simulators first, then link them with addSimulator.",
    ),
    fields={
        "name": NAME,
        "description": DESCRIPTION,
        "simulators": nested_field(
            SIMULATOR.whole.pick("InEnvironment", "A simulator of an environment.", "id", "type", "name"), "its simulators"
        ),
        "datasets": nested_field(
            DATASET.whole.pick("DatasetOfEnvironment", "A dataset of an environment.", "id", "type", "name"),
            "initial data of its sandboxes, by type",
        ),
    },
)
SIMULATORS = "environment_simulator"
DATASETS = "environment_dataset"
USED_BY = "benchmark_environment"


@Operation(ENVIRONMENT, "GET /environments", gives=ENVIRONMENT.summary, pages=True, tool="list")
async def list_environments(hub: Hub, caller: Caller, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List environments, newest first."""
    page, data = await resources.list_rows(hub, caller, ENVIRONMENT, **paging)
    async with hub.database.reading() as connection:
        ids = [entry["id"] for entry in data]
        simulators = await list_simulators_of(connection, caller, ids)
        datasets = await list_datasets_of(connection, caller, ids)
    shown = [
        {**entry, "simulators": _show_parts(simulators[entry["id"]]), "datasets": _show_parts(datasets[entry["id"]])} for entry in data
    ]
    return resources.make_page(page, shown)


@Operation(ENVIRONMENT, "POST /environments", takes=ENVIRONMENT.new, gives=ENVIRONMENT.whole, creates=True, tool="create")
async def create_environment(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """Create an environment."""
    return {**await resources.create_plain(hub, caller, ENVIRONMENT, given), "simulators": [], "datasets": []}


@Operation(ENVIRONMENT, "GET /environments/{environment_id}", gives=ENVIRONMENT.whole, tool="get")
async def get_environment(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read an environment."""
    authorize(caller)
    async with hub.database.reading() as connection:
        return await _show(connection, caller, await require_record(connection, caller, "environment", id))


@Operation(ENVIRONMENT, "PATCH /environments/{environment_id}", takes=ENVIRONMENT.changes, gives=ENVIRONMENT.whole, tool="update")
async def update_environment(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change an environment."""
    await resources.update_plain(hub, caller, ENVIRONMENT, id, given)
    return await get_environment(hub, caller, id)


@Operation(ENVIRONMENT, "DELETE /environments/{environment_id}", tool="delete")
async def delete_environment(hub: Hub, caller: Caller, id: str) -> None:
    """Delete an environment that no benchmark uses."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await require_record(connection, caller, "environment", id, lock=True)
        users = await linking(connection, caller.organization_id, USED_BY, [id], "benchmark")
        if users:
            raise Refusal("CONFLICT", f"the environment is used by the benchmark {users[0]['id']!r}")
        await resources.remove_records(connection, hub, caller, ENVIRONMENT, [id])


@Operation(ENVIRONMENT, "POST /environments/{environment_id}/simulators/{simulator_id}", gives=ENVIRONMENT.whole, tool="addSimulator")
async def add_simulator(hub: Hub, caller: Caller, id: str, simulator_id: str) -> dict[str, Json]:
    """Add a simulator to an environment; one of each simulated type."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "environment", id, lock=True)
        simulator = await require_record(connection, caller, "simulator", simulator_id)
        type = simulator["body"]["type"]
        for other in (await list_simulators_of(connection, caller, [id]))[id]:
            # Runs address systems by type, and the checked state has one place per type.
            if other["body"]["type"] == type and other["id"] != simulator_id and find_kind(type) is not None:
                raise Refusal("CONFLICT", f"the environment already has a simulator of type {type}: {other['id']!r}")
        if await link(connection, id, SIMULATORS, simulator_id, hub.now()):
            await note(connection, hub, caller, "add_simulator", "environment", id, {"simulator_id": simulator_id})
        return await _show(connection, caller, row)


@Operation(ENVIRONMENT, "DELETE /environments/{environment_id}/simulators/{simulator_id}", gives=ENVIRONMENT.whole, tool="removeSimulator")
async def remove_simulator(hub: Hub, caller: Caller, id: str, simulator_id: str) -> dict[str, Json]:
    """Remove a simulator from an environment."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "environment", id, lock=True)
        if not await unlink(connection, id, SIMULATORS, simulator_id):
            raise not_found("simulator in this environment", simulator_id)
        await note(connection, hub, caller, "remove_simulator", "environment", id, {"simulator_id": simulator_id})
        return await _show(connection, caller, row)


@Operation(ENVIRONMENT, "POST /environments/{environment_id}/datasets/{dataset_id}", gives=ENVIRONMENT.whole, tool="addDataset")
async def add_environment_dataset(hub: Hub, caller: Caller, id: str, dataset_id: str) -> dict[str, Json]:
    """Add a dataset to an environment; its sandboxes start with a branch of it."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "environment", id, lock=True)
        await require_record(connection, caller, "dataset", dataset_id)
        if await link(connection, id, DATASETS, dataset_id, hub.now()):
            await note(connection, hub, caller, "add_dataset", "environment", id, {"dataset_id": dataset_id})
        return await _show(connection, caller, row)


@Operation(ENVIRONMENT, "DELETE /environments/{environment_id}/datasets/{dataset_id}", gives=ENVIRONMENT.whole, tool="removeDataset")
async def remove_environment_dataset(hub: Hub, caller: Caller, id: str, dataset_id: str) -> dict[str, Json]:
    """Remove a dataset from an environment; existing sandboxes do not change."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "environment", id, lock=True)
        if not await unlink(connection, id, DATASETS, dataset_id):
            raise not_found("dataset of this environment", dataset_id)
        await note(connection, hub, caller, "remove_dataset", "environment", id, {"dataset_id": dataset_id})
        return await _show(connection, caller, row)


async def list_datasets_of(connection: AsyncConnection, caller: Caller, environments: Sequence[str]) -> dict[str, list[Row]]:
    """Return the datasets of environments, by environment."""
    return await linked(connection, caller.organization_id, DATASETS, environments, "dataset")


async def list_simulators_of(connection: AsyncConnection, caller: Caller, environments: Sequence[str]) -> dict[str, list[Row]]:
    """Return the simulators of environments, by environment."""
    return await linked(connection, caller.organization_id, SIMULATORS, environments, "simulator")


async def _show(connection: AsyncConnection, caller: Caller, row: Row) -> dict[str, Json]:
    simulators = await list_simulators_of(connection, caller, [row["id"]])
    datasets = await list_datasets_of(connection, caller, [row["id"]])
    return {**ENVIRONMENT.show(row), "simulators": _show_parts(simulators[row["id"]]), "datasets": _show_parts(datasets[row["id"]])}


def _show_parts(rows: Sequence[Row]) -> list[Json]:
    return [{"id": row["id"], "type": row["body"]["type"], "name": row["body"]["name"]} for row in rows]
