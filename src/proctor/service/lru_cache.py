"""A cache of expensive values with a size limit, and locks by name."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any
from weakref import WeakValueDictionary


class SizedLruCache:
    """Least recently used values are evicted above a total size; one value always stays."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self.turn = asyncio.Lock()
        """Held while a value is made, so that one is made at a time."""

    def get(self, key: Hashable) -> Any:
        """Return a value, or None."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Store a value, and evict the least recently used."""
        self._values[key] = (value, size)
        while len(self._values) > 1 and sum(each for _, each in self._values.values()) > self._most:
            self._values.popitem(last=False)


class Turns:
    """Locks by name, each existing while it is held or waited for."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def get(self, name: str) -> asyncio.Lock:
        """Return the lock of a name."""
        found = self._locks.get(name)
        if found is None:
            found = self._locks[name] = asyncio.Lock()
        return found
