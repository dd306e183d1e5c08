"""Schedules of a project: runs started at the times of a cron expression."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Annotated, Literal, TypedDict, Unpack
from zoneinfo import ZoneInfo

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import InputError, StoreError
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_run_reader, select_visible
from proctor.service.access.transactions import Transaction, reading, writing
from proctor.service.field_checks import refuse_emptying
from proctor.service.hub import QUEUED, Hub, stamp
from proctor.service.paging import fetch_page_or_refuse, show_page
from proctor.service.refusals import Refusal, describe_error
from proctor.service.resource import Page, Paging, about, check_fields_of, operation, show_row
from proctor.service.runs.cron import LONGEST as LONGEST_CRON
from proctor.service.runs.cron import Cron, find_zone, parse_cron
from proctor.service.runs.names import check_names
from proctor.service.runs.requests import PreparedRun, check_spec, find_startable_project, insert_run, prepare_run, read_run_suite
from proctor.service.runs.run import RUN_COLUMNS, NewRun, Run, RunOptions, show_run
from proctor.service.waiting import repeat
from proctor.store.files.run_references import LONGEST
from proctor.store.runs import run_rows as rows
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import schedules

Overlap = Literal["skip", "queue"]
MissedReason = Literal["not_running", "overlap", "paused"]
MOST_TIMES = 50
MOST_COUNTED = 1_000
"""Missed times that are counted."""


class Missed(TypedDict):
    """Due times without a run of their own, reported once."""

    count: Annotated[int, about(f"at most {MOST_COUNTED}")]
    since: Annotated[str, about("the first of them")]
    until: Annotated[str, about("the last of them")]
    reason: Annotated[
        MissedReason,
        about("not_running: no server was running; overlap: the previous run was still going; paused: the project was paused"),
    ]
    run_id: Annotated[str | None, about("the run that was still going")]
    reported_at: str


class Schedule(TypedDict):
    """A run that is started at the times of a cron expression."""

    id: str
    project_id: str
    name: Annotated[str, about("also the name of its runs")]
    cron: str
    timezone: str
    run: Annotated[dict[str, Json], RunOptions, about("the run; in lists without its suite")]
    overlap: Overlap
    active: bool
    next_at: Annotated[str | None, about("none: paused; a past time waits for the previous run")]
    last_run: Annotated[Run | None, about("the newest one; `error` is the reason if it could not start")]
    missed: Annotated[Missed | None, about("the newest report, until the schedule is changed")]
    created_at: str
    updated_at: str


Name = Annotated[str, about("also the name of its runs, unless `run` has one", min_length=1, max_length=LONGEST)]
CronText = Annotated[
    str,
    about("minute, hour, day of month, month, day of week, such as `0 6 * * MON-FRI`; or `@daily`", min_length=1, max_length=LONGEST_CRON),
]
Zone = Annotated[str, about("an IANA time zone, such as Europe/Berlin", min_length=1, max_length=100)]
RunFields = Annotated[dict[str, Json], RunOptions, about("the run, with the fields of `POST /api/runs` except `project_id`")]
OverlapChoice = Annotated[
    Overlap, about("while the previous run is going, skip a due run, or start one when it has ended, however many were due")
]


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A new schedule."""

    project_id: str
    name: Name
    cron: CronText
    timezone: Zone = "UTC"
    run: RunFields
    overlap: OverlapChoice = "skip"
    active: Annotated[bool, about("false: paused")] = True


class ScheduleChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changed fields of a schedule."""

    name: Name | None = None
    cron: CronText | None = None
    timezone: Zone | None = None
    run: Annotated[dict[str, Json] | None, RunOptions, about("replaces the whole run")] = None
    overlap: OverlapChoice | None = None
    active: Annotated[bool | None, about("false: paused")] = None


class TimesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An expression to try out."""

    cron: CronText
    timezone: Zone = "UTC"
    count: Annotated[int, about("number of times", ge=1, le=MOST_TIMES)] = 5


class DueTime(TypedDict):
    """A due time."""

    at: Annotated[str, about("in UTC")]
    local: Annotated[str, about("in the time zone of the schedule")]


class DueTimes(TypedDict):
    """The next times of an expression."""

    times: list[DueTime]


@operation("schedules", "GET /api/schedules")
async def list_schedules(hub: Hub, caller: Caller, *, project_id: str | None = None, **paging: Unpack[Paging]) -> Page[Schedule]:
    """List schedules, newest first."""
    require_run_reader(caller)
    columns = [column.name for column in schedules.c if column.name != "suite"]
    query = select_visible(schedules, caller, columns=columns, project_id=project_id)
    async with hub.database.reading() as connection:
        page = await fetch_page_or_refuse(connection, query, schedules, **paging)
        last = await rows.list_runs_by_id(connection, RUN_COLUMNS, [row["last_run_id"] for row in page.rows if row["last_run_id"]])
    return show_page(page, lambda row: _show(row, last))


@operation("schedules", "POST /api/schedules", status=201, doing="creating schedules")
async def create_schedule(hub: Hub, caller: Caller, spec: NewSchedule) -> Schedule:
    """Create a schedule; requires an organization key. Its run is checked completely, as if it were started now."""
    check_names(spec.name, ())
    next_at = find_next(hub, spec.cron, spec.timezone)
    async with reading(hub, caller) as tx:
        await tx.check_place(spec.project_id)
    await _prepare(hub, caller, make_spec(spec.project_id, spec.name, spec.run))
    values = {**msgspec.structs.asdict(spec), **_split_run(spec.run), "next_at": next_at if spec.active else None}
    async with writing(hub, caller) as tx:
        await tx.check_place(spec.project_id)
        row = await tx.insert_row(schedules, "schedule", "sch", values, {"name": spec.name, "cron": spec.cron})
    return _show(row, {})


@operation("schedules", "POST /api/schedules/preview", name="preview_schedule", doing="previewing schedules")
async def preview_times(hub: Hub, caller: Caller, spec: TimesRequest) -> DueTimes:
    """Compute the next times of an expression; stores nothing."""
    find_next(hub, spec.cron, spec.timezone)
    zone = find_zone(spec.timezone)
    times = islice(parse_cron(spec.cron).iterate(datetime.fromtimestamp(hub.clock(), UTC), zone), spec.count)
    return {
        "times": [{"at": stamp(moment.timestamp()), "local": moment.astimezone(zone).isoformat(timespec="minutes")} for moment in times]
    }


@operation("schedules", "GET /api/schedules/{schedule_id}")
async def get_schedule(hub: Hub, caller: Caller, id: str) -> Schedule:
    """Read a schedule."""
    require_run_reader(caller)
    async with reading(hub, caller) as tx:
        return await _show_one(tx.connection, await tx.find_visible(schedules, "schedule", id))


@operation("schedules", "PATCH /api/schedules/{schedule_id}", doing="changing schedules")
async def update_schedule(hub: Hub, caller: Caller, id: str, changes: Annotated[Mapping[str, Json], ScheduleChanges]) -> Schedule:
    """Change a schedule; requires an organization key. A due run that has not started yet is dropped if the times change."""
    refuse_emptying(changes, "name", "cron", "timezone", "run", "overlap", "active")
    async with reading(hub, caller) as tx:
        before = await tx.require_row(schedules, "schedule", id)
    after = {**before, **changes}
    values: dict[str, Json] = {name: changes[name] for name in ("name", "cron", "timezone", "overlap", "active") if name in changes}
    check_names(after["name"], ())
    next_at = find_next(hub, after["cron"], after["timezone"])
    if "run" in changes:
        await _prepare(hub, caller, make_spec(before["project_id"], after["name"], changes["run"]))
        values |= _split_run(changes["run"])
    if any(before[name] != after[name] for name in ("cron", "timezone", "active")):
        values["next_at"] = next_at if after["active"] else None
    async with writing(hub, caller) as tx:
        row = await tx.change_row(schedules, "schedule", id, {**values, "missed": None}, details={"fields": sorted(changes)})
        return await _show_one(tx.connection, row)


@operation("schedules", "DELETE /api/schedules/{schedule_id}", doing="deleting schedules")
async def delete_schedule(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a schedule; requires an organization key. Its runs stay."""
    async with writing(hub, caller) as tx:
        await tx.delete_row(schedules, "schedule", id)


@operation("schedules", "POST /api/schedules/{schedule_id}/run-now", status=202, name="run_schedule_now", doing="starting runs")
async def run_now(hub: Hub, caller: Caller, id: str) -> Run:
    """Start the run of a schedule, also of a paused one; requires an organization key. Its due times stay."""
    async with reading(hub, caller) as tx:
        spec = read_spec(await tx.require_row(schedules, "schedule", id))
    prepared = await _prepare(hub, caller, spec)
    async with writing(hub, caller) as tx:
        run = await insert_run(tx, spec, prepared, schedule_id=id)
        await rows.set_last_run(tx.connection, id, run["id"])
    hub.run_signals.wake(QUEUED)
    return show_run(run)


def make_spec(project_id: str, name: str, run: Mapping[str, Json]) -> NewRun:
    """Return the run request of a schedule. Raises `Refusal`."""
    known = RunOptions.__struct_fields__
    if unknown := [name for name in run if name not in known]:
        reason = [f"unknown; expected one of {', '.join(known)}"]
        raise Refusal("VALIDATION_ERROR", "the run is invalid", fields={f"run.{name}": reason for name in unknown})
    check_fields_of(RunOptions, run, path="run.")
    spec = NewRun(project_id=project_id, **run)
    return spec if spec.name else msgspec.structs.replace(spec, name=name)


def read_spec(row: Row) -> NewRun:
    """Return the run request of a stored schedule. Raises `Refusal`."""
    return make_spec(row["project_id"], row["name"], _join_run(row))


async def prepare(hub: Hub, caller: Caller, spec: NewRun) -> PreparedRun:
    """Return the checked run of a schedule. Raises `Refusal`."""
    check_spec(spec)
    project = await find_startable_project(hub, caller, spec.project_id)
    return await prepare_run(hub, caller, project, spec, await read_run_suite(hub, caller, project, spec))


async def _prepare(hub: Hub, caller: Caller, spec: NewRun) -> PreparedRun:
    """Do the same with the fields of problems below `run`."""
    try:
        return await prepare(hub, caller, spec)
    except Refusal as refusal:
        raise refusal.rename_fields(lambda name: f"run.{name}") from None


def _split_run(run: Mapping[str, Json]) -> dict[str, Json]:
    return {"run": {name: value for name, value in run.items() if name != "suite"}, "suite": run.get("suite")}


def _join_run(row: Row) -> dict[str, Json]:
    """Return the complete run of a schedule; a row of a list has no suite."""
    return {**msgspec.to_builtins(RunOptions()), **row["run"], "suite": row.get("suite")}


def find_next(hub: Hub, cron: str, timezone: str) -> str:
    """Return the next due time from now on. Raises `Refusal` for an invalid expression or zone."""
    fields: dict[str, list[str]] = {}
    for name, read, text in (("cron", parse_cron, cron), ("timezone", find_zone, timezone)):
        try:
            read(text)
        except InputError as error:
            fields[name] = [str(error)]
    if fields:
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields=fields)
    return stamp(parse_cron(cron).find_next(datetime.fromtimestamp(hub.clock(), UTC), find_zone(timezone)).timestamp())


async def _show_one(connection: AsyncConnection, row: Row) -> Schedule:
    return _show(row, await rows.list_runs_by_id(connection, RUN_COLUMNS, [row["last_run_id"] or ""]))


def _show(row: Row, runs: Mapping[str, Row]) -> Schedule:
    last = runs.get(row["last_run_id"] or "")
    return show_row(Schedule, row, run=_join_run(row), last_run=None if last is None else show_run(last))


# --- starts due runs: a worker of every server
#
# The server that advances `next_at` starts the run, in the same transaction, so that there is one run per due time however many servers
# race or are killed. A run has its due time, which is unique, so that no time runs twice if the clock is set back. Of the times that
# passed while nothing was running, the last one gets a run; all of them are reported in `missed`. A run that cannot start is stored as a
# failed run.

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
    last = deque(takewhile(lambda at: at <= now, cron.iterate(now - timedelta(days=32), zone)), maxlen=1) or times
    return [*times[:-1], last[-1]], last[-1]
