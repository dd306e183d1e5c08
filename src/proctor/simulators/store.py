"""Storage of sandboxes: a small protocol, and the store in memory that local runs use.

A change is committed together with the event of its request, both or neither, and only on the revision that the request saw: after a
conflict, the request is repeated on the newer rows. So two servers can serve one sandbox.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from proctor.errors import StoreError
from proctor.model.evidence import Json, StateRequest
from proctor.simulators.rows import Change, Rows, apply_changes


class Snapshot(msgspec.Struct, frozen=True):
    """The rows of a sandbox at one time."""

    revision: int
    rows: Rows


class SandboxClosed(StoreError):
    """A closed sandbox, which can only be read."""


class SandboxFull(StoreError):
    """A sandbox that has reached its limit."""


class SandboxStore(Protocol):
    """Stores the rows, the baseline and the events of sandboxes. Every method raises `StoreError` for an unknown sandbox."""

    async def create(self, sandbox: str, rows: Rows) -> None:
        """Store a new sandbox with these rows as its baseline. Raises `StoreError` if the name exists."""
        ...

    async def load(self, sandbox: str) -> Snapshot:
        """Return the current rows."""
        ...

    async def load_baseline(self, sandbox: str) -> Rows:
        """Return the initial rows."""
        ...

    async def commit(self, sandbox: str, revision: int, changes: tuple[Change, ...], event: StateRequest) -> bool:
        """Store changes and event, both or neither; return False if the rows have another revision than `revision`."""
        ...

    async def advance(self, sandbox: str, revision: int, changes: tuple[Change, ...], note: dict[str, Json]) -> bool:
        """Store changes without a request (a file arrives), in the rows and in the baseline; return False like `commit`."""
        ...

    async def reset(self, sandbox: str) -> None:
        """Reset the rows to the baseline; events stay."""
        ...

    async def list_events(self, sandbox: str) -> tuple[StateRequest, ...]:
        """Return the events, oldest first."""
        ...

    async def remove(self, sandbox: str) -> None:
        """Remove the sandbox."""
        ...


class _Stored:
    __slots__ = ("baseline", "events", "revision", "rows")

    def __init__(self, rows: Rows) -> None:
        self.baseline = self.rows = rows
        self.revision = 0
        self.events: list[StateRequest] = []


class MemoryStore:
    """Sandboxes in memory. One sandbox is used by one thread at a time; its server ensures that."""

    def __init__(self) -> None:
        self._sandboxes: dict[str, _Stored] = {}

    async def create(self, sandbox: str, rows: Rows) -> None:
        """Store a new sandbox; the rows are shared, not copied."""
        if sandbox in self._sandboxes:
            raise StoreError(f"there is a sandbox {sandbox!r} already")
        self._sandboxes[sandbox] = _Stored(rows)

    async def load(self, sandbox: str) -> Snapshot:
        """Return the current rows."""
        stored = self._find(sandbox)
        return Snapshot(stored.revision, stored.rows)

    async def load_baseline(self, sandbox: str) -> Rows:
        """Return the initial rows."""
        return self._find(sandbox).baseline

    async def commit(self, sandbox: str, revision: int, changes: tuple[Change, ...], event: StateRequest) -> bool:
        """Store changes and event, both or neither."""
        stored = self._find(sandbox)
        if changes and stored.revision != revision:
            return False
        rows = apply_changes(stored.rows, changes) if changes else stored.rows
        # Nothing below can fail, so both or neither are stored.
        stored.events.append(event)
        if changes:
            stored.rows, stored.revision = rows, revision + 1
        return True

    async def advance(self, sandbox: str, revision: int, changes: tuple[Change, ...], note: dict[str, Json]) -> bool:
        """Store changes without a request, in the rows and in the baseline."""
        stored = self._find(sandbox)
        if stored.revision != revision:
            return False
        stored.rows, stored.baseline = apply_changes(stored.rows, changes), apply_changes(stored.baseline, changes)
        stored.revision = revision + 1
        return True

    async def reset(self, sandbox: str) -> None:
        """Reset the rows to the baseline."""
        stored = self._find(sandbox)
        stored.rows, stored.revision = stored.baseline, stored.revision + 1

    async def list_events(self, sandbox: str) -> tuple[StateRequest, ...]:
        """Return the events, oldest first."""
        return tuple(self._find(sandbox).events)

    async def remove(self, sandbox: str) -> None:
        """Remove the sandbox."""
        self._find(sandbox)
        del self._sandboxes[sandbox]

    def _find(self, sandbox: str) -> _Stored:
        stored = self._sandboxes.get(sandbox)
        if stored is None:
            raise StoreError(f"there is no sandbox {sandbox!r}")
        return stored
