"""The end state of a task run that nobody uploaded: what its simulated systems hold, and everything that was asked of them.

It goes the same way as one that was uploaded: what is verified is what is there, and what is told of it shows no secret.
"""

from __future__ import annotations

import asyncio

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.account import Account
from proctor.model.evidence import Evidence, State
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.redaction import redact
from proctor.service.verification.hidden_values import HiddenValues, find_hidden_values
from proctor.service.verification.sandbox_requests import make_stamps, read_end_state
from proctor.service.verification.states import Uploaded
from proctor.store.pages import Row
from proctor.store.records import children
from proctor.store.sandboxes import find_heads


async def read_live_state(hub: Hub, caller: Caller, task_run: Row) -> Uploaded:
    """Return what the systems of a task run hold; evidence without anything in it where it has none, or was never started."""
    async with hub.database.reading() as connection:
        heads = await _list_heads(connection, caller, task_run)
    if not heads:
        return Uploaded(Evidence(), HiddenValues(), ())
    found = await read_end_state(hub, heads)
    account = Account(unplayed=found.unplayed) if found.unplayed else None
    return Uploaded(Evidence(state=found.state, account=account), await asyncio.to_thread(_find_hidden, found.state), found.stamps)


async def read_live_stamps(connection: AsyncConnection, caller: Caller, task_run: Row) -> tuple[str, ...]:
    """Return which moment of its systems a task run would be verified on now."""
    return tuple(make_stamps(await _list_heads(connection, caller, task_run)))


async def _list_heads(connection: AsyncConnection, caller: Caller, task_run: Row) -> list[Row]:
    playground_id = task_run["body"]["playground_id"]
    if playground_id is None:
        return []
    sandboxes = await children(connection, caller.organization_id, "sandbox", playground_id)
    heads = await find_heads(connection, [row["id"] for row in sandboxes])
    return [heads[row["id"]] for row in sandboxes if row["id"] in heads]


def _find_hidden(state: State) -> HiddenValues:
    given = msgspec.to_builtins(state)
    return find_hidden_values(given, redact(given))
