"""Simulated systems over HTTP: below a sandbox, and below the run whose started task uses them.

    /sandboxes/{sandbox_id}/{system}/...               its own token, or an organization key
    /v1/benchmark-runs/{benchmark_run_id}/{system}/... the token of the run

The simulated system answers every path and method below `{system}`. Requests without access are answered by the service.

With `mcp` as the system, they are MCP servers over streamable HTTP: one per sandbox, and one per run for its started task. Access and rates
are checked before MCP. As at `/mcp`, only POST is answered, and MCP is not part of OpenAPI.
"""

from __future__ import annotations

import base64
from urllib.parse import parse_qs

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from proctor.codecs.http import decode_query
from proctor.pages.session_cookie import strip_session_cookies
from proctor.rest.errors import find_presented_key
from proctor.rest.limits import RateLimits
from proctor.rest.route_parts import hub as get_hub
from proctor.rest.routes.mcp import SYSTEMS
from proctor.service.access.callers import Caller
from proctor.service.access.keys import authenticate
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.sandboxes import requests as sandbox_requests
from proctor.service.verification.sandboxes.requests import ReachableSandboxes
from proctor.service.verification.sandboxes.system_kinds import MCP, find_kind_of_path
from proctor.simulators import exchange
from proctor.store.sql.pages import Row

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_SERVICE_HEADERS = ("x-api-key",)
"""Headers for the service, which are not forwarded to the system."""
_POLICY = "default-src 'none'; sandbox; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
router = APIRouter()


def _find_root(request: Request) -> str:
    """Return the path of the sandbox or run of a request."""
    parameters = request.path_params
    return (
        f"/sandboxes/{parameters['sandbox_id']}" if "sandbox_id" in parameters else f"/v1/benchmark-runs/{parameters['benchmark_run_id']}"
    )


async def _reach(request: Request) -> ReachableSandboxes:
    hub, caller, parameters = get_hub(request), await find_caller(request), request.path_params
    if "sandbox_id" in parameters:
        heads = [await sandbox_requests.find_whole_sandbox(hub, caller, parameters["sandbox_id"])]
    else:
        heads = await sandbox_requests.list_sandboxes_of_run(hub, caller, parameters["benchmark_run_id"])
    return ReachableSandboxes(tuple(heads), f"{request.state.root}{_find_root(request)}")


class _SystemsMcp:
    """The ASGI application of the MCP server of the systems of a sandbox or run."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        reached = await _reach(request)
        if request.method != "POST":
            error = {"error": {"code": "BAD_REQUEST", "message": "this MCP server only answers POST; it has no streams and no sessions"}}
            await JSONResponse(error, 405, headers={"allow": "POST"})(scope, receive, send)
            return
        hub, first = get_hub(request), reached.heads[0]
        count_request(request, hub, first["organization_id"])
        # The tools read the sandboxes from here; they do not see the request otherwise.
        request.state.systems = msgspec.structs.replace(reached, token=await find_token(hub, request, first, b""))
        await SYSTEMS(scope, receive, send)


async def answer_below(request: Request) -> Response:
    """Answer a request to a system of a sandbox, or of the task that a run has started."""
    parameters, name = request.path_params, request.path_params["system"]
    path, base = _split_path(request, f"{_find_root(request)}/{name}")
    find, id = (
        (sandbox_requests.find_sandbox, parameters["sandbox_id"])
        if "sandbox_id" in parameters
        else (sandbox_requests.find_sandbox_of_run, parameters["benchmark_run_id"])
    )
    head = await find(get_hub(request), await find_caller(request), id, find_kind_of_path(name), path)
    return await _answer(request, head, path, base)


_ROOTS = ("/sandboxes/{sandbox_id}", "/v1/benchmark-runs/{benchmark_run_id}")
# Before the routes of every other system, which would match as well.
for _root in _ROOTS:
    router.add_route(f"{_root}/{MCP}", _SystemsMcp(), methods=list(METHODS), include_in_schema=False)  # type: ignore[arg-type]  # an application is an endpoint too
for _root in _ROOTS:
    for _path in (f"{_root}/{{system}}", f"{_root}/{{system}}/{{path:path}}"):
        router.add_route(_path, answer_below, methods=list(METHODS), include_in_schema=False)


async def _answer(request: Request, head: Row, path: str, base: str) -> Response:
    hub = get_hub(request)
    count_request(request, hub, head["organization_id"])
    body = await request.body()
    forwarded = {name: value for name, value in request.headers.items() if name not in _SERVICE_HEADERS}
    system_request = exchange.Request(
        method=request.method,
        path=path,
        query=decode_query(request.scope["query_string"].decode("latin-1")),
        headers={**forwarded, "cookie": strip_session_cookies(forwarded["cookie"])} if "cookie" in forwarded else forwarded,
        body=body,
        base=base,
        token=await find_token(hub, request, head, body),
    )
    answer = await sandbox_requests.answer_request(hub, head, system_request)
    # A simulated system may echo client data; a line break would start another header.
    headers = {name: value.replace("\r", " ").replace("\n", " ") for name, value in answer.headers.items()}
    # An uploaded file may be a page, and is served from our origin.
    headers.setdefault("content-security-policy", _POLICY)
    return Response(answer.body, answer.status, headers=headers)


async def find_caller(request: Request) -> Caller | None:
    """Return the caller; many SDKs send a token as the Basic password."""
    caller: Caller | None = getattr(request.state, "caller", None)
    word = _find_password(request) if caller is None else None
    return await authenticate(get_hub(request), word) if word else caller


def _split_path(request: Request, root: str) -> tuple[str, str]:
    """Return the raw path below a system, and the address of the system."""
    # Not decoded: a file may be called `a%2Fb`, which is another path when decoded.
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    # Ids and systems have no characters that need encoding: encoded ones are not found.
    rest = raw.decode("latin-1").partition("?")[0].removeprefix(root)
    return rest or "/", f"{request.state.root}{root}"


async def find_token(hub: Hub, request: Request, head: Row, body: bytes) -> str:
    """Return the token of a sandbox or its run if the client has it, as a bearer token or a client secret."""
    for word in (find_presented_key(request.scope), _find_client_secret(request, body)):
        caller = await authenticate(hub, word) if word else None
        if word and caller is not None and sandbox_requests.owns_token(caller, head):
            return word
    return ""


def _find_client_secret(request: Request, body: bytes) -> str | None:
    """Return the client secret: from the form (OAuth 2, sign-in) or from Basic (RFC 6749, 2.3.1)."""
    if (word := _find_password(request)) is not None:
        return word
    if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded") and len(body) < 4_000:
        form = parse_qs(body.decode("utf-8", "replace"))
        return next((form[name][0] for name in ("client_secret", "password") if name in form), None)
    return None


def _find_password(request: Request) -> str | None:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except ValueError:
        return None


def count_request(request: Request, hub: Hub, organization_id: str) -> None:
    """Count a request to the sandboxes of an organization. Raises `Refusal` above the limit."""
    rates: RateLimits | None = getattr(request.app.state, "sandbox_rates", None)
    if rates is None:
        rates = request.app.state.sandbox_rates = RateLimits(hub.settings.sandbox_requests_per_minute, hub.clock)
    wait_s = rates.take_s(organization_id)
    if wait_s > 0:
        raise Refusal("RATE_LIMITED", "too many requests to the sandboxes of this organization", retry_after_s=wait_s)
