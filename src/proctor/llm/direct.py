"""Sends requests to a model provider over connections of our own: HTTP/1.1 by h11 on asyncio, nothing between them.

A judge asks thousands of small questions, fifty at a time, and a general HTTP client takes longer around each of them than everything
else here together. So this one does only what a question needs: a connection is one protocol object, a request is one write, an answer
is read whole. An idle connection is used again within `KEPT_S`, if its server has not closed it; one that was given up in the middle is
closed. What the other side may send is bounded: heads by h11, bodies by `limit`, also after unpacking.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import cast
from urllib.parse import quote, unquote, urlsplit

import h11
import msgspec

from proctor.llm.carrier import Answer, CarrierFault, refuse_address, refuse_too_large
from proctor.llm.ports import FaultCode

KEPT_S = 5.0
"""How long an idle connection may be used again; servers close them after this or more."""

CONNECT_S = 30.0
"""How long connecting may take; the time limit of the request holds beside it."""
_MOST_KEPT = 100
"""How many idle connections are kept; more are closed after their answer."""
_HEAD_BYTES = 100 * 1024
"""The largest head of an answer that is read."""
_LONGEST_HOST = 253
"""Characters of a host name that DNS allows."""
_AS_IT_IS = "/%:@!$&'()*+,;=~-._?[]"


class _Origin(msgspec.Struct, frozen=True):
    """Where an address leads, and what all requests to it share."""

    host: str
    port: int
    secure: bool
    target: str
    headers: tuple[tuple[str, str], ...]


class DirectCarrier:
    """Connections to one provider, opened as they are needed."""

    def __init__(self, headers: Mapping[str, str], *, limit: int, certificates: Callable[[], ssl.SSLContext]) -> None:
        self._headers = {"accept-encoding": "gzip, deflate", "user-agent": "proctor", **headers}
        self._limit = limit
        self._certificates = certificates
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._origins: dict[str, _Origin] = {}

    async def send(self, url: str, content: bytes) -> Answer:
        """Post `content` and return the answer. Raises `CarrierFault`."""
        origin = self._origins.get(url)
        if origin is None:
            origin = self._origins[url] = _parse_origin(url, self._headers)
        connection = self._take_idle(origin) or await self._connect(origin)
        try:
            answer = await connection.exchange(origin, content)
        except BaseException:
            self._drop(connection)
            raise
        if connection.make_reusable() and len(self._idle) < _MOST_KEPT:
            self._idle.append(connection)
        else:
            self._drop(connection)
        return answer

    async def close(self) -> None:
        """Close every connection."""
        opened, self._open, self._idle = self._open, set(), []
        for connection in opened:
            connection.end()
        # Two turns of the loop, in which the sockets are really closed, those below TLS too.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def count_open(self) -> int:
        """Return how many connections there are."""
        return len(self._open)

    def _drop(self, connection: _Connection) -> None:
        self._open.discard(connection)
        connection.end()

    def _take_idle(self, origin: _Origin) -> _Connection | None:
        """Return an idle connection that can still be used, the freshest first: the others grow old and are closed."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(origin, loop, now):
                return connection
            self._drop(connection)
        return None

    async def _connect(self, origin: _Origin) -> _Connection:
        loop = asyncio.get_running_loop()
        context = self._certificates() if origin.secure else None
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(
                    lambda: _Connection(origin, loop, self._limit),
                    origin.host,
                    origin.port,
                    ssl=context,
                    server_hostname=origin.host if context is not None else None,
                    happy_eyeballs_delay=0.25,
                )
        except TimeoutError:
            raise CarrierFault("transport", f"no connection within {CONNECT_S:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise CarrierFault("transport", f"its certificate is not trusted: {error.verify_message}") from None
        except UnicodeError:  # a name with an empty or an endless label, before anybody is asked for it
            raise refuse_address() from None
        except OSError as error:
            raise CarrierFault("transport", str(error) or type(error).__name__) from None
        self._open.add(connection)
        return connection


class _Connection(asyncio.Protocol):
    """One connection: one request and its answer at a time."""

    def __init__(self, origin: _Origin, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._origin = origin
        self._loop = loop
        self._limit = limit
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._idle_since = 0.0
        self._waiting: asyncio.Future[Answer] | None = None
        self._status = 0
        self._fields: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._size = 0

    async def exchange(self, origin: _Origin, content: bytes) -> Answer:
        """Send a request and wait for the whole answer."""
        transport = self._transport
        assert transport is not None
        headers = [*origin.headers, ("content-length", str(len(content)))]
        try:
            head = self._http.send(h11.Request(method="POST", target=origin.target, headers=headers))
            body = self._http.send(h11.Data(data=content))
            self._http.send(h11.EndOfMessage())
        except h11.LocalProtocolError as error:
            raise CarrierFault("bad_request", f"the request cannot be sent: {error}") from None
        self._waiting = self._loop.create_future()
        self._parts, self._size = [], 0
        transport.write((head or b"") + (body or b""))
        try:
            answer = await self._waiting
        finally:
            self._waiting = None
        return _decompress(answer, self._limit)

    def is_usable(self, origin: _Origin, loop: asyncio.AbstractEventLoop, now: float) -> bool:
        """Return whether a request to `origin` may go over this connection now."""
        mine = self._origin
        same = mine is origin or (mine.host, mine.port, mine.secure) == (origin.host, origin.port, origin.secure)
        return same and self._loop is loop and self._is_alive() and now - self._idle_since < KEPT_S

    def make_reusable(self) -> bool:
        """Return whether another request may follow, and make the connection ready for it; asked after an answer."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE or not self._is_alive():
            return False
        # Who answers before it has read everything may take the rest for the next request.
        if self._transport is None or self._transport.get_write_buffer_size() > 0 or self._http.trailing_data[0]:
            return False
        self._http.start_next_cycle()
        self._idle_since = self._loop.time()
        return True

    def end(self) -> None:
        """Close at once, whatever is under way."""
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        self._http.receive_data(data)
        self._read_events()

    def eof_received(self) -> None:
        """Note that nothing more will come, which is the end of some answers."""
        self._http.receive_data(b"")
        self._read_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request under way, since the connection is gone."""
        self._transport = None
        self._fail(
            "transport", f"the connection broke: {exc}" if exc is not None else "the connection was closed before the answer was complete"
        )

    def _is_alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _read_events(self) -> None:
        if self._waiting is None:
            # Nobody asked: not a server to go on with.
            self.end()
            return
        try:
            while self._take_event(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._fail("transport", f"the answer is no proper HTTP: {error}")

    def _take_event(self, event: object) -> bool:
        """Take in one event and return whether there may be another."""
        if isinstance(event, h11.Data):
            self._size += len(event.data)
            if self._size > self._limit:
                self._give_up(refuse_too_large(self._limit))
                return False
            self._parts.append(bytes(event.data))
            return True
        if isinstance(event, h11.Response):
            self._status = event.status_code
            self._fields = _join_headers(event.headers.raw_items())
            return True
        if isinstance(event, h11.EndOfMessage):
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(Answer(self._status, self._fields, b"".join(self._parts)))
            self._parts = []
            return False
        # A word in advance (status 1xx) is followed by the answer; anything else waits for more bytes.
        return isinstance(event, h11.InformationalResponse)

    def _fail(self, code: FaultCode, what: str) -> None:
        self._give_up(CarrierFault(code, what))

    def _give_up(self, fault: CarrierFault) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(fault)


def _parse_origin(url: str, headers: Mapping[str, str]) -> _Origin:
    """Return where an address leads. Raises `CarrierFault`."""
    try:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        host = (parts.hostname or "").encode("idna").decode() if not (parts.hostname or "").isascii() else parts.hostname
        port = parts.port or (443 if secure else 80)
    except (ValueError, UnicodeError):
        raise refuse_address() from None
    if not host or parts.scheme not in ("http", "https") or len(host) > _LONGEST_HOST:
        raise refuse_address()
    shown = f"[{host}]" if ":" in host else host
    own = {"host": shown if parts.port in (None, 443 if secure else 80) else f"{shown}:{port}"}
    if parts.username is not None and "authorization" not in headers:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        own["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    target = quote(parts.path or "/", safe=_AS_IT_IS) + (f"?{quote(parts.query, safe=_AS_IT_IS)}" if parts.query else "")
    return _Origin(host=host, port=port, secure=secure, target=target, headers=tuple({**own, **headers}.items()))


def _join_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name; several of one name are joined with commas."""
    found: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _decompress(answer: Answer, limit: int) -> Answer:
    """Return the answer decompressed."""
    how = answer.headers.get("content-encoding", "").strip().lower()
    if how in ("", "identity") or not answer.content:
        return answer
    if how not in ("gzip", "x-gzip", "deflate"):
        raise CarrierFault("bad_answer", f"answered packed in a way that was not asked for ({how[:40]!r})")
    # Both heads are known to zlib; some servers send `deflate` without any.
    bare = how == "deflate" and answer.content[0] & 0x0F != 8
    unpacking = zlib.decompressobj(-15 if bare else 47)
    try:
        content = unpacking.decompress(answer.content, limit + 1)
    except zlib.error:
        raise CarrierFault("bad_answer", f"answered with something that is not {how}, although it says so") from None
    if len(content) > limit:
        raise refuse_too_large(limit)
    if not unpacking.eof:
        raise CarrierFault("bad_answer", f"answered with {how} that ends in the middle")
    return Answer(answer.status, answer.headers, content)
