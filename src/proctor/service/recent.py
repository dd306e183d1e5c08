"""Remembers what was just made and costs much to make again, as long as it is not too much."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any
from weakref import WeakValueDictionary


class RecentValues:
    """Values by key, those asked for last; together they weigh no more than `most`, but one is always kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self.turn = asyncio.Lock()
        """Held by who makes a value, so that one at a time is made."""

    def get(self, key: Hashable) -> Any:
        """Return a value, or None."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: Hashable, value: Any, weight: int) -> None:
        """Remember a value, and forget the ones that were asked for least lately."""
        self._kept[key] = (value, weight)
        while len(self._kept) > 1 and sum(each for _, each in self._kept.values()) > self._most:
            self._kept.popitem(last=False)


class Turns:
    """Locks by name, each there for as long as somebody holds or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def get(self, name: str) -> asyncio.Lock:
        """Return the lock of a name."""
        found = self._locks.get(name)
        if found is None:
            found = self._locks[name] = asyncio.Lock()
        return found
