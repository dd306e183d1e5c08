"""Starts due runs of schedules: a worker of every server.

The server that advances `next_at` starts the run, in the same transaction, so that there is one run per due time however many servers race
or are killed. A run has its due time, which is unique, so that no time runs twice if the clock is set back. Of the times that passed while
nothing was running, the last one gets a run; all of them are reported in `missed`. A run that cannot start is stored as a failed run.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from proctor.errors import InputError, StoreError
from proctor.service.access.callers import Caller
from proctor.service.access.transactions import Transaction
from proctor.service.hub import QUEUED, Hub, stamp
from proctor.service.refusals import Refusal
from proctor.service.runs.cron import Cron, find_zone, parse_cron
from proctor.service.runs.requests import PreparedRun, insert_run
from proctor.service.runs.run import NewRun
from proctor.service.runs.schedules import MOST_COUNTED, Missed, MissedReason, prepare, read_spec
from proctor.service.runs.worker import describe_error
from proctor.service.waiting import repeat
from proctor.store.runs import run_rows as rows
from proctor.store.sql.pages import Row

LATE_S = 300.0
"""A run that starts later than this after its due time was missed."""
AT_ONCE = 50
_LOOK_S = 1.0
_LOG = logging.getLogger("proctor.serve")


async def run_schedules(hub: Hub, stop: asyncio.Event) -> None:
    """Start due runs until `stop` is set: a worker of the service."""

    async def step() -> float:
        await start_due_runs(hub)
        return _LOOK_S

    await repeat(step, stop, retry_s=_LOOK_S, problem="scheduled runs cannot be started now")


async def start_due_runs(hub: Hub) -> int:
    """Start every due run and return the number of runs."""
    async with hub.database.reading() as connection:
        due = await rows.list_due_schedules(connection, hub.now(), AT_ONCE)
    started = 0
    for row in due:
        try:
            started += await _Due(hub, row).start()
        except StoreError:
            raise
        except Exception:
            # A bug: it must not stop the other schedules.
            _LOG.exception("a schedule failed", extra={"schedule": row["id"]})
    if started:
        hub.run_signals.wake(QUEUED)
    return started


class _Due:
    """A due schedule, with the times that have passed."""

    def __init__(self, hub: Hub, row: Row) -> None:
        self._hub = hub
        self._row = row
        now = datetime.fromtimestamp(hub.clock(), UTC)
        cron, zone = parse_cron(row["cron"]), find_zone(row["timezone"])
        passed, last = _list_passed(cron, zone, datetime.fromisoformat(row["next_at"]), now)
        self._passed = [stamp(moment.timestamp()) for moment in passed]
        self._due_at = stamp(last.timestamp())
        self._is_late = (now - last).total_seconds() > LATE_S
        self._next_at = stamp(cron.find_next(now, zone).timestamp())
        # In the audit log the schedule is the author of its runs.
        self._caller = Caller(organization_id=row["organization_id"], key_id=row["id"])

    async def start(self) -> bool:
        """Start the run, or report why there is none; return whether this server did so."""
        row = self._row
        spec = NewRun(project_id=row["project_id"], name=row["name"])
        try:
            if row["paused"]:
                return await self._start(spec, None)
            spec = read_spec(row)
            return await self._start(spec, await prepare(self._hub, self._caller, spec))
        except (InputError, Refusal) as error:
            return await self._start(spec, describe_error(error))

    async def _start(self, spec: NewRun, run: PreparedRun | str | None) -> bool:
        """Insert the run, or a failed one with its reason, unless another server has advanced the schedule."""
        hub, row = self._hub, self._row
        async with hub.database.writing() as connection:
            going = await rows.find_unfinished_run(connection, row["id"])
            # With `queue` the schedule stays due until the previous run has ended.
            if run is not None and going is not None and row["overlap"] == "queue":
                return False
            done = await rows.list_started_times(connection, row["id"], self._passed[0], self._due_at)
            open_times = [at for at in self._passed if at not in done]
            if run is None:
                missed = self._report(open_times, "paused")
            elif going is not None:
                missed = self._report(open_times, "overlap", going)
            else:
                last = (await rows.list_runs_by_id(connection, ("id", "completed_at"), [row["last_run_id"] or ""])).get(row["last_run_id"])
                waited = row["overlap"] == "queue" and last is not None and (last["completed_at"] or "") > self._passed[0]
                late = [at for at in open_times if self._is_late or at != self._due_at]
                missed = self._report(late, "overlap" if waited else "not_running", last["id"] if waited and last else None)
            if not await rows.advance_schedule(connection, row, {"next_at": self._next_at, "missed": missed}):
                return False
            if missed != row["missed"]:
                _LOG.warning("scheduled runs were missed", extra={"schedule": row["id"], "missed": missed})
            if run is None or going is not None or self._due_at in done:
                return False
            scheduled = {"schedule_id": row["id"], "due_at": self._due_at}
            made = await insert_run(Transaction(connection, hub, self._caller), spec, run, **scheduled)
            await rows.set_last_run(connection, row["id"], made["id"])
        return True

    def _report(self, times: list[str], reason: MissedReason, run_id: str | None = None) -> Missed | None:
        """Return the report of missed times; that of the same pause or the same previous run is continued."""
        before: Missed | None = self._row["missed"]
        count = 0
        if before is not None and reason != "not_running" and (before["reason"], before["run_id"]) == (reason, run_id):
            times = [at for at in times if at > before["until"]]
            count = before["count"]
        if not times:
            return before
        since = before["since"] if before is not None and count else times[0]
        count = min(count + len(times), MOST_COUNTED)
        return {"count": count, "since": since, "until": times[-1], "reason": reason, "run_id": run_id, "reported_at": self._hub.now()}


def _list_passed(cron: Cron, zone: ZoneInfo, first: datetime, now: datetime) -> tuple[list[datetime], datetime]:
    """Return the due times from `first` to `now`, at most `MOST_COUNTED`, and the last of all of them."""
    times = [first, *takewhile(lambda at: at <= now, islice(cron.iterate(first, zone), MOST_COUNTED - 1))]
    if len(times) < MOST_COUNTED:
        return times, times[-1]
    # The last one, from a time shortly before: there may be millions in between.
    for days in (1, 32):
        last = deque(takewhile(lambda at: at <= now, cron.iterate(now - timedelta(days=days), zone)), maxlen=1)
        if last:
            return [*times[:-1], last[0]], last[0]
    return times, times[-1]
