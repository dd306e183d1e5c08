"""Background workers, started and stopped with the service.

A worker is an async function of the hub and a stop event. A worker that fails is logged and restarted with a growing delay of up to a
minute; at shutdown it is cancelled if it does not stop in time. A *part* is an async context that requests need, such as the write queue.
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
    """Delete old data periodically until `stop` is set."""
    sweeping = asyncio.create_task(keep_sweeping(hub, report=_log_sweep))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((sweeping, stopped), return_when=asyncio.FIRST_COMPLETED)
        # It ends only with an error, which is logged before the worker is restarted.
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
]
"""`module:function` of every worker."""
PARTS: list[str] = [
    "proctor.rest.write_queue:writing",
    "proctor.rest.trace_bodies:open_reader",
    "proctor.rest.routes.mcp:sessions",
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
