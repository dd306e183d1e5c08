"""Caches the agents of organizations for a moment, so that a busy sender does not cost a query per trace."""

from __future__ import annotations

import msgspec

from proctor.service.agent import Agent
from proctor.service.lru_cache import Turns

_MOST_ORGANIZATIONS = 200
"""Cached organizations, which bounds memory."""


class Reading(msgspec.Struct, frozen=True):
    """The agents of an organization at one time."""

    number: int
    """The sequence number of the read in this process."""
    at: float
    """When it started, in Unix seconds."""
    agents: dict[str, Agent]


class AgentCache:
    """The last read of each organization."""

    def __init__(self) -> None:
        self._last: dict[str, Reading] = {}
        self.begun = 0
        """Number of reads started so far: a larger number is a later read."""
        self.changes = 0
        """Number of invalidations: a read that started before one is stale."""
        self.turns = Turns()
        """One lock per organization, so that concurrent requests share one read."""

    def get(self, organization_id: str) -> Reading | None:
        """Return the last read of an organization, whatever its age."""
        return self._last.get(organization_id)

    def put(self, organization_id: str, reading: Reading, changes: int) -> None:
        """Store a read that started at `changes`, unless there is a later one."""
        # An agent changed while this was read, so that it may be stale.
        if changes != self.changes:
            return
        last = self._last.get(organization_id)
        if last is not None and last.number > reading.number:
            return
        if last is None and len(self._last) >= _MOST_ORGANIZATIONS:
            # All at once: this is rare, and everything is read again within seconds.
            self._last.clear()
        self._last[organization_id] = reading

    def forget(self, organization_id: str) -> None:
        """Invalidate the agents of an organization."""
        # Counted for all organizations together: a needless query is cheaper than a count per organization.
        self.changes += 1
        self._last.pop(organization_id, None)
