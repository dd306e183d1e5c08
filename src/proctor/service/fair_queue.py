"""Fair turns for tenants that share a few processes or threads."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from proctor.service.refusals import Refusal

MOST_WAITING = 1_000
"""Waiting requests of one tenant."""
Requester = tuple[str, str]
"""A tenant, and one of its callers."""


class _QueuedRequest:
    """One waiting request."""

    def __init__(self, requester: Requester) -> None:
        self.requester = requester
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class FairQueue:
    """Grants turns to the tenant that has used the least time, and to its caller that has waited longest.

    A tenant's share is half of the turns; it gets more only while no tenant below its share waits.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        """Free turns; negative while tenants within their share use turns that others have borrowed."""
        self._share = max(1, places // 2)
        self._waiting: dict[str, OrderedDict[str, deque[_QueuedRequest]]] = {}
        self._busy: dict[str, int] = {}
        self._spent: dict[str, float] = {}
        self._virtual_time = 0.0
        """A new tenant starts here and has no credit."""

    def acquire(self, requester: Requester) -> _QueuedRequest:
        """Queue for a turn, which is granted when `granted` is done. Raises `Refusal` if too many wait."""
        tenant, caller = requester
        queues = self._waiting.setdefault(tenant, OrderedDict())
        if sum(len(queue) for queue in queues.values()) >= MOST_WAITING:
            raise Refusal("UNAVAILABLE", f"{MOST_WAITING} requests are already waiting to be decided", retry_after_s=1)
        # Also after a pause, which gives no credit.
        if tenant not in self._spent or (not queues and not self._busy.get(tenant)):
            self._spent[tenant] = max(self._spent.get(tenant, 0.0), self._virtual_time)
        place = _QueuedRequest(requester)
        queues.setdefault(caller, deque()).append(place)
        self._grant_turns()
        return place

    def release(self, place: _QueuedRequest, spent_s: float) -> None:
        """Release the turn, or the place in the queue."""
        tenant = place.requester[0]
        # A cancelled future never had its turn.
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
        # Several requests of a tenant may be cancelled at once; the first to leave has removed it.
        spent = self._spent.get(tenant)
        if spent is not None and spent <= self._virtual_time and tenant not in self._waiting and tenant not in self._busy:
            # Nothing is lost, since a new tenant starts there. Idle tenants take no memory.
            del self._spent[tenant]

    def _grant_turns(self) -> None:
        while True:
            borrowed = sum(max(0, busy - self._share) for busy in self._busy.values())
            eligible = [tenant for tenant in self._waiting if self._busy.get(tenant, 0) < self._share]
            # Borrowed turns do not block: a tenant without a turn always gets one.
            ready = eligible if self._free + borrowed > 0 and eligible else list(self._waiting) if self._free > 0 else []
            if not ready:
                return
            tenant = min(ready, key=self._spent.__getitem__)
            queues = self._waiting[tenant]
            caller = next(iter(queues))
            place = queues[caller][0]
            if place.granted.done():
                # Cancelled, but still in the queue: its turn would be lost.
                self._forget(place)
                continue
            queues[caller].popleft()
            # The other callers of this tenant come before this one's next request.
            queues.move_to_end(caller)
            self._drop_empty_queues(tenant, caller)
            self._free -= 1
            self._busy[tenant] = self._busy.get(tenant, 0) + 1
            self._virtual_time = max(self._virtual_time, self._spent[tenant])
            place.granted.set_result(None)

    def _forget(self, place: _QueuedRequest) -> None:
        tenant, caller = place.requester
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
