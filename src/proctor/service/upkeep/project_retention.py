"""How long a project keeps its traces and its runs: read, tried and set.

A project may only shorten what the service keeps: whoever runs the service answers for its disk and for what was promised to everybody.
Where the service keeps less than a project says, because its settings were changed later, the service's settings count. Nothing is
deleted here: the next sweep does that (`retention.py`), at most an hour later.
"""

from __future__ import annotations

import math

import msgspec

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import find_seen, require_reader, require_writer
from proctor.service.hub import Hub, stamp
from proctor.service.refusals import Refusal, not_found
from proctor.store.accounts.tenants import change_row
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import projects
from proctor.store.upkeep.retention import count_older_runs, count_older_traces

LONGEST_DAYS = 3_650
MOST_COUNTED = 1_000_000
"""Rows that a preview counts of each kind: that takes a part of a second along an index."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Days for which a project keeps its traces, with their results, and its runs; None: as long as the service does."""

    trace_days: int | None = None
    run_days: int | None = None


async def get_retention(hub: Hub, caller: Caller, project_id: str) -> dict[str, Json]:
    """Return how long things of a project stay, and the bounds of the service."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        return _show(hub, await find_seen(connection, projects, caller, "project", project_id))


async def set_retention(hub: Hub, caller: Caller, project_id: str, wanted: Retention) -> dict[str, Json]:
    """Set how long things of a project stay; what is older goes with the next sweep."""
    require_writer(caller, "how long things stay is set")
    _check(hub, wanted)
    values = msgspec.structs.asdict(wanted)
    async with hub.database.writing() as connection:
        before = await find_seen(connection, projects, caller, "project", project_id)
        row = await change_row(connection, projects, caller.organization_id, project_id, {**values, "updated_at": hub.now()})
        if row is None:
            raise not_found("project", project_id)
        was = {name: before[name] for name in values}
        await note(connection, hub, caller, "set_retention", "project", project_id, {**values, "before": was})
    return _show(hub, row)


async def preview_retention(hub: Hub, caller: Caller, project_id: str, wanted: Retention) -> dict[str, Json]:
    """Return what would be deleted if it were set: how many traces and runs are older. Nothing is changed."""
    require_writer(caller, "how long things stay is set")
    _check(hub, wanted)
    found = {"traces": 0, "runs": 0}
    async with hub.database.reading() as connection:
        await find_seen(connection, projects, caller, "project", project_id)
        for kind, days, count in (("traces", wanted.trace_days, count_older_traces), ("runs", wanted.run_days, count_older_runs)):
            if days is not None:
                found[kind] = await count(connection, project_id, stamp(hub.clock() - days * 86_400), most=MOST_COUNTED)
    return {**msgspec.structs.asdict(wanted), **found, "counted_to": MOST_COUNTED}


def _check(hub: Hub, wanted: Retention) -> None:
    """Refuse days that are out of bounds, or more than the service keeps."""
    service = hub.settings.retention_days
    most = LONGEST_DAYS if service is None else min(LONGEST_DAYS, math.floor(service))
    expected = f"expected 1 to {most} days" if most else "expected nothing: the service keeps less than a day"
    if most and most < LONGEST_DAYS:
        expected += f"; the service keeps nothing for longer than {service:g}"
    given = msgspec.structs.asdict(wanted)
    wrong = {name: [f"{expected}, got {days}"] for name, days in given.items() if days is not None and not 1 <= days <= most}
    if wrong:
        raise Refusal("VALIDATION_ERROR", "how long things stay cannot be set so", fields=wrong)


def _show(hub: Hub, row: Row) -> dict[str, Json]:
    bounds: dict[str, Json] = {"service_days": hub.settings.retention_days, "service_bytes": hub.settings.retention_bytes}
    return {"project_id": row["id"], "trace_days": row["trace_days"], "run_days": row["run_days"], **bounds}
