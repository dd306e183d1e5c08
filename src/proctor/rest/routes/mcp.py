"""`/mcp`: the MCP server over streamable HTTP, inside the same middleware as REST.

`sandbox_surfaces.py` serves simulated systems in the same way. The servers are stateless: there are no streams (GET) and no sessions
(DELETE), and only POST is answered. MCP is not part of OpenAPI.
"""

from __future__ import annotations

import asyncio
import threading

from fastapi import APIRouter
from starlette.datastructures import State
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from proctor.rest.route_parts import hub as get_hub
from proctor.service.hub import Hub

_LOADING = threading.Lock()


class McpEndpoint:
    """The ASGI application of an MCP server that is loaded by its first request, since that takes a third of the startup time."""

    def __init__(self, make: str) -> None:
        """`make` is the function of `proctor.mcp_server.http` that makes it."""
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        hub, state = get_hub(Request(scope)), scope["app"].state
        if not hasattr(state, self._make):
            # In a thread, so that other requests are answered meanwhile.
            await asyncio.to_thread(self._load, state, hub)
        from proctor.mcp_server.http import serve_request  # loaded above

        await serve_request(getattr(state, self._make), scope, receive, send, largest=hub.settings.largest_body)

    def _load(self, state: State, hub: Hub) -> None:
        with _LOADING:
            from proctor.mcp_server import http  # slow to load

            if not hasattr(state, self._make):
                setattr(state, self._make, getattr(http, self._make)(hub))


SYSTEMS = McpEndpoint("make_systems_server")
router = APIRouter()
router.add_route("/mcp", McpEndpoint("make_service_server"), methods=["POST"], include_in_schema=False)  # type: ignore[arg-type]  # an application is an endpoint too
