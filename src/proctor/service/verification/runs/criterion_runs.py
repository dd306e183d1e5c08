"""Criterion runs: the results of criteria with their evidence. Read-only, with an organization key."""

from __future__ import annotations

from typing import Unpack

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.verification.runs.resources import CRITERION_RUN
from proctor.service.verification.shared import resources
from proctor.service.verification.shared.declaration import Operation
from proctor.service.verification.shared.resources import Paging


@Operation(CRITERION_RUN, "GET /criterion-runs", gives=CRITERION_RUN.summary, pages=True, within="task_run_id", tool="list")
async def list_criterion_runs(hub: Hub, caller: Caller, *, task_run_id: str | None = None, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List criterion runs, newest first."""
    return await resources.list_plain(hub, caller, CRITERION_RUN, parent_id=task_run_id, **paging)


@Operation(CRITERION_RUN, "GET /criterion-runs/{criterion_run_id}", gives=CRITERION_RUN.whole, tool="get")
async def get_criterion_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a criterion run with its evidence."""
    return await resources.get_plain(hub, caller, CRITERION_RUN, id)
