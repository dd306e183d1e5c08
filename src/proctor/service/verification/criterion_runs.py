"""Criterion runs: what each criterion came to, with its evidence. Read only, and with an organization key only."""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.paging import paged
from proctor.service.verification import resources
from proctor.service.verification.resources import authorize, required
from proctor.service.verification.run_records import CRITERION_RUN, TASK_RUN, shown_criterion_run
from proctor.store.records import records_of
from proctor.store.tables import records


async def list_criterion_runs(
    hub: Hub, caller: Caller, *, task_run_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """A page of criterion runs, of one task run where it is named."""
    authorize(caller)
    async with hub.database.reading() as connection:
        if task_run_id is not None:
            await required(connection, caller, TASK_RUN, task_run_id)
        query = records_of(caller.organization_id, CRITERION_RUN, parent_id=task_run_id)
        page = await paged(connection, query, records, limit=limit, cursor=cursor)
    return resources.page_of(page, [shown_criterion_run(row) for row in page.rows])


async def get_criterion_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One criterion run."""
    authorize(caller)
    async with hub.database.reading() as connection:
        return shown_criterion_run(await required(connection, caller, CRITERION_RUN, id))
