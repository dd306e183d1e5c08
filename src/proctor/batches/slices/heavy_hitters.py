"""The heaviest entries of a table that may have more entries than are held: space-saving in steps, with a known error, and mergeable.

A table grows to twice its size and is then cut to its heaviest entries. What was cut off had at most `floor`, so that an entry which comes
later may have had that many before: it notes them as `missed`. The true count lies between `count` and `count + missed`.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec


class Counted(Protocol):
    """An entry of a table; `merge` adds everything of another entry of the same key except `missed`."""

    count: int
    missed: int

    def merge(self, other: Any) -> None:  # noqa: D102 - above
        ...


Item = TypeVar("Item", bound=Counted)


class Heaviest(msgspec.Struct, Generic[Item], kw_only=True, omit_defaults=True):
    """A table of entries by their keys."""

    items: dict[str, Item] = {}
    floor: int = 0
    """The most that a key may have which is not held; 0 where all are held and every count is exact."""
    others: int = 0
    """The sum of what was cut off."""

    def add(self, key: str, item: Item) -> Item:
        """Add an entry, which becomes part of the table; returns the entry of its key."""
        known = self.items.get(key)
        if known is None:
            item.missed += self.floor
            known = self.items[key] = item
        else:
            known.missed += item.missed
            known.merge(item)
        return known

    def merge(self, other: Heaviest[Item]) -> None:
        """Add all entries of another table, which is used up."""
        if other.floor:
            for key, item in self.items.items():
                item.missed += other.floor if key not in other.items else 0
        for key, item in other.items.items():
            self.add(key, item)
        self.floor += other.floor
        self.others += other.others

    def cut(self, most: int) -> list[Item]:
        """Remove and return the lightest entries of a table that has more than twice as many as `most`."""
        if len(self.items) <= 2 * most:
            return []
        # Sorting is stable: the same stream is always cut in the same way, so that two evaluations agree.
        ranked = sorted(self.items.items(), key=lambda entry: -(entry[1].count + entry[1].missed))
        self.items = dict(ranked[:most])
        lightest = [item for _, item in ranked[most:]]
        self.floor = max(self.floor, *(item.count + item.missed for item in lightest))
        self.others += sum(item.count for item in lightest)
        return lightest
