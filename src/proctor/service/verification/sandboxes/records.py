"""Sandboxes for authors: events, state, diff, datasets and reset. None of it is shown to the agent."""

from __future__ import annotations

import asyncio
from typing import Unpack

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse, show_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.datasets import DATASET
from proctor.service.verification.authoring.seeding import make_surroundings
from proctor.service.verification.sandboxes.playgrounds import BRANCHES, SANDBOX, close_overdue, open_store, refuse_torn_down
from proctor.service.verification.sandboxes.requests import perform_due_steps, read_end_state
from proctor.service.verification.shared.declaration import Operation, Resource
from proctor.service.verification.shared.fields import Shape, read_only, read_only_id, read_only_json
from proctor.service.verification.shared.resources import Paging, Records, Transaction, reading, writing
from proctor.simulators.ports import Desk, find_simulator
from proctor.simulators.rows import Draft, SandboxClosed, SandboxFull
from proctor.simulators.seeds import describe_spec_error, find_kind
from proctor.store.accounts.sandboxes import find_heads, query_events
from proctor.store.sql.compressed_json import unpack
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import sandbox_events

EVENT = Resource(
    kind="event",
    prefix="ev",
    name="SandboxEvent",
    about="An event in a sandbox: a request, or a step of a scenario.",
    stamped=False,
    fields={
        "sandbox_id": read_only_id("sandbox", "its sandbox"),
        "number": read_only("integer", "counts from 1"),
        "type": read_only("string", "request, step, or hl7_outbound for an HL7 message that was sent"),
        "system": read_only("string", "the kind of system"),
        "method": read_only("string", "method of a request", null=True),
        "path": read_only("string", "path of a request below the system, with its query", null=True),
        "status": read_only("integer", "status of the response", null=True),
        "body": read_only_json("the request body: JSON or text, shortened"),
        "response": read_only_json("the response body, likewise"),
        "inside": read_only_json("for a request with inner requests (a FHIR batch): method, path and status of each"),
        "duration_ms": read_only("number", "duration of the response", null=True),
        "step": read_only("string", "name of a step", null=True),
        "given": read_only_json("arguments of a step"),
        "error": read_only("string", "why a step failed", null=True),
        "created_at": read_only("string", "when it happened"),
    },
    parent="sandbox_id",
)
_STATE = Shape(
    "SandboxState",
    "The state of a sandbox, as checks read it.",
    {
        "sandbox_id": read_only_id("sandbox"),
        "status": SANDBOX.fields["status"],
        "state": read_only("object", "by family, in the format of uploads"),
    },
)
_PLACES = "each with `system`, `place`, `before` and `after`"
_DIFF = Shape(
    "SandboxDiff",
    "Changes in a sandbox since its start.",
    {
        "sandbox_id": read_only_id("sandbox"),
        "added": read_only("array", f"added items, {_PLACES}"),
        "changed": read_only("array", f"changed items, {_PLACES}"),
        "removed": read_only("array", f"removed items, {_PLACES}"),
    },
)
_TRIES = 20


@Operation(SANDBOX, "GET /sandboxes/{sandbox_id}/events", gives=EVENT.summary, pages=True, tool="events")
async def list_sandbox_events(hub: Hub, caller: Caller, id: str, **paging: Unpack[Paging]) -> Records:
    """List the events of a sandbox, newest first."""
    async with reading(hub, caller) as tx:
        await tx.require("sandbox", id)
        page = await fetch_page_or_refuse(tx.connection, query_events(id), sandbox_events, **paging)
    return show_page(page, _show_event)


@Operation(SANDBOX, "GET /sandboxes/{sandbox_id}/state", gives=_STATE, large=True, tool="state")
async def get_sandbox_state(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read the state of a sandbox, also after teardown."""
    row, head = await _find_live(hub, caller, id)
    end_state = await read_end_state(hub, [head])
    state = {name: value for name, value in msgspec.to_builtins(end_state.state).items() if name not in ("requests", "changes", "systems")}
    return {"sandbox_id": id, "status": row["body"]["status"], "state": state}


@Operation(SANDBOX, "GET /sandboxes/{sandbox_id}/diff", gives=_DIFF, large=True, tool="diff")
async def diff_sandbox(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read the changes in a sandbox since its start, also after teardown."""
    _, head = await _find_live(hub, caller, id)
    end_state = await read_end_state(hub, [head])
    answer: dict[str, Json] = {"sandbox_id": id, "added": [], "changed": [], "removed": []}
    for change in end_state.state.changes or ():
        shown: dict[str, Json] = msgspec.to_builtins(change)
        answer[shown.pop("change")].append(shown)
    return answer


@Operation(SANDBOX, "POST /sandboxes/{sandbox_id}/reset", gives=SANDBOX.whole, tool="reset")
async def reset_sandbox(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Reset a sandbox to its initial state; its events stay."""
    row, head = await _find_live(hub, caller, id)
    refuse_torn_down(row)
    async with hub.sandbox_turns.get(id):
        try:
            await open_store(hub, head["organization_id"]).reset(id)
        except SandboxClosed:
            raise Refusal("CONFLICT", "the sandbox has already been torn down") from None
    async with writing(hub, caller) as tx:
        await tx.note("reset", "sandbox", id)
    return SANDBOX.show(row)


@Operation(SANDBOX, "POST /sandboxes/{sandbox_id}/datasets/{dataset_id}", gives=DATASET.summary, creates=True, tool="addDataset")
async def add_dataset(hub: Hub, caller: Caller, id: str, dataset_id: str) -> dict[str, Json]:
    """Add a branch of a dataset to a sandbox, as part of its initial data, and read the branch."""
    await close_overdue(hub, caller)
    async with reading(hub, caller) as tx:
        refuse_torn_down(await tx.require("sandbox", id))
        dataset = await tx.require("dataset", dataset_id)
        if any(branch["body"].get("parent_id") == dataset_id for branch in await _list_branches(tx, id)):
            raise Refusal("CONFLICT", "the sandbox already has a branch of this dataset")
        head = (await find_heads(tx.connection, [id])).get(id)
        blob = await tx.read_blob(dataset_id)
        if head is not None and find_kind(dataset["body"]["type"]) != head["kind"]:
            raise Refusal("CONFLICT", f"a dataset of type {dataset['body']['type']} cannot be added to a system of kind {head['kind']}")
    # Between two transactions, since it may take long. A sandbox that is not seeded yet gets it later.
    if head is not None and blob is not None:
        await _fill(hub, head, dataset_id, blob)
    async with writing(hub, caller) as tx:
        await tx.require("sandbox", id, lock=True)
        branch = await tx.add(DATASET, {**dataset["body"], "parent_id": dataset_id}, blob=await tx.read_blob(dataset_id))
        await tx.link(id, BRANCHES, branch["id"])
        return DATASET.show(branch)


@Operation(SANDBOX, "DELETE /sandboxes/{sandbox_id}/datasets/{dataset_id}", tool="removeDataset")
async def remove_dataset(hub: Hub, caller: Caller, id: str, dataset_id: str) -> None:
    """Remove a dataset (by its id or that of its branch) from a sandbox; the branch is deleted, its data stays in the sandbox."""
    async with writing(hub, caller) as tx:
        await tx.require("sandbox", id, lock=True)
        for branch in await _list_branches(tx, id):
            if dataset_id in (branch["id"], branch["body"].get("parent_id")):
                entities = await tx.children("entity", branch["id"])
                await tx.delete([branch["id"], *(row["id"] for row in entities)])
                return
        raise not_found("dataset of this sandbox", dataset_id)


async def _fill(hub: Hub, head: Row, dataset_id: str, blob: bytes) -> None:
    store = open_store(hub, head["organization_id"])
    simulator = find_simulator(head["kind"])
    async with hub.sandbox_turns.get(head["id"]):
        await perform_due_steps(hub, store, head)
        for _ in range(_TRIES):
            snapshot = await store.load(head["id"])
            draft = Draft(snapshot.rows, head["kind"])
            try:
                await asyncio.to_thread(lambda: simulator.seed(unpack(blob), Desk(draft, make_surroundings(hub))))  # noqa: B023 - awaited at once
                event: dict[str, Json] = {"system": head["kind"], "step": "add_dataset", "given": dataset_id}
                if await store.advance(head["id"], snapshot.revision, draft.list_changes(), event):
                    return
            except SpecError as error:
                raise Refusal("CONFLICT", f"the dataset is invalid for the sandbox: {describe_spec_error(error)}") from None
            except SandboxClosed:
                raise Refusal("CONFLICT", "the sandbox has already been torn down") from None
            except SandboxFull as error:
                raise Refusal("CONFLICT", f"{error} (--sandbox-rows, --sandbox-bytes)") from None
    raise Refusal("CONFLICT", "the sandbox keeps changing; try again later")


async def _find_live(hub: Hub, caller: Caller, id: str) -> tuple[Row, Row]:
    await close_overdue(hub, caller)
    async with reading(hub, caller) as tx:
        row = await tx.require("sandbox", id)
        head = (await find_heads(tx.connection, [id])).get(id)
    if head is None:
        reason = "it is seeded when its task run starts" if row["body"]["status"] == "provisioning" else "its type is not simulated"
        raise Refusal("CONFLICT", f"the sandbox has no data: {reason}")
    return row, head


async def _list_branches(tx: Transaction, id: str) -> list[Row]:
    return (await tx.linked(BRANCHES, [id], "dataset"))[id]


def _show_event(row: Row) -> dict[str, Json]:
    event: dict[str, Json] = unpack(row["body"])
    shown: dict[str, Json] = dict.fromkeys(EVENT.fields)
    own = {"id": row["id"], "sandbox_id": row["sandbox_id"], "number": row["number"], "created_at": row["created_at"]}
    event = {name: value for name, value in event.items() if name in shown}
    # The only type of event that Verial names.
    kind = "hl7_outbound" if [event.get(name) for name in ("system", "method", "path")] == ["hl7", "POST", "/outbound"] else "request"
    return {**shown, **event, **own, "type": "step" if row["by_itself"] else kind}
