"""How many requests a judge has under way at once, over all cases.

The number adapts to what the provider bears: halved when it says that it is too much, raised by one after every round of successes,
never above what the user asked for. Requests that were under way together and are refused together halve it once. Places are given in
the order in which they were asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Gate:
    """Lets a bounded and adapting number of requests through."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = most
        self.inside = 0
        self._round = 0
        self._successes = 0
        self._closed_until = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None

    async def enter(self) -> int:
        """Wait for a place, and for the end of any pause the provider asked for; gives the round, for `too_much`."""
        loop = asyncio.get_running_loop()
        if not self._waiting and self.inside < self.limit and loop.time() >= self._closed_until:
            self.inside += 1
            return self._round
        place: asyncio.Future[None] = loop.create_future()
        self._waiting.append(place)
        self._admit()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # given and given up in the same breath
                self.leave()
            raise
        return self._round

    def leave(self) -> None:
        """Give the place back."""
        self.inside -= 1
        self._admit()

    def succeeded(self) -> None:
        """A request went through: after a round of these the limit may rise."""
        if self.limit >= self.most:
            return
        self._successes += 1
        if self._successes >= self.limit:
            self._successes = 0
            self.limit += 1
            self._admit()

    def too_much(self, round_: int, pause_s: float | None = None) -> None:
        """The provider is overloaded: half as many at once, and none before it asked to be tried again."""
        if round_ == self._round:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
            self._round += 1
        if pause_s is not None:
            self._closed_until = max(self._closed_until, asyncio.get_running_loop().time() + pause_s)

    def _admit(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._closed_until:
            self._alarm = loop.call_at(self._closed_until, self._admit)
            return
        while self._waiting and self.inside < self.limit:
            place = self._waiting.popleft()
            if not place.done():
                self.inside += 1
                place.set_result(None)
