"""Environments: groups of simulators and datasets, from which playgrounds are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.datasets import DATASET
from proctor.service.verification.authoring.seeding import check_config
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import CONFIG, DESCRIPTION, NAME, Field, nested_field, one_of
from proctor.service.verification.shared.resources import Rules, Transaction, declare_standard, writing
from proctor.simulators.seeds import ALIASES, TYPES, find_kind
from proctor.store.sql.pages import Row

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


async def _check_simulator(tx: Transaction, body: Mapping[str, Json], row: Row | None) -> dict[str, Json]:
    await check_config(tx.hub, {**(row["body"] if row else {}), **body})
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


async def _show_environments(tx: Transaction, rows: Sequence[Row], full: bool = False) -> list[dict[str, Json]]:
    shown = {row["id"]: ENVIRONMENT.show(row) for row in rows}
    for what in ("simulator", "dataset"):
        for id, parts in (await list_parts(tx, what, list(shown))).items():
            shown[id][f"{what}s"] = [{"id": part["id"], "type": part["body"]["type"], "name": part["body"]["name"]} for part in parts]
    return list(shown.values())


async def _refuse_used(tx: Transaction, id: str) -> Sequence[str]:
    users = await tx.linking(USED_BY, [id], "benchmark")
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


async def _add_part(hub: Hub, caller: Caller, id: str, what: Literal["simulator", "dataset"], part_id: str) -> dict[str, Json]:
    async with writing(hub, caller) as tx:
        row = await tx.require("environment", id, lock=True)
        part = await tx.require(what, part_id)
        type = part["body"]["type"]
        simulators = (await list_parts(tx, what, [id]))[id] if what == "simulator" else ()
        for other in simulators:
            # Runs address systems by type, and the checked state has one place per type.
            if other["body"]["type"] == type and other["id"] != part_id and find_kind(type) is not None:
                raise Refusal("CONFLICT", f"the environment already has a simulator of type {type}: {other['id']!r}")
        if await tx.link(id, f"environment_{what}", part_id):
            await tx.note(f"add_{what}", "environment", id, {f"{what}_id": part_id})
        return (await _show_environments(tx, [row]))[0]


async def _remove_part(hub: Hub, caller: Caller, id: str, what: Literal["simulator", "dataset"], part_id: str) -> dict[str, Json]:
    async with writing(hub, caller) as tx:
        row = await tx.require("environment", id, lock=True)
        if not await tx.unlink(id, f"environment_{what}", part_id):
            raise not_found(f"{what} of this environment", part_id)
        await tx.note(f"remove_{what}", "environment", id, {f"{what}_id": part_id})
        return (await _show_environments(tx, [row]))[0]


async def list_parts(tx: Transaction, what: Literal["simulator", "dataset"], environments: Sequence[str]) -> dict[str, list[Row]]:
    """Return the simulators or datasets of environments, by environment."""
    return await tx.linked(f"environment_{what}", environments, what)
