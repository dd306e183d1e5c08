"""The MCP servers of the service over streamable HTTP, with the library of the protocol: that of its tools, and that of simulated systems.

The surrounding application has already authenticated and limited each request, and put what the tools need into `request.state`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.types import Receive, Scope, Send

from proctor import __version__
from proctor.errors import SpecError
from proctor.mcp_server import protocol
from proctor.mcp_server.protocol import ProtocolError
from proctor.mcp_server.server import McpServer
from proctor.mcp_server.service_runs import ServiceRuns
from proctor.mcp_server.tool import Desk
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.verification.sandboxes.requests import ReachableSandboxes, call_system_tool, list_system_tools
from proctor.simulators.tools import describe_wrong_call

Context = ServerRequestContext[Any, Any]
Answer = Callable[[Context, dict[str, Json]], Awaitable[dict[str, Json]]]


async def serve_request(server: Server[Any], scope: Scope, receive: Receive, send: Send, *, largest: int) -> None:
    """Answer one request. There is no state between requests, so any replica can answer any of them."""
    manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True, max_request_body_size=largest)
    failure: Exception | None = None
    async with manager.run():
        try:
            await manager.asgi_app(scope, receive, send)
        except Exception as error:  # raised below, because the manager would put it into a group
            failure = error
    if failure is not None:
        raise failure


def _make_server(answer: Answer, methods: Iterable[str], **about: Any) -> Server[Any]:
    async def handle(context: Context, params: types.RequestParams) -> dict[str, Json]:
        try:
            result = await answer(context, dict(context.params or {}))
        except ProtocolError as error:
            raise MCPError(code=error.code, message=error.message, data=error.data) from None
        return protocol.complete_result(context.method, result) if context.protocol_version in protocol.STATELESS_VERSIONS else result

    server: Server[Any] = Server(**about)
    for method in methods:
        server.add_request_handler(method, types.RequestParams, handle)
    return server


def find_caller(context: Context) -> Caller:
    """Return the caller of a request over HTTP."""
    return cast(Any, context.request).state.caller


def make_service_server(hub: Hub, who_asks: Callable[[Context], Caller] = find_caller) -> Server[Any]:
    """Return the server of one hub; `who_asks` identifies the caller."""
    tools, runs = McpServer(local=False), ServiceRuns(hub)

    async def answer(context: Context, params: dict[str, Json]) -> dict[str, Json]:
        async def open_desk() -> Desk:
            root = None if context.request is None else context.request.state.root
            return Desk(hub=hub, caller=who_asks(context), runs=runs, root=root)

        if context.method == "server/discover":
            return protocol.DISCOVERED
        return await tools.answer(context.method, params, open_desk, stateless=context.protocol_version in protocol.STATELESS_VERSIONS)

    about: dict[str, Any] = {**protocol.SERVER, "instructions": protocol.INSTRUCTIONS, "get_tool_input_schema": tools.schemas.get}
    return _make_server(answer, ("server/discover", *protocol.LISTS, *protocol.CALLS), **about)


def make_systems_server(hub: Hub) -> Server[Any]:
    """Return the server for requests that carry their sandboxes."""

    async def answer(context: Context, params: dict[str, Json]) -> dict[str, Json]:
        systems: ReachableSandboxes = cast(Any, context.request).state.systems
        if context.method == "tools/list":
            tools = list_system_tools(systems).items()
            listed = [{"name": name, "description": tool.description, "inputSchema": tool.schema} for name, (_, tool) in tools]
            return {"tools": listed, "ttlMs": 0}  # the next task of a run has other systems
        try:
            return {"isError": False, **await call_system_tool(hub, systems, params["name"], params.get("arguments") or {})}
        except SpecError as error:
            raise ProtocolError(protocol.INVALID_PARAMS, describe_wrong_call(error)) from None

    return _make_server(answer, ("tools/list", "tools/call"), name="proctor systems", version=__version__, title="Simulated systems")
