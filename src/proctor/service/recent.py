"""Spans that were just kept and will be evaluated in a moment, so that they need not be read and decoded again.

Only what is on disk gets here, and only the first piece of a trace; whatever is not here is read from the database. Bounded: the oldest go.
"""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakKeyDictionary

from proctor.evidence.spans import SpanGroup
from proctor.store.database import Database

MOST_BYTES = 1_000_000
"""Bytes as they are kept on disk; in memory they are some twenty times as many."""
LARGEST = 50_000
"""Bytes of one trace. Larger ones are read again: they are few."""


class RecentSpans:
    """The spans of some traces, by id."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[list[SpanGroup], int]] = OrderedDict()
        self._size = 0

    def put(self, id: str, groups: list[SpanGroup], size: int) -> None:
        """Remember the spans of a trace that is new."""
        if size > LARGEST:
            return
        self._known[id] = (groups, size)
        self._size += size
        while self._size > MOST_BYTES:
            _, (_, gone) = self._known.popitem(last=False)
            self._size -= gone

    def take(self, id: str) -> list[SpanGroup] | None:
        """The spans of a trace, once."""
        found = self._known.pop(id, None)
        if found is None:
            return None
        self._size -= found[1]
        return found[0]


_RECENT: WeakKeyDictionary[Database, RecentSpans] = WeakKeyDictionary()


def recent_spans(database: Database) -> RecentSpans:
    """What was just kept in a database by this process."""
    return _RECENT.setdefault(database, RecentSpans())
