"""Playgrounds and sandboxes: the instances of an environment and of its simulators, as plain records.

Nothing runs behind them yet. `open_playground` is the place where live simulators start and fill in the credentials of their sandboxes, and
`close_playground` where they end; what happened in a sandbox is kept as records of kind `event` below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification import resources
from proctor.service.verification.datasets import DATASET, branch_dataset, show_dataset
from proctor.service.verification.declaration import Operation, Resource
from proctor.service.verification.environments import list_simulators_of
from proctor.service.verification.fields import Field, id_of, nested_field, read_only, read_only_id
from proctor.service.verification.resources import Paging, authorize, require_record
from proctor.store.pages import Row
from proctor.store.records import children, delete_records, find_record, link, linked

SANDBOX = Resource(
    kind="sandbox",
    prefix="sb",
    name="Sandbox",
    about="An instance of a simulator.",
    tag="playgrounds",
    fields={
        "simulator_id": Field(id_of("simulator"), "the simulator it is an instance of", required=True, null=False),
        "playground_id": read_only_id("playground", "none: it stands alone", null=True),
        "status": read_only("string", "active or teardown", default="active"),
        "credentials": read_only("object", "how to reach it; none: nothing runs behind it", null=True),
    },
    parent="playground_id",
)
PLAYGROUND = Resource(
    kind="playground",
    prefix="pg",
    name="Playground",
    about="An instance of an environment.",
    tag="playgrounds",
    fields={
        "environment_id": Field(id_of("environment"), "the environment it is an instance of", required=True, null=False),
        "status": read_only("string", "active or teardown", default="active"),
        "sandboxes": nested_field(SANDBOX.whole, "one per simulator", full=True),
    },
    parent="environment_id",
)
EVENT = Resource(
    kind="event",
    prefix="ev",
    name="SandboxEvent",
    about="Something that happened in a sandbox.",
    fields={"sandbox_id": read_only_id("sandbox", "where it happened")},
    parent="sandbox_id",
)
BRANCHES = "sandbox_dataset"
_DOWN: dict[str, Json] = {"status": "teardown", "credentials": None}


@Operation(PLAYGROUND, "GET /playgrounds", gives=PLAYGROUND.summary, pages=True)
async def list_playgrounds(hub: Hub, caller: Caller, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List playgrounds, newest first."""
    return await resources.list_plain(hub, caller, PLAYGROUND, **paging)


@Operation(PLAYGROUND, "POST /playgrounds", takes=PLAYGROUND.new, gives=PLAYGROUND.whole, creates=True)
async def create_playground(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """Create a playground of an environment, with one sandbox per simulator."""
    authorize(caller)
    environment_id = PLAYGROUND.read(given)["environment_id"]
    async with hub.database.writing() as connection:
        await require_record(connection, caller, "environment", environment_id)
        row = await open_playground(connection, hub, caller, environment_id)
        return await _show_with_sandboxes(connection, caller, row)


@Operation(PLAYGROUND, "GET /playgrounds/{playground_id}", gives=PLAYGROUND.whole)
async def get_playground(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a playground with its sandboxes."""
    authorize(caller)
    async with hub.database.reading() as connection:
        return await _show_with_sandboxes(connection, caller, await require_record(connection, caller, "playground", id))


@Operation(PLAYGROUND, "POST /playgrounds/{playground_id}/teardown", gives=PLAYGROUND.whole)
async def tear_down_playground(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """End a playground; its logs are kept."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "playground", id, lock=True)
        _refuse_torn_down(row)
        await close_playground(connection, hub, caller, id)
        return await _show_with_sandboxes(connection, caller, await require_record(connection, caller, "playground", id))


async def open_playground(connection: AsyncConnection, hub: Hub, caller: Caller, environment_id: str) -> Row:
    """Keep a playground of an environment, and one sandbox per simulator."""
    body: dict[str, Json] = {"environment_id": environment_id, "status": "active"}
    row = await resources.keep_record(connection, hub, caller, PLAYGROUND, body)
    for simulator in (await list_simulators_of(connection, caller, [environment_id]))[environment_id]:
        await resources.keep_record(connection, hub, caller, SANDBOX, _make_sandbox(simulator, row["id"]))
    return row


async def close_playground(connection: AsyncConnection, hub: Hub, caller: Caller, id: str) -> None:
    """End a playground and its sandboxes. Leave one that has ended, or was deleted, as it is."""
    row = await find_record(connection, caller.organization_id, "playground", id, lock=True)
    if row is None or row["body"]["status"] == "teardown":
        return
    for sandbox in await children(connection, caller.organization_id, "sandbox", id):
        await resources.rewrite_record(connection, hub, caller, SANDBOX, sandbox, _DOWN, action="teardown")
    await resources.rewrite_record(connection, hub, caller, PLAYGROUND, row, {"status": "teardown"}, action="teardown")


# --- sandboxes --------------------------------------------------------------------------------------------------------


@Operation(SANDBOX, "GET /sandboxes", gives=SANDBOX.summary, pages=True, within="playground_id")
async def list_sandboxes(hub: Hub, caller: Caller, *, playground_id: str | None = None, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List sandboxes, newest first."""
    return await resources.list_plain(hub, caller, SANDBOX, parent_id=playground_id, **paging)


@Operation(SANDBOX, "POST /sandboxes", takes=SANDBOX.new, gives=SANDBOX.whole, creates=True)
async def create_sandbox(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """Create a sandbox that stands alone."""
    authorize(caller)
    simulator_id = SANDBOX.read(given)["simulator_id"]
    async with hub.database.writing() as connection:
        simulator = await require_record(connection, caller, "simulator", simulator_id)
        return SANDBOX.show(await resources.keep_record(connection, hub, caller, SANDBOX, _make_sandbox(simulator, None)))


@Operation(SANDBOX, "GET /sandboxes/{sandbox_id}", gives=SANDBOX.whole)
async def get_sandbox(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a sandbox."""
    return await resources.get_plain(hub, caller, SANDBOX, id)


@Operation(SANDBOX, "GET /sandboxes/{sandbox_id}/events", gives=EVENT.summary, pages=True)
async def list_sandbox_events(hub: Hub, caller: Caller, id: str, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List what happened in a sandbox, newest first."""
    page, _ = await resources.list_rows(hub, caller, EVENT, parent_id=id, **paging)
    return resources.make_page(page, [{**EVENT.show(row), **row["body"]} for row in page.rows])


@Operation(SANDBOX, "POST /sandboxes/{sandbox_id}/teardown", gives=SANDBOX.whole)
async def tear_down_sandbox(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """End a sandbox; its credentials die with it."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "sandbox", id, lock=True)
        _refuse_torn_down(row)
        return SANDBOX.show(await resources.rewrite_record(connection, hub, caller, SANDBOX, row, _DOWN, action="teardown"))


@Operation(SANDBOX, "POST /sandboxes/{sandbox_id}/datasets/{dataset_id}", gives=DATASET.summary, creates=True)
async def add_dataset(hub: Hub, caller: Caller, id: str, dataset_id: str) -> dict[str, Json]:
    """Give a sandbox a branch of a dataset, and read the branch."""
    authorize(caller)
    async with hub.database.writing() as connection:
        sandbox = await require_record(connection, caller, "sandbox", id, lock=True)
        _refuse_torn_down(sandbox)
        dataset = await require_record(connection, caller, "dataset", dataset_id)
        if any(branch["body"].get("parent_id") == dataset_id for branch in await _list_branches(connection, caller, id)):
            raise Refusal("CONFLICT", "the sandbox has a branch of this dataset already")
        branch = await branch_dataset(connection, hub, caller, dataset)
        await link(connection, id, BRANCHES, branch["id"], hub.now())
        return show_dataset(branch)


@Operation(SANDBOX, "DELETE /sandboxes/{sandbox_id}/datasets/{dataset_id}")
async def remove_dataset(hub: Hub, caller: Caller, id: str, dataset_id: str) -> None:
    """Take a dataset (by its own id, or that of the branch) from a sandbox; its branch is deleted."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await require_record(connection, caller, "sandbox", id, lock=True)
        for branch in await _list_branches(connection, caller, id):
            if dataset_id in (branch["id"], branch["body"].get("parent_id")):
                entities = await children(connection, caller.organization_id, "entity", branch["id"])
                await delete_records(connection, caller.organization_id, [branch["id"], *(row["id"] for row in entities)])
                return
        raise not_found("dataset of this sandbox", dataset_id)


async def list_sandboxes_of(connection: AsyncConnection, caller: Caller, playgrounds: list[str]) -> list[dict[str, Json]]:
    """Return the sandboxes of playgrounds, with their simulators' types."""
    rows = await children(connection, caller.organization_id, "sandbox", playgrounds)
    return [{**SANDBOX.show(row), "type": row["body"].get("type")} for row in rows]


async def _list_branches(connection: AsyncConnection, caller: Caller, id: str) -> list[Row]:
    return (await linked(connection, caller.organization_id, BRANCHES, [id], "dataset"))[id]


async def _show_with_sandboxes(connection: AsyncConnection, caller: Caller, row: Row) -> dict[str, Json]:
    return {**PLAYGROUND.show(row), "sandboxes": await list_sandboxes_of(connection, caller, [row["id"]])}


def _make_sandbox(simulator: Row, playground_id: str | None) -> dict[str, Json]:
    fields = SANDBOX.fill(simulator_id=simulator["id"], type=simulator["body"]["type"])
    return {**fields, "playground_id": playground_id}


def _refuse_torn_down(row: Row) -> None:
    if row["body"]["status"] == "teardown":
        raise Refusal("CONFLICT", f"the {row['kind']} has been torn down already")
