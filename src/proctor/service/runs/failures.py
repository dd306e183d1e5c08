"""What went wrong in a run of the service, grouped by reason."""

from __future__ import annotations

import asyncio

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.history.failures import MOST_LOOKED_AT, Failures, group_failures
from proctor.model.run import RunEntry
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.runs.finished import find_fact
from proctor.service.runs.requests import find_run
from proctor.service.runs.results import suite_of_run
from proctor.store.runs.entry_digests import DIGEST, read_digest
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import run_entries


async def group_run_failures(hub: Hub, caller: Caller, id: str) -> Failures:
    """Return what went wrong in a run so far; of very many failures the newest."""

    async def work_out(connection: AsyncConnection, run: Row) -> Failures:
        # Only now with the suite, which may be megabytes.
        return await find_failures(connection, await find_run(connection, caller, run["id"]))

    return await find_fact(hub, caller, id, "failures", work_out)


async def find_failures(connection: AsyncConnection, run: Row) -> Failures:
    """Return the same, worked out from the attempts of a run that is given with its suite."""
    found: list[Row] = []
    for outcome in ("error", "fail"):
        query = sa.select(run_entries.c.id, run_entries.c.created_at, *DIGEST)
        query = query.where(run_entries.c.run_id == run["id"], run_entries.c.outcome == outcome)
        newest = query.order_by(run_entries.c.created_at.desc(), run_entries.c.id.desc()).limit(MOST_LOOKED_AT + 1)
        found += [dict(row) for row in (await connection.execute(newest)).mappings()]
    return await asyncio.to_thread(_group_rows, run, found)


def _group_rows(run: Row, found: list[Row]) -> Failures:
    found.sort(key=lambda row: (row["created_at"], row["id"]), reverse=True)
    entries: list[tuple[str, RunEntry]] = [(row["id"], read_digest(row)) for row in found[:MOST_LOOKED_AT]]
    cases = {case.id: case for case in suite_of_run(run).cases}
    return group_failures(entries, cases, more=len(found) > MOST_LOOKED_AT)
