"""The simulated systems of an attempt as MCP servers among the others: under their names, with the tools of their kinds, and no wire."""

from __future__ import annotations

from proctor import __version__
from proctor.errors import TargetError
from proctor.model.attempt import OwnTools
from proctor.model.evidence import Json
from proctor.targets.mcp_results import CallResult, Listing, RemoteTool, bound_result, can_be_written
from proctor.targets.mcp_servers import ReachedServers


class WithSystems:
    """The servers that an agent has been given, and beside them the systems of one attempt."""

    def __init__(self, servers: ReachedServers, tools: OwnTools) -> None:
        """Raises `TargetError` where a system and a server have the same name."""
        self._servers = servers
        self._tools = tools
        self._listed = tools.list_tools()
        both = [name for name in self._listed if name in servers.ids]
        if both:
            told = f"the agent has an MCP server {both[0]!r}, and the case a system of that name; call one of them otherwise"
            raise TargetError(told, code="bad_request")

    @property
    def ids(self) -> tuple[str, ...]:
        """The servers in the order of the settings, then the systems."""
        return (*self._servers.ids, *self._listed)

    async def get_listing(self, server: str) -> Listing:
        """Return who a server is and what it offers."""
        if server not in self._listed:
            return await self._servers.get_listing(server)
        tools = tuple(RemoteTool(name=tool.name, description=tool.description, schema=tool.schema) for tool in self._listed[server])
        return Listing(server=server, name="proctor", version=__version__, tools=tools)

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Json], *, request_id: str | None = None) -> CallResult:
        """Call a tool of a server or a system, once; what failed is told in the result."""
        if server not in self._listed:
            return await self._servers.call_tool(server, tool, arguments, request_id=request_id)
        if not can_be_written(arguments):
            return CallResult(error="the arguments hold half a surrogate pair, which cannot be sent")
        return CallResult(result=bound_result(await self._tools.call_tool(server, tool, arguments)))
