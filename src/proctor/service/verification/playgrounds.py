"""Playgrounds and sandboxes: the instances of an environment and of its simulators, as plain records.

Nothing runs behind them yet. `open_playground` is the place where live simulators start and fill in the credentials of their sandboxes, and
`close_playground` where they end; what happened in a sandbox is kept as records of kind `event` below it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification import resources
from proctor.service.verification.datasets import branch_dataset, shown_dataset
from proctor.service.verification.environments import simulators_of
from proctor.service.verification.fields import Field, read_fields, text
from proctor.service.verification.resources import Parent, Resource, authorize, required
from proctor.store.pages import Row
from proctor.store.records import children, delete_records, find_record, link, linked

PLAYGROUND = Resource(
    kind="playground",
    prefix="pg",
    what="playground",
    table={"environment_id": Field(text(200), required=True, null=False), "status": Field(text(), default="active")},
    parent=Parent("environment_id", "environment", "environment"),
)
SANDBOX = Resource(
    kind="sandbox",
    prefix="sb",
    what="sandbox",
    table={
        "simulator_id": Field(text(200), required=True, null=False),
        "status": Field(text(), default="active"),
        "credentials": Field(text()),
    },
    parent=Parent("playground_id", "playground", "playground"),
)
EVENT = Resource(kind="event", prefix="ev", what="event", table={}, parent=Parent("sandbox_id", "sandbox", "sandbox"))
BRANCHES = "sandbox_dataset"
_DOWN: dict[str, Json] = {"status": "teardown", "credentials": None}
_NEW_PLAYGROUND = {"environment_id": PLAYGROUND.table["environment_id"]}
_NEW_SANDBOX = {"simulator_id": SANDBOX.table["simulator_id"]}


async def list_playgrounds(hub: Hub, caller: Caller, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """A page of playgrounds."""
    return await resources.list_plain(hub, caller, PLAYGROUND, limit=limit, cursor=cursor)


async def create_playground(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """A playground of an environment (`environment_id`), with one sandbox per simulator."""
    authorize(caller)
    environment_id = read_fields(_NEW_PLAYGROUND, given, "playground")["environment_id"]
    async with hub.database.writing() as connection:
        await required(connection, caller, "environment", environment_id)
        row = await open_playground(connection, hub, caller, environment_id)
        return await _with_sandboxes(connection, caller, row)


async def get_playground(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One playground with its sandboxes and their credentials."""
    authorize(caller)
    async with hub.database.reading() as connection:
        return await _with_sandboxes(connection, caller, await required(connection, caller, "playground", id))


async def tear_down_playground(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """End a playground; its logs are kept."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await required(connection, caller, "playground", id, lock=True)
        _refuse_torn_down(row)
        await close_playground(connection, hub, caller, id)
        return await _with_sandboxes(connection, caller, await required(connection, caller, "playground", id))


async def open_playground(connection: AsyncConnection, hub: Hub, caller: Caller, environment_id: str) -> Row:
    """A playground and its sandboxes."""
    body: dict[str, Json] = {"environment_id": environment_id, "status": "active"}
    row = await resources.keep(connection, hub, caller, PLAYGROUND, body)
    for simulator in (await simulators_of(connection, caller, [environment_id]))[environment_id]:
        await resources.keep(connection, hub, caller, SANDBOX, _new_sandbox(simulator, row["id"]))
    return row


async def close_playground(connection: AsyncConnection, hub: Hub, caller: Caller, id: str) -> None:
    """The playground and its sandboxes have ended; one that has already, or was deleted, stays as it is."""
    row = await find_record(connection, caller.organization_id, "playground", id, lock=True)
    if row is None or row["body"]["status"] == "teardown":
        return
    for sandbox in await children(connection, caller.organization_id, "sandbox", id):
        await resources.rewrite(connection, hub, caller, SANDBOX, sandbox, _DOWN, action="teardown")
    await resources.rewrite(connection, hub, caller, PLAYGROUND, row, {"status": "teardown"}, action="teardown")


# --- sandboxes --------------------------------------------------------------------------------------------------------


async def list_sandboxes(
    hub: Hub, caller: Caller, *, playground_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """A page of sandboxes, of one playground where it is named."""
    return await resources.list_plain(hub, caller, SANDBOX, parent_id=playground_id, limit=limit, cursor=cursor)


async def create_sandbox(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """A sandbox of a simulator (`simulator_id`) that stands alone."""
    authorize(caller)
    simulator_id = read_fields(_NEW_SANDBOX, given, "sandbox")["simulator_id"]
    async with hub.database.writing() as connection:
        simulator = await required(connection, caller, "simulator", simulator_id)
        return SANDBOX.shown(await resources.keep(connection, hub, caller, SANDBOX, _new_sandbox(simulator, None)))


async def get_sandbox(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One sandbox."""
    return await resources.get_plain(hub, caller, SANDBOX, id)


async def list_sandbox_events(hub: Hub, caller: Caller, id: str, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """A page of what happened in a sandbox."""
    page, _ = await resources.list_rows(hub, caller, EVENT, parent_id=id, limit=limit, cursor=cursor)
    return resources.page_of(page, [{**EVENT.shown(row), **row["body"]} for row in page.rows])


async def tear_down_sandbox(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """End a sandbox; its credentials die with it."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await required(connection, caller, "sandbox", id, lock=True)
        _refuse_torn_down(row)
        return SANDBOX.shown(await resources.rewrite(connection, hub, caller, SANDBOX, row, _DOWN, action="teardown"))


async def add_dataset(hub: Hub, caller: Caller, id: str, dataset_id: str) -> dict[str, Json]:
    """Give a sandbox a branch of a dataset; shows the branch."""
    authorize(caller)
    async with hub.database.writing() as connection:
        sandbox = await required(connection, caller, "sandbox", id, lock=True)
        _refuse_torn_down(sandbox)
        dataset = await required(connection, caller, "dataset", dataset_id)
        if any(branch["body"].get("parent_id") == dataset_id for branch in await _branches(connection, caller, id)):
            raise Refusal("CONFLICT", "the sandbox has a branch of this dataset already")
        branch = await branch_dataset(connection, hub, caller, dataset)
        await link(connection, id, BRANCHES, branch["id"], hub.now())
        return shown_dataset(branch)


async def remove_dataset(hub: Hub, caller: Caller, id: str, dataset_id: str) -> None:
    """Take a dataset (its own id, or that of the branch) from a sandbox; the branch is deleted."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await required(connection, caller, "sandbox", id, lock=True)
        for branch in await _branches(connection, caller, id):
            if dataset_id in (branch["id"], branch["body"].get("parent_id")):
                entities = await children(connection, caller.organization_id, "entity", branch["id"])
                await delete_records(connection, caller.organization_id, [branch["id"], *(row["id"] for row in entities)])
                return
        raise not_found("dataset of this sandbox", dataset_id)


async def sandboxes_of(connection: AsyncConnection, caller: Caller, playgrounds: list[str]) -> list[dict[str, Json]]:
    """The sandboxes of playgrounds, with their simulators' types."""
    rows = await children(connection, caller.organization_id, "sandbox", playgrounds)
    return [{**SANDBOX.shown(row), "type": row["body"].get("type")} for row in rows]


async def _branches(connection: AsyncConnection, caller: Caller, id: str) -> list[Row]:
    return (await linked(connection, caller.organization_id, BRANCHES, [id], "dataset"))[id]


async def _with_sandboxes(connection: AsyncConnection, caller: Caller, row: Row) -> dict[str, Json]:
    return {**PLAYGROUND.shown(row), "sandboxes": await sandboxes_of(connection, caller, [row["id"]])}


def _new_sandbox(simulator: Row, playground_id: str | None) -> dict[str, Json]:
    fields = {"simulator_id": simulator["id"], "type": simulator["body"]["type"], "status": "active", "credentials": None}
    return {"playground_id": playground_id, **fields}


def _refuse_torn_down(row: Row) -> None:
    if row["body"]["status"] == "teardown":
        raise Refusal("CONFLICT", f"the {row['kind']} has been torn down already")
