"""Remembers the agents of organizations for a moment, so that a busy sender does not cost a query per trace."""

from __future__ import annotations

import msgspec

from proctor.service.agent import Agent
from proctor.service.recent import Turns

_MOST_ORGANIZATIONS = 200
"""How many organizations are remembered; a bound for memory, not for users."""


class Reading(msgspec.Struct, frozen=True):
    """The agents of an organization as they were read at one time."""

    number: int
    """The how-manieth reading of this process it is: of two, the one with the larger number began later."""
    at: float
    """When it began, in Unix seconds."""
    agents: dict[str, Agent]


class AgentCache:
    """The last reading of each organization."""

    def __init__(self) -> None:
        self._last: dict[str, Reading] = {}
        self.begun = 0
        """How many readings have begun: whoever notes it knows later which of them began after that."""
        self.changes = 0
        """Counts what was forgotten: a reading that began before belongs to the past."""
        self.turns = Turns()
        """Whose turn it is to read the agents of an organization anew, so that all who wait share one reading."""

    def get(self, organization_id: str) -> Reading | None:
        """Return the last reading of an organization, however old it is."""
        return self._last.get(organization_id)

    def put(self, organization_id: str, reading: Reading, changes: int) -> None:
        """Keep a reading that began when `changes` was the count, unless a later one is there already."""
        # An agent was made or paused while this was being read: it may be from before, and would be believed for seconds.
        if changes != self.changes:
            return
        last = self._last.get(organization_id)
        if last is not None and last.number > reading.number:
            return
        if last is None and len(self._last) >= _MOST_ORGANIZATIONS:
            # All at once: it happens rarely, and what is needed is read again within seconds anyhow.
            self._last.clear()
        self._last[organization_id] = reading

    def forget(self, organization_id: str) -> None:
        """Forget the agents of an organization, so that the next who asks finds what is there."""
        # Counted for all organizations together, as with keys: a needless query is cheaper than remembering who was forgotten.
        self.changes += 1
        self._last.pop(organization_id, None)
