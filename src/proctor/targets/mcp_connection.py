"""One MCP server, connected.

The `mcp` package wants its contexts left by the task that entered them, so each connection is owned by a task of its own: it
connects, lists the tools, says that it is ready and waits to be told to leave. Everybody else only asks through it.

* One try is connecting and listing all pages of tools, within `timeout_s`. A try that failed is repeated after 250, 500 and 750 ms,
  unless repeating cannot help (no such command, not authorised) or the time was used up.
* A server that does not take streamable HTTP is spoken with by server-sent events alone, where its settings allow that.
* A tool call is never repeated: nobody knows what it did. One that times out or fails on the wire is a failed call; one that
  finds the server gone says so, and the next `listing` connects anew.
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
from proctor.targets.mcp_answers import HOOKS, default_content
from proctor.targets.mcp_auth import REQUEST_ID, FetchedToken, ServerAuth
from proctor.targets.mcp_results import CallResult, Listing, RemoteTool, bounded, can_be_written, mended, plain_result
from proctor.targets.mcp_settings import ClientCredentials, ServerFault, ServerSettings, hide, hide_in, ordered_secrets, without_secrets
from proctor.targets.mcp_stdio import MOST_LINE_BYTES, ChildServer, finish
from proctor.targets.wire import MakeTransport

RETRY_WAITS_S = (0.25, 0.5, 0.75)
_MOST_PAGES = 1_000
_CLOSE_S = 10.0
_CLOSE_HTTP_S = 3.0
"""Saying goodbye to a server over HTTP may not take longer."""
_QUIET_STREAM_S = 300.0

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
        self._child: ChildServer | None = None
        self._auth: ServerAuth | None = None
        self._listing: Listing | None = None
        self._lost: str | None = None
        self._over_sse = settings.transport == "sse"

    def secrets(self) -> tuple[str, ...]:
        """What must not be shown, tokens fetched meanwhile included."""
        return ordered_secrets((*self.settings.secrets(), *(self._auth.secrets() if self._auth is not None else ())))

    async def listing(self) -> Listing:
        """Who the server is and what it offers; connects first where that is needed."""
        async with self._lock:
            if not self._alive() or self._listing is None:
                await self._leave()
                await self._connect()
            assert self._listing is not None
            return self._listing

    async def call(self, tool: str, arguments: dict[str, Json], *, request_id: str | None = None) -> CallResult:
        """Call a tool, once."""
        client = self._client
        if client is None or not self._alive():
            return CallResult(error=self._gone(), gone=True)
        limit = self.settings.timeout_s
        if not can_be_written(arguments):
            return CallResult(error="the arguments hold half a surrogate pair, which cannot be sent")
        mark = REQUEST_ID.set(request_id)
        try:
            # The package keeps the limit; ours is for the case that it does not.
            async with asyncio.timeout(limit + 5):
                answer = await client.call_tool(tool, arguments, read_timeout_seconds=limit)
        except TimeoutError:
            return CallResult(error=f"timed out after {limit:g} s")
        except MCPError as error:
            if _is_said_by_package(error, REQUEST_TIMEOUT):
                return CallResult(error=f"timed out after {limit:g} s")
            if _is_said_by_package(error, CONNECTION_CLOSED) and await self._is_gone():
                return CallResult(error=self._gone(), gone=True)
            return CallResult(error=hide(shorten(self._refused(error), 2000), self.secrets()))
        except (RuntimeError, ValueError) as error:
            # The result does not fit the schema the tool declared, or is no result at all.
            return CallResult(error=hide(shorten(str(error), 2000), self.secrets()))
        finally:
            REQUEST_ID.reset(mark)
        plain = mended(plain_result(answer.model_dump(by_alias=True, mode="json", exclude_none=True, exclude_unset=True)))
        return CallResult(result=bounded(hide_in(plain, self.secrets())))

    async def answers(self) -> bool:
        """Whether the server answers now. The newer protocol has no ping, so its tools are asked for."""
        client = self._client
        if client is None or not self._alive():
            return False
        if client.server_capabilities.tools is None:
            return True
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                await client.list_tools()
        except (TimeoutError, MCPError):
            return False
        return True

    async def close(self) -> None:
        """Leave the server; a child process has ended when this returns, also when the caller is cancelled."""
        await finish(self._leave())

    def _alive(self) -> bool:
        return (
            self._client is not None
            and self._owner is not None
            and not self._owner.done()
            and (self._child is None or not (self._child.ended or self._child.fault))
        )

    async def _is_gone(self) -> bool:
        """Whether a closed connection is the end of the server, or (over HTTP) only that of one exchange."""
        if self._child is not None:
            await self._child.settle()
        elif self._owner is not None:
            await asyncio.wait({self._owner}, timeout=0.2)  # it may be about to learn why
        return self.settings.transport != "http" or self._over_sse or not self._alive()

    async def _connect(self) -> None:
        self.settings.check()
        for wait_s in (*self._waits_s, None):
            fault = await self._try()
            if fault is None or (self._may_be_old(fault) and await self._reached_over_sse()):
                return
            if wait_s is None or fault.permanent:
                raise fault
            await asyncio.sleep(wait_s)

    def _may_be_old(self, fault: ServerFault) -> bool:
        return self.settings.sse_fallback and self.settings.transport == "http" and fault.code in ("refused", "protocol")

    async def _reached_over_sse(self) -> bool:
        """Whether the server speaks the older way; what it said to the newer one is told where it does not."""
        self._over_sse = True
        reached = await self._try() is None
        self._over_sse = reached
        return reached

    async def _try(self) -> ServerFault | None:
        self._stop = asyncio.Event()
        ready: asyncio.Future[ServerFault | None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(ready), name=f"mcp server {self.settings.id}")
        try:
            return await asyncio.shield(ready)
        except BaseException:
            await self.close()
            raise

    async def _own(self, ready: asyncio.Future[ServerFault | None]) -> None:
        fault: ServerFault | None = None
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.settings.timeout_s):
                    client = await stack.enter_async_context(self._reach())
                    default_content(client.session)
                    self._listing = await self._list(client)
                self._client = client
                ready.set_result(None)
                await self._stop.wait()
        except ServerFault as error:
            fault = error
        except TimeoutError:
            fault = self._silent()
        except (Exception, BaseExceptionGroup) as error:
            fault = await self._explained(error)
        finally:
            self._client = None
            self._lost = str(fault) if fault is not None else None
            if not ready.done():
                ready.set_result(fault or self._fault("unreachable", "was left before it answered"))

    @asynccontextmanager
    async def _reach(self) -> AsyncGenerator[Client]:
        settings = self.settings
        common: dict[str, Any] = {
            "mode": "legacy" if settings.era == "handshake" else "auto",
            "client_info": Implementation(name="proctor", version=__version__),
            "cache": None,
            "read_timeout_seconds": settings.timeout_s,
        }
        self._child = self._auth = None
        if settings.transport == "in_process":
            async with Client(settings.server, **common) as client:
                yield client
        elif settings.transport == "stdio":
            self._child = ChildServer(settings.command, settings.args, env=settings.env, cwd=settings.cwd)
            async with Client(self._child, **common) as client:
                yield client
        else:
            self._auth = ServerAuth(settings, clock=self._clock, fetched=self._fetched)
            timeout = httpx2.Timeout(settings.timeout_s, read=max(_QUIET_STREAM_S, settings.timeout_s))
            by = self._transport(_secure(settings)) if self._transport is not None else None
            http = httpx2.AsyncClient(
                headers=settings.headers, auth=self._auth, timeout=timeout, transport=by, event_hooks=HOOKS, verify=_certificates()
            )
            if self._over_sse:
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

    async def _list(self, client: Client) -> Listing:
        if self.settings.era == "stateless" and client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            message = f"({self.settings.place()}) speaks protocol {client.protocol_version}, not the stateless one that is asked for"
            raise self._fault("protocol", message, permanent=True)
        tools: list[RemoteTool] = []
        seen: set[str] = set()
        cursor: str | None = None
        if client.server_capabilities.tools is not None:
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [RemoteTool(name=tool.name, description=tool.description or "", schema=tool.input_schema) for tool in page.tools]
                cursor = page.next_cursor
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

    async def _leave(self) -> None:
        owner, self._owner = self._owner, None
        if owner is None:
            return
        self._stop.set()
        if self._client is None:
            owner.cancel()  # still connecting: it does not look at the sign
        await asyncio.wait({owner}, timeout=_CLOSE_HTTP_S if self.settings.remote else _CLOSE_S)
        if not owner.done():
            owner.cancel()
            await asyncio.wait({owner}, timeout=_CLOSE_S)
        self._client = None

    def _fault(self, code: Any, message: str, *, permanent: bool = False) -> ServerFault:
        return ServerFault(code, self.settings.id, hide(message, self.secrets()), permanent=permanent)

    def _silent(self) -> ServerFault:
        limit = f"did not answer within {self.settings.timeout_s:g} s"
        return self._fault("timeout", f"({self.settings.place()}) {limit}{self._last_words()}", permanent=True)

    async def _explained(self, error: BaseException) -> ServerFault:
        leaf = _leaf(error)
        where = self.settings.place()
        if isinstance(leaf, ServerFault):
            return leaf
        if self.settings.transport == "stdio":
            if isinstance(leaf, OSError) and (self._child is None or self._child.exit_code is None):
                return self._fault("command_not_found", f"cannot be started: {where}: {leaf.strerror or leaf}", permanent=True)
            if isinstance(leaf, MCPError) and _is_said_by_package(leaf, CONNECTION_CLOSED):
                return self._fault("server_exited", f"({where}) {self._ended()}")
        if isinstance(leaf, AddressRefused):
            return self._fault("address_refused", f"({where}) may not be reached: {leaf}", permanent=True)
        if isinstance(leaf, httpx2.TransportError | httpx2.DecodingError):
            target = without_secrets(str(leaf.request.url if _has_request(leaf) else self.settings.url))
            if isinstance(leaf, httpx2.DecodingError):
                return self._fault("protocol", f"gave an answer at {target} that is not read: {leaf}", permanent=True)
            return self._fault("unreachable", f"cannot be reached at {target}: {leaf or type(leaf).__name__}")
        if isinstance(leaf, httpx2.HTTPStatusError):
            status = leaf.response.status_code
            told = f"({where}) refused to connect: it answered {status} {leaf.response.reason_phrase}".rstrip()
            code = "unauthorized" if status in (401, 403) else "refused"
            return self._fault(code, told, permanent=300 <= status < 500 and status not in (408, 429))
        if isinstance(leaf, MCPError):
            status = self._auth.refusal[0] if self._auth is not None and self._auth.refusal is not None else None
            code = "unauthorized" if status in (401, 403) else "refused"
            permanent = status is not None and 300 <= status < 500 and status not in (408, 429)
            return self._fault(code, f"({where}) refused to connect: {shorten(self._refused(leaf), 500)}", permanent=permanent)
        return self._fault("protocol", f"({where}) answered nonsense: {type(leaf).__name__}: {shorten(str(leaf), 500)}")

    def _refused(self, error: MCPError) -> str:
        refusal = self._auth.refusal if self._auth is not None else None
        if refusal is None or error.message not in ("Server returned an error response", "Not Found"):
            return error.message
        return f"it answered {refusal[0]} {refusal[1]}".rstrip()

    def _ended(self) -> str:
        child = self._child
        assert child is not None
        if child.fault is not None:
            return child.fault
        code = child.exit_code
        how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"
        return f"ended{how} before it answered{self._last_words()}"

    def _gone(self) -> str:
        if self._child is None:
            return self._lost or f"the connection to MCP server {self.settings.id!r} was lost"
        words = self._ended().replace(" before it answered", "")
        return hide(f"MCP server {self.settings.id!r} {words}", self.secrets())

    def _last_words(self) -> str:
        child = self._child
        if child is None:
            return ""
        tail = hide(child.stderr_tail(), self.secrets())
        if tail:
            return f"; its standard error ends with:\n{tail}"
        if child.noise is not None:
            return f"; it wrote on standard output what is no MCP message: {child.noise}"
        return "; it wrote nothing on standard error"


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Whom we trust over HTTPS, read once: it takes 80 ms, and every attempt has connections of its own."""
    return httpx2.create_ssl_context()


def _secure(settings: ServerSettings) -> bool:
    """Whether certificates are looked at: by the server, or where its token comes from."""
    places = [settings.url, settings.auth.token_url if isinstance(settings.auth, ClientCredentials) else ""]
    return any(place.lower().startswith("https") for place in places)


_SAID_BY_PACKAGE = {CONNECTION_CLOSED: "Connection closed", REQUEST_TIMEOUT: "Request 'tools/call' timed out"}


def _is_said_by_package(error: MCPError, code: int) -> bool:
    """Whether an error is the package's own: servers use the same codes for what they like, in words of their own."""
    return error.code == code and error.message == _SAID_BY_PACKAGE[code]


def _leaf(error: BaseException) -> BaseException:
    """The first real cause inside groups of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        inner = [each for each in error.exceptions if not isinstance(each, asyncio.CancelledError)]
        error = inner[0] if inner else error.exceptions[0]
    return error


def _has_request(error: httpx2.RequestError) -> bool:
    try:
        return bool(error.request.url)
    except RuntimeError:
        return False
