"""What was found out about runs that have ended is remembered: nothing is added to them any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Literal, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.runs.figures import read_facts
from proctor.service.runs.requests import find_run
from proctor.store.runs.run_rows import UNFINISHED
from proctor.store.sql.pages import Row

Fact = TypeVar("Fact")
WorkOut = Callable[[AsyncConnection, Row], Awaitable[Fact]]


def find_finished_key(*rows: Row) -> Hashable:
    """Return the key under which something about these runs is remembered; None where one of them goes on."""
    if any(row["status"] in UNFINISHED for row in rows):
        return None
    # Beside the id whatever a person may still change, which comparisons say too.
    return tuple((row["id"], row["status"], row["updated_at"], row["name"], row["tags"], row["note"]) for row in rows)


async def find_fact(hub: Hub, caller: Caller, id: str, name: Literal["failures", "latency"], work_out: WorkOut[Fact]) -> Fact:
    """Return something about a run; of one that has ended as it was kept or is remembered, else worked out from its attempts."""
    async with hub.database.reading() as connection:
        run = await find_run(connection, caller, id, document=False)
        finished = find_finished_key(run)
        known: Fact | None = None if finished is None else hub.run_facts.get((name, finished))
        if known is not None:
            return known
        kept = None if finished is None else await read_facts(connection, run["id"])
        found: Fact = getattr(kept, name) if kept is not None else await work_out(connection, run)
    if finished is not None:
        hub.run_facts.put((name, finished), found, 1)
    return found
