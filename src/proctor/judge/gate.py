"""Bounds how many requests a judge has under way at once, over all cases.

The limit adapts to the provider: it is halved when the provider reports overload, raised by one after every round of successes, and never
exceeds the configured number. Requests of one round that are refused together halve it once. Requests enter in the order of arrival.
"""

from __future__ import annotations

import asyncio
from collections import deque


class RequestGate:
    """Lets a bounded, adapting number of requests through."""

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
        """Wait for a place, and for the end of any pause the provider requested; return the round, for `slow_down`."""
        loop = asyncio.get_running_loop()
        # Only if the queue is empty: first come, first served.
        if not self._waiting and self.inside < self.limit and loop.time() >= self._closed_until:
            self.inside += 1
            return self._round
        place: asyncio.Future[None] = loop.create_future()
        self._waiting.append(place)
        self._admit_waiting()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                # The place was granted at the moment of the cancellation, so it is released here.
                self.leave()
            raise
        # The round in which it enters, not the one in which it began to wait: a refusal concerns the requests under way with it.
        return self._round

    def leave(self) -> None:
        """Give the place back."""
        self.inside -= 1
        self._admit_waiting()

    def note_success(self) -> None:
        """Count a request that went through: after a round of these the limit may rise."""
        if self.limit >= self.most:
            return
        # As many successes as may be under way at once are a round: the limit rises by one per round, slowly, and falls by half at once.
        self._successes += 1
        if self._successes >= self.limit:
            self._successes = 0
            self.limit += 1
            self._admit_waiting()

    def slow_down(self, round_: int, pause_s: float | None = None) -> None:
        """Halve the number of requests at once, and let none through before the pause that the provider requested is over."""
        # Requests of one round were under way together: their refusals are one piece of news, and halve the limit once.
        if round_ == self._round:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
            self._round += 1
        if pause_s is not None:
            # The longest requested pause counts; a later, shorter one does not open the gate early.
            self._closed_until = max(self._closed_until, asyncio.get_running_loop().time() + pause_s)

    def _admit_waiting(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._closed_until:
            self._alarm = loop.call_at(self._closed_until, self._admit_waiting)
            return
        while self._waiting and self.inside < self.limit:
            place = self._waiting.popleft()
            # A request that was cancelled while waiting takes no place.
            if not place.done():
                self.inside += 1
                place.set_result(None)
