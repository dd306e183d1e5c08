"""Playgrounds and sandboxes: instances of environments and simulators.

Those created by a user are seeded at once, and each sandbox has its own token, shown once. Those of a task run are `provisioning` until it
starts, and use the token of the run. A sandbox of a type that is not simulated is a plain record.

A sandbox is closed by request, at the end of its run, or when it expires; its events and end state stay readable. Slow work (reading
datasets, seeding) happens before the writing transaction. The token of a sandbox is a key: hashed, shown once, revoked when it is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Unpack

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import exception_text
from proctor.service.access.callers import Caller
from proctor.service.access.keys import KeySpec, issue_key
from proctor.service.hub import Hub, stamp
from proctor.service.refusals import Refusal
from proctor.service.verification.authoring.environments import list_parts
from proctor.service.verification.authoring.seeding import Baseline, SeedSources, get_limits, make_baseline, make_surroundings
from proctor.service.verification.sandboxes.system_kinds import describe_access
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import Field, id_of, nested_field, read_only, read_only_id
from proctor.service.verification.shared.resources import Paging, Records, Transaction, list_plain, reading, writing
from proctor.simulators.ports import Desk, find_simulator
from proctor.simulators.rows import Change, Draft, Rows, apply_changes
from proctor.simulators.seeds import ScenarioStep, describe_spec_error, find_kind
from proctor.store.accounts.keys import revoke_keys_of_sandboxes
from proctor.store.accounts.sandboxes import DatabaseStore, NewSandbox, add_sandbox, close_sandboxes, count_open, list_overdue
from proctor.store.sql.pages import Row

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
async def list_playgrounds(hub: Hub, caller: Caller, **paging: Unpack[Paging]) -> Records:
    """List playgrounds, newest first."""
    await close_overdue(hub, caller)
    return await list_plain(hub, caller, PLAYGROUND, **paging)


@Operation(PLAYGROUND, "POST /playgrounds", takes=PLAYGROUND.new, gives=PLAYGROUND.whole, creates=True, tool="create")
async def create_playground(hub: Hub, caller: Caller, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Create a playground of an environment, with one sandbox per simulator, seeded with its datasets."""
    environment_id = PLAYGROUND.read(request_body)["environment_id"]
    await close_overdue(hub, caller)
    async with reading(hub, caller) as tx:
        await tx.require("environment", environment_id)
        simulators = (await list_parts(tx, "simulator", [environment_id]))[environment_id]
        datasets = (await list_parts(tx, "dataset", [environment_id]))[environment_id]
        fillings = [await _read_seed_sources(tx, simulator, datasets) for simulator in simulators]
    prepared = await _seed(hub, fillings)
    async with writing(hub, caller) as tx:
        # Again, since it may have been deleted during seeding.
        await tx.require("environment", environment_id)
        row = await tx.add(PLAYGROUND, {"environment_id": environment_id, "status": "active"})
        sandboxes = [await _open_sandbox(tx, simulator, row["id"], system) for simulator, system in zip(simulators, prepared, strict=True)]
        return {**PLAYGROUND.show(row), "sandboxes": sandboxes}


@Operation(PLAYGROUND, "GET /playgrounds/{playground_id}", gives=PLAYGROUND.whole, tool="get")
async def get_playground(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a playground with its sandboxes."""
    await close_overdue(hub, caller)
    async with reading(hub, caller) as tx:
        return await _show_with_sandboxes(tx, await tx.require("playground", id))


@Operation(PLAYGROUND, "POST /playgrounds/{playground_id}/teardown", gives=PLAYGROUND.whole, tool="teardown")
async def tear_down_playground(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Tear down a playground; its events stay."""
    await close_overdue(hub, caller)
    async with writing(hub, caller) as tx:
        row = await tx.require("playground", id, lock=True)
        refuse_torn_down(row)
        await close_playground(tx, id)
        return await _show_with_sandboxes(tx, await tx.require("playground", id))


async def open_playground(tx: Transaction, environment_id: str, run_id: str) -> Row:
    """Store the playground of a task run, with one sandbox per simulator; they are seeded when it starts."""
    row = await tx.add(PLAYGROUND, {"environment_id": environment_id, "status": "provisioning"})
    for simulator in (await list_parts(tx, "simulator", [environment_id]))[environment_id]:
        kind = find_kind(simulator["body"]["type"])
        # It is addressed through the run, with the run's token.
        access = None if kind is None else _describe_access(simulator, kind, run_id, url=f"/v1/benchmark-runs/{run_id}/{kind}")
        await tx.add(SANDBOX, _make_sandbox(simulator, row["id"], status="provisioning", credentials=access))
    return row


async def prepare_playground(hub: Hub, caller: Caller, playground_id: str, entities: Sequence[str]) -> list[tuple[Row, Baseline | None]]:
    """Seed the systems of a task run that is about to start, with datasets of its environment, of its entities, and its own."""
    async with reading(hub, caller) as tx:
        playground = await tx.find("playground", playground_id)
        if playground is None or playground["body"]["status"] != "provisioning":
            return []
        sandboxes = await tx.children("sandbox", playground_id)
        simulators = {row["id"]: row for row in await tx.find_some("simulator", [row["body"]["simulator_id"] for row in sandboxes])}
        shared = (await list_parts(tx, "dataset", [playground["parent_id"]]))[playground["parent_id"]]
        of_entities = {row["parent_id"] for row in await tx.find_some("entity", entities)}
        shared += await tx.find_some("dataset", of_entities - {row["id"] for row in shared})
        branches = await tx.linked(BRANCHES, [row["id"] for row in sandboxes], "dataset")
        fillings: list[SeedSources | None] = []
        for row in sandboxes:
            # A deleted simulator has no config.
            simulator = simulators.get(row["body"]["simulator_id"]) or row
            fillings.append(await _read_seed_sources(tx, simulator, [*shared, *branches[row["id"]]]))
    return list(zip(sandboxes, await _seed(hub, fillings), strict=True))


async def start_playground(
    tx: Transaction, task_run: Row, prepared: Sequence[tuple[Row, Baseline | None]], steps: Sequence[ScenarioStep]
) -> None:
    """Open the systems of a starting task run to its agent, unless its playground has ended."""
    playground_id = task_run["body"]["playground_id"]
    playground = None if playground_id is None else await tx.find("playground", playground_id, lock=True)
    if playground is None or playground["body"]["status"] != "provisioning":
        return
    kinds = {system.kind for _, system in prepared if system is not None}
    for step in steps:
        if step.kind not in kinds:
            raise Refusal("CONFLICT", f"the scenario needs a simulator of kind {step.kind}, which the environment lacks")
    for row, system in prepared:
        if system is not None:
            timeout_s: float | None = task_run["body"]["timeout"]
            await _provision(tx, row["id"], system, steps=steps, benchmark_run_id=task_run["parent_id"], timeout_s=timeout_s)
        await tx.change(SANDBOX, row, {"status": "active"}, action="provision")
    await tx.change(PLAYGROUND, playground, {"status": "active"}, action="provision")


async def close_playground(tx: Transaction, id: str) -> None:
    """End a playground and its sandboxes, if it exists and has not ended."""
    row = await tx.find("playground", id, lock=True)
    if row is None or row["body"]["status"] == "teardown":
        return
    sandboxes = await tx.children("sandbox", id)
    await close(tx, [sandbox["id"] for sandbox in sandboxes])
    for sandbox in sandboxes:
        await tx.change(SANDBOX, sandbox, _DOWN, action="teardown")
    await tx.change(PLAYGROUND, row, {"status": "teardown"}, action="teardown")


async def close_overdue(hub: Hub, caller: Caller) -> None:
    """Close expired sandboxes, which already reject requests."""
    async with reading(hub, caller) as tx:
        # A read first, which takes no lock.
        late = await list_overdue(tx.connection, tx.owner, hub.now())
    if not late:
        return
    async with writing(hub, caller) as tx:
        for row in await tx.find_some("sandbox", late):
            if row["parent_id"] is not None:
                await close_playground(tx, row["parent_id"])
            elif row["body"]["status"] != "teardown":
                await _close_sandbox(tx, row)
        # Also those without a record.
        await close(tx, late)


async def _close_sandbox(tx: Transaction, row: Row) -> Row:
    await close(tx, [row["id"]])
    return await tx.change(SANDBOX, row, _DOWN, action="teardown")


def refuse_torn_down(row: Row) -> None:
    """Reject changes of an ended sandbox or playground."""
    if row["body"]["status"] == "teardown":
        raise Refusal("CONFLICT", f"the {row['kind']} has already been torn down")


@Operation(SANDBOX, "GET /sandboxes", gives=SANDBOX.summary, pages=True, within="playground_id", tool="list")
async def list_sandboxes(hub: Hub, caller: Caller, *, playground_id: str | None = None, **paging: Unpack[Paging]) -> Records:
    """List sandboxes, newest first."""
    await close_overdue(hub, caller)
    return await list_plain(hub, caller, SANDBOX, parent_id=playground_id, **paging)


@Operation(SANDBOX, "POST /sandboxes", takes=SANDBOX.new, gives=SANDBOX.whole, creates=True, tool="create")
async def create_sandbox(hub: Hub, caller: Caller, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Create a standalone sandbox."""
    simulator_id = SANDBOX.read(request_body)["simulator_id"]
    await close_overdue(hub, caller)
    async with reading(hub, caller) as tx:
        simulator = await tx.require("simulator", simulator_id)
        filling = await _read_seed_sources(tx, simulator, [])
    (prepared,) = await _seed(hub, [filling])
    async with writing(hub, caller) as tx:
        await tx.require("simulator", simulator_id)
        return await _open_sandbox(tx, simulator, None, prepared)


@Operation(SANDBOX, "GET /sandboxes/{sandbox_id}", gives=SANDBOX.whole, tool="get")
async def get_sandbox(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a sandbox."""
    await close_overdue(hub, caller)
    async with reading(hub, caller) as tx:
        return SANDBOX.show(await tx.require("sandbox", id))


@Operation(SANDBOX, "POST /sandboxes/{sandbox_id}/teardown", gives=SANDBOX.whole, tool="teardown")
async def tear_down_sandbox(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Tear down a sandbox and revoke its credentials; its events and end state stay readable."""
    await close_overdue(hub, caller)
    async with writing(hub, caller) as tx:
        row = await tx.require("sandbox", id, lock=True)
        refuse_torn_down(row)
        return SANDBOX.show(await _close_sandbox(tx, row))


async def list_sandboxes_of(tx: Transaction, playgrounds: list[str]) -> list[dict[str, Json]]:
    """Return the sandboxes of playgrounds, with their simulators' types."""
    rows = await tx.children("sandbox", playgrounds)
    return [{**SANDBOX.show(row), "type": row["body"].get("type")} for row in rows]


async def _open_sandbox(tx: Transaction, simulator: Row, playground_id: str | None, prepared: Baseline | None) -> dict[str, Json]:
    row = await tx.add(SANDBOX, _make_sandbox(simulator, playground_id))
    shown = {**SANDBOX.show(row), "type": row["body"]["type"]}
    if prepared is None:
        return shown
    await _provision(tx, row["id"], prepared)
    # Stored without the token, which only this response has.
    access = _describe_access(simulator, prepared.kind, row["id"])
    row = await tx.change(SANDBOX, row, {"credentials": access}, action="provision")
    _, token = await issue_key(tx.connection, tx.hub, tx.caller, KeySpec(kind="sandbox", name=f"sandbox {row['id']}", sandbox_id=row["id"]))
    return {**shown, **SANDBOX.show(row), "credentials": _describe_access(simulator, prepared.kind, row["id"], token)}


def _describe_access(simulator: Row, kind: str, id: str, token: str | None = None, *, url: str | None = None) -> dict[str, Json]:
    return describe_access(kind, id, token, url=url, config=simulator["body"].get("config"))


async def _show_with_sandboxes(tx: Transaction, row: Row) -> dict[str, Json]:
    return {**PLAYGROUND.show(row), "sandboxes": await list_sandboxes_of(tx, [row["id"]])}


def _make_sandbox(simulator: Row, playground_id: str | None, **more: Json) -> dict[str, Json]:
    fields = SANDBOX.fill(simulator_id=simulator["id"], type=simulator["body"]["type"], **more)
    return {**fields, "playground_id": playground_id}


# --- the systems in sandboxes


def open_store(hub: Hub, organization_id: str) -> DatabaseStore:
    """Return the sandbox store of an organization."""
    return DatabaseStore(hub.database, hub.sandbox_rows, organization_id=organization_id, now=hub.now, limits=get_limits(hub))


async def _read_seed_sources(tx: Transaction, simulator: Row, datasets: Sequence[Row]) -> SeedSources | None:
    """Return the sources of a sandbox's initial data: datasets of its type; None if its type is not simulated."""
    kind = find_kind(simulator["body"]["type"])
    if kind is None:
        return None
    named_datasets: list[tuple[str, bytes]] = []
    for dataset in datasets:
        blob = await tx.read_blob(dataset["id"]) if find_kind(dataset["body"]["type"]) == kind else None
        if blob is not None:
            named_datasets.append((f"the dataset {dataset['id']!r}", blob))
    return SeedSources(kind=kind, config=simulator["body"].get("config"), datasets=tuple(named_datasets))


async def _seed(hub: Hub, fillings: Sequence[SeedSources | None]) -> list[Baseline | None]:
    return [None if filling is None else await make_baseline(hub, filling) for filling in fillings]


async def _provision(
    tx: Transaction,
    sandbox: str,
    prepared: Baseline,
    *,
    steps: Sequence[ScenarioStep] = (),
    benchmark_run_id: str | None = None,
    timeout_s: float | None = None,
) -> None:
    """Put a system into a sandbox and make it reachable. Raises `Refusal` above the limit."""
    hub = tx.hub
    if await count_open(tx.connection, tx.owner) >= hub.settings.sandboxes:
        raise Refusal(
            "CONFLICT",
            # The next step is part of the message, since Verial's clients get nothing else.
            f"{hub.settings.sandboxes} sandboxes are active, which is the limit (--sandboxes): tear some down, or complete their task runs",
            hint="sandboxes {action: list}, then sandboxes {action: teardown}",
        )
    kind_steps = [step for step in steps if step.kind == prepared.kind]
    later = sorted((step for step in kind_steps if step.after_s > 0), key=lambda step: step.after_s)
    lifetime_s = hub.settings.sandbox_hours * 3600
    new = NewSandbox(
        id=sandbox,
        organization_id=tx.owner,
        kind=prepared.kind,
        rows=prepared.rows,
        packed=prepared.packed,
        happened=await asyncio.to_thread(_perform_at_once, hub, prepared, [step for step in kind_steps if step.after_s == 0]),
        steps=tuple({"at": stamp(hub.clock() + step.after_s), "step": step.step, "given": step.given} for step in later),
        benchmark_run_id=benchmark_run_id,
        expires_at=stamp(hub.clock() + min(lifetime_s, lifetime_s if timeout_s is None else timeout_s)),
    )
    await add_sandbox(tx.connection, new, now=hub.now())
    open_store(hub, tx.owner).remember(new)


def _perform_at_once(hub: Hub, prepared: Baseline, steps: Sequence[ScenarioStep]) -> tuple[tuple[dict[str, Json], tuple[Change, ...]], ...]:
    rows = prepared.rows
    performed: list[tuple[dict[str, Json], tuple[Change, ...]]] = []
    for step in steps:
        note, changes = perform_step(hub, prepared.kind, rows, step.step, step.given)
        if "error" in note:
            raise Refusal("CONFLICT", f"the scenario cannot start: {step.step}: {note['error']}")
        rows = apply_changes(rows, changes)
        performed.append((note, changes))
    return tuple(performed)


def perform_step(hub: Hub, kind: str, rows: Rows, step: str, content: Json) -> tuple[dict[str, Json], tuple[Change, ...]]:
    """Return a note of a step and its changes; the note has an `error` if the step failed."""
    draft = Draft(rows, kind)
    note: dict[str, Json] = {"system": kind, "step": step, "given": content}
    try:
        find_simulator(kind).perform(step, content, Desk(draft, make_surroundings(hub)))
    except SpecError as error:
        return {**note, "error": describe_spec_error(error)}, ()
    except Exception as error:  # as for requests: a bug in a simulator is reported, and its changes are discarded
        return {**note, "error": f"a bug in the simulated system: {type(error).__name__}: {exception_text(error)}"}, ()
    return note, draft.list_changes()


async def close(tx: Transaction, sandboxes: list[str]) -> None:
    """Close sandboxes and revoke their tokens."""
    await close_sandboxes(tx.connection, sandboxes, tx.hub.now())
    hashes = await revoke_keys_of_sandboxes(tx.connection, sandboxes, tx.hub.now())

    def forget_keys() -> None:
        for hash in hashes:
            tx.hub.key_cache.forget(hash)

    # After the commit: a request before it would cache the token as valid.
    tx.hub.database.call_at_end(tx.connection, forget_keys)
