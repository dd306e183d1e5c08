"""Playgrounds and sandboxes: instances of environments and simulators.

Those created by a user are seeded at once, and each sandbox has its own token, shown once. Those of a task run are `provisioning` until it
starts, and use the token of the run. A sandbox of a type that is not simulated is a plain record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.authoring.environments import list_datasets_of, list_simulators_of
from proctor.service.verification.sandboxes import lifecycle as sandbox_life
from proctor.service.verification.sandboxes.lifecycle import PreparedSystem
from proctor.service.verification.sandboxes.system_kinds import describe_access
from proctor.service.verification.shared import resources
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import Field, id_of, nested_field, read_only, read_only_id
from proctor.service.verification.shared.resources import Paging, authorize, require_record
from proctor.simulators.seeds import ScenarioStep, find_kind
from proctor.store.accounts.sandboxes import list_overdue
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import children, find_record, find_some, linked

SANDBOX = Resource(
    kind="sandbox",
    prefix="sb",
    name="Sandbox",
    about="An instance of a simulator.",
    tag="playgrounds",
    tool=ToolWords(
        "sandboxes",
        "Sandboxes",
        "Simulated systems for manual use: create one from a simulator, read its events, its current state and its changes (diff), "
        "reset it, delete it (teardown).",
    ),
    fields={
        "simulator_id": Field(id_of("simulator"), "its simulator", required=True, null=False),
        "playground_id": read_only_id("playground", "none: standalone", null=True),
        "status": read_only("string", "provisioning, active or teardown", default="active"),
        "credentials": read_only("object", "addresses below the service; its token is shown once. None: not simulated", null=True),
    },
    parent="playground_id",
)
PLAYGROUND = Resource(
    kind="playground",
    prefix="pg",
    name="Playground",
    about="An instance of an environment.",
    tag="playgrounds",
    tool=ToolWords("playgrounds", "Playgrounds", "Instances of environments for manual use: create one, read its sandboxes, tear it down."),
    fields={
        "environment_id": Field(id_of("environment"), "its environment", required=True, null=False),
        "status": read_only("string", "provisioning, active or teardown", default="active"),
        "sandboxes": nested_field(SANDBOX.whole, "one per simulator", full=True),
    },
    parent="environment_id",
)
BRANCHES = "sandbox_dataset"
_DOWN: dict[str, Json] = {"status": "teardown", "credentials": None}


@Operation(PLAYGROUND, "GET /playgrounds", gives=PLAYGROUND.summary, pages=True, tool="list")
async def list_playgrounds(hub: Hub, caller: Caller, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List playgrounds, newest first."""
    authorize(caller)
    await close_overdue(hub, caller)
    return await resources.list_plain(hub, caller, PLAYGROUND, **paging)


@Operation(PLAYGROUND, "POST /playgrounds", takes=PLAYGROUND.new, gives=PLAYGROUND.whole, creates=True, tool="create")
async def create_playground(hub: Hub, caller: Caller, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Create a playground of an environment, with one sandbox per simulator, seeded with its datasets."""
    authorize(caller)
    environment_id = PLAYGROUND.read(request_body)["environment_id"]
    await close_overdue(hub, caller)
    async with hub.database.reading() as connection:
        await require_record(connection, caller, "environment", environment_id)
        simulators = (await list_simulators_of(connection, caller, [environment_id]))[environment_id]
        datasets = (await list_datasets_of(connection, caller, [environment_id]))[environment_id]
        fillings = [await sandbox_life.read_seed_sources(connection, caller, simulator, datasets) for simulator in simulators]
    prepared = await sandbox_life.prepare(hub, fillings)
    async with hub.database.writing() as connection:
        # Again, since it may have been deleted during seeding.
        await require_record(connection, caller, "environment", environment_id)
        body: dict[str, Json] = {"environment_id": environment_id, "status": "active"}
        row = await resources.store_record(connection, hub, caller, PLAYGROUND, body)
        sandboxes = [
            await _open_sandbox(connection, hub, caller, simulator, row["id"], system)
            for simulator, system in zip(simulators, prepared, strict=True)
        ]
        return {**PLAYGROUND.show(row), "sandboxes": sandboxes}


@Operation(PLAYGROUND, "GET /playgrounds/{playground_id}", gives=PLAYGROUND.whole, tool="get")
async def get_playground(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a playground with its sandboxes."""
    authorize(caller)
    await close_overdue(hub, caller)
    async with hub.database.reading() as connection:
        return await _show_with_sandboxes(connection, caller, await require_record(connection, caller, "playground", id))


@Operation(PLAYGROUND, "POST /playgrounds/{playground_id}/teardown", gives=PLAYGROUND.whole, tool="teardown")
async def tear_down_playground(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Tear down a playground; its events stay."""
    authorize(caller)
    await close_overdue(hub, caller)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "playground", id, lock=True)
        refuse_torn_down(row)
        await close_playground(connection, hub, caller, id)
        return await _show_with_sandboxes(connection, caller, await require_record(connection, caller, "playground", id))


async def open_playground(connection: AsyncConnection, hub: Hub, caller: Caller, environment_id: str, run_id: str) -> Row:
    """Store the playground of a task run, with one sandbox per simulator; they are seeded when it starts."""
    body: dict[str, Json] = {"environment_id": environment_id, "status": "provisioning"}
    row = await resources.store_record(connection, hub, caller, PLAYGROUND, body)
    for simulator in (await list_simulators_of(connection, caller, [environment_id]))[environment_id]:
        kind = find_kind(simulator["body"]["type"])
        # It is addressed through the run, with the run's token.
        access = None if kind is None else _describe_access(simulator, kind, run_id, url=f"/v1/benchmark-runs/{run_id}/{kind}")
        sandbox = _make_sandbox(simulator, row["id"], status="provisioning", credentials=access)
        await resources.store_record(connection, hub, caller, SANDBOX, sandbox)
    return row


async def prepare_playground(
    hub: Hub, caller: Caller, playground_id: str, entities: Sequence[str]
) -> list[tuple[Row, PreparedSystem | None]]:
    """Seed the systems of a task run that is about to start, with datasets of its environment, of its entities, and its own."""
    async with hub.database.reading() as connection:
        playground = await find_record(connection, caller.organization_id, "playground", playground_id)
        if playground is None or playground["body"]["status"] != "provisioning":
            return []
        sandboxes = await children(connection, caller.organization_id, "sandbox", playground_id)
        simulators = await find_some(connection, caller.organization_id, "simulator", [row["body"]["simulator_id"] for row in sandboxes])
        by_id = {row["id"]: row for row in simulators}
        shared = (await list_datasets_of(connection, caller, [playground["parent_id"]]))[playground["parent_id"]]
        bound = await find_some(connection, caller.organization_id, "entity", entities)
        shared += await find_some(
            connection, caller.organization_id, "dataset", {row["parent_id"] for row in bound} - {row["id"] for row in shared}
        )
        branches = await linked(connection, caller.organization_id, BRANCHES, [row["id"] for row in sandboxes], "dataset")
        fillings = [
            # A deleted simulator has no config.
            await sandbox_life.read_seed_sources(
                connection, caller, by_id.get(row["body"]["simulator_id"]) or row, [*shared, *branches[row["id"]]]
            )
            for row in sandboxes
        ]
    return list(zip(sandboxes, await sandbox_life.prepare(hub, fillings), strict=True))


async def start_playground(
    connection: AsyncConnection,
    hub: Hub,
    caller: Caller,
    task_run: Row,
    prepared: Sequence[tuple[Row, PreparedSystem | None]],
    steps: Sequence[ScenarioStep],
) -> None:
    """Open the systems of a starting task run to its agent, unless its playground has ended."""
    playground_id = task_run["body"]["playground_id"]
    playground = None
    if playground_id is not None:
        playground = await find_record(connection, caller.organization_id, "playground", playground_id, lock=True)
    if playground is None or playground["body"]["status"] != "provisioning":
        return
    kinds = {system.kind for _, system in prepared if system is not None}
    for step in steps:
        if step.kind not in kinds:
            raise Refusal("CONFLICT", f"the scenario needs a simulator of kind {step.kind}, which the environment lacks")
    for row, system in prepared:
        if system is not None:
            await sandbox_life.provision(
                connection,
                hub,
                caller,
                row["id"],
                system,
                steps=steps,
                benchmark_run_id=task_run["parent_id"],
                timeout_s=task_run["body"]["timeout"],
            )
        await resources.rewrite_record(connection, hub, caller, SANDBOX, row, {"status": "active"}, action="provision")
    await resources.rewrite_record(connection, hub, caller, PLAYGROUND, playground, {"status": "active"}, action="provision")


async def close_playground(connection: AsyncConnection, hub: Hub, caller: Caller, id: str) -> None:
    """End a playground and its sandboxes, if it exists and has not ended."""
    row = await find_record(connection, caller.organization_id, "playground", id, lock=True)
    if row is None or row["body"]["status"] == "teardown":
        return
    sandboxes = await children(connection, caller.organization_id, "sandbox", id)
    await sandbox_life.close(connection, hub, [sandbox["id"] for sandbox in sandboxes])
    for sandbox in sandboxes:
        await resources.rewrite_record(connection, hub, caller, SANDBOX, sandbox, _DOWN, action="teardown")
    await resources.rewrite_record(connection, hub, caller, PLAYGROUND, row, {"status": "teardown"}, action="teardown")


async def close_overdue(hub: Hub, caller: Caller) -> None:
    """Close expired sandboxes, which already reject requests."""
    async with hub.database.reading() as connection:
        # A read first, which takes no lock.
        late = await list_overdue(connection, caller.organization_id, hub.now())
    if not late:
        return
    async with hub.database.writing() as connection:
        for row in await find_some(connection, caller.organization_id, "sandbox", late):
            if row["parent_id"] is not None:
                await close_playground(connection, hub, caller, row["parent_id"])
            elif row["body"]["status"] != "teardown":
                await close_sandbox(connection, hub, caller, row)
        # Also those without a record.
        await sandbox_life.close(connection, hub, late)


async def close_sandbox(connection: AsyncConnection, hub: Hub, caller: Caller, row: Row) -> Row:
    """Close a locked sandbox."""
    await sandbox_life.close(connection, hub, [row["id"]])
    return await resources.rewrite_record(connection, hub, caller, SANDBOX, row, _DOWN, action="teardown")


def refuse_torn_down(row: Row) -> None:
    """Reject changes of an ended sandbox or playground."""
    if row["body"]["status"] == "teardown":
        raise Refusal("CONFLICT", f"the {row['kind']} has already been torn down")


@Operation(SANDBOX, "GET /sandboxes", gives=SANDBOX.summary, pages=True, within="playground_id", tool="list")
async def list_sandboxes(hub: Hub, caller: Caller, *, playground_id: str | None = None, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List sandboxes, newest first."""
    authorize(caller)
    await close_overdue(hub, caller)
    return await resources.list_plain(hub, caller, SANDBOX, parent_id=playground_id, **paging)


@Operation(SANDBOX, "POST /sandboxes", takes=SANDBOX.new, gives=SANDBOX.whole, creates=True, tool="create")
async def create_sandbox(hub: Hub, caller: Caller, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Create a standalone sandbox."""
    authorize(caller)
    simulator_id = SANDBOX.read(request_body)["simulator_id"]
    await close_overdue(hub, caller)
    async with hub.database.reading() as connection:
        simulator = await require_record(connection, caller, "simulator", simulator_id)
        filling = await sandbox_life.read_seed_sources(connection, caller, simulator, [])
    (prepared,) = await sandbox_life.prepare(hub, [filling])
    async with hub.database.writing() as connection:
        await require_record(connection, caller, "simulator", simulator_id)
        return await _open_sandbox(connection, hub, caller, simulator, None, prepared)


@Operation(SANDBOX, "GET /sandboxes/{sandbox_id}", gives=SANDBOX.whole, tool="get")
async def get_sandbox(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a sandbox."""
    authorize(caller)
    await close_overdue(hub, caller)
    return await resources.get_plain(hub, caller, SANDBOX, id)


@Operation(SANDBOX, "POST /sandboxes/{sandbox_id}/teardown", gives=SANDBOX.whole, tool="teardown")
async def tear_down_sandbox(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Tear down a sandbox and revoke its credentials; its events and end state stay readable."""
    authorize(caller)
    await close_overdue(hub, caller)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, "sandbox", id, lock=True)
        refuse_torn_down(row)
        return SANDBOX.show(await close_sandbox(connection, hub, caller, row))


async def list_sandboxes_of(connection: AsyncConnection, caller: Caller, playgrounds: list[str]) -> list[dict[str, Json]]:
    """Return the sandboxes of playgrounds, with their simulators' types."""
    rows = await children(connection, caller.organization_id, "sandbox", playgrounds)
    return [{**SANDBOX.show(row), "type": row["body"].get("type")} for row in rows]


async def _open_sandbox(
    connection: AsyncConnection, hub: Hub, caller: Caller, simulator: Row, playground_id: str | None, prepared: PreparedSystem | None
) -> dict[str, Json]:
    """Store a sandbox of a user, and return it with its token."""
    row = await resources.store_record(connection, hub, caller, SANDBOX, _make_sandbox(simulator, playground_id))
    shown = {**SANDBOX.show(row), "type": row["body"]["type"]}
    if prepared is None:
        return shown
    await sandbox_life.provision(connection, hub, caller, row["id"], prepared)
    # Stored without the token, which only this response has.
    access = _describe_access(simulator, prepared.kind, row["id"])
    row = await resources.rewrite_record(connection, hub, caller, SANDBOX, row, {"credentials": access}, action="provision")
    token = await sandbox_life.issue_token(connection, hub, caller, row["id"])
    return {**shown, **SANDBOX.show(row), "credentials": _describe_access(simulator, prepared.kind, row["id"], token)}


def _describe_access(simulator: Row, kind: str, id: str, token: str | None = None, *, url: str | None = None) -> dict[str, Json]:
    return describe_access(kind, id, token, url=url, config=simulator["body"].get("config"))


async def _show_with_sandboxes(connection: AsyncConnection, caller: Caller, row: Row) -> dict[str, Json]:
    return {**PLAYGROUND.show(row), "sandboxes": await list_sandboxes_of(connection, caller, [row["id"]])}


def _make_sandbox(simulator: Row, playground_id: str | None, **more: Json) -> dict[str, Json]:
    fields = SANDBOX.fill(simulator_id=simulator["id"], type=simulator["body"]["type"], **more)
    return {**fields, "playground_id": playground_id}
