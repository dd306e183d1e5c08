"""`/mcp`: the MCP server over streamable HTTP, in the same process and behind the same layers as REST.

Another one serves the simulated systems of a sandbox or a run (`sandbox_mcp.py`). Keys, Host, Origin, sizes and rates are the business of
those layers. Nothing is kept between two requests, so there is no stream to open (GET) and no session to end (DELETE): only POST is
answered, with JSON. It is no part of OpenAPI: the protocol describes itself.
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
    """The ASGI application of the MCP server of whichever application is asked."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        door: McpDoor = scope["app"].state.mcp
        await (await door.find_server()).asgi_app(scope, receive, send)


router.add_route("/mcp", _Mcp(), methods=["POST"], include_in_schema=False)  # type: ignore[arg-type]  # an application is an endpoint too


class McpDoor:
    """The MCP server of one application, opened when somebody first asks for it: to load it is a third of the start of a service."""

    def __init__(self, hub: Hub, load: Load) -> None:
        """`load` loads what opens the server: slow, so that it is done in a thread."""
        self._hub = hub
        self._load = load
        self._closing = asyncio.Event()
        self._server: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._task: asyncio.Task[None] | None = None

    async def find_server(self) -> StreamableHTTPSessionManager:
        """Return the server, opened now if nobody has asked before. Raises what kept it from being opened; the next one tries again."""
        if self._server is None:
            self._server = asyncio.get_running_loop().create_future()
            # In a context of its own: what is known of the first request is no matter of the others.
            self._task = asyncio.create_task(self._keep_open(self._server), name="mcp", context=contextvars.Context())
        return await asyncio.shield(self._server)  # also where the first one who asked has gone

    async def _keep_open(self, found: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        try:
            # In a thread, so that everybody else is answered meanwhile.
            open_server = await asyncio.to_thread(self._load)
            # Entered and left by one task, as its group of tasks wants it.
            async with open_server(self._hub) as server:
                found.set_result(server)
                await self._closing.wait()
        except Exception as error:
            if found.done():
                raise
            self._server = None
            found.set_exception(error)

    async def close(self) -> None:
        """End the server, if there is one."""
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
    """The servers, for as long as the application runs."""
    app.state.mcp = door = McpDoor(hub, _load)
    app.state.systems_mcp = systems = McpDoor(hub, _load_systems)
    try:
        yield
    finally:
        await door.close()
        await systems.close()
