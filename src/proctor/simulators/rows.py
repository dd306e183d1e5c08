"""The data of a sandbox: JSON rows by collection and key, never modified in place.

Every attempt starts with the rows of the dataset. A change copies only the collection it affects, so branching is cheap and an agent cannot
change the dataset. Rows are immutable: a changed row is stored as a new one.

Also the storage of sandboxes: a small protocol, and the in-memory store of local runs. A change and the event of its request are committed
together, and only on the revision that the request saw; after a conflict the request is repeated on the newer rows. So two servers can
serve one sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

import msgspec

from proctor.errors import StoreError
from proctor.model.evidence import Json, StateChange, StateRequest
from proctor.model.json_values import equal
from proctor.model.typed import convert_to
from proctor.work import spend

T = TypeVar("T")
Rows = Mapping[str, Mapping[str, Json]]
"""Rows by collection and key, in insertion order; the first part of a collection's name is its system: `clinic/Patient`."""
NO_ROWS: Rows = {}
HIDDEN = "_"
"""The prefix of collections with a system's internal data (earlier versions, tombstones), which is not part of its state."""


_BY_OTHERS = "_by_others"
"""Keys of rows that simulated people added, which are not changes of the agent."""


class Index(Protocol):
    """A search index over the rows of a collection."""

    def branch(self) -> Index:
        """Return an independent copy of the index."""
        ...

    def follow(self, key: str, *, removed: bool) -> bool:
        """Note that a row was stored or removed; return False if the index is no longer usable."""
        ...


class Collection(dict[str, Json]):
    """Rows by key, with an optional index that follows changes and is copied along."""

    __slots__ = ("index",)

    def __init__(self, rows: Mapping[str, Json]) -> None:
        super().__init__(rows)
        old_index = rows.index if isinstance(rows, Collection) else None
        self.index: Index | None = old_index and old_index.branch()

    def write(self, key: str, row: Json) -> None:
        """Store a row, or remove it if it is None."""
        if self.index is not None and not self.index.follow(key, removed=row is None):
            self.index = None
        if row is None:
            self.pop(key, None)
        else:
            self[key] = row


class Change(msgspec.Struct, frozen=True):
    """A stored row, or a removed one if it is None."""

    collection: str
    key: str
    row: Json


def apply_changes(rows: Rows, changes: tuple[Change, ...]) -> Rows:
    """Return the rows after the changes; unchanged collections are shared with the previous rows."""
    changed: dict[str, Collection] = {}
    for change in changes:
        collection = changed.get(change.collection)
        if collection is None:
            collection = changed[change.collection] = Collection(rows.get(change.collection, {}))
        collection.write(change.key, change.row)
    # A `Collection`, so that it can have an index, even if it never changes.
    unchanged = {name: each if isinstance(each, Collection) else Collection(each) for name, each in rows.items() if name not in changed}
    # In the order in which the collections were created.
    return {name: changed[name] if name in changed else unchanged[name] for name in dict.fromkeys((*rows, *changed))}


def count_rows(rows: Rows) -> int:
    """Return the number of rows, including internal ones."""
    return sum(len(collection) for collection in rows.values())


class Draft:
    """The rows of one system during a request: changes are stored only if the whole request succeeds."""

    def __init__(self, rows: Rows, system: str) -> None:
        # The collections themselves are shared: `_write` copies one when it is first written to.
        self._rows: dict[str, Mapping[str, Json]] = dict(rows)
        self._system = system
        self._own: set[str] = set()
        self._changes: list[Change] = []

    def get(self, collection: str, key: str) -> Json:
        """Return a row, or None."""
        return self._rows.get(f"{self._system}/{collection}", {}).get(key)

    def load(self, collection: str, key: str, kind: type[T]) -> T | None:
        """Return a row as a declared type, or None."""
        row = self.get(collection, key)
        return None if row is None else convert_to(row, kind)

    def list(self, collection: str) -> Mapping[str, Json]:
        """Return the rows of a collection by key, in order."""
        return self._rows.get(f"{self._system}/{collection}", {})

    def find_index(self, collection: str, make: Callable[[Mapping[str, Json]], Index]) -> Index | None:
        """Return the index of a collection, created if needed; None if the rows are not in a `Collection`."""
        listed = self.list(collection)
        if not isinstance(listed, Collection):
            return None
        if listed.index is None:
            # Stored with the shared rows, so that it is built once for all sandboxes of a dataset.
            listed.index = make(listed)
        return listed.index

    def list_collections(self) -> Iterator[str]:
        """Yield the names of all collections that were written to, except internal ones."""
        prefix = f"{self._system}/"
        return (name[len(prefix) :] for name in self._rows if name.startswith(prefix) and not name.startswith(prefix + HIDDEN))

    def put(self, collection: str, key: str, row: Json, *, by_other: bool = False) -> None:
        """Add a row, or replace the one with this key at its position; `by_other` means that a simulated person did it, not the agent."""
        self._write(Change(f"{self._system}/{collection}", key, row))
        if by_other:
            self._write(Change(f"{self._system}/{_BY_OTHERS}", f"{collection}/{key}", True))

    def remove(self, collection: str, key: str) -> None:
        """Remove a row if it exists."""
        self._write(Change(f"{self._system}/{collection}", key, None))

    def branch(self) -> Draft:
        """Return a draft over this one, for atomic work: see `absorb`."""
        # It owns no collection yet, so that its first write copies one and does not change ours.
        return Draft(self._rows, self._system)

    def absorb(self, other: Draft) -> None:
        """Take over the changes of a branch."""
        for change in other.list_changes():
            self._write(change)

    def list_changes(self) -> tuple[Change, ...]:
        """Return all changes, in order."""
        return tuple(self._changes)

    def _write(self, change: Change) -> None:
        current = self._rows.get(change.collection, {})
        # Shared with the stored rows until the first change.
        if change.collection in self._own and isinstance(current, Collection):
            collection = current
        else:
            spend(len(current) // 16)
            collection = Collection(current)
        collection.write(change.key, change.row)
        self._rows[change.collection] = collection
        self._own.add(change.collection)
        self._changes.append(change)


def _is_same_value(was: Json, now: Json) -> bool:
    """Return whether two members are written alike: 1 that becomes 1.0 or true is a change."""
    return type(was) is type(now) and was == now


def list_differences(before: Rows, after: Rows) -> tuple[StateChange, ...]:
    """Return the rows that the agent added, changed and removed, by system, without internal ones."""
    changes: list[StateChange] = []
    for name in dict.fromkeys((*before, *after)):
        system, _, collection = name.partition("/")
        old, new = before.get(name, {}), after.get(name, {})
        if old is new or collection.startswith(HIDDEN):
            continue
        added_by_others = after.get(f"{system}/{_BY_OTHERS}", {})
        for key in dict.fromkeys((*old, *new)):
            if f"{collection}/{key}" in added_by_others and key not in old:
                continue
            was, now = old.get(key), new.get(key)
            if was is not now and not equal(was, now, same=_is_same_value):
                kind = "added" if was is None else "removed" if now is None else "changed"
                place = f"{collection}/{key}" if collection else key
                changes.append(StateChange(system=system, change=kind, place=place, before=was, after=now))
    return tuple(changes)


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
        if (stored := self._sandboxes.get(sandbox)) is None:
            raise StoreError(f"there is no sandbox {sandbox!r}")
        return stored
