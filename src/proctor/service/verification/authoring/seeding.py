"""The initial data of simulated systems, built from the config of the simulator and from datasets.

Rows are built once and shared by all sandboxes with the same initial data; they are never changed in place.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Mapping

import msgspec

from proctor.errors import SpecError
from proctor.model.case import System
from proctor.model.evidence import Json
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.shared.fields import invalid
from proctor.simulators.ports import Desk, Surroundings, find_simulator
from proctor.simulators.rows import NO_ROWS, Draft, Rows, SandboxFull, apply_changes, count_rows
from proctor.simulators.seeds import describe_spec_error, find_config_seed, find_kind, join_config
from proctor.store.accounts.sandboxes import SandboxLimits, pack_rows
from proctor.store.sql.compressed_json import to_json, unpack


class SeedSources(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of a system's initial data."""

    kind: str
    config: Mapping[str, Json] | None = None
    datasets: tuple[tuple[str, bytes], ...] = ()
    """Names and packed data."""


class Baseline(msgspec.Struct, frozen=True):
    """The initial data of a sandbox, also packed."""

    kind: str
    rows: Rows
    packed: bytes


def get_limits(hub: Hub) -> SandboxLimits:
    """Return the limits of one sandbox."""
    return SandboxLimits(rows=hub.settings.sandbox_rows, bytes=hub.settings.sandbox_bytes)


def make_surroundings(hub: Hub) -> Surroundings:
    """Return the clock and ids for simulated systems."""
    return Surroundings(now=hub.now, new_id=lambda: secrets.token_hex(8), seconds=time.perf_counter)


async def make_baseline(hub: Hub, filling: SeedSources) -> Baseline:
    """Return the initial data of a system. Raises `Refusal` for invalid data."""
    digest = hashlib.sha256(to_json([filling.kind, filling.config]))
    for _, blob in filling.datasets:
        # Hashed separately, so that different datasets cannot have the same joined bytes.
        digest.update(hashlib.sha256(blob).digest())
    key = digest.hexdigest()
    known: Baseline | None = hub.sandbox_baselines.get(key)
    if known is None:
        # One at a time: requests for the same data share it, and others are not delayed by several.
        async with hub.sandbox_baselines.turn:
            known = hub.sandbox_baselines.get(key)
            if known is None:
                known = await asyncio.to_thread(_build_baseline, filling, make_surroundings(hub), get_limits(hub))
                hub.sandbox_baselines.put(key, known, 1 + count_rows(known.rows))
    return known


def _build_baseline(filling: SeedSources, around: Surroundings, limits: SandboxLimits) -> Baseline:
    simulator = find_simulator(filling.kind)
    draft = Draft(NO_ROWS, filling.kind)
    seeds = join_config(filling.kind, filling.config, [unpack(blob) for _, blob in filling.datasets])
    # Names of the sources of the seeds; a config has no name.
    names = [*("the config of the simulator" for _ in range(len(seeds) - len(filling.datasets))), *(name for name, _ in filling.datasets)]
    for name, seed in zip(names, seeds, strict=True):
        try:
            simulator.seed(seed, Desk(draft, around))
        except SpecError as error:
            reason = f"{name} is invalid for a system of kind {filling.kind}: {describe_spec_error(error)}"
            raise Refusal("CONFLICT", reason) from None
    rows = apply_changes(NO_ROWS, draft.list_changes())
    try:
        return Baseline(filling.kind, rows, pack_rows(rows, limits))
    except SandboxFull as error:
        raise Refusal("CONFLICT", f"{error} (--sandbox-rows, --sandbox-bytes)") from None


async def check_config(hub: Hub, body: Mapping[str, Json]) -> None:
    """Reject a simulator with an invalid config."""
    kind = find_kind(body["type"])
    seed = None if kind is None else find_config_seed(kind, body.get("config"))
    if kind is None or seed is None:
        return
    try:
        await asyncio.to_thread(find_simulator(kind).seed, seed, Desk(Draft(NO_ROWS, kind), make_surroundings(hub)))
    except SpecError as error:
        raise invalid("simulator", {"config": [describe_spec_error(error)]}) from None
    system = System(name=kind, kind=kind, seed=seed)
    for name, wanted in (("mllp", system.wants_mllp), ("sftp", system.wants_sftp)):
        if wanted:
            reason = f"{name}: the service opens no {name.upper()} port, only `proctor run` does; omit it, and let agents use HTTP"
            raise invalid("simulator", {"config": [reason]})
