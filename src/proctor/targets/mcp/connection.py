"""One MCP server, connected.

The `mcp` package requires that the task that enters a context also leaves it, so each connection has a task of its own: it connects, lists
the tools, signals that it is ready and waits for the signal to leave.

* One try is connecting and listing all pages of tools, within `timeout_s`. A try that failed is repeated after 250, 500 and 750 ms,
  unless repeating cannot help (no such command, not authorised) or the time was used up.
* A server that does not take streamable HTTP is spoken with by server-sent events alone, where its settings allow that.
* A tool call is never repeated: its effect is unknown. One that times out or fails on the wire is a failed call; if the server is gone, the
  error names that, and the next `get_listing` connects again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from proctor import __version__
from proctor.model.evidence import Json
from proctor.model.show import shorten
from proctor.network.addresses import AddressRefused
from proctor.targets.mcp.answers import HOOKS, add_missing_content
from proctor.targets.mcp.auth import REQUEST_ID, FetchedToken, ServerAuth
from proctor.targets.mcp.results import CallResult, Listing, RemoteTool, bound_result, can_be_written, mend_texts, plain_result
from proctor.targets.mcp.settings import (
    ClientCredentials,
    ServerFault,
    ServerSettings,
    hide_secrets,
    hide_secrets_in,
    sort_secrets,
    strip_url,
)
from proctor.targets.mcp.stdio import MOST_LINE_BYTES, ChildServer, finish_despite_cancel
from proctor.targets.shared.wire import MakeTransport

# --- the wire to one MCP server: how a client is connected, and what it means in words when that fails

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
            # By default the package may answer from a cache as long as a server allows; `is_answering` has to reach the server.
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
            # A stream of events may be silent for long; each call has its own limit as well.
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
            if isinstance(leaf, MCPError) and is_local_error(leaf, CONNECTION_CLOSED):
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
            message = f"({where}) refused to connect: it answered {status} {leaf.response.reason_phrase}".rstrip()
            code = "unauthorized" if status in (401, 403) else "refused"
            # 408 and 429 pass by themselves; any other refusal below 500 is the same the next time.
            return self.make_fault(code, message, permanent=300 <= status < 500 and status not in (408, 429))
        if isinstance(leaf, MCPError):
            status = self.auth.refusal[0] if self.auth is not None and self.auth.refusal is not None else None
            code = "unauthorized" if status in (401, 403) else "refused"
            permanent = status is not None and 300 <= status < 500 and status not in (408, 429)
            return self.make_fault(code, f"({where}) refused to connect: {shorten(self.describe_refusal(leaf), 500)}", permanent=permanent)
        return self.make_fault("protocol", f"({where}) answered nonsense: {type(leaf).__name__}: {shorten(str(leaf), 500)}")

    def describe_refusal(self, error: MCPError) -> str:
        """Return why the server refused; its status if the package hides it."""
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
            return f"; it wrote on standard output something else than MCP messages: {child.noise}"
        return "; it wrote nothing on standard error"


@functools.cache
def _load_certificates() -> ssl.SSLContext:
    """Return the certificates we trust over HTTPS, read once: it takes 80 ms, and every attempt has connections of its own."""
    return httpx2.create_ssl_context()


def _uses_https(settings: ServerSettings) -> bool:
    """Return whether certificates are needed: for the server, or for the place its token comes from."""
    places = [settings.url, settings.auth.token_url if isinstance(settings.auth, ClientCredentials) else ""]
    return any(place.lower().startswith("https") for place in places)


_LOCAL_ERRORS = {CONNECTION_CLOSED: "Connection closed", REQUEST_TIMEOUT: "Request 'tools/call' timed out"}


def is_local_error(error: MCPError, code: int) -> bool:
    """Return whether an error is the package's own: servers use the same codes for what they like, in words of their own."""
    return error.code == code and error.message == _LOCAL_ERRORS[code]


def _find_cause(error: BaseException) -> BaseException:
    """Return the first real cause inside groups of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        # A task group cancels its other tasks when one fails: a cancellation is not the cause.
        inner = [each for each in error.exceptions if not isinstance(each, asyncio.CancelledError)]
        error = inner[0] if inner else error.exceptions[0]
    return error


def _has_request(error: httpx2.RequestError) -> bool:
    try:
        # httpx2 raises `RuntimeError` on `.request` of an error without one.
        return bool(error.request.url)
    except RuntimeError:
        return False


RETRY_WAITS_S = (0.25, 0.5, 0.75)
"""The pauses between tries to connect, as MCPLab makes them."""
_MOST_PAGES = 1_000
"""Maximum number of pages of tools: a server's pages may never end."""
_CLOSE_S = 10.0
"""How long a child process has to end before its connection is cancelled."""
_CLOSE_HTTP_S = 3.0
"""Saying goodbye to a server over HTTP may not take longer."""

# The package reports what it survives by logging; without a handler Python would print that on standard error.
for _name in ("mcp", "client", "httpx2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Connection:
    """One server between `open` and `close`."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        waits_s: Sequence[float] = RETRY_WAITS_S,
        clock: Callable[[], float] = time.monotonic,
        transport: MakeTransport | None = None,
        fetched: FetchedToken | None = None,
    ) -> None:
        self.settings = settings
        self._fetched = fetched or FetchedToken()
        self._transport = transport
        self._waits_s = waits_s
        self._clock = clock
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._client: Client | None = None
        self._listing: Listing | None = None
        self._lost: str | None = None
        self._wire = self._make_wire(over_sse=settings.transport == "sse")

    def _make_wire(self, *, over_sse: bool) -> ServerWire:
        return ServerWire(self.settings, over_sse=over_sse, clock=self._clock, transport=self._transport, fetched=self._fetched)

    def list_secrets(self) -> tuple[str, ...]:
        """Return what must not be shown, including tokens fetched meanwhile."""
        return self._wire.list_secrets()

    async def get_listing(self) -> Listing:
        """Return who the server is and what it offers; connect first where that is needed."""
        # Several attempts may find the server gone at once: one of them connects, the others use what it made.
        async with self._lock:
            if not self._is_alive() or self._listing is None:
                await self._end_owner()
                await self._connect()
            assert self._listing is not None
            return self._listing

    async def call(self, tool: str, arguments: dict[str, Json], *, request_id: str | None = None) -> CallResult:
        """Call a tool, once."""
        # A lost server is not reconnected here: its session and state of this attempt are lost.
        client = self._client
        if client is None or not self._is_alive():
            return CallResult(error=self._describe_loss(), gone=True)
        limit = self.settings.timeout_s
        if not can_be_written(arguments):
            return CallResult(error="the arguments contain a lone surrogate, which cannot be sent")
        mark = REQUEST_ID.set(request_id)
        try:
            # The package keeps the limit; ours is for the case that it does not.
            async with asyncio.timeout(limit + 5):
                answer = await client.call_tool(tool, arguments, read_timeout_seconds=limit)
        except TimeoutError:
            return CallResult(error=f"timed out after {limit:g} s")
        except MCPError as error:
            if is_local_error(error, REQUEST_TIMEOUT):
                return CallResult(error=f"timed out after {limit:g} s")
            if is_local_error(error, CONNECTION_CLOSED) and await self._is_gone():
                return CallResult(error=self._describe_loss(), gone=True)
            return CallResult(error=hide_secrets(shorten(self._wire.describe_refusal(error), 2000), self.list_secrets()))
        except (RuntimeError, ValueError) as error:
            # The result does not fit the schema the tool declared, or is no result at all.
            return CallResult(error=hide_secrets(shorten(str(error), 2000), self.list_secrets()))
        finally:
            REQUEST_ID.reset(mark)
        plain = mend_texts(plain_result(answer.model_dump(by_alias=True, mode="json", exclude_none=True, exclude_unset=True)))
        return CallResult(result=bound_result(hide_secrets_in(plain, self.list_secrets())))

    async def is_answering(self) -> bool:
        """Return whether the server answers now. The newer protocol has no ping, so this asks for its tools."""
        client = self._client
        if client is None or not self._is_alive():
            return False
        # It would reject the request; an open connection is all that can be known.
        if client.server_capabilities.tools is None:
            return True
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                await client.list_tools()
        except (TimeoutError, MCPError):
            return False
        return True

    async def close(self) -> None:
        """Close the connection; a child process has ended when this returns, also when the caller is cancelled."""
        await finish_despite_cancel(self._end_owner())

    def _is_alive(self) -> bool:
        return (
            self._client is not None
            and self._owner is not None
            and not self._owner.done()
            and (self._wire.child is None or not (self._wire.child.ended or self._wire.child.fault))
        )

    async def _is_gone(self) -> bool:
        """Return whether a closed connection means that the server ended, or (over HTTP) only that one exchange did."""
        if self._wire.child is not None:
            await self._wire.child.wait_for_last_words()
        elif self._owner is not None:
            await asyncio.wait({self._owner}, timeout=0.2)  # it may be about to learn why
        return self.settings.transport != "http" or self._wire.over_sse or not self._is_alive()

    async def _connect(self) -> None:
        self.settings.check()
        # None is the last try, after which there is no pause.
        for wait_s in (*self._waits_s, None):
            fault = await self._try_to_connect()
            if fault is None or (self._may_need_sse(fault) and await self._connect_over_sse()):
                return
            # A command that does not exist, or a key that is refused, will be the same in half a second.
            if wait_s is None or fault.permanent:
                raise fault
            await asyncio.sleep(wait_s)

    def _may_need_sse(self, fault: ServerFault) -> bool:
        return self.settings.sse_fallback and self.settings.transport == "http" and fault.code in ("refused", "protocol")

    async def _connect_over_sse(self) -> bool:
        """Connect by server-sent events and return whether that worked; if not, the refusal of streamable HTTP is what is reported."""
        self._wire.over_sse = True
        reached = await self._try_to_connect() is None
        self._wire.over_sse = reached
        return reached

    async def _try_to_connect(self) -> ServerFault | None:
        # A new wire for each try: the child and the refusal that an old one remembers belong to the try that failed.
        self._wire = self._make_wire(over_sse=self._wire.over_sse)
        self._stop = asyncio.Event()
        ready: asyncio.Future[ServerFault | None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own_connection(ready), name=f"mcp server {self.settings.id}")
        try:
            # Shielded: a cancelled caller must not cancel the future that the owner still sets.
            return await asyncio.shield(ready)
        except BaseException:
            await self.close()
            raise

    async def _own_connection(self, ready: asyncio.Future[ServerFault | None]) -> None:
        fault: ServerFault | None = None
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.settings.timeout_s):
                    client = await stack.enter_async_context(self._wire.open_client())
                    add_missing_content(client.session)
                    self._listing = await self._list_tools(client)
                self._client = client
                ready.set_result(None)
                # The task that entered the contexts must leave them: it waits here for the signal.
                await self._stop.wait()
        except ServerFault as error:
            fault = error
        except TimeoutError:
            fault = self._wire.describe_timeout()
        except (Exception, BaseExceptionGroup) as error:
            fault = self._wire.explain_error(error)
        finally:
            self._client = None
            self._lost = str(fault) if fault is not None else None
            # Also if this task was cancelled: callers waiting for `ready` would wait for ever.
            if not ready.done():
                ready.set_result(fault or self._wire.make_fault("unreachable", "was left before it answered"))

    async def _list_tools(self, client: Client) -> Listing:
        if self.settings.era == "stateless" and client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            message = f"({self.settings.describe_place()}) speaks protocol {client.protocol_version}, not the requested stateless one"
            raise self._wire.make_fault("protocol", message, permanent=True)
        tools: list[RemoteTool] = []
        seen: set[str] = set()
        cursor: str | None = None
        if client.server_capabilities.tools is not None:
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [RemoteTool(name=tool.name, description=tool.description or "", schema=tool.input_schema) for tool in page.tools]
                cursor = page.next_cursor
                # A server that gives the same cursor again would send us round in a circle.
                if cursor is None or cursor in seen:
                    break
                seen.add(cursor)
        who = client.server_info
        return Listing(
            server=self.settings.id,
            name=who.name if who is not None else None,
            version=who.version if who is not None else None,
            protocol=client.protocol_version,
            tools=tuple(tools),
        )

    async def _end_owner(self) -> None:
        owner, self._owner = self._owner, None
        if owner is None:
            return
        self._stop.set()
        if self._client is None:
            owner.cancel()  # still connecting: it does not look at the sign
        await asyncio.wait({owner}, timeout=_CLOSE_HTTP_S if self.settings.is_remote else _CLOSE_S)
        if not owner.done():
            owner.cancel()
            await asyncio.wait({owner}, timeout=_CLOSE_S)
        self._client = None

    def _describe_loss(self) -> str:
        if self._wire.child is None:
            return self._lost or f"the connection to MCP server {self.settings.id!r} was lost"
        words = self._wire.describe_exit().replace(" before it answered", "")
        return hide_secrets(f"MCP server {self.settings.id!r} {words}", self.list_secrets())
