"""Chooses whose traces are evaluated next: agents in turn, those that took long behind the others, and now and then abandoned traces."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proctor.service.hub import Hub
from proctor.store.trace_work import MOST_AGENTS, BatchRequest, choose_batch, has_abandoned, lease_abandoned, lease_batch, lease_chosen

FEW_TRACES = 25
"""How many abandoned traces are leased at once: one of them may end the worker again, and takes the others along."""


class EvaluationQueue:
    """Chooses and leases what one worker evaluates, batch by batch."""

    def __init__(self, hub: Hub, owner: str) -> None:
        self._hub = hub
        self._owner = owner
        self._look_behind = False
        self._resting: dict[str, float] = {}
        self.last_agent = ""
        """The agent whose turn was last."""
        self.has_more = False
        """Whether there is probably more than what was taken last."""

    def make_request(self, limit: int, most_bytes: int, *, without: frozenset[str]) -> BatchRequest:
        """Return the request for the next batch, in which some agents have no part."""
        now = self._hub.clock()
        until = now + self._hub.settings.lease_s
        return BatchRequest(
            owner=self._owner, now=now, until=until, limit=limit, most_bytes=most_bytes, after=self.last_agent, without=without
        )

    def postpone_agents(self, agents: Iterable[str], until: float) -> None:
        """Let agents wait until then, as long as others want something."""
        self._resting |= dict.fromkeys(agents, until)

    async def lease_next(self, turn: BatchRequest) -> list[str]:
        """Lease what is due, and now and then abandoned traces, and return the ids."""
        self._resting = {agent: until for agent, until in self._resting.items() if until > turn.now}
        # Every second time: abandoned traces may end the worker again, so they must neither come before all healthy
        # work nor wait until there is none.
        self._look_behind = not self._look_behind
        if self._look_behind and (ids := await self._lease_abandoned(turn)):
            return ids
        chosen: list[tuple[str, str]] = []
        if self._resting:
            chosen = await self._lease_due(msgspec.structs.replace(turn, without=turn.without | frozenset(self._resting)))
        # Those who rest have their turn all the same when nobody else wants anything.
        chosen = chosen or await self._lease_due(turn)
        if not chosen:
            # Nothing is due, and in this turn nobody has looked for abandoned traces yet.
            return [] if self._look_behind else await self._lease_abandoned(turn)
        self.has_more = len(chosen) >= turn.limit
        # Where all agents had a turn the next round begins one agent later, so that nobody is always first. Where there were more agents
        # than fit, it goes on behind the last of them.
        first_round = list(dict.fromkeys(agent for _, agent in chosen))
        self.last_agent = first_round[0 if len(first_round) < MOST_AGENTS else -1]
        return [id for id, _ in chosen]

    async def _lease_due(self, turn: BatchRequest) -> list[tuple[str, str]]:
        database = self._hub.database
        if database.dialect == "postgresql":
            # Chosen and locked at once, and what others have locked is passed over.
            async with database.writing() as connection:
                return await lease_batch(connection, turn)
        # There is one writer, and nobody to be passed over: it is kept waiting for as short as possible.
        async with database.reading() as connection:
            chosen = await choose_batch(connection, turn)
        if chosen:
            async with database.writing() as connection:
                await lease_chosen(connection, turn, chosen)
        return chosen

    async def _lease_abandoned(self, turn: BatchRequest) -> list[str]:
        async with self._hub.database.reading() as connection:
            # A look first, which holds up no writer: nearly always there is nothing.
            if not await has_abandoned(connection, turn.now):
                return []
        async with self._hub.database.writing() as connection:
            ids = await lease_abandoned(connection, turn, FEW_TRACES)
        # Only a few were taken, on purpose; whether there are more is found out at once.
        self.has_more = True
        return ids
