"""Measures the suite of an ended run: faults are planted in its passing attempts, and decided again."""

from __future__ import annotations

import asyncio
from collections import Counter

from proctor.errors import InputError
from proctor.model.mutation import MutationResult
from proctor.model.run import RunEntry
from proctor.service.access.callers import Caller
from proctor.service.decisions.messages import MutationWork, pack_plain, unpack_plain
from proctor.service.decisions.pool import run_while_client_waits
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.resource import operation
from proctor.service.runs.building import source_of
from proctor.service.runs.figures import find_finished_key
from proctor.service.runs.requests import find_run
from proctor.store.runs.run_rows import iterate_entries

MOST_ATTEMPTS = 2
"""Attempts of a case that get faults."""
_MOST_RECORDS = 300
_MOST_BYTES = 30_000_000
"""Of the evidence that is sent to the decision process."""


@operation("runs", "GET /api/runs/{run_id}/mutation")
async def measure_run(hub: Hub, caller: Caller, id: str) -> MutationResult:
    """Plant faults in the passing attempts of an ended run, and count which of them its suite detects; calls no agent and no judge."""
    async with hub.database.reading() as connection:
        run = await find_run(connection, caller, id)
        finished = find_finished_key(run)
        if finished is None:
            raise Refusal("CONFLICT", "the run has not ended", hint="measure the suite after the run")
        known: MutationResult | None = hub.run_facts.get(("mutation", finished))
        if known is not None:
            return known
        packed: list[bytes] = []
        counts: Counter[str] = Counter()
        async for entry in iterate_entries(connection, run["id"]):
            if _is_wanted(entry, counts):
                packed.append(await asyncio.to_thread(pack_plain, entry))
            if len(packed) >= _MOST_RECORDS or sum(map(len, packed)) > _MOST_BYTES:
                break
    source = source_of(run)
    work = MutationWork(suite=source.make_key, entries=packed)
    asking = hub.decisions.answers((caller.organization_id, caller.actor), [work], {source.make_key: source})
    (answer,) = await run_while_client_waits(asking)
    if answer.error is not None:
        raise InputError(f"the suite cannot be measured: {answer.error[1]}")
    found = unpack_plain(answer.evidence[0], MutationResult)
    hub.run_facts.put(("mutation", finished), found, 1)
    return found


def _is_wanted(entry: RunEntry, counts: Counter[str]) -> bool:
    if entry.outcome != "pass" or entry.evidence is None or counts[entry.case] >= MOST_ATTEMPTS:
        return False
    counts[entry.case] += 1
    return True
