"""Whose run is next.

Tenants take turns, and within a tenant its projects: whoever was served longest ago comes first, and of one project the run that waits
longest. So that whoever sends a thousand runs delays others by one. Remembered by each process for itself: after a restart everybody comes
anew.
"""

from __future__ import annotations

import asyncio

from proctor.service.hub import Hub
from proctor.store.pages import Row
from proctor.store.run_rows import WaitingProject, claim_run, list_waiting_projects


class RunTurns:
    """Who was served when, in the workers of one process."""

    def __init__(self) -> None:
        # Counts turns, where a clock might give two of them the same place.
        self._number = 0
        self._organizations: dict[str, int] = {}
        self._projects: dict[str, int] = {}
        self._taking = asyncio.Lock()

    async def take(self, hub: Hub, owner: str) -> Row | None:
        """Take the next run; None when none waits."""
        # One after the other, so that each sees who was served last.
        async with self._taking:
            return await self._take(hub, owner)

    async def _take(self, hub: Hub, owner: str) -> Row | None:
        async with hub.database.reading() as connection:
            waiting = await list_waiting_projects(connection, now=hub.clock())
        self._forget(waiting)
        for project in sorted(waiting, key=self._place):
            async with hub.database.writing() as connection:
                row = await claim_run(
                    connection,
                    owner=owner,
                    now=hub.clock(),
                    lease_s=hub.settings.lease_s,
                    at=hub.now(),
                    project_id=project.project_id,
                )
            # Another worker may have been faster.
            if row is not None:
                self._number += 1
                self._organizations[project.organization_id] = self._projects[project.project_id] = self._number
                return row
        return None

    def _place(self, project: WaitingProject) -> tuple[int, int, str]:
        # Who was never served comes first, for one turn: then it has the highest number of all. So nobody saves up turns by staying away.
        served = self._organizations.get(project.organization_id, 0), self._projects.get(project.project_id, 0)
        return (*served, project.since)

    def _forget(self, waiting: list[WaitingProject]) -> None:
        """Keep no memory of those who have stayed away while many others came."""
        if len(self._projects) > 10_000:
            known = {each.project_id for each in waiting}
            self._projects = {id: number for id, number in self._projects.items() if id in known}
            known = {each.organization_id for each in waiting}
            self._organizations = {id: number for id, number in self._organizations.items() if id in known}
