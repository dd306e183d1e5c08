"""Whose turn it is among tenants that share a few processes or threads."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from proctor.service.refusals import Refusal

MOST_WAITING = 1_000
"""How many requests of one tenant may wait."""
Who = tuple[str, str]
"""A tenant, and one of its callers."""


class _QueuedRequest:
    """One request that waits for a process."""

    def __init__(self, who: Who) -> None:
        self.who = who
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class FairTurns:
    """Grants turns: to the tenant that has used the least time, and of its callers to the one that has waited longest.

    A tenant has half of the turns as its share, and borrows the others while no one within its share waits.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        """Below zero while tenants within their share have turns that others borrowed."""
        self._share = max(1, places // 2)
        self._waiting: dict[str, OrderedDict[str, deque[_QueuedRequest]]] = {}
        self._busy: dict[str, int] = {}
        self._spent: dict[str, float] = {}
        self._now = 0.0
        """What the tenant that was served last had used: whoever comes anew begins there, and has saved nothing up."""

    def enter(self, who: Who) -> _QueuedRequest:
        """Queue for a turn; it is granted when `granted` is done. Raises `Refusal` where too many wait already."""
        tenant, caller = who
        queues = self._waiting.setdefault(tenant, OrderedDict())
        if sum(len(queue) for queue in queues.values()) >= MOST_WAITING:
            raise Refusal("UNAVAILABLE", f"{MOST_WAITING} requests wait to be decided already", retry_after_s=1)
        # Also one that was idle for a while: else it would come before all others for as long as it stayed away.
        if tenant not in self._spent or (not queues and not self._busy.get(tenant)):
            self._spent[tenant] = max(self._spent.get(tenant, 0.0), self._now)
        place = _QueuedRequest(who)
        queues.setdefault(caller, deque()).append(place)
        self._grant_turns()
        return place

    def leave(self, place: _QueuedRequest, spent_s: float) -> None:
        """Give the turn back, or the place in the queue of one that never had it."""
        tenant = place.who[0]
        # Cancelling whoever waits cancels the future it waits for, so one that is cancelled never had its turn.
        if place.granted.done() and not place.granted.cancelled():
            self._free += 1
            self._busy[tenant] -= 1
            self._spent[tenant] += spent_s
            if not self._busy[tenant]:
                del self._busy[tenant]
        else:
            place.granted.cancel()
            self._forget(place)
        self._grant_turns()
        # None is left where several of a tenant were cancelled at once, and the first of them to leave has taken it away.
        spent = self._spent.get(tenant)
        if spent is not None and spent <= self._now and tenant not in self._waiting and tenant not in self._busy:
            # Nothing is lost: whoever comes anew begins there. So tenants that came once take no memory.
            del self._spent[tenant]

    def _grant_turns(self) -> None:
        while True:
            borrowed = sum(max(0, busy - self._share) for busy in self._busy.values())
            within = [tenant for tenant in self._waiting if self._busy.get(tenant, 0) < self._share]
            # What is borrowed is not waited for: there is always a turn for a tenant that has none.
            ready = within if self._free + borrowed > 0 and within else list(self._waiting) if self._free > 0 else []
            if not ready:
                return
            tenant = min(ready, key=self._spent.__getitem__)
            queues = self._waiting[tenant]
            caller = next(iter(queues))
            place = queues[caller][0]
            if place.granted.done():
                # Cancelled, and its task has not run since to leave the queue: a turn given to it would be lost.
                self._forget(place)
                continue
            queues[caller].popleft()
            # The others of this tenant come before this one's next request.
            queues.move_to_end(caller)
            self._drop_empty_queues(tenant, caller)
            self._free -= 1
            self._busy[tenant] = self._busy.get(tenant, 0) + 1
            self._now = max(self._now, self._spent[tenant])
            place.granted.set_result(None)

    def _forget(self, place: _QueuedRequest) -> None:
        """Take a place out of its queue, if it still stands there."""
        tenant, caller = place.who
        queue = self._waiting.get(tenant, {}).get(caller)
        if queue is not None and place in queue:
            queue.remove(place)
            self._drop_empty_queues(tenant, caller)

    def _drop_empty_queues(self, tenant: str, caller: str) -> None:
        queues = self._waiting[tenant]
        if not queues[caller]:
            del queues[caller]
        if not queues:
            del self._waiting[tenant]
