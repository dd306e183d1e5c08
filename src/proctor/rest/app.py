"""Builds the application: routes inside the middleware that every request passes.

From the outside in: `RequestRecorder` (ids, logs, metrics), `HostCheck` (Host, Origin), `Authentication` (keys, sessions, rates),
`BodyLimits`, `ClientWatch`, then the routes. The application opens its database at startup unless it is given a hub.

Background workers are started and stopped with the service. A worker is an async function of the hub and a stop event. A worker that fails
is logged and restarted with a growing delay of up to a minute; at shutdown it is cancelled if it does not stop in time. A *part* is an
async context that requests need, such as the write queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from proctor import __version__
from proctor.errors import StoreError
from proctor.rest import errors, openapi
from proctor.rest.declared_routes import make_declared_routes
from proctor.rest.limits import BodyLimits
from proctor.rest.metrics import Metrics
from proctor.rest.request_records import RequestRecorder
from proctor.rest.route_parts import DecodingTurns, Streams
from proctor.rest.security import Authentication, HostCheck, is_loopback
from proctor.rest.settings import ServeSettings
from proctor.service.access.secret_box import SecretBox
from proctor.service.decisions.pool import CLIENT_LEAVES, Decisions, ThreadDecisions
from proctor.service.hub import Hub
from proctor.service.upkeep.retention import SweepCounts, keep_sweeping
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

        # A timer that a request sets keeps its context, and so this function, alive until it fires. The body must be freed earlier.
        receiving = [receive]

        async def wait_until_left() -> None:
            """Return once the client has disconnected or its request is over."""
            # The body has been read by now; the next messages are its end and the disconnect.
            while receiving and (await receiving[0]())["type"] != "http.disconnect":
                pass

        token = CLIENT_LEAVES.set(wait_until_left)
        try:
            await self._app(scope, receive, send)
        finally:
            CLIENT_LEAVES.reset(token)
            receiving.clear()


ROUTES = (
    "health",
    "service.upkeep.health",
    "service.access.projects",
    "service.example",
    "service.overview",
    "service.access.agents",
    "service.runs.case_draft",  # before `/api/cases/{case_id}`
    "service.traces.cases",
    "service.traces.case_trial",
    "service.traces.case_history",
    "service.access.keys",
    "service.access.audit",
    "streams",  # before `/api/traces/{trace_id}` and `/api/annotations/{annotation_id}`
    "service.traces.search",
    "service.traces.reevaluation",
    "service.labels.claims",
    "service.labels.agreement",
    "service.labels.annotations",
    "public_traces",
    "otlp",
    "service.notify.alerts",
    "service.runs.requests",
    "service.runs.results",
    "service.runs.figures",
    "service.runs.comparisons",
    "service.runs.examinations",
    "service.runs.schedules",
    "service.runs.proposals",
    "service.access.secrets",
    "service.upkeep.retention",
    "verification",
    "sandbox_surfaces",  # after the routes of sandboxes: all other paths belong to a simulated system
    "mcp",
    "pages",
)
"""The modules under `routes`, each with a `router`, and the modules of the service that declare operations."""


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
        app.router.routes.extend(
            make_declared_routes(f"proctor.{name}") if "." in name else importlib.import_module(f"proctor.rest.routes.{name}").router.routes
        )
    errors.install_handlers(app)
    openapi.add_document_route(app)
    service = settings.service
    # The last one added is the outermost.
    app.add_middleware(ClientWatch)
    app.add_middleware(BodyLimits, settings=service)
    app.add_middleware(Authentication, loopback=is_loopback(settings.host))
    app.add_middleware(HostCheck, host=settings.host, allowed_hosts=settings.allowed_hosts)
    app.add_middleware(RequestRecorder, metrics=metrics)
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


def _make_lifespan(settings: ServeSettings, given_hub: Hub | None, with_workers: bool) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with contextlib.AsyncExitStack() as stack:
            hub = given_hub if given_hub is not None else await stack.enter_async_context(open_hub(settings))
            app.state.hub = hub
            app.state.stopping = stop = asyncio.Event()
            await stack.enter_async_context(parts(app, hub))
            if with_workers:
                await stack.enter_async_context(workers(hub, stop))
            # Exits in reverse order: background work of simulated systems stops before the database closes.
            stack.push_async_callback(sandbox_requests.stop_background_work, hub)
            yield

    return lifespan


async def sweep_old(hub: Hub, stop: asyncio.Event) -> None:
    """Delete old data periodically until `stop` is set."""
    # It ends only with an error, which ends the group and is logged before the worker is restarted.
    async with asyncio.TaskGroup() as group:
        sweeping = group.create_task(keep_sweeping(hub, report=_log_sweep))
        await stop.wait()
        sweeping.cancel()


def _log_sweep(what: SweepCounts | StoreError) -> None:
    if isinstance(what, StoreError):
        _LOG.warning("old traces and runs could not be deleted", extra={"error": str(what)})
    elif what != SweepCounts():
        _LOG.info("old traces and runs were deleted", extra=msgspec.structs.asdict(what))


Worker = Callable[[Hub, asyncio.Event], Awaitable[None]]
Part = Callable[[FastAPI, Hub], AbstractAsyncContextManager[None]]

WORKERS: list[str] = [
    "proctor.service.traces.evaluator:evaluate_traces",
    "proctor.service.notify.deliveries:watch_alerts",
    "proctor.service.notify.export:export_results",
    "proctor.rest.app:sweep_old",
    "proctor.service.runs.worker:run_worker",
    "proctor.service.runs.schedules:run_schedules",
    "proctor.service.labels.claims:keep_indexing",
]
"""`module:function` of every worker."""
PARTS: list[str] = [
    "proctor.rest.write_queue:writing",
    "proctor.rest.trace_bodies:open_reader",
    "proctor.rest.memory:returning_memory",
]
"""`module:function` of every part, in order of entry; exited in reverse after the last request."""

SLOWEST_RESTART_S = 60.0
STOP_S = 10.0
_LOG = logging.getLogger("proctor.serve")


@contextlib.asynccontextmanager
async def parts(app: FastAPI, hub: Hub) -> AsyncGenerator[None]:
    """Enter everything that requests need."""
    async with contextlib.AsyncExitStack() as stack:
        for name in PARTS:
            part: Part = _import_worker(name)
            await stack.enter_async_context(part(app, hub))
        yield


@contextlib.asynccontextmanager
async def workers(hub: Hub, stop: asyncio.Event) -> AsyncGenerator[None]:
    """Run every worker during the block, and set `stop` at its end."""
    tasks = [asyncio.create_task(supervise_worker(name, _import_worker(name), hub, stop), name=name) for name in WORKERS]
    try:
        yield
    finally:
        stop.set()
        # `asyncio.wait` refuses an empty list.
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STOP_S)
            for task in late:
                _LOG.warning("a worker did not stop in time and was cancelled", extra={"worker": task.get_name()})
                task.cancel()
            # The database is closed after this, when no worker uses it.
            await asyncio.gather(*tasks, return_exceptions=True)


async def supervise_worker(name: str, worker: Worker, hub: Hub, stop: asyncio.Event, *, first_s: float = 0.5) -> None:
    """Run a worker until `stop` is set; restart it if it fails or returns."""
    wait_s = first_s
    loop = asyncio.get_running_loop()
    while not stop.is_set():
        started = loop.time()
        try:
            await worker(hub, stop)
        except Exception:
            hub.counters.add("worker_failures")
            _LOG.exception("a worker failed", extra={"worker": name})
        if stop.is_set():
            return
        # A worker that ran for a while before it failed restarts quickly.
        wait_s = first_s if loop.time() - started > SLOWEST_RESTART_S else min(wait_s * 2, SLOWEST_RESTART_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), wait_s)


def _import_worker(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
