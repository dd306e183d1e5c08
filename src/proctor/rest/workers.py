"""What the service does beside answering: workers, started and stopped with it.

A worker is an async function of the hub and an event that says when to stop. It is looked after: one that fails is logged and started
again, later and later (up to a minute) as long as it keeps failing; at shutdown it is told to stop, and cancelled when it does not. A
*part* is an asynchronous context around all of it, for what requests need while they are answered (a queue in front of the disk, the
sessions of MCP).
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

from proctor.errors import StoreError
from proctor.service.hub import Hub
from proctor.service.upkeep.retention import SweepCounts, keep_sweeping


async def sweep_old(hub: Hub, stop: asyncio.Event) -> None:
    """Delete what is too old or too much, now and then, until told to stop."""
    sweeping = asyncio.create_task(keep_sweeping(hub, told=_log_sweep))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((sweeping, stopped), return_when=asyncio.FIRST_COMPLETED)
        # It never ends but by an error: raised here, that is logged, and the worker is started again (`workers.py`).
        if sweeping.done():
            sweeping.result()
    finally:
        for task in (sweeping, stopped):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


def _log_sweep(what: SweepCounts | StoreError) -> None:
    if isinstance(what, StoreError):
        _LOG.warning("old traces and runs could not be deleted", extra={"error": str(what)})
    elif what != SweepCounts():
        _LOG.info("old traces and runs were deleted", extra=msgspec.structs.asdict(what))


Worker = Callable[[Hub, asyncio.Event], Awaitable[None]]
Part = Callable[[FastAPI, Hub], AbstractAsyncContextManager[None]]

WORKERS: list[str] = [
    "proctor.service.traces.evaluator:evaluate_traces",
    "proctor.service.notify.webhooks:watch_alerts",
    "proctor.service.notify.export:export_results",
    "proctor.rest.workers:sweep_old",
    "proctor.service.runs.worker:run_worker",
    "proctor.service.upkeep.clock_watch:watch_clock",
]
"""`module:function` of every worker."""
PARTS: list[str] = [
    "proctor.rest.write_queue:writing",
    "proctor.rest.trace_bodies:open_reader",
    "proctor.rest.routes.mcp:sessions",
    "proctor.rest.memory:keep_giving_back",
]
"""`module:function` of every part, in the order they are entered; left in reverse, after the last request."""

SLOWEST_RESTART_S = 60.0
STOP_S = 10.0
_LOG = logging.getLogger("proctor.serve")


@contextlib.asynccontextmanager
async def parts(app: FastAPI, hub: Hub) -> AsyncGenerator[None]:
    """Everything requests need while they are answered."""
    async with contextlib.AsyncExitStack() as stack:
        for name in PARTS:
            part: Part = _import_worker(name)
            await stack.enter_async_context(part(app, hub))
        yield


@contextlib.asynccontextmanager
async def workers(hub: Hub, stop: asyncio.Event) -> AsyncGenerator[None]:
    """Every worker, from the start to the end of the block; `stop` is set when it ends, if nobody did before."""
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
            # The database is closed after this, and not under somebody who still works with it.
            await asyncio.gather(*tasks, return_exceptions=True)


async def supervise_worker(name: str, worker: Worker, hub: Hub, stop: asyncio.Event, *, first_s: float = 0.5) -> None:
    """Run a worker until it is told to stop; start it again when it fails or ends by itself."""
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
        # One that worked for a while before it failed starts over quickly.
        wait_s = first_s if loop.time() - started > SLOWEST_RESTART_S else min(wait_s * 2, SLOWEST_RESTART_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), wait_s)


def _import_worker(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
