"""Limits connections: how many may be open, how long the head of a request and an answer may take.

A connection costs its sender nothing, so there are limits to what it may cost the service. Each is a setting:

- `connections` altogether and `connections_per_address`. Where they are reached, the connection that was silent for the longest time makes
  room, if nobody works for it: half a head, a body that does not come, an answer that is not read, then one that only waits for its next
  request. Otherwise the new one is answered 503.
- `header_timeout_s` for the head of a request, from its first byte (or from the start of the connection).
- `write_stall_s` without a byte of an answer being read, and `unsent_bytes` of all answers together that wait to be read: the connection of
  the address that holds the most is cut, the slowest first.
- `body_pieces`: a body in chunks of a few bytes costs a thousand times what it weighs.

This stands in uvicorn's protocol for HTTP/1.1. What is used of it beyond its documentation: `conn` (an `h11.Connection`), `cycle`,
`client`, `send_400_response`, `on_response_complete`; `tests/rest/test_doorstep.py` fails where one of them is gone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from proctor.rest.memory import RELEASED
from proctor.service.settings import ServiceSettings

LARGEST_HEAD = 16_384
"""Bytes of the head of a request."""
SMALL_PIECE = 64
"""Bytes that pieces of a body have on average at least, once there are many."""
LINGER_S = 5.0
"""How long somebody may go on to send a body that was already answered."""
SWEEP_S = 0.25
_SILENT_S = 0.5
"""How long a connection is silent before it makes room for another."""


class Connections:
    """All open connections of one server."""

    def __init__(self, settings: ServiceSettings, clock: Callable[[], float] | None = None) -> None:
        self.settings = settings
        self._clock = clock
        self._by_address: dict[str, dict[GuardedProtocol, None]] = {}
        self._count = 0
        self._sweeping: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """Return the time by the clock of the event loop."""
        return asyncio.get_running_loop().time() if self._clock is None else self._clock()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[GuardedProtocol]:
        return (one for of_address in self._by_address.values() for one in list(of_address))

    def admit(self, connection: GuardedProtocol) -> str | None:
        """Take a new connection in, or return why it is not."""
        address, limits = connection.address, self.settings
        of_address = self._by_address.get(address, {})
        most = limits.connections_per_address
        if most and len(of_address) >= most and not self._cut_idle(of_address):
            return f"there are {most} connections from {address} already (--connections-per-address)"
        if self._count >= limits.connections:
            greediest = max(self._by_address.values(), key=len)
            # Room is only taken from an address that has more: nobody pushes others out by opening more and more.
            if len(greediest) <= len(of_address) or not self._cut_idle(greediest):
                return f"there are {limits.connections} connections already (--connections)"
        self._by_address.setdefault(address, {})[connection] = None
        self._count += 1
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._check_times)
        return None

    def remove(self, connection: GuardedProtocol) -> None:
        """Forget a connection that is closed."""
        of_address = self._by_address.get(connection.address)
        if of_address is not None and connection in of_address:
            del of_address[connection]
            self._count -= 1
            if not of_address:
                del self._by_address[connection.address]

    def cut_unread(self) -> None:
        """Cut connections until the answers that wait to be read are no more than allowed."""
        waiting = {one: size for one in self if (size := one.count_unsent())}
        total = sum(waiting.values())
        now = self.now()
        while total > self.settings.unsent_bytes:
            by_address: dict[str, int] = {}
            for one, size in waiting.items():
                by_address[one.address] = by_address.get(one.address, 0) + size
            greediest = max(by_address, key=by_address.__getitem__)
            slowest = max((one for one in waiting if one.address == greediest), key=lambda one: (one.measure_unread_s(now), waiting[one]))
            total -= waiting.pop(slowest)
            slowest.cut()

    def _cut_idle(self, of_address: dict[GuardedProtocol, None]) -> bool:
        now = self.now()
        idle = [(not one.is_stuck(), one.since, one) for one in of_address if one.is_idle() and now - one.since >= _SILENT_S]
        if not idle:
            return False
        # Without the third: connections cannot be compared, and two may have been silent for equally long.
        victim = min(idle, key=lambda found: found[:2])[2]
        # At once: asyncio tells of the loss later (`connection_lost`), and the new connection needs the place now.
        self.remove(victim)
        victim.cut()
        return True

    def _check_times(self) -> None:
        now = self.now()
        for connection in self:
            connection.check_time(now)
        # Without connections nothing is looked at any more; the next one that is admitted starts it again.
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._check_times) if self._by_address else None


class _PieceCountingConnection(h11.Connection):
    """HTTP/1.1 as it is, but without bodies in very many very small pieces."""

    most_pieces = 0
    refused: str | None = None
    _pieces = 0
    _bytes = 0

    def next_event(self) -> Any:
        """Return what comes next; an error for a body in tiny pieces."""
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._pieces += 1
            self._bytes += len(event.data)
            if self._pieces > self.most_pieces and self._bytes < self._pieces * SMALL_PIECE:
                self.refused = f"the body came in more than {self.most_pieces} pieces of less than {SMALL_PIECE} bytes (--body-pieces)"
                raise h11.RemoteProtocolError(self.refused)
        elif isinstance(event, h11.Request):
            # A connection that is kept alive brings many bodies, and each is counted by itself.
            self._pieces = self._bytes = 0
        return event


class GuardedProtocol(H11Protocol):
    """One connection."""

    open_connections: ClassVar[Connections]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # None until there is a request, whatever uvicorn's own annotation says.
        self.cycle: Any = None
        self.conn: Any = _PieceCountingConnection(h11.SERVER, LARGEST_HEAD)
        self.conn.most_pieces = self.open_connections.settings.body_pieces
        self.address = ""
        self.since = 0.0
        """When something last happened."""
        self._begun = False
        self._head_since: float | None = None
        self._answered_since: float | None = None
        self._unsent = 0
        self._unsent_since = 0.0

    # What asyncio calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take the connection in, or refuse it."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        # Also of what is unsent: else one that nobody has looked at yet would have been slow since the clock began.
        self.since = self._head_since = self._unsent_since = self.open_connections.now()
        reason = self.open_connections.admit(self)
        if reason is not None:
            self.refuse(503, "UNAVAILABLE", reason)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.open_connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        # Bytes that were on their way when the connection was refused begin no request any more.
        if self.transport.is_closing():
            return
        self._begun = True
        super().data_received(data)
        self._note_progress()

    def pause_writing(self) -> None:
        """Note that an answer is not read as fast as it is written."""
        super().pause_writing()
        self.open_connections.cut_unread()

    # What uvicorn calls.

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._note_progress()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self.refuse(400, "BAD_REQUEST", self.conn.refused or msg)

    # What this file calls.

    def _note_progress(self) -> None:
        """Note where in a request the connection is."""
        self.since = now = self.open_connections.now()
        ours, theirs = self.conn.our_state, self.conn.their_state
        # Half a head leaves h11 in the state IDLE; only the bytes that it holds back tell it from a connection that waits.
        in_head = theirs is h11.IDLE and bool(self.conn.trailing_data[0])
        # From the first byte on, not from the last: a head that comes byte by byte would never run out of time.
        self._head_since = (self._head_since or now) if in_head else None
        self._answered_since = (self._answered_since or now) if ours is h11.DONE and theirs is h11.SEND_BODY else None

    def is_stuck(self) -> bool:
        """Return whether a request or an answer is under way that does not move."""
        return self._head_since is not None or self.conn.their_state is h11.SEND_BODY or self.count_unsent() > 0

    def is_idle(self) -> bool:
        """Return whether nobody works for it at the moment."""
        return self.is_stuck() or self.cycle is None or self.cycle.response_complete

    def count_unsent(self) -> int:
        """Return how many bytes of answers were not read yet."""
        return self.transport.get_write_buffer_size()

    def measure_unread_s(self, now: float) -> float:
        """Return for how many seconds nothing of an answer was read."""
        return now - self._unsent_since

    def check_time(self, now: float) -> None:
        """End the connection when one of its times has run out."""
        limits = self.open_connections.settings
        size = self.count_unsent()
        if not self._unsent or size < self._unsent:
            # Nothing waited at the last look, or something was read since: the time begins now.
            self._unsent_since = now
        if size < self._unsent:
            RELEASED.add(self._unsent - size)
            self.since = now if size else self.since
        self._unsent = size
        unread = size > 0 and self.measure_unread_s(now) > limits.write_stall_s
        lingers = self._answered_since is not None and now - self._answered_since > LINGER_S
        if unread or lingers:
            self.cut()
        elif self._head_since is not None and now - self._head_since > limits.header_timeout_s and not self.transport.is_closing():
            if not self._begun:
                self.cut()
                return
            told = f"the head of the request did not arrive within {limits.header_timeout_s:g} s (--header-timeout-s)"
            self.refuse(408, "REQUEST_TIMEOUT", told)

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer without looking further, where nothing was answered yet, and close the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            begun = self.cycle.response_started
            # Whoever works on the request is told that its sender has gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        else:
            begun = False
        if not begun:
            body = json.dumps({"error": {"code": code, "message": message, "details": {}}}).encode()
            retry = "retry-after: 1\r\n" if status == 503 else ""
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n{retry}"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self._head_since = None
        self.transport.close()

    def cut(self) -> None:
        """Close the connection at once, whatever was not sent."""
        RELEASED.add(self.count_unsent())
        if self.cycle is not None:
            # uvicorn drops what is still written from here on; asyncio tells it of the loss only later.
            self.cycle.disconnected = True
        self.transport.abort()


def make_protocol(settings: ServiceSettings) -> type[GuardedProtocol]:
    """Return the protocol class of one server, with connections of its own."""

    # uvicorn makes the objects by itself, so what the connections of one server share can only stand on their class.
    class Guarded(GuardedProtocol):
        open_connections = Connections(settings)

    return Guarded
