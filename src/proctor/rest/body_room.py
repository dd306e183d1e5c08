"""Bounds how many bytes of request bodies are held at one moment, and shares that room fairly.

All bodies share one room. When it is full, whoever holds less than others gets room from them: a body that is still on its way is given up,
first of the organization that holds the most, in it of the key (the local user: the address) that holds the most, in it the one that was
silent for the longest time. Of one's own bodies, only one that has stalled is given up. So half-sent bodies deny nobody else anything.
"""

from __future__ import annotations

import asyncio

from proctor.rest.memory import RELEASED
from proctor.service.refusals import Refusal

STALLED_S = 1.0
"""From when on a silent body makes room for others of the same key."""


class HeldBody:
    """The bytes that one request holds."""

    def __init__(self, room: BodyRoom, organization: str, client: str) -> None:
        self.room = room
        self.organization = organization
        self.client = client
        self.size = 0
        self.last = 0.0
        """When something of it last came, by the clock of the event loop."""
        self.arriving: asyncio.Timeout | None = None
        """The time limit of a body that is still on its way."""
        self.given_up = False

    def is_arriving(self) -> bool:
        """Return whether the body still comes in, and not because its time has just run out."""
        return self.arriving is not None and not self.arriving.expired()

    def add(self, count: int) -> None:
        """Hold so many bytes more. Raises `Refusal`."""
        self.room.take_bytes(self, count)

    def drop(self, count: int) -> None:
        """Hold so many bytes less."""
        count = min(count, self.size)
        self.size -= count
        self.room.left += count
        RELEASED.add(count)

    def release(self) -> None:
        """Give all bytes back."""
        self.drop(self.size)
        self.room.bodies.discard(self)


class BodyRoom:
    """All bodies that are held."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.left = most
        self.bodies: set[HeldBody] = set()

    def enter(self, organization: str, client: str) -> HeldBody:
        """Return a place for one request."""
        held = HeldBody(self, organization, client)
        self.bodies.add(held)
        return held

    def take_bytes(self, held: HeldBody, count: int) -> None:
        """Give so many bytes to one of the bodies, taken from others where there are no more. Raises `Refusal`."""
        while count > self.left:
            other = self._find_greediest(held, count)
            if other is None:
                told = f"the service is busy with other requests, which hold {self.most - self.left} of {self.most} bytes (--waiting-bytes)"
                raise Refusal("UNAVAILABLE", told, retry_after_s=1)
            # The task that reads it wakes up as if its time were over; `given_up` says that it was not.
            other.given_up = True
            other.release()
            assert other.arriving is not None
            other.arriving.reschedule(asyncio.get_running_loop().time())
            # So that its next bytes do not move the limit on again, and nobody gives up the same body twice.
            other.arriving = None
        self.left -= count
        held.size += count

    def _find_greediest(self, held: HeldBody, count: int) -> HeldBody | None:
        """Return the body that makes room for another one, or None."""
        organizations: dict[str, int] = {}
        clients: dict[tuple[str, str], int] = {}
        for body in self.bodies:
            organizations[body.organization] = organizations.get(body.organization, 0) + body.size
            client = (body.organization, body.client)
            clients[client] = clients.get(client, 0) + body.size

        def holds(body: HeldBody) -> tuple[int, int]:
            return organizations[body.organization], clients[body.organization, body.client]

        # A body that is all there is being worked on and stays; an empty one has nothing to give.
        others = [body for body in self.bodies if body is not held and body.is_arriving() and body.size]
        if not others:
            return None
        found = max(others, key=lambda body: (*holds(body), -body.last))
        of_all, of_client = holds(held)
        most_of_all, most_of_client = holds(found)
        # Whoever would then hold more than the greediest takes nothing from it: else two large senders could give up each other's
        # bodies in turn, and neither would get through.
        if found.organization != held.organization:
            return found if of_all + count <= most_of_all else None
        if found.client != held.client:
            return found if of_client + count <= most_of_client else None
        now = asyncio.get_running_loop().time()
        stalled = [body for body in others if (body.organization, body.client) == (held.organization, held.client)]
        oldest = min(stalled, key=lambda body: body.last)
        return oldest if now - oldest.last >= STALLED_S else None
