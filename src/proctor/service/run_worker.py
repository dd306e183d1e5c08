"""Drives the runs that wait in the queue.

A worker takes one run at a time, holds it by a lease that it renews, and goes on where the last one stopped: attempts that are kept are not
repeated. When the end of the run is asked for it stops within a second; when the service stops it gives the run back to the queue; when it
dies, the lease runs out and another one takes over. When the database is gone it stops as soon as it cannot know any more that the run is
still its own.

A run that is taken up again and again without one attempt being finished is given up: it is what ends its workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal

from proctor.actions.check import wall_clock
from proctor.actions.history import result_of
from proctor.errors import InputError, StoreError, TargetError
from proctor.model.evidence import Json
from proctor.model.run import RunEntry
from proctor.model.verdict import OUTCOMES
from proctor.runner.events import Event
from proctor.runner.run import Runner, RunOutcome
from proctor.service.hub import Hub, new_id
from proctor.service.refusals import Refusal
from proctor.service.run_building import ReadyRun, asked_of, header_of, read_kept_suite, ready_run
from proctor.service.run_cleaning import Cleaner
from proctor.service.run_signals import QUEUED
from proctor.store.pages import Row
from proctor.store.run_rows import LeaseLost, RunRows, claim, done_attempts, end, kept_entries, let_go, renew, wanted
from proctor.store.tables import projects
from proctor.store.tenants import find

LOOK_EVERY_S = 0.3
"""How often a worker asks whether its run is to end. What is said in this process it hears at once."""
IDLE_S = 1.0
"""How often an idle worker looks for runs that were queued elsewhere."""
MOST_CLAIMS = 5
LEAVE_S = 8.0
"""How long a target may take to close."""
_LOG = logging.getLogger("proctor.service")

Why = Literal["cancelled", "stopping", "lost"]


async def run_worker(hub: Hub, stop: asyncio.Event) -> None:
    """Drive runs until told to stop, as many at once as the settings say."""
    places = [asyncio.create_task(_place(hub, stop)) for _ in range(hub.settings.workers)]
    try:
        await stop.wait()
        if places:
            await asyncio.wait(places)
    finally:
        for place in places:
            place.cancel()
        await asyncio.gather(*places, return_exceptions=True)


async def work_once(hub: Hub, stop: asyncio.Event | None = None) -> str | None:
    """Take one run and drive it to its end; its id, or None when none waits."""
    owner = new_id("worker")
    async with hub.database.writing() as connection:
        row = await claim(connection, owner=owner, now=hub.clock(), lease_s=hub.settings.lease_s, at=hub.now())
    if row is None:
        return None
    await _Drive(hub, row, owner, stop or asyncio.Event()).drive()
    return row["id"]


async def _place(hub: Hub, stop: asyncio.Event) -> None:
    with hub.run_signals.watch(QUEUED) as watch:
        while not stop.is_set():
            try:
                busy = await work_once(hub, stop) is not None
            except StoreError as error:
                _LOG.warning("a run could not be driven on", extra={"reason": str(error)})
                busy = False
            except Exception:
                _LOG.exception("a run could not be driven on")
                busy = False
            if not busy and not stop.is_set():
                await _first(watch.wait(IDLE_S), stop.wait())


class _Drive:
    """One run in the hands of one worker."""

    def __init__(self, hub: Hub, row: Row, owner: str, stop: asyncio.Event) -> None:
        self._hub = hub
        self._row = row
        self._id: str = row["id"]
        self._owner = owner
        self._stop = stop
        self._held_at = hub.clock()
        self._rows: RunRows | None = None

    async def drive(self) -> None:
        """To its end, or until it has to be let go. Raises `StoreError` where the database is gone."""
        try:
            if self._row["cancel_requested"]:
                return await self._end("cancelled")
            if self._row["claims"] > MOST_CLAIMS:
                told = f"given up: taken up {MOST_CLAIMS} times without one attempt being finished"
                return await self._end("failed", error=told)
            try:
                ready = await self._ready()
            except (InputError, Refusal) as error:
                return await self._end("failed", error=_words(error))
            try:
                await self._run(ready)
            finally:
                await ready.close()
        except LeaseLost:
            _LOG.info("a run was taken over by another worker", extra={"run": self._id})

    async def _ready(self) -> ReadyRun:
        async with self._hub.database.reading() as connection:
            project = await find(connection, projects, self._row["organization_id"], self._row["project_id"])
        if project is None:
            raise InputError("its project is gone")
        suite = await asyncio.to_thread(read_kept_suite, self._row)
        return await ready_run(self._hub, self._row["organization_id"], project, suite, asked_of(self._row))

    async def _run(self, ready: ReadyRun) -> None:
        hub = self._hub
        self._rows = rows = RunRows(
            hub.database,
            header_of(self._row),
            owner=self._owner,
            lease_s=hub.settings.lease_s,
            clock=hub.clock,
            now=hub.now,
            new_id=new_id,
            clean=(cleaner := Cleaner(ready.secrets)),
            told=lambda: hub.run_signals.tell(self._id),
        )
        async with hub.database.reading() as connection:
            done = await done_attempts(connection, self._id)
        rows.tell("running", {"attempts": ready.attempts, "finished": len(done), "claims": self._row["claims"]})
        runner = Runner(
            cases=ready.cases,
            target=ready.target,
            log=rows,
            run_id=self._id,
            settings=ready.settings,
            listener=_listener(rows, cleaner),
            now=wall_clock,
            judge=ready.judge.judge if ready.judge is not None else None,
        )
        # In a task of its own: a runner that is cancelled ends with what it has, and swallows that it was.
        running = asyncio.create_task(runner.run(done), name=f"run {self._id}")
        try:
            why = await self._watched(running)
        finally:
            await _left(running)
            await rows.settle()
        await self._finish(running, why, cleaner)

    async def _watched(self, running: asyncio.Task[RunOutcome]) -> Why | None:
        """Until it has ended, or until there is a reason to end it."""
        with self._hub.run_signals.watch(self._id) as watch:
            while not running.done():
                await _first(asyncio.wait({running}), watch.wait(LOOK_EVERY_S), self._stop.wait())
                if running.done():
                    return None
                if self._stop.is_set():
                    return "stopping"
                why = await self._look()
                if why is not None:
                    return why
        return None

    async def _look(self) -> Why | None:
        hub, lease_s = self._hub, self._hub.settings.lease_s
        now = hub.clock()
        try:
            if now - self._held_at >= lease_s / 3:
                async with hub.database.writing() as connection:
                    cancelled = await renew(connection, self._id, self._owner, now + lease_s)
                self._held_at = now
            else:
                async with hub.database.reading() as connection:
                    cancelled = await wanted(connection, self._id, self._owner)
        except LeaseLost:
            return "lost"
        except StoreError:
            # The database may be back in a moment; until the lease is over the run is still ours.
            return "lost" if now - self._held_at >= lease_s else None
        return "cancelled" if cancelled else None

    async def _finish(self, running: asyncio.Task[RunOutcome], why: Why | None, cleaner: Cleaner) -> None:
        try:
            outcome = running.result()
        except (StoreError, asyncio.CancelledError):
            if why == "cancelled":
                return await self._end("cancelled")
            # Results that cannot be kept: whoever takes the run up next goes on from those that are.
            raise
        except TargetError as error:
            return await self._end("failed", error=cleaner.text(f"{error.code}: {error.message}"))
        except Exception as error:
            _LOG.exception("a run failed", extra={"run": self._id})
            return await self._end("failed", error=f"internal_error: a bug in proctor: {type(error).__name__}")
        if outcome.ended == "completed":
            return await self._end("completed")
        if why == "cancelled":
            return await self._end("cancelled")
        if why == "stopping":
            async with self._hub.database.writing() as connection:
                await let_go(connection, self._id, self._owner, self._hub.now())
            self._hub.run_signals.tell(self._id)
            return None
        if why is None:
            return await self._end("failed", error=outcome.reason)
        raise LeaseLost(f"run {self._id!r} could not be held")

    async def _end(self, status: Literal["completed", "cancelled", "failed"], *, error: str | None = None) -> None:
        hub = self._hub
        counts, outcome = await self._tallied()
        values = {"status": status, "outcome": outcome if status == "completed" else None, "error": error, "counts": counts}
        body: dict[str, Json] = {"counts": counts, "outcome": values["outcome"], "error": error}
        async with hub.database.writing() as connection:
            await end(connection, self._id, self._owner, hub.now(), values, (status, body))
        hub.counters.add("runs_finished")
        hub.run_signals.tell(self._id)

    async def _tallied(self) -> tuple[dict[str, int], str]:
        """How many attempts ended how, and what the run as a whole is."""
        entries: list[RunEntry] = []
        async with self._hub.database.reading() as connection:
            async for entry in kept_entries(connection, self._id, evidence=False):
                entries.append(entry)
        found = Counter(entry.outcome for entry in entries)
        counts = {outcome: found[outcome] for outcome in OUTCOMES if found[outcome]}
        try:
            result = await asyncio.to_thread(lambda: result_of(header_of(self._row), read_kept_suite(self._row), entries))
        except InputError:
            return counts, "error"
        return counts, result.outcome


def _listener(rows: RunRows, cleaner: Cleaner) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        # How attempts ended is told with the attempts, in one transaction.
        if event.kind in ("finished", "stopping"):
            return
        body: dict[str, Json] = {"case": event.case, "attempt": event.attempt}
        if event.message:
            body["message"] = cleaner.text(event.message)[:500]
        rows.tell(event.kind, body)

    return listen


async def _left(running: asyncio.Task[RunOutcome]) -> None:
    """The runner has ended when this returns, its target closed; also when whoever waits is cancelled meanwhile."""
    while not running.done():
        running.cancel()
        try:
            await asyncio.wait({running}, timeout=LEAVE_S)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait({running}, timeout=LEAVE_S)
            raise


async def _first(*waits: Awaitable[object]) -> None:
    """Until one of these is done; the others are left."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _words(error: InputError | Refusal) -> str:
    if isinstance(error, InputError):
        return str(error)
    told = [text for texts in error.fields.values() for text in texts]
    return "; ".join([error.message, *told[:5]])
