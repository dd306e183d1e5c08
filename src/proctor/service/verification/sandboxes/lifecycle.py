"""The lifecycle of sandboxes: seeded when provisioned; closed by request, at the end of their run, or when they expire.

Slow work (reading datasets, seeding) happens before the writing transaction. The token of a sandbox is a key: hashed, shown once, revoked
when the sandbox is closed. Events and the end state stay readable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import exception_text
from proctor.service.access.callers import Caller
from proctor.service.access.keys import KeySpec, issue_key
from proctor.service.hub import Hub, stamp
from proctor.service.refusals import Refusal
from proctor.service.verification.authoring.seeding import Baseline, SeedSources, get_limits, make_baseline, make_surroundings
from proctor.simulators.ports import Desk, find_simulator
from proctor.simulators.rows import Change, Draft, Rows, apply_changes
from proctor.simulators.seeds import ScenarioStep, describe_spec_error, find_kind
from proctor.store.accounts.keys import revoke_keys_of_sandboxes
from proctor.store.accounts.sandboxes import DatabaseStore, NewSandbox, add_sandbox, close_sandboxes, count_open
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import read_blob


class PreparedSystem(msgspec.Struct, frozen=True, kw_only=True):
    """A seeded system for a sandbox."""

    kind: str
    baseline: Baseline


def open_store(hub: Hub, organization_id: str) -> DatabaseStore:
    """Return the sandbox store of an organization."""
    return DatabaseStore(hub.database, hub.sandbox_rows, organization_id=organization_id, now=hub.now, limits=get_limits(hub))


async def read_seed_sources(connection: AsyncConnection, caller: Caller, simulator: Row, datasets: Sequence[Row]) -> SeedSources | None:
    """Return the sources of a sandbox's initial data: datasets of its type; None if its type is not simulated."""
    kind = find_kind(simulator["body"]["type"])
    if kind is None:
        return None
    named_datasets: list[tuple[str, bytes]] = []
    for dataset in datasets:
        blob = await read_blob(connection, caller.organization_id, dataset["id"]) if find_kind(dataset["body"]["type"]) == kind else None
        if blob is not None:
            named_datasets.append((f"the dataset {dataset['id']!r}", blob))
    return SeedSources(kind=kind, config=simulator["body"].get("config"), datasets=tuple(named_datasets))


async def prepare(hub: Hub, fillings: Sequence[SeedSources | None]) -> list[PreparedSystem | None]:
    """Seed systems, in order. Raises `Refusal` for invalid data."""
    return [
        None if filling is None else PreparedSystem(kind=filling.kind, baseline=await make_baseline(hub, filling)) for filling in fillings
    ]


async def provision(
    connection: AsyncConnection,
    hub: Hub,
    caller: Caller,
    sandbox: str,
    prepared: PreparedSystem,
    *,
    steps: Sequence[ScenarioStep] = (),
    benchmark_run_id: str | None = None,
    timeout_s: float | None = None,
) -> None:
    """Put a system into a sandbox and make it reachable. Raises `Refusal` above the limit."""
    if await count_open(connection, caller.organization_id) >= hub.settings.sandboxes:
        raise Refusal(
            "CONFLICT",
            # The next step is part of the message, since Verial's clients get nothing else.
            f"{hub.settings.sandboxes} sandboxes are active, which is the limit (--sandboxes): tear some down, or complete their task runs",
            hint="sandboxes {action: list}, then sandboxes {action: teardown}",
        )
    kind_steps = [step for step in steps if step.kind == prepared.kind]
    lifetime_s = hub.settings.sandbox_hours * 3600
    new = NewSandbox(
        id=sandbox,
        organization_id=caller.organization_id,
        kind=prepared.kind,
        rows=prepared.baseline.rows,
        packed=prepared.baseline.packed,
        happened=await asyncio.to_thread(_perform_at_once, hub, prepared, [step for step in kind_steps if step.after_s == 0]),
        steps=_schedule(hub, [step for step in kind_steps if step.after_s > 0]),
        benchmark_run_id=benchmark_run_id,
        expires_at=stamp(hub.clock() + min(lifetime_s, lifetime_s if timeout_s is None else timeout_s)),
    )
    await add_sandbox(connection, new, now=hub.now())
    open_store(hub, caller.organization_id).remember(new)


def _perform_at_once(
    hub: Hub, prepared: PreparedSystem, steps: Sequence[ScenarioStep]
) -> tuple[tuple[dict[str, Json], tuple[Change, ...]], ...]:
    rows = prepared.baseline.rows
    performed: list[tuple[dict[str, Json], tuple[Change, ...]]] = []
    for step in steps:
        note, changes = perform_step(hub, prepared.kind, rows, step.step, step.given)
        if "error" in note:
            raise Refusal("CONFLICT", f"the scenario cannot start: {step.step}: {note['error']}")
        rows = apply_changes(rows, changes)
        performed.append((note, changes))
    return tuple(performed)


def _schedule(hub: Hub, steps: Sequence[ScenarioStep]) -> tuple[dict[str, Json], ...]:
    later = sorted(steps, key=lambda step: step.after_s)
    return tuple({"at": stamp(hub.clock() + step.after_s), "step": step.step, "given": step.given} for step in later)


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


async def issue_token(connection: AsyncConnection, hub: Hub, caller: Caller, sandbox: str) -> str:
    """Return a token for a sandbox, which is shown only once."""
    _, token = await issue_key(connection, hub, caller, KeySpec(kind="sandbox", name=f"sandbox {sandbox}", sandbox_id=sandbox))
    return token


async def close(connection: AsyncConnection, hub: Hub, sandboxes: list[str]) -> None:
    """Close sandboxes and revoke their tokens."""
    await close_sandboxes(connection, sandboxes, hub.now())
    hashes = await revoke_keys_of_sandboxes(connection, sandboxes, hub.now())

    def forget_keys() -> None:
        for hash in hashes:
            hub.key_cache.forget(hash)

    # After the commit: a request before it would cache the token as valid.
    hub.database.call_at_end(connection, forget_keys)
