"""Says how the service is, in degrees, within a bounded time.

`ok`: everything works. `degraded`: it works, and somebody should look (the disk fills up, traces wait long, another program holds the
database). `failing`: what is sent cannot be kept. Each reason has a stable word. Looking takes at most about a second whatever the database
does, and many who ask at once share one look. Time in which the event loop was held up by other requests is not the database's: it makes
the service `degraded` (busy), never the database unreachable.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import sqlalchemy as sa

from proctor.errors import StoreError
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_operator
from proctor.service.hub import Hub
from proctor.store.runs.queue_sizes import count_queue
from proctor.store.sql.tables import traces


async def read_figures(hub: Hub, caller: Caller) -> dict[str, Json]:
    """Return what waits, the room there is and what is kept; of the whole service, so only for who may read that."""
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


def _measure_storage(hub: Hub) -> dict[str, Json]:
    """Return the size of a database in a file with what belongs to it, and how much is free beside it; None where nobody here knows."""
    file = hub.database.file
    size: int | None = None
    if file is not None:
        beside = [file, file.with_name(f"{file.name}-wal")]
        size = sum(one.stat().st_size for one in beside if one.exists())
    try:
        free: int | None = shutil.disk_usage(hub.settings.home).free
    except OSError:
        free = None
    return {"database": "postgresql" if file is None else "sqlite", "database_bytes": size, "free_bytes": free}


T = TypeVar("T")
Degree = Literal["ok", "degraded", "failing"]
LOOK_S = 1.0
"""How long looking at the database may take, and how long what was found holds."""
DISK_FULL_BYTES = 8_000_000
DISK_LOW_BYTES = 200_000_000
BUSY_S = 0.5
"""How much longer looking may take when the event loop is held up."""
STEP_S = 0.05
BEHIND_S = 60.0
"""From when on traces that could have been evaluated have waited long."""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be."""

    code: Literal[
        "database_unreachable", "database_locked", "database_not_written", "disk_full", "disk_low", "queue_behind", "service_busy"
    ]
    message: str
    degree: Degree


class ServiceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the service is."""

    status: Degree
    database: Literal["reachable", "unreachable"]
    reasons: tuple[Reason, ...] = ()


class HealthWatch:
    """Watches one service; what was found is remembered for a moment."""

    def __init__(self, hub: Hub, *, look_s: float = LOOK_S) -> None:
        self._hub = hub
        self._look_s = look_s
        self._looking = asyncio.Lock()
        self._found: ServiceHealth | None = None
        self._looked_at = 0.0

    async def get_health(self) -> ServiceHealth:
        """Return how the service is."""
        # Whoever waits for the lock finds what the one before has found: a storm of probes costs one look a second.
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if self._found is None or now - self._looked_at >= self._look_s:
                self._found = await find_health(self._hub, look_s=self._look_s)
                self._looked_at = asyncio.get_running_loop().time()
            return self._found


def find_watch(state: Any, hub: Hub) -> HealthWatch:
    """Return the one watch of an application, made when somebody asks for the first time."""
    watch: HealthWatch | None = getattr(state, "health_watch", None)
    if watch is None:
        watch = state.health_watch = HealthWatch(hub)
    return watch


async def find_health(hub: Hub, *, look_s: float = LOOK_S) -> ServiceHealth:
    """Find out how a service is."""
    reasons = list(_check_disk(hub))
    now = asyncio.get_running_loop().time
    until = now() + look_s
    read = await _check_reading(hub, look_s)
    if isinstance(read, Reason):
        reasons.append(read)
    else:
        reasons += await _check_writing(hub, look_s, is_late=now() > until)
        if read is not None and hub.clock() - read > BEHIND_S:
            told = f"a trace that could have been evaluated has waited for {hub.clock() - read:.0f} s"
            reasons.append(Reason(code="queue_behind", message=told, degree="degraded"))
    degrees = [reason.degree for reason in reasons]
    status: Degree = "failing" if "failing" in degrees else "degraded" if degrees else "ok"
    unreachable = isinstance(read, Reason) and read.code == "database_unreachable"
    return ServiceHealth(status=status, database="unreachable" if unreachable else "reachable", reasons=tuple(reasons))


class _HeldUp(Exception):
    """The event loop was held up for so long that nobody can say whether an answer came in time."""


async def _wait_fairly(work: Coroutine[Any, Any, T], look_s: float) -> T:
    """Return what work gives within that time; delays of the event loop itself do not count. Raises `TimeoutError`, `_HeldUp`."""
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
            # A wait that lasts far longer than it was to last is the event loop being late, not the database.
            held_up_s += max(0.0, now() - before - 2 * STEP_S)
            if now() - started - held_up_s >= look_s:
                raise TimeoutError
            if now() - started >= look_s + BUSY_S:
                raise _HeldUp
    finally:
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody else asks how it ended
        task.cancel()


def _say_busy() -> Reason:
    told = "other requests hold the service up; it could not look at everything in time"
    return Reason(code="service_busy", message=told, degree="degraded")


async def _check_reading(hub: Hub, look_s: float) -> Reason | float | None:
    """Return why the database cannot be read; else when the trace that waits longest was due, if any does."""

    async def read() -> float | None:
        async with hub.database.reading() as connection:
            first = sa.select(sa.func.min(traces.c.due_at)).where(traces.c.due_at.is_not(None))
            return (await connection.execute(first)).scalar_one_or_none()

    try:
        return await _wait_fairly(read(), look_s)
    except _HeldUp:
        return _say_busy()
    except TimeoutError:
        return Reason(code="database_unreachable", message=f"the database did not answer within {look_s:g} s", degree="failing")
    except StoreError as error:
        return Reason(code="database_unreachable", message=_drop_details(error), degree="failing")


async def _check_writing(hub: Hub, look_s: float, *, is_late: bool) -> list[Reason]:
    try:
        away = await _wait_fairly(hub.database.find_outage(), look_s * 0.7)
    except (_HeldUp, TimeoutError):
        away = StoreError("the database did not answer")
    if away is not None:
        return [Reason(code="database_not_written", message=_drop_details(away), degree="failing")]
    if is_late:
        return [_say_busy()]
    try:
        # Half of the time: the look at reading comes before it, and both together must stay near the bound.
        locked = await _wait_fairly(hub.database.is_locked(within_s=look_s / 2), look_s * 0.7)
    except (_HeldUp, TimeoutError):
        return [_say_busy()]  # the thread that looks had no turn; the database was just read
    if locked:
        return [Reason(code="database_locked", message="another program holds the lock for writing", degree="degraded")]
    return []


def _check_disk(hub: Hub) -> list[Reason]:
    """Return what is wrong with the disk of the workspace, and with that of a database in a file."""
    folders = {hub.settings.home, *([hub.database.file.parent] if hub.database.file is not None else [])}
    # The fuller of two decides: what one of them lacks the other cannot give.
    free = min((found for folder in folders if (found := _measure_free_bytes(folder)) is not None), default=DISK_LOW_BYTES)
    if free >= DISK_LOW_BYTES:
        return []
    full = free < DISK_FULL_BYTES
    told = f"{free:,} bytes are free on the disk"
    return [Reason(code="disk_full" if full else "disk_low", message=told, degree="failing" if full else "degraded")]


def _drop_details(error: StoreError) -> str:
    """Return what is wrong, without names and addresses: anybody may ask how the service is."""
    text = str(error)
    for word, told in (
        ("full", "its disk is full"),
        ("locked", "another program holds its lock"),
        ("did not answer", "it does not answer"),
    ):
        if word in text:
            return f"the database cannot be used: {told}"
    return "the database cannot be used"


def _measure_free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
