"""Sends requests to a model provider through httpx2 and reads complete answers.

Transports of httpx2 are used without its client, because a request with a key must not have what a client adds: redirects, cookies, proxies
and passwords from the environment. Each transport has one connection and sends one request at a time: a pool of fifty searches all fifty
before and after every request, a third of the overhead of a small one. Transports belong to one event loop; another loop gets new ones.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import msgspec

from proctor.codecs.http import ACCEPT_ENCODING, BadPacking, TooLarge, unpack_answer
from proctor.errors import MissingExtra
from proctor.llm.ports import FaultCode

if TYPE_CHECKING:
    import httpx2

MakeTransport = Callable[[bool], "httpx2.AsyncBaseTransport"]
"""Makes restricted connections; the argument is whether certificates are verified."""

CONNECT_S = 30.0
_TIMEOUTS = {"connect": CONNECT_S, "read": None, "write": None, "pool": None}
"""The caller limits the time of the whole exchange."""
KEEPALIVE_S = 5.0
"""Seconds for which an idle connection may be reused; servers close them after this time or later."""


class Answer(msgspec.Struct, frozen=True):
    """An unprocessed answer. Header names are lower case."""

    status: int
    headers: dict[str, str]
    content: bytes


class NoAnswer(Exception):
    """Why there is no answer: a code and a description, which may contain secrets."""

    def __init__(self, code: FaultCode, what: str) -> None:
        super().__init__(what)
        self.code: FaultCode = code
        self.what = what


class Connections:
    """Reusable connections to one provider, opened on demand."""

    def __init__(
        self, headers: Mapping[str, str], *, max_bytes: int, proxy: str | None = None, make_transport: MakeTransport | None = None
    ) -> None:
        self._headers = {"accept-encoding": ACCEPT_ENCODING, "user-agent": "proctor", **headers}
        self.max_bytes = max_bytes
        self._proxy = proxy
        self._make_transport = make_transport
        self._addresses: dict[str, tuple[httpx2.URL, httpx2.Headers]] = {}
        self._certificates: ssl.SSLContext | None = None
        self._transports: set[httpx2.AsyncBaseTransport] = set()
        self._idle: list[httpx2.AsyncBaseTransport] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, url: str, content: bytes) -> Answer:
        """Post `content` and return the answer. Raises `NoAnswer`."""
        try:
            import httpx2  # takes a fifth of a second, and replays do not need it
        except ImportError:
            raise MissingExtra("A model over HTTP", "live") from None
        try:
            known = self._addresses.get(url)
            if known is None:
                known = self._addresses[url] = self._read_address(url)
            address, headers = known
            request = httpx2.Request("POST", address, headers=headers, content=content, extensions={"timeout": _TIMEOUTS})
            transport = self._take_transport(secure=request.url.scheme != "http")
            try:
                response = await transport.handle_async_request(request)
                try:
                    packing = response.headers.get("content-encoding", "")
                    content = await unpack_answer(response.aiter_raw(), packing, max_bytes=self.max_bytes)
                    return Answer(response.status_code, dict(response.headers), content)
                finally:
                    await response.aclose()
            finally:
                if transport in self._transports:  # not closed in the meantime
                    self._idle.append(transport)
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError):
            raise NoAnswer("bad_request", "is not an address that can be reached") from None
        except httpx2.LocalProtocolError:
            # The message of httpx2 contains the header, which may be the key.
            raise NoAnswer("bad_request", "cannot be sent this request: a header has a character that HTTP does not allow") from None
        except httpx2.ConnectTimeout as error:
            raise NoAnswer("transport", str(error) or f"no connection within {CONNECT_S:g} s") from None
        except httpx2.HTTPError as error:
            raise NoAnswer("transport", str(error) or type(error).__name__) from None
        except TooLarge:
            raise NoAnswer("too_large", f"answered with more than {self.max_bytes // 1024 // 1024} MB") from None
        except BadPacking as error:
            raise NoAnswer("bad_answer", f"answered with something that cannot be unpacked: {error}") from None

    async def close(self) -> None:
        """Close every connection."""
        # Emptied before any await: a request that ends during closing must not return a closed transport to the idle ones.
        transports, self._transports, self._idle = self._transports, set(), []
        # Connections of another loop cannot be closed from this one.
        if self._loop is asyncio.get_running_loop():
            # All of them: one error must not leave the others open.
            ends = await asyncio.gather(*(transport.aclose() for transport in transports), return_exceptions=True)
            for end in ends:
                if isinstance(end, BaseException):
                    raise end

    def _read_address(self, url: str) -> tuple[httpx2.URL, httpx2.Headers]:
        """Return an address, and the headers for every request to it."""
        import httpx2  # loaded by the caller

        address = httpx2.URL(url)
        address.raw_host.decode().encode("idna")  # an empty or too long label is a permanent error
        headers = {"host": address.netloc.decode("ascii"), **self._headers}
        # The httpx2 client sends the user and password of an address in a header; its transports do not.
        if address.userinfo and "authorization" not in headers:
            headers["authorization"] = f"Basic {base64.b64encode(unquote_to_bytes(address.userinfo)).decode()}"
        return address, httpx2.Headers(headers, encoding="utf-8")

    def _take_transport(self, *, secure: bool) -> httpx2.AsyncBaseTransport:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Connections of an ended loop cannot be closed; they are freed with their transports.
            self._loop, self._transports, self._idle = loop, set(), []
        if self._idle:
            return self._idle.pop()
        transport = self._make_transport(secure) if self._make_transport is not None else self._new_transport(secure=secure)
        self._transports.add(transport)
        return transport

    def _new_transport(self, *, secure: bool) -> httpx2.AsyncBaseTransport:
        import httpx2  # loaded by the caller

        # The first request decides for all: one provider has one address and one scheme.
        if self._certificates is None:
            # Plain HTTP needs no certificates, and loading them takes as long as dozens of requests.
            plain = not secure and self._proxy is None
            self._certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else httpx2.create_ssl_context(trust_env=False)
        limits = httpx2.Limits(max_connections=1, keepalive_expiry=KEEPALIVE_S)
        return httpx2.AsyncHTTPTransport(verify=self._certificates, trust_env=False, limits=limits, proxy=self._proxy)
