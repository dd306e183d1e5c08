"""Several MCP servers by name, each connected and closed on its own.

A server is a mapping (`command`, `args`, `env`, `cwd` is started; `url`, `headers`, `access_token` is reached over HTTP), settings of ours,
or a server object of the `mcp` package in this process. An address that ends in `/sse`, or `prefer_sse`, means the older way over HTTP; it
is also tried where a server does not take the newer one, unless `disable_sse_fallback` is true.

Entering the manager connects all servers concurrently and names those that cannot be reached; with `lazy_connect` each is connected on
first use. A lost one is reconnected on its next use. Connections belong to the event loop they were made in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, cast

import msgspec

from proctor.errors import InputError, SpecError, TargetError
from proctor.evals.agents.blocking import run_blocking
from proctor.evals.agents.tools import AgentTool
from proctor.model.evidence import Json
from proctor.model.show import nearest
from proctor.targets.mcp.results import CallResult, Listing
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import ServerSettings, guess_transport, read_servers

Status = Literal["connected", "connecting", "disconnected"]
ServerLike = ServerSettings | Mapping[str, Json] | object
_TIMEOUT_S: Final = 60.0
_ALIASES: Final = {"accessToken": "access_token", "preferSSE": "prefer_sse", "disableSseFallback": "disable_sse_fallback"}


class MCPClientManager:
    """MCP servers by name; `async with`, or `with` in code that is not asynchronous."""

    def __init__(
        self,
        servers: Mapping[str, ServerLike] | None = None,
        *,
        default_timeout_ms: float = _TIMEOUT_S * 1000,
        lazy_connect: bool = False,
        retry_waits_s: Sequence[float] | None = None,
    ) -> None:
        self._timeout_s = default_timeout_ms / 1000
        self._lazy = lazy_connect
        self._waits_s = retry_waits_s
        self._settings: dict[str, ServerSettings] = {}
        self._connected: dict[str, McpServers] = {}
        self._status: dict[str, Status] = {}
        self._listings: dict[str, Listing] = {}
        for name, server in (servers or {}).items():
            self._settings[name] = self._read_settings(name, server)

    async def __aenter__(self) -> MCPClientManager:
        if not self._lazy:
            await self.connect_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.disconnect_all_servers()

    def __enter__(self) -> MCPClientManager:
        return run_blocking(self.__aenter__())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        run_blocking(self.disconnect_all_servers())

    # --- servers ------------------------------------------------------------------------------------------------------------

    def list_servers(self) -> list[str]:
        """Return the names of all servers, connected or not."""
        return list(self._settings)

    def has_server(self, server: str) -> bool:
        """Return whether there is a server of that name."""
        return server in self._settings

    def get_connection_status(self, server: str) -> Status:
        """Return `connected`, `connecting` or `disconnected`; an unknown server is disconnected."""
        return self._status.get(server, "disconnected")

    def get_server_summaries(self) -> list[dict[str, Json]]:
        """Return every server with its status, and the identity of connected ones."""
        found: list[dict[str, Json]] = []
        for name in self._settings:
            summary: dict[str, Json] = {"id": name, "status": self.get_connection_status(name)}
            listing = self._listings.get(name)
            if listing is not None:
                summary |= {"name": listing.name, "version": listing.version, "protocol": listing.protocol}
            found.append(summary)
        return found

    async def connect_all(self) -> None:
        """Connect all servers, side by side. Raises `TargetError` that names each that cannot be reached; then none is connected."""
        # Wait for every server: the message names all that cannot be reached, and none keeps connecting afterwards.
        outcomes = await asyncio.gather(*(self._get_listing(name) for name in self._settings), return_exceptions=True)
        faults = [each for each in outcomes if isinstance(each, BaseException)]
        if not faults:
            return
        await self.disconnect_all_servers()
        # What is no fault of a server, such as a cancellation, is raised as what it is and not as one line among others.
        if len(faults) == 1 or not all(isinstance(fault, TargetError) for fault in faults):
            raise faults[0]
        raise TargetError("\n".join(str(fault) for fault in faults))

    async def connect_to_server(self, server: str, config: ServerLike | None = None) -> None:
        """Connect one server, a new one where `config` is given. Raises `TargetError`, also where it is connected already."""
        if self.get_connection_status(server) != "disconnected":
            raise TargetError(f"MCP server {server!r} is {self.get_connection_status(server)} already")
        if config is not None:
            settings = self._read_settings(server, config)
            # What is left of a connection that was lost, or never came to be, would be connected again by the settings it has.
            if server in self._settings:
                await self.disconnect_server(server)
            self._settings[server] = settings
        await self._get_listing(server)

    async def disconnect_server(self, server: str) -> None:
        """Disconnect one server; do nothing where it is not connected."""
        self._check_known(server)
        connection = self._connected.pop(server, None)
        self._status.pop(server, None)
        self._listings.pop(server, None)
        if connection is not None:
            await connection.close()

    async def remove_server(self, server: str) -> None:
        """Disconnect one server and forget it."""
        await self.disconnect_server(server)
        del self._settings[server]

    async def disconnect_all_servers(self) -> None:
        """Disconnect all servers, side by side."""
        # All of them are waited for: one that fails must not leave the others half closed.
        ends = await asyncio.gather(*(self.disconnect_server(name) for name in self._settings), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    async def ping_server(self, server: str) -> bool:
        """Return whether a server answers now; connects it where it is not connected."""
        await self._get_listing(server)
        answers = await self._connected[server].is_answering(server)
        self._status[server] = "connected" if answers else "disconnected"
        return answers

    # --- tools ----------------------------------------------------------------------------------------------------------------

    async def list_tools(self, server: str) -> list[AgentTool]:
        """Return the tools of one server; none where it has none."""
        listing = await self._get_listing(server)
        return [
            AgentTool(
                name=tool.name,
                # The name as a default: every function would call the last tool otherwise.
                execute=lambda arguments, name=tool.name: self._call(server, name, arguments),
                description=tool.description,
                schema=tool.schema,
                server=server,
                server_name=listing.name,
                server_version=listing.version,
                protocol=listing.protocol,
            )
            for tool in listing.tools
        ]

    async def get_tools(self, servers: Iterable[str] | None = None) -> list[AgentTool]:
        """Return the tools of these servers, or of all, for `TestAgent(tools=...)`."""
        names = list(self._settings) if servers is None else [servers] if isinstance(servers, str) else list(servers)
        found = await asyncio.gather(*(self.list_tools(name) for name in names))
        return [tool for tools in found for tool in tools]

    async def execute_tool(self, server: str, tool: str, arguments: Mapping[str, Json] | None = None) -> dict[str, Json]:
        """Call a tool, once, and give its result (`content`, `structuredContent`, `isError`). Raises `TargetError` when the call fails.

        A tool that the server does not have is a result with `isError`, however the server reports it.
        """
        listing = await self._get_listing(server)
        answer = await self._call(server, tool, dict(arguments or {}))
        if answer.error is None:
            return answer.result
        names = [each.name for each in listing.tools]
        if tool in names or answer.gone:
            raise TargetError(f"{tool} on MCP server {server!r}: {answer.error}")
        close = nearest(tool, names)
        message = f"MCP server {server!r} has no tool {tool!r}" + (f"; nearest: {close[0]!r}" if close else "")
        return {"content": [{"type": "text", "text": f"{message}: {answer.error}"}], "isError": True}

    # --- for code that is not asynchronous --------------------------------------------------------------------------------

    def get_tools_sync(self, servers: Iterable[str] | None = None) -> list[AgentTool]:
        """`get_tools` for code that is not asynchronous."""
        return run_blocking(self.get_tools(servers))

    def execute_tool_sync(self, server: str, tool: str, arguments: Mapping[str, Json] | None = None) -> dict[str, Json]:
        """`execute_tool` for code that is not asynchronous."""
        return run_blocking(self.execute_tool(server, tool, arguments))

    def ping_server_sync(self, server: str) -> bool:
        """`ping_server` for code that is not asynchronous."""
        return run_blocking(self.ping_server(server))

    # ------------------------------------------------------------------------------------------------------------------------

    async def _call(self, server: str, tool: str, arguments: dict[str, Json]) -> CallResult:
        await self._get_listing(server)
        answer = await self._connected[server].call_tool(server, tool, arguments)
        if answer.gone:
            self._status[server] = "disconnected"
        return answer

    async def _get_listing(self, server: str) -> Listing:
        """Return what a server offers; connect it first where that is needed."""
        self._check_known(server)
        connection = self._connected.get(server)
        if connection is None:
            connection = self._connected[server] = McpServers([self._settings[server]], waits_s=self._waits_s)
        if self._status.get(server) != "connected":
            self._status[server] = "connecting"
        try:
            listing = await connection.get_listing(server)
        # Also where it is cancelled: `connect_to_server` refuses a server that is `connecting`, and this one would stay so.
        except BaseException:
            self._status[server] = "disconnected"
            raise
        self._status[server] = "connected"
        self._listings[server] = listing
        return listing

    def _check_known(self, server: str) -> None:
        if server not in self._settings:
            close = nearest(server, self._settings)
            raise TargetError(f"unknown MCP server {server!r}" + (f"; nearest: {close[0]!r}" if close else ""))

    def _read_settings(self, name: str, server: ServerLike) -> ServerSettings:
        if isinstance(server, ServerSettings):
            return msgspec.structs.replace(server, id=name)
        if not isinstance(server, Mapping):
            return ServerSettings(id=name, transport="in_process", server=server, timeout_s=self._timeout_s)
        entry = {_ALIASES.get(key, key): value for key, value in cast("Mapping[str, Json]", server).items()}
        if "server" in entry:
            entry.setdefault("transport", "in_process")
        token = entry.pop("access_token", None)
        if token is not None:
            entry["auth"] = {"type": "bearer", "token": token}
        request = entry.pop("requestInit", None)
        if isinstance(request, Mapping):
            entry["headers"] = {**request.get("headers", {}), **entry.get("headers", {})}
        prefers, only_newer = entry.pop("prefer_sse", False), entry.pop("disable_sse_fallback", False)
        if entry.get("url") and "transport" not in entry:
            entry["transport"] = "sse" if prefers is True else guess_transport(entry["url"])
        if entry.get("transport") == "http":
            entry.setdefault("sse_fallback", only_newer is not True)
        # MCPJam uses milliseconds, our own field seconds.
        timeout_ms = entry.pop("timeout", None)
        if timeout_ms is not None:
            entry["timeout_s"] = timeout_ms / 1000
        entry.setdefault("timeout_s", self._timeout_s)
        if entry.get("transport") == "in_process":
            return _read_in_process(name, entry)
        return read_servers({name: entry})[0]


def _read_in_process(name: str, entry: dict[str, Any]) -> ServerSettings:
    try:
        settings = ServerSettings(id=name, **entry)
    except TypeError as error:
        raise SpecError(f"an MCP server: {error}", field=f"servers.{name}") from None
    try:
        settings.check()
    except TargetError as fault:
        raise InputError(fault.message) from None
    return settings
