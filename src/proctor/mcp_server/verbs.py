"""From the verbs of the service to actions of a tool: what they have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from proctor.mcp_server.tool import Action, Desk
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub

Given = Mapping[str, Json]
Record = dict[str, Json]
List = Callable[..., Awaitable[Record]]
Create = Callable[[Hub, Caller, Given], Awaitable[Record]]
Get = Callable[[Hub, Caller, str], Awaitable[Record]]
Update = Callable[[Hub, Caller, str, Given], Awaitable[Record]]
Delete = Callable[[Hub, Caller, str], Awaitable[None]]


def listing(verb: List, *parents: str, does: str) -> Action:
    """A page of records; `parents` are filters by the id of what they belong to."""

    async def call(desk: Desk, given: Record) -> Record:
        return await verb(desk.hub, desk.caller, **given)

    return Action(call=call, does=does, takes=(*parents, "limit", "cursor"), reads=True)


def creating(verb: Create, *takes: str, does: str) -> Action:
    """A new record."""

    async def call(desk: Desk, given: Record) -> Record:
        return await verb(desk.hub, desk.caller, given)

    return Action(call=call, does=does, takes=takes)


def getting(verb: Get, does: str) -> Action:
    """One record."""

    async def call(desk: Desk, given: Record) -> Record:
        return await verb(desk.hub, desk.caller, given["id"])

    return Action(call=call, does=does, takes=("id!",), reads=True)


def doing(verb: Get, does: str) -> Action:
    """Something that happens to one record."""

    async def call(desk: Desk, given: Record) -> Record:
        return await verb(desk.hub, desk.caller, given["id"])

    return Action(call=call, does=does, takes=("id!",))


def updating(verb: Update, *takes: str, does: str) -> Action:
    """A changed record; null clears what may be empty."""

    async def call(desk: Desk, given: Record) -> Record:
        id = given.pop("id")
        return await verb(desk.hub, desk.caller, id, given)

    return Action(call=call, does=does, takes=("id!", *takes), clears=True)


def deleting(verb: Delete, does: str) -> Action:
    """A record that is gone."""

    async def call(desk: Desk, given: Record) -> Record:
        await verb(desk.hub, desk.caller, given["id"])
        return {"id": given["id"], "deleted": True}

    return Action(call=call, does=does, takes=("id!",))
