"""The event feed of the traces of a project.

    received    a new trace
    decided     a case was decided on a trace: case, outcome, code

Events are not stored: both kinds are queried by creation time. The id of an event is that time and the id of its row, so that a reader can
continue after it. Rows are sent with a delay, because two servers may commit in another order. A case that is decided again on the same
trace sends no event.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable

import msgspec
import sqlalchemy as sa

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_visible
from proctor.service.access.projects import get_project
from proctor.service.hub import Hub, stamp
from proctor.service.refusals import Refusal
from proctor.store.sql.pages import fetch_all
from proctor.store.sql.tables import results, traces

LOOK_EVERY_S = 1.0
SETTLED_S = 2.0
"""Age in seconds at which a row is sent: everything written before it has been committed by then."""
BEAT_EVERY_S = 15.0
_AT_ONCE = 200
_CURSOR = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)(?:,((?:trc|res)_[0-9A-Za-z_]{1,60}))?", re.ASCII)
_RECEIVED = ("id", "agent_id", "external_id", "status", "input_text", "created_at")
_DECIDED = ("id", "agent_id", "trace_id", "case_id", "outcome", "code", "created_at")


class Place(msgspec.Struct, frozen=True):
    """The position of a reader."""

    at: str
    id: str = ""

    def write(self) -> str:
        """Return the id of the last event that was sent."""
        return f"{self.at},{self.id}" if self.id else self.at


class FollowedFeed(msgspec.Struct, frozen=True, kw_only=True):
    """A feed that the caller has access to."""

    caller: Caller
    project_id: str
    agent_id: str | None
    place: Place


async def find_followed_traces(
    hub: Hub, caller: Caller, project_id: str, *, agent_id: str | None = None, after: str | None = None
) -> FollowedFeed:
    """Return the feed of a reader, after an event or from now on. Raises `Refusal`."""
    await get_project(hub, caller, project_id)
    place = Place(find_now(hub)) if not after else read_place(after)
    return FollowedFeed(caller=caller, project_id=project_id, agent_id=agent_id, place=place)


def find_now(hub: Hub) -> str:
    """Return the time up to which events are sent."""
    return stamp(hub.clock() - SETTLED_S)


def read_place(text: str) -> Place:
    """Return the position of an event id. Raises `Refusal`."""
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise Refusal("BAD_REQUEST", "no event has this id", hint="start without an id, and continue from the ids of events")
    return Place(match[1], match[2] or "")


async def follow_traces(
    hub: Hub, followed: FollowedFeed, *, stopping: Callable[[], bool], follow: bool = True, beat_every_s: float = BEAT_EVERY_S
) -> AsyncIterator[dict[str, Json] | None]:
    """Yield events until `stopping`; None as a heartbeat. Without `follow`: only the present events."""
    place, quiet = followed.place, 0.0
    while not stopping():
        events = await _list_events(hub, followed, place)
        for event in events:
            place = read_place(str(event["id"]))
            quiet = 0.0
            yield event
        # There may be more: a slow reader does not wait in between.
        if len(events) >= _AT_ONCE:
            continue
        if not follow:
            return
        await asyncio.sleep(LOOK_EVERY_S)
        quiet += LOOK_EVERY_S
        if quiet >= beat_every_s:
            quiet = 0.0
            yield None


async def _list_events(hub: Hub, followed: FollowedFeed, place: Place) -> list[dict[str, Json]]:
    settled = find_now(hub)
    events: list[dict[str, Json]] = []
    async with hub.database.reading() as connection:
        for kind, table, columns in (("received", traces, _RECEIVED), ("decided", results, _DECIDED)):
            ours = query_visible(table, followed.caller, project_id=followed.project_id, agent_id=followed.agent_id)
            is_later = sa.tuple_(table.c.created_at, table.c.id) > sa.tuple_(sa.literal(place.at), sa.literal(place.id))
            query = ours.with_only_columns(*(table.c[name] for name in columns)).where(is_later, table.c.created_at <= settled)
            for found in await fetch_all(connection, query.order_by(table.c.created_at, table.c.id).limit(_AT_ONCE)):
                row = dict(found)
                at, id = row.pop("created_at"), row.pop("id")
                trace_id = row.pop("trace_id", id)
                events.append({"id": Place(at, id).write(), "kind": kind, "at": at, "trace_id": trace_id, **row})
    events.sort(key=lambda event: str(event["id"]).split(","))
    # Each kind is limited separately, so that only the first of all are certain to be in order.
    return events[:_AT_ONCE]
