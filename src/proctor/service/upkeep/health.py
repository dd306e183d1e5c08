"""Checks the health of the service within a bounded time.

`ok`; `degraded`: working, needs attention (disk low, traces waiting, database locked); `failing`: incoming data cannot be stored. Each
reason has a stable code. A check takes about a second at most and is shared by concurrent requests. Delays of the event loop make the
service `degraded` (busy), never the database unreachable.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, TypeVar

import msgspec
import sqlalchemy as sa

from proctor import __version__
from proctor.errors import StoreError
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_operator
from proctor.service.hub import Hub
from proctor.service.resource import about, operation
from proctor.store.runs.run_rows import count_queue
from proctor.store.sql.tables import traces


class QueueFigures(TypedDict):
    """Queue lengths and waiting times."""

    traces: Annotated[int, about("waiting for evaluation; at most 100,000")]
    trace_wait_s: Annotated[float, about("age of the oldest due trace")]
    runs_queued: int
    runs_running: int
    run_wait_s: Annotated[float, about("age of the oldest queued run")]
    deliveries: Annotated[int, about("alert messages to send")]


class StorageFigures(TypedDict):
    """Storage."""

    database: Literal["sqlite", "postgresql"]
    database_bytes: Annotated[int | None, about("of a SQLite file")]
    free_bytes: Annotated[int | None, about("free on the disk of the workspace")]


class RetentionFigures(TypedDict):
    """Retention limits; none: unlimited."""

    days: float | None
    bytes: int | None


class WorkerFigures(TypedDict):
    """Concurrency of this process."""

    runs: int
    traces: int


class ServiceFigures(TypedDict):
    """Figures for the administrator."""

    queue: QueueFigures
    storage: StorageFigures
    retention: RetentionFigures
    workers: WorkerFigures


@operation("operations", "GET /api/service", name="read_service")
async def read_figures(hub: Hub, caller: Caller) -> ServiceFigures:
    """Read queues, storage and retention; same access as `/metrics`."""
    await require_operator(hub, caller)
    async with hub.database.reading() as connection:
        queue = await count_queue(connection)
    now = hub.clock()
    return {
        "queue": {
            "traces": queue.traces,
            "trace_wait_s": queue.measure_trace_wait(now),
            "runs_queued": queue.runs_queued,
            "runs_running": queue.runs_running,
            "run_wait_s": queue.measure_run_wait(now),
            "deliveries": queue.deliveries,
        },
        "storage": await asyncio.to_thread(_measure_storage, hub),
        "retention": {"days": hub.settings.retention_days, "bytes": hub.settings.retention_bytes},
        "workers": {"runs": hub.settings.workers, "traces": hub.settings.evaluators},
    }


def _measure_storage(hub: Hub) -> StorageFigures:
    file = hub.database.file
    size: int | None = None
    if file is not None:
        files = [file, file.with_name(f"{file.name}-wal")]
        size = sum(file_path.stat().st_size for file_path in files if file_path.exists())
    free = _measure_free_bytes(hub.settings.home)
    return {"database": "postgresql" if file is None else "sqlite", "database_bytes": size, "free_bytes": free}


T = TypeVar("T")
Degree = Literal["ok", "degraded", "failing"]
LOOK_S = 1.0
"""Seconds that a check of the database may take, and that its result is valid."""
DISK_FULL_BYTES = 8_000_000
DISK_LOW_BYTES = 200_000_000
BUSY_S = 0.5
"""Additional seconds for a check while the event loop is delayed."""
STEP_S = 0.05
OVERDUE_S = 60.0
"""Seconds after which a due trace has waited too long."""


class HealthReason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why the service is not healthy."""

    code: str
    """Stable; `docs/reference/errors.md` lists them."""
    message: str
    degree: Degree


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the service."""

    status: Degree
    version: str = __version__
    database: Literal["reachable", "unreachable"]
    reasons: tuple[HealthReason, ...] = ()


class HealthWatch:
    """Checks one service; results are cached for a moment."""

    def __init__(self, hub: Hub, *, look_s: float = LOOK_S) -> None:
        self._hub = hub
        self._look_s = look_s
        self._looking = asyncio.Lock()
        self._found: Health | None = None
        self._looked_at = 0.0

    async def get_health(self) -> Health:
        """Return the health of the service."""
        # Waiting requests share the result: many probes cost one check a second.
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if self._found is None or now - self._looked_at >= self._look_s:
                self._found = await find_health(self._hub, look_s=self._look_s)
                self._looked_at = asyncio.get_running_loop().time()
            return self._found


def find_watch(state: Any, hub: Hub) -> HealthWatch:
    """Return the health watch of an application, created at the first request."""
    watch: HealthWatch | None = getattr(state, "health_watch", None)
    if watch is None:
        watch = state.health_watch = HealthWatch(hub)
    return watch


async def find_health(hub: Hub, *, look_s: float = LOOK_S) -> Health:
    """Check the health of a service."""
    reasons = list(_check_disk(hub))
    now = asyncio.get_running_loop().time
    until = now() + look_s
    read = await _check_reading(hub, look_s)
    if isinstance(read, HealthReason):
        reasons.append(read)
    else:
        reasons += await _check_writing(hub, look_s, is_late=now() > until)
        if read is not None and hub.clock() - read > OVERDUE_S:
            reason = f"a trace has been due for evaluation for {hub.clock() - read:.0f} s"
            reasons.append(HealthReason(code="queue_behind", message=reason, degree="degraded"))
    degrees = [reason.degree for reason in reasons]
    status: Degree = "failing" if "failing" in degrees else "degraded" if degrees else "ok"
    unreachable = isinstance(read, HealthReason) and read.code == "database_unreachable"
    return Health(status=status, database="unreachable" if unreachable else "reachable", reasons=tuple(reasons))


class _LoopStalled(Exception):
    """The event loop was delayed, so that the result is unknown."""


async def _wait_fairly(work: Coroutine[Any, Any, T], look_s: float) -> T:
    """Return the result of `work` within a time, not counting delays of the event loop. Raises `TimeoutError`, `_LoopStalled`."""
    now = asyncio.get_running_loop().time
    started = now()
    held_up_s = 0.0
    task = asyncio.ensure_future(work)
    try:
        while True:
            before = now()
            await asyncio.wait({task}, timeout=STEP_S)
            if task.done():
                return task.result()
            # A wait that is much too long means a delayed event loop, not a slow database.
            held_up_s += max(0.0, now() - before - 2 * STEP_S)
            if now() - started - held_up_s >= look_s:
                raise TimeoutError
            if now() - started >= look_s + BUSY_S:
                raise _LoopStalled
    finally:
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # retrieve the exception
        task.cancel()


def _make_busy_reason() -> HealthReason:
    message = "the service is busy with other requests and could not check everything in time"
    return HealthReason(code="service_busy", message=message, degree="degraded")


async def _check_reading(hub: Hub, look_s: float) -> HealthReason | float | None:
    """Return why the database cannot be read, or when the oldest waiting trace was due, if any."""

    async def read() -> float | None:
        async with hub.database.reading() as connection:
            first = sa.select(sa.func.min(traces.c.due_at)).where(traces.c.due_at.is_not(None))
            return (await connection.execute(first)).scalar_one_or_none()

    try:
        return await _wait_fairly(read(), look_s)
    except _LoopStalled:
        return _make_busy_reason()
    except TimeoutError:
        return HealthReason(code="database_unreachable", message=f"the database did not answer within {look_s:g} s", degree="failing")
    except StoreError as error:
        return HealthReason(code="database_unreachable", message=_drop_details(error), degree="failing")


async def _check_writing(hub: Hub, look_s: float, *, is_late: bool) -> list[HealthReason]:
    try:
        away = await _wait_fairly(hub.database.find_outage(), look_s * 0.7)
    except (_LoopStalled, TimeoutError):
        away = StoreError("the database did not answer")
    if away is not None:
        return [HealthReason(code="database_not_written", message=_drop_details(away), degree="failing")]
    if is_late:
        return [_make_busy_reason()]
    try:
        # Half of the time, since the check of reading comes first, and both must stay within the limit.
        locked = await _wait_fairly(hub.database.is_locked(within_s=look_s / 2), look_s * 0.7)
    except (_LoopStalled, TimeoutError):
        return [_make_busy_reason()]  # the checking thread was delayed; the database was just read
    if locked:
        return [HealthReason(code="database_locked", message="another program holds the write lock", degree="degraded")]
    return []


def _check_disk(hub: Hub) -> list[HealthReason]:
    folders = {hub.settings.home, *([hub.database.file.parent] if hub.database.file is not None else [])}
    # The fuller one decides.
    free = min((free_bytes for folder in folders if (free_bytes := _measure_free_bytes(folder)) is not None), default=DISK_LOW_BYTES)
    if free >= DISK_LOW_BYTES:
        return []
    full = free < DISK_FULL_BYTES
    message = f"{free:,} bytes are free on the disk"
    return [HealthReason(code="disk_full" if full else "disk_low", message=message, degree="failing" if full else "degraded")]


def _drop_details(error: StoreError) -> str:
    """Return the error without names and addresses, since anyone may read the health."""
    text = str(error)
    for word, cause in (("full", "disk full"), ("locked", "locked by another program"), ("did not answer", "no answer")):
        if word in text:
            return f"the database is unavailable: {cause}"
    return "the database is unavailable"


def _measure_free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
