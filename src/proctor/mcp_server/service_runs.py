"""Runs of the service: queued, run by its workers, stored in its database."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec

from proctor.actions.running.named_target import find_address
from proctor.mcp_server.arguments import RunRequest
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.projects import list_projects
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.resource import Page
from proctor.service.runs import comparisons, examinations
from proctor.service.runs import requests as runs
from proctor.service.runs import results as run_results
from proctor.service.runs.run import Run, RunSearch
from proctor.store.files.run_references import LATEST, PREVIOUS

_NAMES = {"suite": "document", "cases": "case_ids", "selection": "select"}
_ENDED = ("completed", "cancelled", "failed")
_LOOK_S = 1.0
"""Seconds between looks at a run of another process."""


class ServiceRuns:
    """The runs of a hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def start(self, caller: Caller, request: RunRequest, wait_s: float) -> dict[str, Json]:
        """Queue a run, and wait for its end for a limited time."""
        project_id = request.project_id or await self._find_only_project(caller)
        try:
            started = await runs.start_run(
                self._hub,
                caller,
                runs.NewRun(
                    project_id=project_id,
                    suite=request.document,
                    cases=list(request.case_ids) or None,
                    dialect=request.dialect,
                    target=request.target if (address := find_address(request.target)) is None else dict(address.settings),
                    repeat=request.repeat,
                    concurrency=request.concurrency,
                    timeout_s=request.timeout_s,
                    selection=request.select,
                    note=request.note,
                    name=request.name,
                    tags=list(request.tags),
                ),
            )
        except Refusal as refusal:
            raise refusal.rename_fields(_rename_field) from None
        return await self.get(caller, started["id"], wait_s=wait_s)

    async def examine(self, caller: Caller, arguments: dict[str, Json], wait_s: float) -> dict[str, Json]:
        """Queue an examination, and wait for its end for a limited time."""
        project_id = arguments.pop("project_id", None) or await self._find_only_project(caller)
        started = await examinations.start_examination(self._hub, caller, examinations.NewExamination(project_id=project_id, **arguments))
        examined = await self.get(caller, started["id"], wait_s=wait_s)
        return {**examined, "findings": await examinations.read_findings(self._hub, caller, started["id"])}

    async def list(self, caller: Caller, search: RunSearch, *, limit: int | None, cursor: str | None) -> Page[Run]:
        """Return a page of runs, newest first."""
        return await runs.list_runs(self._hub, caller, search, limit=limit, cursor=cursor)

    async def get(self, caller: Caller, id: str, *, wait_s: float = 0.0) -> dict[str, Json]:
        """Return one run with its current state."""
        run = await self._wait_for_end(caller, id, wait_s)
        report = await run_results.run_report(self._hub, caller, run["id"], "json")
        return {**run, "result": msgspec.json.decode(report)}

    async def compare(self, caller: Caller, base: str | None, candidate: str | None) -> dict[str, Json]:
        """Return the comparison of two runs, and their ids."""
        words = (base or PREVIOUS, candidate or LATEST)
        result = await comparisons.compare_runs(self._hub, caller, words[1], base=words[0])
        pairs = zip(words, ("base", "candidate"), strict=True)
        return {**result, "chosen": [f"{word} is {result[side]['run_id']}" for word, side in pairs if word != result[side]["run_id"]]}

    async def page(self, caller: Caller, id: str) -> str:
        """Return one run as a page of Markdown."""
        return (await run_results.run_report(self._hub, caller, id, "markdown")).decode()

    async def _wait_for_end(self, caller: Caller, id: str, wait_s: float) -> Run:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        run = await runs.get_run(self._hub, caller, id)
        # By its id from now on: `latest` may change.
        with self._hub.run_signals.watch(run["id"]) as watch:
            while run["status"] not in _ENDED and (remaining_s := until - loop.time()) > 0:
                await watch.wait(min(_LOOK_S, remaining_s))
                run = await runs.get_run(self._hub, caller, run["id"])
        return run

    async def _find_only_project(self, caller: Caller) -> str:
        """Return the only project if none is named."""
        data = cast(list[dict[str, Json]], (await list_projects(self._hub, caller, limit=20))["data"])
        if len(data) == 1:
            return cast(str, data[0]["id"])
        listing = ", ".join(f"{project['id']} ({project['name']})" for project in data)
        hint = f"there are {listing}" if data else "there is none yet; create one (POST /api/projects)"
        raise Refusal("VALIDATION_ERROR", f"name the project of the run: {hint}", fields={"project_id": ["required"]})


def _rename_field(path: str) -> str:
    """Return the name of a field of a run as this tool has it."""
    head, mark, rest = path.partition(".")
    return f"{_NAMES.get(head, head)}{mark}{rest}"
