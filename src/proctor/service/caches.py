"""Caches in memory: agents, so that a busy sender does not cost a query per trace; values up to a total size; locks by name."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from proctor.model.evidence import Json
from proctor.store.sql.pages import Row


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """A sender of traces: its project, how it is found, and how its bodies are read."""

    id: str
    organization_id: str
    project_id: str
    kind: str
    service_name: str | None
    external_ref: str | None
    paused: bool
    settings: dict[str, Json]


def make_agent(row: Row, *, project_paused: bool = False) -> Agent:
    """Return an agent from its row."""
    fields: Row = {name: row[name] for name in Agent.__struct_fields__}
    fields["settings"], fields["paused"] = row["settings"] or {}, row["paused"] or project_paused
    return Agent(**fields)


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


class SizedLruCache:
    """Least recently used values are evicted above a total size; one value always stays."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._total = 0
        self.turn = asyncio.Lock()
        """Held while a value is computed, so that values are computed one at a time."""

    def get(self, key: Hashable) -> Any:
        """Return a value, or None."""
        value = self._values.get(key)
        if value is None:
            return None
        self._values.move_to_end(key)
        return value[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Store a value, and evict the least recently used."""
        self.pop(key)
        self._values[key] = (value, size)
        self._total += size
        while len(self._values) > 1 and self._total > self._most:
            self.pop(next(iter(self._values)))

    def pop(self, key: Hashable) -> None:
        """Drop a value, if there is one."""
        self._total -= self._values.pop(key, (None, 0))[1]


class Turns:
    """Locks by name, each existing while it is held or waited for."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def get(self, name: str) -> asyncio.Lock:
        """Return the lock of a name."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock
