"""Limits connections: how many may be open, and how long the head of a request and a response may take.

- `connections` in total and `connections_per_address`. At the limit, the connection that was idle longest is closed (half a head, a stalled
  body, an unread response, then keep-alive). If none is idle, the new one is answered 503.
- `header_timeout_s` for the head of a request, from its first byte or from the start of the connection.
- `write_stall_s` without a byte of a response being read, and `unsent_bytes` of all unread responses: the slowest connection of the address
  with the most unread bytes is cut.
- `body_pieces`: a body in chunks of a few bytes costs a thousand times its size.

This extends uvicorn's HTTP/1.1 protocol. It uses undocumented members: `conn` (an `h11.Connection`), `cycle`, `client`,
`send_400_response`, `on_response_complete`; `tests/rest/server/test_slow_clients.py` fails if one of them is gone.
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
"""Minimum average bytes per piece of a body, once there are many pieces."""
LINGER_S = 5.0
"""How long a client may continue to send a body that was already answered."""
SWEEP_S = 0.25
_SILENT_S = 0.5
"""How long a connection must be idle before it can be closed for a new one."""


class Connections:
    """All open connections of a server."""

    def __init__(self, settings: ServiceSettings, clock: Callable[[], float] | None = None) -> None:
        self.settings = settings
        self._clock = clock
        self._by_address: dict[str, dict[GuardedProtocol, None]] = {}
        self._count = 0
        self._sweeping: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """Return the time of the event loop's clock."""
        return asyncio.get_running_loop().time() if self._clock is None else self._clock()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[GuardedProtocol]:
        return (connection for of_address in self._by_address.values() for connection in list(of_address))

    def admit(self, connection: GuardedProtocol) -> str | None:
        """Register a new connection, or return why it is rejected."""
        address, limits = connection.address, self.settings
        of_address = self._by_address.get(address, {})
        most = limits.connections_per_address
        if most and len(of_address) >= most and not self._cut_idle(of_address):
            return f"{address} already has {most} connections (--connections-per-address)"
        if self._count >= limits.connections:
            greediest = max(self._by_address.values(), key=len)
            # Only an address with more connections loses one, so opening many connections does not push others out.
            if len(greediest) <= len(of_address) or not self._cut_idle(greediest):
                return f"the service already has {limits.connections} connections (--connections)"
        self._by_address.setdefault(address, {})[connection] = None
        self._count += 1
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._check_times)
        return None

    def remove(self, connection: GuardedProtocol) -> None:
        """Unregister a closed connection."""
        of_address = self._by_address.get(connection.address)
        if of_address is not None and connection in of_address:
            del of_address[connection]
            self._count -= 1
            if not of_address:
                del self._by_address[connection.address]

    def cut_unread(self) -> None:
        """Cut connections until the unread bytes of all responses are within the limit."""
        waiting = {each: size for each in self if (size := each.count_unsent())}
        total = sum(waiting.values())
        now = self.now()
        while total > self.settings.unsent_bytes:
            by_address: dict[str, int] = {}
            for each, size in waiting.items():
                by_address[each.address] = by_address.get(each.address, 0) + size
            greediest = max(by_address, key=by_address.__getitem__)
            slowest = max(
                (each for each in waiting if each.address == greediest), key=lambda each: (each.measure_unread_s(now), waiting[each])
            )
            total -= waiting.pop(slowest)
            slowest.cut()

    def _cut_idle(self, of_address: dict[GuardedProtocol, None]) -> bool:
        now = self.now()
        idle = [(not each.is_stuck(), each.since, each) for each in of_address if each.is_idle() and now - each.since >= _SILENT_S]
        if not idle:
            return False
        # Without the third element: connections cannot be compared, and two may have been idle equally long.
        victim = min(idle, key=lambda connection: connection[:2])[2]
        # asyncio calls `connection_lost` later, and the new connection needs the place now.
        self.remove(victim)
        victim.cut()
        return True

    def _check_times(self) -> None:
        now = self.now()
        for connection in self:
            connection.check_time(now)
        # Without connections the timer stops; the next admission starts it again.
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._check_times) if self._by_address else None


class _PieceCountingConnection(h11.Connection):
    """An HTTP/1.1 connection that rejects bodies in very many very small pieces."""

    most_pieces = 0
    refused: str | None = None
    _pieces = 0
    _bytes = 0

    def next_event(self) -> Any:
        """Return the next event; raise an error for a body in tiny pieces."""
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._pieces += 1
            self._bytes += len(event.data)
            if self._pieces > self.most_pieces and self._bytes < self._pieces * SMALL_PIECE:
                self.refused = f"the body came in more than {self.most_pieces} pieces of less than {SMALL_PIECE} bytes (--body-pieces)"
                raise h11.RemoteProtocolError(self.refused)
        elif isinstance(event, h11.Request):
            # A keep-alive connection carries many bodies, and each is counted separately.
            self._pieces = self._bytes = 0
        return event


class GuardedProtocol(H11Protocol):
    """One connection."""

    open_connections: ClassVar[Connections]

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        # None until there is a request, although uvicorn's annotation differs.
        self.cycle: Any = None
        self.conn: Any = _PieceCountingConnection(h11.SERVER, LARGEST_HEAD)
        self.conn.most_pieces = self.open_connections.settings.body_pieces
        self.address = ""
        self.since = 0.0
        """Time of the last activity."""
        self._begun = False
        self._head_since: float | None = None
        self._answered_since: float | None = None
        self._unsent = 0
        self._unsent_since = 0.0

    # Called by asyncio.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Register the connection, or reject it."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        # Also for unsent bytes: otherwise a connection that was not checked yet would look slow since the clock began.
        self.since = self._head_since = self._unsent_since = self.open_connections.now()
        reason = self.open_connections.admit(self)
        if reason is not None:
            self.refuse(503, "UNAVAILABLE", reason)

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection."""
        self.open_connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read received bytes."""
        # Bytes that were in flight when the connection was rejected start no request.
        if self.transport.is_closing():
            return
        self._begun = True
        super().data_received(data)
        self._note_progress()

    def pause_writing(self) -> None:
        """Handle a response that is read more slowly than it is written."""
        super().pause_writing()
        self.open_connections.cut_unread()

    # Called by uvicorn.

    def on_response_complete(self) -> None:
        """Continue with the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._note_progress()

    def send_400_response(self, msg: str) -> None:
        """Reject what is not HTTP."""
        self.refuse(400, "BAD_REQUEST", self.conn.refused or msg)

    # Called by this module.

    def _note_progress(self) -> None:
        """Record the connection's progress within a request."""
        self.since = now = self.open_connections.now()
        ours, theirs = self.conn.our_state, self.conn.their_state
        # Half a head leaves h11 in state IDLE; only the bytes in its buffer distinguish it from a waiting connection.
        in_head = theirs is h11.IDLE and bool(self.conn.trailing_data[0])
        # From the first byte, not the last: a head sent byte by byte would never time out.
        self._head_since = (self._head_since or now) if in_head else None
        self._answered_since = (self._answered_since or now) if ours is h11.DONE and theirs is h11.SEND_BODY else None

    def is_stuck(self) -> bool:
        """Return whether a request or a response is unfinished and does not progress."""
        return self._head_since is not None or self.conn.their_state is h11.SEND_BODY or self.count_unsent() > 0

    def is_idle(self) -> bool:
        """Return whether no request of this connection is being handled."""
        return self.is_stuck() or self.cycle is None or self.cycle.response_complete

    def count_unsent(self) -> int:
        """Return the number of unread response bytes."""
        return self.transport.get_write_buffer_size()

    def measure_unread_s(self, now: float) -> float:
        """Return for how many seconds no response byte was read."""
        return now - self._unsent_since

    def check_time(self, now: float) -> None:
        """Close the connection if one of its time limits has passed."""
        limits = self.open_connections.settings
        size = self.count_unsent()
        if not self._unsent or size < self._unsent:
            # Nothing was unread at the last check, or something was read since: the time starts now.
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
            reason = f"the head of the request did not arrive within {limits.header_timeout_s:g} s (--header-timeout-s)"
            self.refuse(408, "REQUEST_TIMEOUT", reason)

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer if nothing was answered yet, and close the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            begun = self.cycle.response_started
            # The handler of the request sees a disconnect.
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
        """Close the connection immediately and drop unsent bytes."""
        RELEASED.add(self.count_unsent())
        if self.cycle is not None:
            # uvicorn drops further writes from here; asyncio reports the loss only later.
            self.cycle.disconnected = True
        self.transport.abort()


def make_protocol(settings: ServiceSettings) -> type[GuardedProtocol]:
    """Return the protocol class of one server, with its own connections."""

    # uvicorn creates the protocol objects, so the connections of one server are shared through their class.
    class Guarded(GuardedProtocol):
        open_connections = Connections(settings)

    return Guarded
