"""Remembers keys that were just looked up, so that a busy sender does not cost a query per request.

Kept for a short time only: another process may revoke a key at any moment. Keys that do not exist are not kept; guessing gets no memory.
"""

from __future__ import annotations

from proctor.store.pages import Row

_LARGEST = 2_000


class KeyCache:
    """Rows of keys by their hash, for `ttl_s` seconds."""

    def __init__(self, ttl_s: float = 5.0) -> None:
        self._ttl_s = ttl_s
        self._rows: dict[str, tuple[float, Row]] = {}
        self._used: dict[str, float] = {}
        self.changes = 0
        """Counts what was forgotten: a row that was read before belongs to the past."""
        self.closed = False
        """That an organization key was created is known and does not change any more."""

    def get(self, hash: str, now: float) -> Row | None:
        """Return the row while it is fresh."""
        found = self._rows.get(hash)
        # Bounded on both sides: a row from a time that is still to come would be believed until then, whoever revokes the key elsewhere.
        if found is None or not 0 <= now - found[0] < self._ttl_s:
            return None
        return found[1]

    def put(self, hash: str, row: Row, now: float, changes: int) -> None:
        """Keep a row that was read when `changes` was the count; the oldest row gives way."""
        # Something was revoked while this row was being read: the row may be from before, and would be believed for seconds.
        if changes != self.changes:
            return
        self._rows.pop(hash, None)
        while len(self._rows) >= _LARGEST:
            self._rows.pop(next(iter(self._rows)))
        self._rows[hash] = (now, row)

    def forget(self, hash: str) -> None:
        """Forget a key that was changed, so that it is looked up again."""
        # Counted for all keys together: a needless look into the database is cheaper than remembering every key that was forgotten.
        self.changes += 1
        self._rows.pop(hash, None)

    def should_note_use(self, key_id: str, now: float, every_s: float) -> bool:
        """Return whether the use of a key should be noted: at most once in `every_s`."""
        last = self._used.get(key_id)
        if last is not None and 0 <= now - last < every_s:
            return False
        self._used.pop(key_id, None)
        while len(self._used) >= _LARGEST:
            self._used.pop(next(iter(self._used)))
        self._used[key_id] = now
        return True
