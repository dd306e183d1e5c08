"""Figures of a run for pages and comparisons, computed once at its end and stored with it.

Without stored figures (a run in progress, earlier versions, a worker that died) they are computed on request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Literal, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.history.failures import MOST_LOOKED_AT, Failures, group_failures
from proctor.actions.history.overview import Latency, describe_latency
from proctor.actions.workspace.run_tally import RunTally, RunTotals, StoredTally, restore_tally, shorten_tally
from proctor.errors import InputError, StoreError
from proctor.model.mutation import MutationResult
from proctor.model.run import RunEntry
from proctor.model.typed import make_json_decoder
from proctor.service.access.callers import Caller
from proctor.service.access.transactions import Transaction, reading
from proctor.service.decisions.messages import MutationWork, pack_plain, unpack_plain
from proctor.service.decisions.pool import run_while_client_waits
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.resource import operation
from proctor.service.runs.building import source_of
from proctor.service.runs.names import find_run
from proctor.service.runs.results import suite_of_run
from proctor.store.runs.entry_digests import DIGEST, read_digest, tally_digests
from proctor.store.runs.run_rows import UNFINISHED, iterate_entries
from proctor.store.sql.compressed_json import compress_bytes, expand_bytes, to_json
from proctor.store.sql.pages import Row, fetch_all
from proctor.store.sql.queries import insert_or_ignore
from proctor.store.sql.tables import run_entries, run_figures

_VERSION = 2
"""Version of the stored shape; other versions are ignored."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The stored figures of an ended run, for its page and for columns of the run list."""

    version: int = _VERSION
    failures: Failures
    latency: Latency
    totals: RunTotals


class _Tally(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 0
    tally: StoredTally


Stored = TypeVar("Stored", RunFacts, _Tally)
_FACTS = make_json_decoder(RunFacts)
_TALLY = make_json_decoder(_Tally)


async def tally_run(connection: AsyncConnection, run_id: str) -> RunTally:
    """Return the tally of a run, added up from its attempts."""
    tally = RunTally()
    await tally_digests(connection, run_id, tally.add_all)
    return tally


async def store_figures(connection: AsyncConnection, run_id: str, tally: RunTally, facts: RunFacts) -> None:
    """Store the figures of an ended run."""
    parts = {"facts": facts, "tally": _Tally(version=_VERSION, tally=shorten_tally(tally))}
    packed = await asyncio.to_thread(lambda: {name: compress_bytes(to_json(part)) for name, part in parts.items()})
    await connection.execute(insert_or_ignore(connection, run_figures, {"run_id": run_id, **packed}, key=["run_id"]))


async def read_facts(connection: AsyncConnection, run_id: str) -> RunFacts | None:
    """Return the figures on the page of a run; None if not stored or unreadable."""
    body = (await connection.execute(sa.select(run_figures.c.facts).where(run_figures.c.run_id == run_id))).scalar_one_or_none()
    return None if body is None else _decode_stored(_FACTS, body)


async def read_tally(connection: AsyncConnection, run_id: str) -> RunTally | None:
    """Return the tally of a run; None if not stored or unreadable."""
    body = (await connection.execute(sa.select(run_figures.c.tally).where(run_figures.c.run_id == run_id))).scalar_one_or_none()
    stored = None if body is None else await asyncio.to_thread(_decode_stored, _TALLY, body)
    return None if stored is None else restore_tally(stored.tally)


def _decode_stored(decoder: msgspec.json.Decoder[Stored], body: bytes) -> Stored | None:
    try:
        stored = decoder.decode(expand_bytes(body))
    except (msgspec.MsgspecError, StoreError, RecursionError):
        # It can be computed again from the attempts.
        return None
    return stored if stored.version == _VERSION else None


Fact = TypeVar("Fact")
WorkOut = Callable[[Transaction, Row], Awaitable[Fact]]


def find_finished_key(*rows: Row) -> Hashable:
    """Return the cache key of these runs; None if one of them is unfinished."""
    if any(row["status"] in UNFINISHED for row in rows):
        return None
    # With the fields that a user may still change, which comparisons show.
    return tuple((row["id"], row["status"], row["updated_at"], row["name"], row["tags"], row["note"]) for row in rows)


async def find_fact(hub: Hub, caller: Caller, id: str, name: Literal["failures", "latency", "totals"], work_out: WorkOut[Fact]) -> Fact:
    """Return a figure of a run: as stored at its end, else computed from its attempts."""
    async with reading(hub, caller) as tx:
        run = await find_run(tx, id, document=False)
        stored = None if run["status"] in UNFINISHED else await read_facts(tx.connection, run["id"])
        return getattr(stored, name) if stored is not None else await work_out(tx, run)


@operation("runs", "GET /api/runs/{run_id}/totals")
async def read_totals(hub: Hub, caller: Caller, id: str) -> RunTotals:
    """Add up a run: cases and how many passed, tokens, cost."""

    async def work_out(tx: Transaction, run: Row) -> RunTotals:
        tally, whole = await tally_run(tx.connection, run["id"]), await find_run(tx, run["id"])
        return await asyncio.to_thread(lambda: tally.add_up(suite_of_run(whole)))

    return await find_fact(hub, caller, id, "totals", work_out)


async def list_facts(hub: Hub, ids: Sequence[str]) -> dict[str, RunFacts]:
    """Return the stored figures of runs that the caller may see, by id: only ended runs have them."""
    query = sa.select(run_figures.c.run_id, run_figures.c.facts).where(run_figures.c.run_id.in_(ids))
    async with hub.database.reading() as connection:
        rows = (await connection.execute(query)).all()
    decoded = await asyncio.to_thread(lambda: [(id, _decode_stored(_FACTS, body)) for id, body in rows])
    return {id: facts for id, facts in decoded if facts is not None}


# --- failures of a run, grouped by reason


@operation("runs", "GET /api/runs/{run_id}/failures")
async def group_run_failures(hub: Hub, caller: Caller, id: str) -> Failures:
    """Group the failures of a run by reason, ignoring numbers and quoted values."""

    async def work_out(tx: Transaction, run: Row) -> Failures:
        # Now with the suite, which may be megabytes.
        return await find_failures(tx.connection, await find_run(tx, run["id"]))

    return await find_fact(hub, caller, id, "failures", work_out)


async def find_failures(connection: AsyncConnection, run: Row) -> Failures:
    """Return the failures, computed from the attempts of a run with its suite."""
    failed: list[Row] = []
    for outcome in ("error", "fail"):
        query = sa.select(run_entries.c.id, run_entries.c.created_at, *DIGEST)
        query = query.where(run_entries.c.run_id == run["id"], run_entries.c.outcome == outcome)
        newest = query.order_by(run_entries.c.created_at.desc(), run_entries.c.id.desc()).limit(MOST_LOOKED_AT + 1)
        failed += await fetch_all(connection, newest)
    return await asyncio.to_thread(_group_rows, run, failed)


def _group_rows(run: Row, failed: list[Row]) -> Failures:
    failed.sort(key=lambda row: (row["created_at"], row["id"]), reverse=True)
    entries: list[tuple[str, RunEntry]] = [(row["id"], read_digest(row)) for row in failed[:MOST_LOOKED_AT]]
    cases = {case.id: case for case in suite_of_run(run).cases}
    return group_failures(entries, cases, more=len(failed) > MOST_LOOKED_AT)


MOST_READ = 400
"""Attempts that are read."""
_STRETCHES = 16
"""Places of a long run at which some attempts are read."""


@operation("runs", "GET /api/runs/{run_id}/latency")
async def measure_latency(hub: Hub, caller: Caller, id: str) -> Latency:
    """Measure the durations of the attempts of a run; a long run is sampled."""

    async def work_out(tx: Transaction, run: Row) -> Latency:
        return await find_latency(tx.connection, run["id"], sum((run["counts"] or {}).values()))

    return await find_fact(hub, caller, id, "latency", work_out)


async def find_latency(connection: AsyncConnection, run_id: str, total: int) -> Latency:
    """Return the durations, computed from the `total` attempts of a run."""
    rows = await _read_rows(connection, run_id, total)
    durations = await asyncio.to_thread(lambda: [read_digest(row).find_agent_ms() for row in rows])
    return describe_latency(durations, total, is_sample=total > MOST_READ)


async def _read_rows(connection: AsyncConnection, run_id: str, total: int) -> list[Row]:
    order = (run_entries.c.created_at, run_entries.c.id)
    query = sa.select(*DIGEST).where(run_entries.c.run_id == run_id).order_by(*order)
    if total <= MOST_READ:
        return await fetch_all(connection, query.limit(MOST_READ))
    rows: list[Row] = []
    places = sa.select(*order).where(run_entries.c.run_id == run_id).order_by(*order)
    each = MOST_READ // _STRETCHES
    begin: tuple[str, str] | None = None
    for _ in range(_STRETCHES):
        # The next place is found by the index alone; only the sampled attempts are read.
        position = sa.tuple_(*order)
        after = query if begin is None else query.where(position >= sa.tuple_(*map(sa.literal, begin)))
        rows += await fetch_all(connection, after.limit(each))
        rest = places if begin is None else places.where(position >= sa.tuple_(*map(sa.literal, begin)))
        following = (await connection.execute(rest.offset(max(each, total // _STRETCHES)).limit(1))).first()
        if following is None:
            break
        begin = (following[0], following[1])
    return rows


MOST_ATTEMPTS = 2
"""Attempts of a case that get faults."""
_MOST_RECORDS = 300
_MOST_BYTES = 30_000_000
"""Of the evidence that is sent to the decision process."""


@operation("runs", "GET /api/runs/{run_id}/mutation")
async def measure_run(hub: Hub, caller: Caller, id: str) -> MutationResult:
    """Plant faults in the passing attempts of an ended run, and count which of them its suite detects; calls no agent and no judge."""
    async with reading(hub, caller) as tx:
        run = await find_run(tx, id)
        finished = find_finished_key(run)
        if finished is None:
            raise Refusal("CONFLICT", "the run has not ended", hint="measure the suite after the run")
        known: MutationResult | None = hub.mutations.get(finished)
        if known is not None:
            return known
        packed: list[bytes] = []
        counts: Counter[str] = Counter()
        async for entry in iterate_entries(tx.connection, run["id"]):
            if entry.outcome == "pass" and entry.evidence is not None and counts[entry.case] < MOST_ATTEMPTS:
                counts[entry.case] += 1
                packed.append(await asyncio.to_thread(pack_plain, entry))
            if len(packed) >= _MOST_RECORDS or sum(map(len, packed)) > _MOST_BYTES:
                break
    source = source_of(run)
    work = MutationWork(suite=source.make_key, entries=packed)
    asking = hub.decisions.answers((caller.organization_id, caller.actor), [work], {source.make_key: source})
    (answer,) = await run_while_client_waits(asking)
    if answer.error is not None:
        raise InputError(f"the suite cannot be measured: {answer.error[1]}")
    measured = unpack_plain(answer.evidence[0], MutationResult)
    hub.mutations.put(finished, measured, 1)
    return measured
