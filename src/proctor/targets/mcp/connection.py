"""One MCP server, connected.

The `mcp` package wants its contexts left by the task that entered them, so each connection is owned by a task of its own: it
connects, lists the tools, says that it is ready and waits to be told to leave. Everybody else only asks through it.

* One try is connecting and listing all pages of tools, within `timeout_s`. A try that failed is repeated after 250, 500 and 750 ms,
  unless repeating cannot help (no such command, not authorised) or the time was used up.
* A server that does not take streamable HTTP is spoken with by server-sent events alone, where its settings allow that.
* A tool call is never repeated: nobody knows what it did. One that times out or fails on the wire is a failed call; one that
  finds the server gone says so, and the next `get_listing` connects again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from proctor.model.evidence import Json
from proctor.model.show import shorten
from proctor.targets.mcp.answers import add_missing_content
from proctor.targets.mcp.auth import REQUEST_ID, FetchedToken
from proctor.targets.mcp.results import CallResult, Listing, RemoteTool, bound_result, can_be_written, mend_texts, plain_result
from proctor.targets.mcp.settings import ServerFault, ServerSettings, hide_secrets, hide_secrets_in
from proctor.targets.mcp.stdio import finish_despite_cancel
from proctor.targets.mcp.wire import ServerWire, is_said_by_package
from proctor.targets.shared.wire import MakeTransport

RETRY_WAITS_S = (0.25, 0.5, 0.75)
"""The pauses between tries to connect, as MCPLab makes them."""
_MOST_PAGES = 1_000
"""How many pages of tools are asked for: a server whose pages never end must not hold us."""
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
        # A lost server is not connected anew here: its session, and what it kept for this attempt, went with it.
        client = self._client
        if client is None or not self._is_alive():
            return CallResult(error=self._describe_loss(), gone=True)
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
            if is_said_by_package(error, REQUEST_TIMEOUT):
                return CallResult(error=f"timed out after {limit:g} s")
            if is_said_by_package(error, CONNECTION_CLOSED) and await self._is_gone():
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
        # It would refuse the question; that the connection stands is all that can be known.
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
        # None stands for the last try, after which there is no pause.
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
                # The contexts must be left by the task that entered them: this one stays until it is told to leave.
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
            # Also where this task was cancelled: whoever waits for `ready` would wait for ever.
            if not ready.done():
                ready.set_result(fault or self._wire.make_fault("unreachable", "was left before it answered"))

    async def _list_tools(self, client: Client) -> Listing:
        if self.settings.era == "stateless" and client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            message = (
                f"({self.settings.describe_place()}) speaks protocol {client.protocol_version}, not the stateless one that is asked for"
            )
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
