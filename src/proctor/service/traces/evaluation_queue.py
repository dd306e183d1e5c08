"""Whose traces are evaluated next: agents in turn, those that took long behind the others, and now and then what somebody left behind."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proctor.service.hub import Hub
from proctor.store.trace_work import MOST_AGENTS, Turn, anything_left_behind, choose, lease, lease_left_behind, take

FEW = 25
"""Traces that are taken at once when whoever worked on them before is gone."""


class Taking:
    """What one worker takes, batch by batch."""

    def __init__(self, hub: Hub, owner: str) -> None:
        self._hub = hub
        self._owner = owner
        self._look_behind = False
        self._resting: dict[str, float] = {}
        self.after = ""
        """The agent whose turn was last."""
        self.more = False
        """Whether there is probably more than what was taken last."""

    def turn(self, limit: int, most_bytes: int, *, without: frozenset[str]) -> Turn:
        """The next turn, in which some agents have no part."""
        now = self._hub.clock()
        until = now + self._hub.settings.lease_s
        return Turn(owner=self._owner, now=now, until=until, limit=limit, most_bytes=most_bytes, after=self.after, without=without)

    def rest(self, agents: Iterable[str], until: float) -> None:
        """Let agents wait until then, as long as others want something."""
        self._resting |= dict.fromkeys(agents, until)

    async def leased(self, turn: Turn) -> list[str]:
        """Ids of what is due, and now and then of what others have left behind."""
        self._resting = {agent: until for agent, until in self._resting.items() if until > turn.now}
        self._look_behind = not self._look_behind
        if self._look_behind and (ids := await self._left_behind(turn)):
            return ids
        chosen: list[tuple[str, str]] = []
        if self._resting:
            chosen = await self._lease(msgspec.structs.replace(turn, without=turn.without | frozenset(self._resting)))
        # Those who rest have their turn all the same when nobody else wants anything.
        chosen = chosen or await self._lease(turn)
        if not chosen:
            return [] if self._look_behind else await self._left_behind(turn)
        self.more = len(chosen) >= turn.limit
        first_round = list(dict.fromkeys(agent for _, agent in chosen))
        self.after = first_round[0 if len(first_round) < MOST_AGENTS else -1]
        return [id for id, _ in chosen]

    async def _lease(self, turn: Turn) -> list[tuple[str, str]]:
        database = self._hub.database
        if database.dialect == "postgresql":
            # Chosen and locked at once, and what others have locked is passed over.
            async with database.writing() as connection:
                return await lease(connection, turn)
        # There is one writer, and nobody to be passed over: it is kept waiting for as short as possible.
        async with database.reading() as connection:
            chosen = await choose(connection, turn)
        if chosen:
            async with database.writing() as connection:
                await take(connection, turn, chosen)
        return chosen

    async def _left_behind(self, turn: Turn) -> list[str]:
        async with self._hub.database.reading() as connection:
            if not await anything_left_behind(connection, turn.now):
                return []
        async with self._hub.database.writing() as connection:
            ids = await lease_left_behind(connection, turn, FEW)
        self.more = True
        return ids
