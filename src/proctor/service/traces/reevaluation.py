"""Evaluates traces again on request, against the current cases, including failed ones."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec
import sqlalchemy as sa

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_writer
from proctor.service.access.transactions import Transaction, writing
from proctor.service.field_checks import read_moment
from proctor.service.hub import Hub
from proctor.service.resource import about, operation
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
async def request_reevaluation(hub: Hub, caller: Caller, spec: Reevaluation) -> Reevaluated:
    """Evaluate traces again, against the current cases. Results of the same case version are replaced."""
    require_writer(caller, "evaluating traces again")
    async with writing(hub, caller) as tx:
        # Open traces are evaluated anyway, once they are complete.
        query = sa.update(traces).where(traces.c.organization_id == caller.organization_id, traces.c.status != "open")
        query = query.where(*await _match_places(tx, spec))
        if spec.trace_ids is not None:
            query = query.where(traces.c.id.in_(spec.trace_ids))
        if spec.since is not None:
            query = query.where(traces.c.created_at >= read_moment(spec.since, "since"))
        if spec.until is not None:
            query = query.where(traces.c.created_at < read_moment(spec.until, "until"))
        # Leases stay. A worker that is evaluating one of these sees the changed `due_at` at the end, and leaves it due.
        done = await tx.connection.execute(query.values(due_at=hub.clock(), attempts=0))
        details: dict[str, Json] = {"traces": done.rowcount, "case_id": spec.case_id, "agent_id": spec.agent_id}
        await tx.note("reevaluate", "traces", spec.case_id or spec.agent_id or "all", details)
    return {"traces": done.rowcount}


async def _match_places(tx: Transaction, spec: Reevaluation) -> list[sa.ColumnElement[bool]]:
    places: list[sa.ColumnElement[bool]] = []
    if spec.project_id is not None:
        await tx.require_row(projects, "project", spec.project_id)
        places.append(traces.c.project_id == spec.project_id)
    if spec.agent_id is not None:
        await tx.require_row(agents, "agent", spec.agent_id)
        places.append(traces.c.agent_id == spec.agent_id)
    if spec.case_id is not None:
        case = await tx.require_row(cases, "case", spec.case_id)
        places.append(traces.c.project_id == case["project_id"])
        if case["agent_id"] is not None:
            places.append(traces.c.agent_id == case["agent_id"])
    return places
