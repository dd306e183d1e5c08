"""Limits the database by age (`retention_days`) and size (`retention_bytes`), and by the retention of projects.

The size is that of stored traces, runs and benchmark runs with their uploaded states, without indexes and free pages. Audit notes, cases
and benchmarks stay. Judge replies are files and are limited by age only.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Annotated, TypedDict

import msgspec

from proctor.errors import StoreError
from proctor.service.access.callers import Caller
from proctor.service.access.transactions import read_visible, reading, writing
from proctor.service.hub import Hub, stamp
from proctor.service.judge_memory import delete_older as delete_older_replies
from proctor.service.refusals import Refusal
from proctor.service.resource import about, operation, show_row
from proctor.store.runs.retention import (
    Deletable,
    Kind,
    ProjectBounds,
    count_older,
    delete_listed,
    delete_remains,
    list_older,
    list_oldest,
    list_project_bounds,
    sum_stored_bytes,
)
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import projects

LONGEST_DAYS = 3_650
MOST_COUNTED = 1_000_000
"""Rows of each kind that a preview counts, along an index."""


TraceDays = Annotated[int | None, about("days that traces and their results are stored; default: as long as the service stores them")]
RunDays = Annotated[int | None, about("days that ended runs are stored; default: as long as the service stores them")]


class ProjectRetention(TypedDict):
    """Retention of a project."""

    project_id: str
    trace_days: TraceDays
    run_days: RunDays
    service_days: Annotated[float | None, about("the service deletes all data after this many days, whatever the project's setting")]
    service_bytes: Annotated[int | None, about("above this size the service deletes the oldest data of all projects")]


class NewRetention(msgspec.Struct, frozen=True, kw_only=True):
    """New retention; an omitted field has no limit of its own."""

    trace_days: Annotated[TraceDays, about(ge=1, le=LONGEST_DAYS)] = None
    run_days: Annotated[RunDays, about(ge=1, le=LONGEST_DAYS)] = None


class RetentionPreview(TypedDict):
    """Data that would be deleted."""

    trace_days: int | None
    run_days: int | None
    traces: Annotated[int, about("number of older traces")]
    runs: Annotated[int, about("number of older ended runs")]
    counted_to: Annotated[int, about("maximum of each count; there may be more")]


@operation("projects", "GET /api/projects/{project_id}/retention")
async def get_retention(hub: Hub, caller: Caller, project_id: str) -> ProjectRetention:
    """Read the retention of a project."""
    return _show(hub, await read_visible(hub, caller, projects, "project", project_id))


@operation("projects", "PUT /api/projects/{project_id}/retention", doing="setting retention")
async def set_retention(hub: Hub, caller: Caller, project_id: str, spec: NewRetention) -> ProjectRetention:
    """Set the retention of a project, at most that of the service; requires an organization key. Older data is deleted within the hour."""
    _check(hub, spec)
    values = msgspec.structs.asdict(spec)
    async with writing(hub, caller) as tx:
        project = await tx.require_row(projects, "project", project_id)
        details = {**values, "before": {name: project[name] for name in values}}
        row = await tx.change_row(projects, "project", project_id, values, "set_retention", details)
    return _show(hub, row)


@operation("projects", "GET /api/projects/{project_id}/retention/preview", doing="setting retention")
async def preview_retention(hub: Hub, caller: Caller, project_id: str, spec: NewRetention) -> RetentionPreview:
    """Count what would be deleted with this retention, without changing anything; requires an organization key."""
    _check(hub, spec)
    counts = {"traces": 0, "runs": 0}
    async with reading(hub, caller) as tx:
        await tx.check_place(project_id)
        kinds: tuple[tuple[str, Kind, int | None], ...] = (("traces", "trace", spec.trace_days), ("runs", "run", spec.run_days))
        for name, kind, days in kinds:
            if days is not None:
                before = stamp(hub.clock() - days * 86_400)
                counts[name] = await count_older(tx.connection, kind, project_id, before, most=MOST_COUNTED)
    return show_row(RetentionPreview, {**msgspec.structs.asdict(spec), **counts}, counted_to=MOST_COUNTED)


def _check(hub: Hub, spec: NewRetention) -> None:
    """Reject days beyond the retention of the service."""
    most = hub.settings.retention_days
    if most is None:
        return
    reason = f"the service deletes all data after {most:g} days"
    wrong = {name: [f"{reason}, got {days}"] for name, days in msgspec.structs.asdict(spec).items() if days is not None and days > most}
    if wrong:
        raise Refusal("VALIDATION_ERROR", "invalid retention", fields=wrong)


def _show(hub: Hub, row: Row) -> ProjectRetention:
    service = hub.settings
    return show_row(ProjectRetention, row, project_id=row["id"], service_days=service.retention_days, service_bytes=service.retention_bytes)


IDLE_S = 7 * 86_400.0
"""Seconds after which an unfinished benchmark run without changes can be deleted."""
_BATCH = 200


class SweepCounts(msgspec.Struct):
    """Numbers of deleted objects."""

    traces: int = 0
    runs: int = 0
    benchmark_runs: int = 0
    bytes: int = 0
    others: int = 0
    replies: int = 0

    def add_batch(self, deleted: list[Deletable]) -> None:
        """Count the objects of one deleted batch."""
        self.traces += sum(each.kind == "trace" for each in deleted)
        self.runs += sum(each.kind == "run" for each in deleted)
        self.benchmark_runs += sum(each.kind == "benchmark_run" for each in deleted)
        self.bytes += sum(each.size for each in deleted)


async def sweep_once(hub: Hub, *, batch: int = _BATCH) -> SweepCounts:
    """Delete what is too old, then the oldest above the size limit, in batches."""
    swept = SweepCounts()
    if hub.settings.retention_days is not None:
        oldest = hub.clock() - hub.settings.retention_days * 86_400
        before = stamp(oldest)
        while deleted := await _delete_oldest(hub, batch, before=before):
            swept.add_batch(deleted)
        async with hub.database.writing() as connection:
            swept.others = await delete_remains(connection, before)
        swept.replies = await asyncio.to_thread(delete_older_replies, hub.settings.home, oldest)
    async with hub.database.reading() as connection:
        bounds = await list_project_bounds(connection)
    for bound in bounds:
        await _sweep_project(hub, bound, swept, batch)
    # Last: what was deleted by age counts against the size.
    if hub.settings.retention_bytes is not None:
        async with hub.database.reading() as connection:
            too_much = await sum_stored_bytes(connection) - hub.settings.retention_bytes
        while too_much > 0 and (deleted := await _delete_oldest(hub, batch, at_least=too_much)):
            swept.add_batch(deleted)
            # Counted down, since measuring the database after every batch would be quadratic.
            too_much -= sum(each.size for each in deleted)
    return swept


async def keep_sweeping(hub: Hub, *, every_s: float = 3_600, report: Callable[[SweepCounts | StoreError], None] = lambda _: None) -> None:
    """Sweep periodically until cancelled; `report` gets every result, also errors of the database."""
    while True:
        try:
            report(await sweep_once(hub))
        except StoreError as error:
            report(error)
        await asyncio.sleep(every_s)


async def _sweep_project(hub: Hub, bound: ProjectBounds, swept: SweepCounts, batch: int) -> None:

    async def delete_older(kind: Kind, before: str) -> list[Deletable]:
        async with hub.database.writing() as connection:
            deletable = await list_older(connection, kind, bound.id, before, now=hub.clock(), limit=batch)
            await delete_listed(connection, deletable)
        return deletable

    ages: tuple[tuple[Kind, int | None], ...] = (("trace", bound.trace_days), ("run", bound.run_days))
    for kind, age in ages:
        while age is not None and (deleted := await delete_older(kind, stamp(hub.clock() - age * 86_400))):
            swept.add_batch(deleted)
    if bound.trace_days is not None and bound.run_days is not None:
        # Traces and runs share replies: the longer retention counts.
        before = hub.clock() - max(bound.trace_days, bound.run_days) * 86_400
        swept.replies += await asyncio.to_thread(delete_older_replies, hub.settings.home, before, bound.id)


async def _delete_oldest(hub: Hub, batch: int, *, before: str | None = None, at_least: int | None = None) -> list[Deletable]:
    async with hub.database.writing() as connection:
        deletable = await list_oldest(connection, limit=batch, now=hub.clock(), idle=stamp(hub.clock() - IDLE_S), before=before)
        if at_least is not None:
            # The first rows with at least this size.
            sizes = itertools.accumulate(row.size for row in deletable)
            deletable = deletable[: sum(size < at_least for size in sizes) + 1]
        await delete_listed(connection, deletable)
    return deletable
