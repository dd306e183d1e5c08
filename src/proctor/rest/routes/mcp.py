"""`/mcp`: the MCP server over streamable HTTP, in the same process and behind the same layers as REST.

Keys, Host, Origin, sizes and rates are the business of those layers. Nothing is kept between two requests, so there is no stream to open
(GET) and no session to end (DELETE): only POST is answered, with JSON. It is no part of OpenAPI: the protocol describes itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from fastapi import APIRouter, FastAPI
from starlette.types import Receive, Scope, Send

from proctor.service.hub import Hub

router = APIRouter()


class _Mcp:
    """The ASGI application of the MCP server of whichever application is asked."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["app"].state.mcp.asgi_app(scope, receive, send)


router.add_route("/mcp", _Mcp(), methods=["POST"], include_in_schema=False)  # type: ignore[arg-type]  # an application is an endpoint too


@contextlib.asynccontextmanager
async def sessions(app: FastAPI, hub: Hub) -> AsyncGenerator[None]:
    """The server, for as long as the application runs."""
    from proctor.mcp_server.server import over_http  # slow to load; whoever only describes the routes does not need it
    from proctor.mcp_server.service_runs import ServiceRuns

    async with over_http(hub, ServiceRuns(hub), largest=hub.settings.largest_body) as app.state.mcp:
        yield
