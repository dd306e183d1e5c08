"""Evaluates traces again on request, against the current cases, including failed ones."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_writer
from proctor.service.hub import Hub
from proctor.service.paging import require_row
from proctor.service.refusals import Refusal
from proctor.service.resource import about, operation
from proctor.service.traces.search import read_moment
from proctor.store.sql.tables import agents, cases, projects, traces

MOST_TRACES = 1_000
"""Traces that can be listed in a request."""


class Reevaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The traces to evaluate again; all conditions must hold."""

    project_id: str | None = None
    agent_id: str | None = None
    case_id: Annotated[str | None, about("the traces of the agent or project of this case")] = None
    trace_ids: Annotated[list[str] | None, about(min_length=1, max_length=MOST_TRACES)] = None
    since: Annotated[str | None, about("received from this time on; ISO 8601")] = None
    until: Annotated[str | None, about("received before this time; ISO 8601")] = None


class Reevaluated(TypedDict):
    """The number of traces to evaluate again."""

    traces: int


@operation("traces", "POST /api/traces/reevaluate", status=202, name="reevaluate_traces")
async def request_reevaluation(hub: Hub, caller: Caller, wanted: Reevaluation) -> Reevaluated:
    """Evaluate traces again, against the current cases. Results of the same case version are replaced."""
    require_writer(caller, "evaluating traces again")
    if wanted.trace_ids is not None and not 1 <= len(wanted.trace_ids) <= MOST_TRACES:
        fields = {"trace_ids": [f"expected 1 to {MOST_TRACES} ids, got {len(wanted.trace_ids)}"]}
        raise Refusal("VALIDATION_ERROR", "too many or no traces", fields=fields)
    async with hub.database.writing() as connection:
        # Open traces are evaluated anyway, once they are complete.
        query = sa.update(traces).where(traces.c.organization_id == caller.organization_id, traces.c.status != "open")
        query = query.where(*await _match_places(connection, caller, wanted))
        if wanted.trace_ids is not None:
            query = query.where(traces.c.id.in_(wanted.trace_ids))
        if wanted.since is not None:
            query = query.where(traces.c.created_at >= read_moment(wanted.since, "since"))
        if wanted.until is not None:
            query = query.where(traces.c.created_at < read_moment(wanted.until, "until"))
        # Leases stay. A worker that is evaluating one of these sees the changed `due_at` at the end, and leaves it due.
        done = await connection.execute(query.values(due_at=hub.clock(), attempts=0))
        details: dict[str, Json] = {"traces": done.rowcount, "case_id": wanted.case_id, "agent_id": wanted.agent_id}
        await note(connection, hub, caller, "reevaluate", "traces", wanted.case_id or wanted.agent_id or "all", details)
    return {"traces": done.rowcount}


async def _match_places(connection: AsyncConnection, caller: Caller, wanted: Reevaluation) -> list[sa.ColumnElement[bool]]:
    places: list[sa.ColumnElement[bool]] = []
    if wanted.project_id is not None:
        await require_row(connection, projects, caller.organization_id, "project", wanted.project_id)
        places.append(traces.c.project_id == wanted.project_id)
    if wanted.agent_id is not None:
        await require_row(connection, agents, caller.organization_id, "agent", wanted.agent_id)
        places.append(traces.c.agent_id == wanted.agent_id)
    if wanted.case_id is not None:
        case = await require_row(connection, cases, caller.organization_id, "case", wanted.case_id)
        places.append(traces.c.project_id == case["project_id"])
        if case["agent_id"] is not None:
            places.append(traces.c.agent_id == case["agent_id"])
    return places
