"""Environments: groups of simulators and datasets, from which playgrounds are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.datasets import DATASET
from proctor.service.verification.authoring.seeding import check_config
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import CONFIG, DESCRIPTION, NAME, Field, nested_field, one_of
from proctor.service.verification.shared.resources import Rules, authorize, declare_standard, require_record
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


async def _check_simulator(
    connection: AsyncConnection, hub: Hub, caller: Caller, body: Mapping[str, Json], row: Row | None
) -> dict[str, Json]:
    await check_config(hub, {**(row["body"] if row else {}), **body})
    return {}


create_simulator = declare_standard(
    SIMULATOR,
    "/simulators",
    Rules(check=_check_simulator),
    list="List simulators, newest first.",
    create="Create a simulator.",
    get="Read a simulator.",
    update="Change a simulator; existing sandboxes do not change.",
    delete="Delete a simulator and remove it from its environments.",
).create


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
USED_BY = "benchmark_environment"


async def _show_environments(connection: AsyncConnection, caller: Caller, rows: Sequence[Row], full: bool = False) -> list[dict[str, Json]]:
    ids = [row["id"] for row in rows]
    parts = {"simulators": await list_simulators_of(connection, caller, ids), "datasets": await list_datasets_of(connection, caller, ids)}
    return [{**ENVIRONMENT.show(row), **{name: _show_parts(members[row["id"]]) for name, members in parts.items()}} for row in rows]


async def _refuse_used(connection: AsyncConnection, caller: Caller, id: str) -> Sequence[str]:
    users = await linking(connection, caller.organization_id, USED_BY, [id], "benchmark")
    if users:
        raise Refusal("CONFLICT", f"the environment is used by the benchmark {users[0]['id']!r}")
    return ()


create_environment = declare_standard(
    ENVIRONMENT,
    "/environments",
    Rules(show=_show_environments, drop=_refuse_used),
    list="List environments, newest first.",
    create="Create an environment.",
    get="Read an environment.",
    update="Change an environment.",
    delete="Delete an environment that no benchmark uses.",
).create


@Operation(ENVIRONMENT, "POST /environments/{environment_id}/simulators/{simulator_id}", gives=ENVIRONMENT.whole, tool="addSimulator")
async def add_simulator(hub: Hub, caller: Caller, id: str, simulator_id: str) -> dict[str, Json]:
    """Add a simulator to an environment; one of each simulated type."""
    return await _add_part(hub, caller, id, "simulator", simulator_id)


@Operation(ENVIRONMENT, "DELETE /environments/{environment_id}/simulators/{simulator_id}", gives=ENVIRONMENT.whole, tool="removeSimulator")
async def remove_simulator(hub: Hub, caller: Caller, id: str, simulator_id: str) -> dict[str, Json]:
    """Remove a simulator from an environment."""
    return await _remove_part(hub, caller, id, "simulator", simulator_id)


@Operation(ENVIRONMENT, "POST /environments/{environment_id}/datasets/{dataset_id}", gives=ENVIRONMENT.whole, tool="addDataset")
async def add_environment_dataset(hub: Hub, caller: Caller, id: str, dataset_id: str) -> dict[str, Json]:
    """Add a dataset to an environment; its sandboxes start with a branch of it."""
    return await _add_part(hub, caller, id, "dataset", dataset_id)


@Operation(ENVIRONMENT, "DELETE /environments/{environment_id}/datasets/{dataset_id}", gives=ENVIRONMENT.whole, tool="removeDataset")
async def remove_environment_dataset(hub: Hub, caller: Caller, id: str, dataset_id: str) -> dict[str, Json]:
    """Remove a dataset from an environment; existing sandboxes do not change."""
    return await _remove_part(hub, caller, id, "dataset", dataset_id)


async def _add_part(hub: Hub, caller: Caller, id: str, what: str, part_id: str) -> dict[str, Json]:
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "environment", id, lock=True)
        part = await require_record(connection, caller, what, part_id)
        type = part["body"]["type"]
        simulators = (await list_simulators_of(connection, caller, [id]))[id] if what == "simulator" else ()
        for other in simulators:
            # Runs address systems by type, and the checked state has one place per type.
            if other["body"]["type"] == type and other["id"] != part_id and find_kind(type) is not None:
                raise Refusal("CONFLICT", f"the environment already has a simulator of type {type}: {other['id']!r}")
        if await link(connection, id, f"environment_{what}", part_id, hub.now()):
            await note(connection, hub, caller, f"add_{what}", "environment", id, {f"{what}_id": part_id})
        return (await _show_environments(connection, caller, [row]))[0]


async def _remove_part(hub: Hub, caller: Caller, id: str, what: str, part_id: str) -> dict[str, Json]:
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "environment", id, lock=True)
        if not await unlink(connection, id, f"environment_{what}", part_id):
            raise not_found(f"{what} of this environment", part_id)
        await note(connection, hub, caller, f"remove_{what}", "environment", id, {f"{what}_id": part_id})
        return (await _show_environments(connection, caller, [row]))[0]


async def list_datasets_of(connection: AsyncConnection, caller: Caller, environments: Sequence[str]) -> dict[str, list[Row]]:
    """Return the datasets of environments, by environment."""
    return await linked(connection, caller.organization_id, "environment_dataset", environments, "dataset")


async def list_simulators_of(connection: AsyncConnection, caller: Caller, environments: Sequence[str]) -> dict[str, list[Row]]:
    """Return the simulators of environments, by environment."""
    return await linked(connection, caller.organization_id, "environment_simulator", environments, "simulator")


def _show_parts(rows: Sequence[Row]) -> list[Json]:
    return [{"id": row["id"], "type": row["body"]["type"], "name": row["body"]["name"]} for row in rows]
