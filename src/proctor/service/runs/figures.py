"""What pages and comparisons find out about a run, worked out once when it has ended and kept beside it.

Whoever opens a run of a hundred thousand attempts, or compares two of them, reads a few kilobytes. Runs of earlier versions have none, nor
has one whose worker died in this moment: of them it is worked out when somebody asks, and remembered in memory.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.history.failures import Failures
from proctor.actions.history.latency import Latency
from proctor.actions.workspace.run_tally import RunTally, StoredTally, restore_tally, shorten_tally
from proctor.errors import StoreError
from proctor.model.typed import make_json_decoder
from proctor.store.runs.entry_digests import tally_digests
from proctor.store.sql.compressed_json import compress_bytes, expand_bytes, to_json
from proctor.store.sql.queries import insert_or_ignore
from proctor.store.sql.tables import run_figures

_VERSION = 1
"""Of the shape below. What another version of the program has kept is not read."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the page of a run shows beside its attempts."""

    version: int = 0
    failures: Failures
    latency: Latency


class _Tally(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 0
    tally: StoredTally


Kept = TypeVar("Kept", RunFacts, _Tally)
_FACTS = make_json_decoder(RunFacts)
_TALLY = make_json_decoder(_Tally)


async def tally_run(connection: AsyncConnection, run_id: str) -> RunTally:
    """Return what a run is compared by, added up attempt by attempt."""
    tally = RunTally()
    await tally_digests(connection, run_id, tally.add_all)
    return tally


async def keep_figures(connection: AsyncConnection, run_id: str, tally: RunTally, failures: Failures, latency: Latency) -> None:
    """Keep what was found out about a run that has ended."""
    facts = RunFacts(version=_VERSION, failures=failures, latency=latency)
    row = await asyncio.to_thread(_pack_row, run_id, facts, tally)
    await connection.execute(insert_or_ignore(connection, run_figures, row, key=["run_id"]))


def _pack_row(run_id: str, facts: RunFacts, tally: RunTally) -> dict[str, object]:
    kept = _Tally(version=_VERSION, tally=shorten_tally(tally))
    return {"run_id": run_id, "facts": compress_bytes(to_json(facts)), "tally": compress_bytes(to_json(kept))}


async def read_facts(connection: AsyncConnection, run_id: str) -> RunFacts | None:
    """Return what the page of a run shows; None where it was not kept, or cannot be read."""
    body = await _read_column(connection, run_figures.c.facts, run_id)
    return None if body is None else _decode_kept(_FACTS, body)


async def read_tally(connection: AsyncConnection, run_id: str) -> RunTally | None:
    """Return what a run is compared by; None as above."""
    body = await _read_column(connection, run_figures.c.tally, run_id)
    kept = None if body is None else await asyncio.to_thread(_decode_kept, _TALLY, body)
    return None if kept is None else restore_tally(kept.tally)


async def _read_column(connection: AsyncConnection, column: sa.Column[bytes], run_id: str) -> bytes | None:
    return (await connection.execute(sa.select(column).where(run_figures.c.run_id == run_id))).scalar_one_or_none()


def _decode_kept(decoder: msgspec.json.Decoder[Kept], body: bytes) -> Kept | None:
    try:
        found = decoder.decode(expand_bytes(body))
    except (msgspec.MsgspecError, StoreError, RecursionError):
        # It can be worked out again from the attempts, which are what counts.
        return None
    return found if found.version == _VERSION else None
