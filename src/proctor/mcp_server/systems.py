"""The MCP server of simulated systems: the tools of the sandboxes that a request reaches, and nothing else of the service.

Which those are, was found out before by the route: they are in `request.state.systems`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, cast

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError

from proctor import __version__
from proctor.errors import SpecError
from proctor.service.hub import Hub
from proctor.service.verification.sandboxes.requests import Reached, call_system_tool, list_system_tools
from proctor.simulators.tools import describe_wrong_call

Context = ServerRequestContext[Any, Any]


def make_systems_server(hub: Hub) -> Server[Any]:
    """Return the server, for requests that bring the sandboxes they reach."""

    async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        found = list_system_tools(_find_reached(context))
        return types.ListToolsResult(
            tools=[types.Tool(name=name, description=tool.description, input_schema=tool.schema) for name, (_, tool) in found.items()]
        )

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            result = await call_system_tool(hub, _find_reached(context), params.name, params.arguments or {})
        except SpecError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=describe_wrong_call(error)) from None
        return types.CallToolResult.model_validate(result)

    return Server("proctor systems", version=__version__, title="Simulated systems", on_list_tools=list_tools, on_call_tool=call_tool)


def _find_reached(context: Context) -> Reached:
    request = context.request
    assert request is not None  # over HTTP there always is one
    return cast(Reached, request.state.systems)


@contextlib.asynccontextmanager
async def serve_systems(hub: Hub, *, largest: int) -> AsyncGenerator[StreamableHTTPSessionManager]:
    """The server for streamable HTTP: an ASGI application, as long as the block lasts; without sessions, as that of the service."""
    manager = StreamableHTTPSessionManager(make_systems_server(hub), json_response=True, stateless=True, max_request_body_size=largest)
    async with manager.run():
        yield manager
