"""Several MCP servers as one set of tools.

Servers are connected concurrently; if one cannot be reached, all are closed and the error names every one that failed. A tool is offered to
a model under its own name; where two servers have the same name, both are offered as `server__tool`. Letters that model providers refuse in
names become `_`, and no offered name is longer than 64. A call is always recorded under the tool's own name.

The session state of a server (a cart, a login) belongs to one attempt: `open_session` gives an attempt its own sessions, each opened by its
first call of that server. Tools are listed once, in the sessions that `open` opened; the first attempt reuses these. Servers with `session:
shared` have one session for all. Sessions are closed in the background, so a slow server blocks nothing; `close` waits for all of them.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import msgspec

from proctor.errors import MissingExtra, TargetError
from proctor.model.evidence import Json
from proctor.model.show import suggest_one
from proctor.processes.programs import finish_despite_cancel
from proctor.targets.mcp.results import CallResult, Listing
from proctor.targets.mcp.settings import ClientHooks, ServerFault, ServerSettings

if TYPE_CHECKING:
    from proctor.targets.mcp.auth import FetchedToken
    from proctor.targets.mcp.connection import Connection
    from proctor.targets.shared.wire import MakeTransport

LONGEST_NAME = 64
"""Maximum characters of a tool's name that every model provider accepts."""
MOST_LEAVING = 16
_REFUSED = re.compile(r"[^A-Za-z0-9_-]")


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as a model sees it."""

    name: str
    """The name used by the model."""
    server: str
    tool: str
    """Its own name on its server."""
    description: str = ""
    schema: dict[str, Json] = {}


def name_tools(listings: Iterable[Listing]) -> tuple[OfferedTool, ...]:
    """Return all tools of these servers under distinct names."""
    tools = [(listing.server, tool) for listing in listings for tool in listing.tools]
    often = Counter(tool.name for _, tool in tools)
    used_names: set[str] = set()
    found: list[OfferedTool] = []
    for server, tool in tools:
        base = _REFUSED.sub("_", tool.name if often[tool.name] == 1 else f"{server}__{tool.name}") or "_"
        name, number = base[:LONGEST_NAME], 1
        while name in used_names:
            number += 1
            ending = f"_{number}"
            name = base[: LONGEST_NAME - len(ending)] + ending
        used_names.add(name)
        found.append(OfferedTool(name=name, server=server, tool=tool.name, description=tool.description, schema=tool.schema))
    return tuple(found)


class ReachedServers(Protocol):
    """The servers that an agent loop may use."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The servers, in the order of the settings."""
        ...

    async def get_listing(self, server: str) -> Listing:
        """Return the identity and the tools of a server."""
        ...

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Json], *, request_id: str | None = None) -> CallResult:
        """Call a tool of a server, once; a failure is part of the result."""
        ...


class _OwnSessions:
    def __init__(self, servers: McpServers) -> None:
        self._servers = servers
        self.own: dict[str, Connection] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        return self._servers.ids

    async def get_listing(self, server: str) -> Listing:
        return await self._servers.get_listing(server)

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Json], *, request_id: str | None = None) -> CallResult:
        if self._servers.is_shared(server):
            return await self._servers.call_tool(server, tool, arguments, request_id=request_id)
        if server not in self.own:
            # Stored before it connects: `open_session` closes everything here, even if connecting fails or is cancelled.
            self.own[server] = connection = await self._servers.new_connection(server)
            try:
                await connection.get_listing()
            except ServerFault as fault:
                return CallResult(error=fault.message, gone=True)
        return await self.own[server].call(tool, arguments, request_id=request_id)


class McpServers:
    """The servers an agent may use; `async with`, or `open` and `close`.

    `offline` means that everything comes from a tape: opening connects no server. `transport` makes the HTTP connections, if given.
    """

    def __init__(
        self,
        settings: Sequence[ServerSettings],
        *,
        waits_s: Sequence[float] | None = None,
        offline: bool = False,
        transport: MakeTransport | None = None,
        hooks: ClientHooks | None = None,
    ) -> None:
        ids = Counter(server.id for server in settings)
        twice = [name for name, count in ids.items() if count > 1]
        if twice:
            raise TargetError(f"two MCP servers have the id {twice[0]!r}")
        self._settings = {server.id: server for server in settings}
        self._waits_s = waits_s
        self._offline = offline
        self._transport = transport
        self._hooks = hooks
        self._connections: dict[str, Connection] = {}
        self._listings: dict[str, Listing] = {}
        self._tokens: dict[str, FetchedToken] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def ids(self) -> tuple[str, ...]:
        """The servers, in the order of the settings."""
        return tuple(self._settings)

    @property
    def listings(self) -> tuple[Listing, ...]:
        """What the connected servers offer."""
        return tuple(connection.listing for connection in self._connections.values() if connection.listing is not None)

    async def __aenter__(self) -> McpServers:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect all servers concurrently. Raises `TargetError` naming every unreachable server."""
        connections = [] if self._offline else [self.get_connection(name) for name in self._settings]
        try:
            # Waits for all, so that the error names every unreachable server; if cancelled, no attempt to connect is left.
            outcomes = await asyncio.gather(*(connection.get_listing() for connection in connections), return_exceptions=True)
        except BaseException:
            await self.close()
            raise
        faults = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if not faults:
            return
        await self.close()
        other = next((fault for fault in faults if not isinstance(fault, ServerFault)), None)
        if other is not None or len(faults) == 1:
            raise other or faults[0]
        raise TargetError("\n".join(str(fault) for fault in faults))

    async def close(self) -> None:
        """Close all servers concurrently. None of their processes is left when this returns or is cancelled."""
        connections, self._connections = list(self._connections.values()), {}
        self._listings.clear()
        if not connections and not self._leaving:
            return
        await finish_despite_cancel(_quietly_close(connections, self._leaving))

    @asynccontextmanager
    async def open_session(self) -> AsyncGenerator[ReachedServers]:
        """Yield the servers for one attempt, each with its own session unless configured otherwise."""
        sessions = _OwnSessions(self)
        try:
            yield sessions
        finally:
            for connection in sessions.own.values():
                # In the background; a set of strong references: asyncio only has weak ones and could lose a task that is still closing.
                task = asyncio.create_task(_quietly_close([connection]))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def get_listing(self, server: str) -> Listing:
        """Return the identity and the tools of a server, after reconnecting a lost one."""
        # An attempt has taken over the session; connecting another only to list the same tools would start a process for nothing.
        if server not in self._connections and server in self._listings:
            return self._listings[server]
        self._listings[server] = listing = await self.get_connection(server).get_listing()
        return listing

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Json], *, request_id: str | None = None) -> CallResult:
        """Call a tool of a server, once; a failure is part of the result."""
        return await self.get_connection(server).call(tool, arguments, request_id=request_id)

    def is_shared(self, server: str) -> bool:
        """Whether all attempts have one session with this server."""
        return server not in self._settings or self._settings[server].session == "shared"

    async def new_connection(self, server: str) -> Connection:
        """Return an exclusive session, not connected yet unless it is the one from `open`."""
        # A process may take seconds to end; faster attempts would accumulate processes.
        while len(self._leaving) >= MOST_LEAVING:
            await asyncio.wait(self._leaving, return_when=asyncio.FIRST_COMPLETED)
        # Removed, so that the next attempt gets its own session. The first attempt gets the one that `open` connected.
        self.get_connection(server)
        return self._connections.pop(server)

    def get_connection(self, server: str) -> Connection:
        """Return the connection to a server, connected or not yet."""
        if server not in self._connections:
            if server not in self._settings:
                raise TargetError(f"unknown MCP server {server!r}" + suggest_one(server, self._settings))
            if importlib.util.find_spec("mcp") is None:
                raise MissingExtra("An MCP server", "mcp")
            from proctor.targets.mcp.auth import FetchedToken  # loads the `mcp` package: 1.5 seconds
            from proctor.targets.mcp.connection import RETRY_WAITS_S, Connection

            waits_s = RETRY_WAITS_S if self._waits_s is None else self._waits_s
            # Separate from the connections: each attempt has its own, and all share the token.
            fetched = self._tokens.setdefault(server, FetchedToken())
            self._connections[server] = Connection(
                self._settings[server], waits_s=waits_s, transport=self._transport, fetched=fetched, hooks=self._hooks
            )
        return self._connections[server]


async def _quietly_close(connections: Sequence[Connection], leaving: Iterable[asyncio.Task[None]] = ()) -> None:
    await asyncio.gather(*(connection.close() for connection in connections), *leaving, return_exceptions=True)
