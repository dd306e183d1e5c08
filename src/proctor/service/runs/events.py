"""What happens in a run, told as it happens, from any point on.

Events are read from the database, a bounded number at a time and as fast as the reader takes them: nothing is kept in memory for anybody,
and a reader that is slow, or comes back later with the number of the last event it saw, misses nothing. The run never waits for a reader.

    queued      attempts                    it waits
    running     attempts, finished, claims  a worker took it up
    started     case, attempt               the agent is asked
    retrying    case, attempt, message      a fault of the transport; it is tried again
    slowed      case, attempt, message      the other side is overloaded
    finished    case, attempt, outcome, score, code, reason, duration_ms
    waiting     reason                      it was given back to the queue; it goes on later
    cancelling                              its end was asked for
    completed, cancelled, failed            counts, outcome, error: the last event
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.runs.requests import find_run
from proctor.store.runs.run_rows import UNFINISHED, get_last_number, get_status, list_events_after
from proctor.store.sql.pages import Row

LAST = ("completed", "cancelled", "failed")
"""Kinds of the event after which there is none."""
LOOK_EVERY_S = 0.5
"""How soon what happens in another process is seen."""
BEAT_EVERY_S = 15.0
_AT_ONCE = 100


async def find_followed_run(hub: Hub, caller: Caller, id: str, after: int) -> str | None:
    """Return the id of the run if there is anything to tell after an event, or will be. Refused when there is no such run."""
    async with hub.database.reading() as connection:
        run = await find_run(connection, caller, id, document=False)
        more = run["status"] in UNFINISHED or await list_events_after(connection, run["id"], after, limit=1)
    return run["id"] if more else None


async def find_last_event(hub: Hub, caller: Caller, id: str) -> tuple[str, int]:
    """Return the id of a run and the number of its last event so far, for who wants to know what happens from there on."""
    async with hub.database.reading() as connection:
        run = await find_run(connection, caller, id, document=False)
        # By its own id: `id` may be a word such as `latest`, which no event has, and which means another run soon.
        return run["id"], await get_last_number(connection, run["id"])


async def events(
    hub: Hub, id: str, after: int, *, stopping: Callable[[], bool], beat_every_s: float = BEAT_EVERY_S
) -> AsyncIterator[dict[str, Json] | None]:
    """Events of a run after a number, until it has ended; None when nothing happened for a while. Who may see the run is asked before."""
    quiet = 0.0
    # Watched before the first look: what happens between a look and the wait wakes it.
    with hub.run_signals.watch(id) as watch:
        while not stopping():
            async with hub.database.reading() as connection:
                # One moment of both: a run that has ended then has all its events.
                status = await get_status(connection, id)
                found = await list_events_after(connection, id, after, limit=_AT_ONCE)
            for row in found:
                after = row["number"]
                quiet = 0.0
                yield _show_event(row)
                if row["kind"] in LAST:
                    return
            # There may be more than one page of them; who reads slowly is not made to wait in between.
            if found:
                continue
            if status not in UNFINISHED:
                return
            await watch.wait(min(LOOK_EVERY_S, beat_every_s))
            quiet += LOOK_EVERY_S
            if quiet >= beat_every_s:
                quiet = 0.0
                yield None


def _show_event(row: Row) -> dict[str, Json]:
    return {"id": row["number"], "kind": row["kind"], "at": row["at"], **(row["body"] or {})}
