"""What a simulated system holds in the beginning: made of the config of its simulator and of datasets, once for all who begin so.

Nothing that happens in a sandbox reaches a dataset: the rows that are made here are shared by every sandbox that begins with them, and
never changed in place.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Mapping

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.system import System
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.shared.fields import invalid
from proctor.simulators.ports import Desk, Surroundings
from proctor.simulators.registry import find_simulator
from proctor.simulators.rows import NO_ROWS, Draft, Rows, apply_changes, count_rows
from proctor.simulators.store import SandboxFull
from proctor.simulators.type_names import describe_spec_error, find_config_seed, find_kind, join_config
from proctor.store.accounts.sandboxes import SandboxLimits, pack_rows
from proctor.store.sql.compressed_json import to_json, unpack


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """What a system is to be filled with."""

    kind: str
    config: Mapping[str, Json] | None = None
    """Of its simulator."""
    datasets: tuple[tuple[str, bytes], ...] = ()
    """Names, and data as it is kept."""


class Baseline(msgspec.Struct, frozen=True):
    """What a sandbox begins with, and the same as it is kept."""

    rows: Rows
    packed: bytes


def get_limits(hub: Hub) -> SandboxLimits:
    """Return how much one sandbox may hold."""
    return SandboxLimits(rows=hub.settings.sandbox_rows, bytes=hub.settings.sandbox_bytes)


def make_surroundings(hub: Hub) -> Surroundings:
    """Return what the simulated systems of a service get from outside."""
    return Surroundings(now=hub.now, new_id=lambda: secrets.token_hex(8), seconds=time.perf_counter)


async def make_baseline(hub: Hub, filling: Filling) -> Baseline:
    """Return what a system filled so begins with. Raises `Refusal` for data that it cannot hold."""
    key = _name_filling(filling)
    known: Baseline | None = hub.sandbox_baselines.get(key)
    if known is None:
        # One at a time: whoever wants the same gets it then, and the others are not kept waiting by several.
        async with hub.sandbox_baselines.turn:
            known = hub.sandbox_baselines.get(key)
            if known is None:
                known = await asyncio.to_thread(_build_baseline, filling, make_surroundings(hub), get_limits(hub))
                hub.sandbox_baselines.put(key, known, 1 + count_rows(known.rows))
    return known


def _name_filling(filling: Filling) -> str:
    digest = hashlib.sha256(to_json([filling.kind, filling.config]))
    for _, blob in filling.datasets:
        # Each hashed by itself: simply joined, different datasets could come to the same bytes.
        digest.update(hashlib.sha256(blob).digest())
    return digest.hexdigest()


def _build_baseline(filling: Filling, around: Surroundings, limits: SandboxLimits) -> Baseline:
    """Fill a system. Takes long for many rows."""
    simulator = find_simulator(filling.kind)
    draft = Draft(NO_ROWS, filling.kind)
    seeds = join_config(filling.kind, filling.config, [unpack(blob) for _, blob in filling.datasets])
    # Names of what the seeds come from, from the last on: a config has none.
    names = [*("the config of the simulator" for _ in range(len(seeds) - len(filling.datasets))), *(name for name, _ in filling.datasets)]
    for name, seed in zip(names, seeds, strict=True):
        try:
            simulator.seed(seed, Desk(draft, around))
        except SpecError as error:
            told = f"{name} cannot be put into a system of kind {filling.kind}: {describe_spec_error(error)}"
            raise Refusal("CONFLICT", told) from None
    rows = apply_changes(NO_ROWS, draft.list_changes())
    try:
        return Baseline(rows, pack_rows(rows, limits))
    except SandboxFull as error:
        raise Refusal("CONFLICT", f"{error} (--sandbox-rows, --sandbox-bytes)") from None


async def check_config(hub: Hub, body: Mapping[str, Json]) -> None:
    """Refuse a simulator whose config cannot fill a system of its type."""
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
            told = f"{name}: the service opens no port for {name.upper()}, only `proctor run` does; leave it out, and let agents use HTTP"
            raise invalid("simulator", {"config": [told]})
