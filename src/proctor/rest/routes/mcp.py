"""`/mcp`: the MCP server over streamable HTTP, inside the same middleware as REST.

`sandbox_surfaces.py` serves simulated systems in the same way. The servers are stateless: there are no streams (GET) and no sessions
(DELETE), and only POST is answered. MCP is not part of OpenAPI.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from starlette.types import Receive, Scope, Send

from proctor.service.hub import Hub

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

OpenServer = Callable[[Hub], "AbstractAsyncContextManager[StreamableHTTPSessionManager]"]
Load = Callable[[], OpenServer]
router = APIRouter()


class _Mcp:
    """The ASGI application of the MCP server."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lazy: LazyMcpServer = scope["app"].state.mcp
        await (await lazy.find_server()).asgi_app(scope, receive, send)


router.add_route("/mcp", _Mcp(), methods=["POST"], include_in_schema=False)  # type: ignore[arg-type]  # an application is an endpoint too


class LazyMcpServer:
    """An MCP server that is opened at its first request, since loading it takes a third of the startup time."""

    def __init__(self, hub: Hub, load: Load) -> None:
        """`load` imports the server; it is slow and runs in a thread."""
        self._hub = hub
        self._load = load
        self._closing = asyncio.Event()
        self._server: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._task: asyncio.Task[None] | None = None

    async def find_server(self) -> StreamableHTTPSessionManager:
        """Return the server, opened at the first call. Raises the error of opening it; the next call tries again."""
        if self._server is None:
            self._server = asyncio.get_running_loop().create_future()
            # In an empty context: the server must not inherit the context of the first request.
            self._task = asyncio.create_task(self._keep_open(self._server), name="mcp", context=contextvars.Context())
        return await asyncio.shield(self._server)  # also if the first client has disconnected

    async def _keep_open(self, opened: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        try:
            # In a thread, so that other requests are answered.
            open_server = await asyncio.to_thread(self._load)
            # One task enters and exits it, as its task group requires.
            async with open_server(self._hub) as server:
                opened.set_result(server)
                await self._closing.wait()
        except Exception as error:
            if opened.done():
                raise
            self._server = None
            opened.set_exception(error)

    async def close(self) -> None:
        """Close the server if it is open."""
        self._closing.set()
        if self._task is not None:
            await self._task


def _load() -> OpenServer:
    from proctor.mcp_server.server import over_http  # slow to load
    from proctor.mcp_server.service_runs import ServiceRuns

    return lambda hub: over_http(hub, ServiceRuns(hub), largest=hub.settings.largest_body)


def _load_systems() -> OpenServer:
    from proctor.mcp_server.service_runs import serve_systems  # slow to load

    return lambda hub: serve_systems(hub, largest=hub.settings.largest_body)


@contextlib.asynccontextmanager
async def sessions(app: FastAPI, hub: Hub) -> AsyncGenerator[None]:
    """Run the servers while the application runs."""
    app.state.mcp = server = LazyMcpServer(hub, _load)
    app.state.systems_mcp = systems = LazyMcpServer(hub, _load_systems)
    try:
        yield
    finally:
        await server.close()
        await systems.close()
