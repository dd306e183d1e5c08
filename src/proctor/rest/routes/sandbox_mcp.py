"""Simulated systems as MCP servers over streamable HTTP: one per sandbox, and one per run for its started task.

    POST /sandboxes/{sandbox_id}/mcp                its own token, or an organization key
    POST /v1/benchmark-runs/{benchmark_run_id}/mcp  the token of the run

Access and rates are checked before MCP. As at `/mcp`, only POST is answered, and MCP is not part of OpenAPI.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from proctor.rest.route_parts import hub as get_hub
from proctor.rest.routes.mcp import LazyMcpServer
from proctor.rest.routes.sandbox_surfaces import METHODS, count_request, find_caller, find_token
from proctor.service.verification.sandboxes import requests as sandbox_requests
from proctor.service.verification.sandboxes.requests import Reached
from proctor.service.verification.sandboxes.system_kinds import MCP

router = APIRouter()


async def _reach_sandbox(request: Request) -> Reached:
    id = request.path_params["sandbox_id"]
    head = await sandbox_requests.find_whole_sandbox(get_hub(request), await find_caller(request), id)
    return Reached((head,), f"{request.state.root}/sandboxes/{id}")


async def _reach_run(request: Request) -> Reached:
    id = request.path_params["benchmark_run_id"]
    heads = await sandbox_requests.list_sandboxes_of_run(get_hub(request), await find_caller(request), id)
    return Reached(tuple(heads), f"{request.state.root}/v1/benchmark-runs/{id}")


class _SystemsMcp:
    """The ASGI application of the MCP server of the systems that `reach` finds."""

    def __init__(self, reach: Callable[[Request], Awaitable[Reached]]) -> None:
        self._reach = reach

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        reached = await self._reach(request)
        if request.method != "POST":
            error = {"error": {"code": "BAD_REQUEST", "message": "this MCP server only answers POST; it has no streams and no sessions"}}
            await JSONResponse(error, 405, headers={"allow": "POST"})(scope, receive, send)
            return
        hub, first = get_hub(request), reached.heads[0]
        count_request(request, hub, first["organization_id"])
        # For the tools, which get nothing else of the request.
        request.state.systems = msgspec.structs.replace(reached, token=await find_token(hub, request, first, b""))
        lazy: LazyMcpServer = scope["app"].state.systems_mcp
        await (await lazy.find_server()).asgi_app(scope, receive, send)


for _path, _find in (("/sandboxes/{sandbox_id}", _reach_sandbox), ("/v1/benchmark-runs/{benchmark_run_id}", _reach_run)):
    router.add_route(f"{_path}/{MCP}", _SystemsMcp(_find), methods=list(METHODS), include_in_schema=False)  # type: ignore[arg-type]  # an application is an endpoint too
