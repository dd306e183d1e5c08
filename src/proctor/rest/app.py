"""Builds the application: routes inside the middleware that every request passes.

From the outside in: `RequestRecorder` (ids, logs, metrics), `HostCheck` (Host, Origin), `Authentication` (keys, sessions, rates),
`BodyLimits`, `ClientWatch`, then the routes. The application opens its database at startup unless it is given a hub.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from proctor import __version__
from proctor.rest import errors, openapi, workers
from proctor.rest.limits import BodyLimits
from proctor.rest.metrics import Metrics
from proctor.rest.request_records import RequestRecorder
from proctor.rest.route_parts import DecodingTurns, Streams
from proctor.rest.security import Authentication, HostCheck, is_loopback
from proctor.rest.settings import ServeSettings
from proctor.service.access.secret_box import SecretBox
from proctor.service.decisions.pool import CLIENT_LEAVES, Decisions, ThreadDecisions
from proctor.service.hub import Hub
from proctor.service.verification.sandboxes import requests as sandbox_requests
from proctor.store.sql.database import open_database

# --- lets long work find out whether its client is still connected


class ClientWatch:
    """Gives every request a way to wait until its client disconnects."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        watched = _WatchedClient(receive)
        token = CLIENT_LEAVES.set(watched.wait_until_left)
        try:
            await self._app(scope, receive, send)
        finally:
            CLIENT_LEAVES.reset(token)
            watched.forget()


class _WatchedClient:
    """The client of one request.

    A timer that a request sets keeps the request's context, and so this object, alive until it fires. It must not keep the body alive.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive: Receive | None = receive

    async def wait_until_left(self) -> None:
        """Return once the client has disconnected or its request is over."""
        # The body has been read by now; the next messages are its end and the disconnect.
        while self._receive is not None and (await self._receive())["type"] != "http.disconnect":
            pass

    def forget(self) -> None:
        """Release the request, which is over."""
        self._receive = None


ROUTES = (
    "health",
    "projects",
    "overview",
    "agents",
    "cases",
    "case_checks",
    "keys",
    "audit",
    "traces_api",
    "results",
    "labels",
    "public_traces",
    "otlp",
    "alerts",
    "runs",
    "comparisons",
    "run_plans",
    "secrets",
    "retention",
    "search",
    "verification",
    "sandbox_mcp",
    "sandbox_surfaces",  # after the routes of sandboxes: all other paths belong to a simulated system
    "mcp",
    "pages",
)
"""The modules under `routes`, each with a `router`."""


def make_app(settings: ServeSettings, *, hub: Hub | None = None, with_workers: bool = True) -> FastAPI:
    """Return the application; `hub` is an open hub in the same event loop, if there is one."""
    app = FastAPI(
        title="proctor",
        version=__version__,
        lifespan=_make_lifespan(settings, hub, with_workers),
        openapi_url=None,  # we add our own route
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.metrics = metrics = Metrics()
    app.state.decoding = DecodingTurns()
    app.state.streams = Streams(settings.service.streams_per_key)
    for name in ROUTES:
        # `include_router` would copy every route for each application: a third of a second at the first request.
        app.router.routes.extend(importlib.import_module(f"proctor.rest.routes.{name}").router.routes)
    errors.install_handlers(app)
    openapi.add_document_route(app)
    service = settings.service
    # The last one added is the outermost.
    app.add_middleware(ClientWatch)
    app.add_middleware(BodyLimits, settings=service)
    app.add_middleware(Authentication, loopback=is_loopback(settings.host))
    app.add_middleware(HostCheck, host=settings.host, allowed_hosts=settings.allowed_hosts)
    app.add_middleware(RequestRecorder, metrics=metrics, log_content=service.log_content)
    return app


@contextlib.asynccontextmanager
async def open_hub(settings: ServeSettings, decisions: Decisions | None = None) -> AsyncGenerator[Hub]:
    """Open the service on its database and close both at the end; by default a thread decides cases."""
    database = await open_database(settings.database_url)
    decisions = decisions or ThreadDecisions()
    box = SecretBox(settings.service.home, settings.secret_key)
    try:
        yield Hub(database=database, settings=settings.service, secret_box=box, decisions=decisions)
    finally:
        await decisions.close()
        await database.close()


def _make_lifespan(settings: ServeSettings, given: Hub | None, with_workers: bool) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with contextlib.AsyncExitStack() as stack:
            hub = given if given is not None else await stack.enter_async_context(open_hub(settings))
            app.state.hub = hub
            app.state.stopping = stop = asyncio.Event()
            await stack.enter_async_context(workers.parts(app, hub))
            if with_workers:
                await stack.enter_async_context(workers.workers(hub, stop))
            # Exits in reverse order: background work of simulated systems stops before the database closes.
            stack.push_async_callback(sandbox_requests.stop_background_work, hub)
            yield

    return lifespan
