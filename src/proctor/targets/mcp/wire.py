"""The wire to one MCP server: how a client is connected, and what it means in words when that fails.

A server is a child process, an address, or an object in this process. Each try to connect has a wire of its own, so that what one process
wrote on standard error, or one refusal said, is not taken for the words of the next.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, Implementation

from proctor import __version__
from proctor.model.show import shorten
from proctor.network.addresses import AddressRefused
from proctor.targets.mcp.answers import HOOKS
from proctor.targets.mcp.auth import FetchedToken, ServerAuth
from proctor.targets.mcp.settings import ClientCredentials, ServerFault, ServerSettings, hide_secrets, sort_secrets, strip_url
from proctor.targets.mcp.stdio import MOST_LINE_BYTES, ChildServer
from proctor.targets.shared.wire import MakeTransport

_QUIET_STREAM_S = 300.0
"""How long a stream of events may be silent before it counts as lost."""


class ServerWire:
    """One way to a server, from one try to connect on."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        over_sse: bool,
        clock: Callable[[], float],
        transport: MakeTransport | None,
        fetched: FetchedToken,
    ) -> None:
        self.settings = settings
        self.over_sse = over_sse
        """Whether the server is spoken with by server-sent events alone."""
        self._clock = clock
        self._transport = transport
        self._fetched = fetched
        self.child: ChildServer | None = None
        self.auth: ServerAuth | None = None

    def list_secrets(self) -> tuple[str, ...]:
        """Return what must not be shown, including tokens fetched meanwhile."""
        return sort_secrets((*self.settings.list_secrets(), *(self.auth.list_secrets() if self.auth is not None else ())))

    @asynccontextmanager
    async def open_client(self) -> AsyncGenerator[Client]:
        """Connect by the transport of the settings."""
        settings = self.settings
        common: dict[str, Any] = {
            "mode": "legacy" if settings.era == "handshake" else "auto",
            "client_info": Implementation(name="proctor", version=__version__),
            # By default the package may answer from a cache for as long as a server says; `is_answering` has to reach the server.
            "cache": None,
            "read_timeout_seconds": settings.timeout_s,
        }
        if settings.transport == "in_process":
            async with Client(settings.server, **common) as client:
                yield client
        elif settings.transport == "stdio":
            self.child = ChildServer(settings.command, settings.args, env=settings.env, cwd=settings.cwd)
            async with Client(self.child, **common) as client:
                yield client
        else:
            self.auth = ServerAuth(settings, clock=self._clock, fetched=self._fetched)
            # A stream of events may be silent for long between two of them; each call has its own limit beside this.
            timeout = httpx2.Timeout(settings.timeout_s, read=max(_QUIET_STREAM_S, settings.timeout_s))
            by = self._transport(_uses_https(settings)) if self._transport is not None else None
            http = httpx2.AsyncClient(
                headers=settings.headers, auth=self.auth, timeout=timeout, transport=by, event_hooks=HOOKS, verify=_load_certificates()
            )
            if self.over_sse:
                # Such servers are older than the protocol without a handshake. The package closes the client it is given.
                wire = sse_client(settings.url, httpx_client_factory=lambda headers=None, timeout=None, auth=None: http)
                common["mode"] = "legacy"
                async with Client(wire, **common) as client:
                    yield client
                return
            async with http:
                wire = streamable_http_client(settings.url, http_client=http, max_sse_event_size=MOST_LINE_BYTES)
                async with Client(wire, **common) as client:
                    yield client

    def make_fault(self, code: Any, message: str, *, permanent: bool = False) -> ServerFault:
        """Return a fault of this server, without anything secret in its message. A permanent one is not tried again."""
        return ServerFault(code, self.settings.id, hide_secrets(message, self.list_secrets()), permanent=permanent)

    def describe_timeout(self) -> ServerFault:
        """Return the fault of a server that did not answer in time."""
        limit = f"did not answer within {self.settings.timeout_s:g} s"
        return self.make_fault("timeout", f"({self.settings.describe_place()}) {limit}{self.quote_stderr()}", permanent=True)

    def explain_error(self, error: BaseException) -> ServerFault:
        """Return why the server cannot be used, in words: what is permanent there is no use in trying again."""
        leaf = _find_cause(error)
        where = self.settings.describe_place()
        if isinstance(leaf, ServerFault):
            return leaf
        if self.settings.transport == "stdio":
            if isinstance(leaf, OSError) and (self.child is None or self.child.exit_code is None):
                return self.make_fault("command_not_found", f"cannot be started: {where}: {leaf.strerror or leaf}", permanent=True)
            if isinstance(leaf, MCPError) and is_said_by_package(leaf, CONNECTION_CLOSED):
                return self.make_fault("server_exited", f"({where}) {self.describe_exit()}")
        if isinstance(leaf, AddressRefused):
            return self.make_fault("address_refused", f"({where}) may not be reached: {leaf}", permanent=True)
        if isinstance(leaf, httpx2.TransportError | httpx2.DecodingError):
            target = strip_url(str(leaf.request.url if _has_request(leaf) else self.settings.url))
            if isinstance(leaf, httpx2.DecodingError):
                return self.make_fault("protocol", f"gave an answer at {target} that is not read: {leaf}", permanent=True)
            return self.make_fault("unreachable", f"cannot be reached at {target}: {leaf or type(leaf).__name__}")
        if isinstance(leaf, httpx2.HTTPStatusError):
            status = leaf.response.status_code
            told = f"({where}) refused to connect: it answered {status} {leaf.response.reason_phrase}".rstrip()
            code = "unauthorized" if status in (401, 403) else "refused"
            # 408 and 429 pass by themselves; any other refusal below 500 is the same the next time.
            return self.make_fault(code, told, permanent=300 <= status < 500 and status not in (408, 429))
        if isinstance(leaf, MCPError):
            status = self.auth.refusal[0] if self.auth is not None and self.auth.refusal is not None else None
            code = "unauthorized" if status in (401, 403) else "refused"
            permanent = status is not None and 300 <= status < 500 and status not in (408, 429)
            return self.make_fault(code, f"({where}) refused to connect: {shorten(self.describe_refusal(leaf), 500)}", permanent=permanent)
        return self.make_fault("protocol", f"({where}) answered nonsense: {type(leaf).__name__}: {shorten(str(leaf), 500)}")

    def describe_refusal(self, error: MCPError) -> str:
        """Return what the server said when it refused; its status where the package hides it behind words of its own."""
        refusal = self.auth.refusal if self.auth is not None else None
        if refusal is None or error.message not in ("Server returned an error response", "Not Found"):
            return error.message
        return f"it answered {refusal[0]} {refusal[1]}".rstrip()

    def describe_exit(self) -> str:
        """Return how the child process ended."""
        child = self.child
        assert child is not None
        if child.fault is not None:
            return child.fault
        code = child.exit_code
        how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"
        return f"ended{how} before it answered{self.quote_stderr()}"

    def quote_stderr(self) -> str:
        """Return the last words of a child process, as the end of a sentence."""
        child = self.child
        if child is None:
            return ""
        tail = hide_secrets(child.stderr_tail(), self.list_secrets())
        if tail:
            return f"; its standard error ends with:\n{tail}"
        if child.noise is not None:
            return f"; it wrote on standard output what is no MCP message: {child.noise}"
        return "; it wrote nothing on standard error"


@functools.cache
def _load_certificates() -> ssl.SSLContext:
    """Return the certificates we trust over HTTPS, read once: it takes 80 ms, and every attempt has connections of its own."""
    return httpx2.create_ssl_context()


def _uses_https(settings: ServerSettings) -> bool:
    """Return whether certificates are needed: for the server, or for the place its token comes from."""
    places = [settings.url, settings.auth.token_url if isinstance(settings.auth, ClientCredentials) else ""]
    return any(place.lower().startswith("https") for place in places)


_SAID_BY_PACKAGE = {CONNECTION_CLOSED: "Connection closed", REQUEST_TIMEOUT: "Request 'tools/call' timed out"}


def is_said_by_package(error: MCPError, code: int) -> bool:
    """Return whether an error is the package's own: servers use the same codes for what they like, in words of their own."""
    return error.code == code and error.message == _SAID_BY_PACKAGE[code]


def _find_cause(error: BaseException) -> BaseException:
    """Return the first real cause inside groups of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        # A task group cancels its other tasks when one fails: a cancellation says nothing of the cause.
        inner = [each for each in error.exceptions if not isinstance(each, asyncio.CancelledError)]
        error = inner[0] if inner else error.exceptions[0]
    return error


def _has_request(error: httpx2.RequestError) -> bool:
    try:
        # httpx2 raises `RuntimeError` when an error without a request is asked for it.
        return bool(error.request.url)
    except RuntimeError:
        return False
