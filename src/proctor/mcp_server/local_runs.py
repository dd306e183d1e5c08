"""Runs on the caller's machine, stored in the workspace like those of `proctor run`.

A run continues in the background; `get` returns its progress. When the server ends, its runs are interrupted and can be resumed with
`proctor run SUITE --resume RUN`.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import cast

import msgspec

from proctor.actions.history.chosen_runs import choose_pair
from proctor.actions.history.compare import compare
from proctor.actions.running.run import LiveRun, RunOptions, drive
from proctor.actions.workspace.run_history import find_home, open_run
from proctor.actions.workspace.suites import load_suite
from proctor.decide.selection import select
from proctor.errors import ProctorError, StoreError
from proctor.mcp_server.ports import RunFilter, RunRequest
from proctor.mcp_server.suites import find_local_path
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.report.blocks.exchange import add_exchanges
from proctor.report.data.json_text import render_json
from proctor.report.text.markdown import render_markdown
from proctor.runner.limits import RunSettings
from proctor.service.access.callers import Caller
from proctor.service.refusals import Refusal
from proctor.service.suites.documents import read_sent_suite
from proctor.store.files.run_files import RunFiles, RunFolder
from proctor.store.sql.pages import clamp_limit

# Each calls an agent; an impatient model would start more and more of them.
MOST_LIVE = 4


class LocalRuns:
    """The stored and current runs of a workspace."""

    def __init__(self, home: Path, folder: Path, *, trust: bool | None = None) -> None:
        self._home = find_home(str(home))
        self.trust = trust
        """Whether suites are trusted; None: the environment decides."""
        self.folder = folder
        """The base of relative paths."""
        self._live: dict[str, asyncio.Task[LiveRun]] = {}
        self._starting = 0
        """Runs without an id yet."""

    async def start(self, caller: Caller, request: RunRequest, wait_s: float) -> dict[str, Json]:
        """Start a run, and wait a while for its end."""
        if request.case_ids or request.project_id is not None:
            raise Refusal("VALIDATION_ERROR", "cases of a service are run by the service", hint="name a suite by `path` or `document`")
        self._forget_ended()
        if len(self._live) + self._starting >= MOST_LIVE:
            raise Refusal("CONFLICT", f"{MOST_LIVE} runs are in progress", hint="wait for one with get_run")
        # Counted immediately, before the suite is read.
        self._starting += 1
        try:
            run_id = await self._started(await self._suite(request), request)
        finally:
            self._starting -= 1
        return await self.get(caller, run_id, wait_s=wait_s)

    async def list(self, caller: Caller, wanted: RunFilter, *, limit: int | None, cursor: str | None) -> dict[str, Json]:
        """Return a page of runs, newest first."""
        return await asyncio.to_thread(self._listed, wanted, clamp_limit(limit), cursor)

    async def get(self, caller: Caller, id: str, *, wait_s: float = 0.0) -> dict[str, Json]:
        """Return one run with its current state."""
        folder = await asyncio.to_thread(self._open, id)
        # From here on by its id: `latest` may change.
        task = self._live.get(folder.header.run_id)
        if task is not None and wait_s > 0:
            await asyncio.wait([task], timeout=wait_s)
        found = await asyncio.to_thread(self._shown, folder)
        result = await asyncio.to_thread(lambda: add_exchanges(*open_run(self._home, folder.header.run_id)))
        return {**found, "result": msgspec.json.decode(render_json(result))}

    async def compare(self, caller: Caller, base: str | None, candidate: str | None) -> dict[str, Json]:
        """Return two runs compared, and which they are."""

        def work() -> dict[str, Json]:
            first, second = choose_pair(self._home, base, candidate)
            # Encoded and decoded: NaN becomes null.
            found = msgspec.json.decode(msgspec.json.encode(compare(self._home, first.run, second.run)))
            return {**found, "chosen": [run.note for run in (first, second) if run.note is not None]}

        try:
            return await asyncio.to_thread(work)
        except StoreError as error:
            raise _refuse_unknown(error) from None

    async def page(self, caller: Caller, id: str) -> str:
        """Return one run as a page of Markdown."""
        folder = await asyncio.to_thread(self._open, id)
        return await asyncio.to_thread(lambda: render_markdown(open_run(self._home, folder.header.run_id)[0]))

    async def close(self) -> None:
        """Stop all runs; finished attempts are stored."""
        # Cancel all before waiting for any, so that they stop in parallel.
        for task in self._live.values():
            task.cancel()
        for task in self._live.values():
            # The folder of a run has its ending; all must be closed.
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        self._live.clear()

    async def _suite(self, request: RunRequest) -> Suite:
        if (request.document is None) == (request.path is None):
            raise Refusal("VALIDATION_ERROR", "name one suite, by `path` or `document`", fields={"path": ["one of both"]})
        if request.path is not None:
            named = request.path
            suite = await asyncio.to_thread(
                lambda: load_suite(find_local_path(self.folder, named, trust=self.trust), dialect=request.dialect, checks=())
            )
        else:
            suite, _ = await read_sent_suite(cast("str | dict[str, Json]", request.document), dialect=request.dialect)
        suite = select(suite, request.select)
        if not suite.cases:
            raise Refusal("VALIDATION_ERROR", "nothing is selected", fields={"select": ["no case fits"]})
        return suite

    async def _started(self, suite: Suite, request: RunRequest) -> str:
        """Start a run; return its id, or raise its error."""
        named: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        settings = RunSettings(repeat=request.repeat, concurrency=request.concurrency, timeout_s=request.timeout_s)
        options = RunOptions(
            settings=settings, note=request.note, name=request.name, tags=request.tags, opened=named.set_result, trust=self.trust
        )
        task = asyncio.create_task(drive(suite, options, target=request.target, home=self._home))
        # Either the run has its id, or it ended before with an error.
        try:
            await asyncio.wait([task, named], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The caller is gone and will never know the id, so cancel it.
            task.cancel()
            raise
        if not named.done():
            # It has no id: target, judge or suite is unusable.
            named.cancel()
            await task
            raise Refusal("INTERNAL_ERROR", "the run ended before it began")
        self._live[named.result()] = task
        return named.result()

    def _forget_ended(self) -> None:
        for id, task in list(self._live.items()):
            if task.done():
                del self._live[id]
                if not task.cancelled():
                    task.exception()  # retrieved, to avoid a warning

    def _open(self, id: str) -> RunFolder:
        try:
            return RunFiles(self._home).open(id)
        except StoreError as error:
            raise _refuse_unknown(error) from None

    def _listed(self, wanted: RunFilter, limit: int, cursor: str | None) -> dict[str, Json]:
        files = RunFiles(self._home)
        ids = files.list_ids()
        if wanted.name is not None or wanted.tag is not None:
            ids = [id for id in ids if _fits(files, id, wanted)]
        if cursor is not None:
            # Ids start with their time, so they are stable cursors.
            ids = [id for id in ids if id < cursor]
        data = [self._shown_or_broken(files, id) for id in ids[:limit]]
        return {"data": data, "_meta": {"next": ids[limit - 1] if len(ids) > limit else None, "prev": None, "limit": limit}}

    def _shown_or_broken(self, files: RunFiles, id: str) -> dict[str, Json]:
        try:
            # An unreadable folder must not hide the other runs.
            return self._shown(files.open(id))
        except StoreError as error:
            return {"id": id, "status": "broken", "error": str(error)}

    def _shown(self, run: RunFolder) -> dict[str, Json]:
        header = run.header
        counts: dict[str, int] = {}
        for entry in run.entries():
            counts[entry.outcome] = counts.get(entry.outcome, 0) + 1
        shown: dict[str, Json] = {
            "id": header.run_id,
            "status": self._status(run),
            "suite": header.suite_name,
            "dialect": header.dialect,
            "target": header.target,
            "repeat": header.repeat,
            "note": header.note,
            "name": header.name,
            "tags": list(header.tags),
            "started_at": header.started_at,
            "counts": counts,
        }
        error = self._error(header.run_id)
        return shown if error is None else {**shown, "error": error}

    def _status(self, run: RunFolder) -> str:
        task = self._live.get(run.header.run_id)
        if task is not None and not task.done():
            return "running"
        if self._error(run.header.run_id):
            return "failed"
        ending = run.find_ending()
        return "interrupted" if ending == "not_ended" else ending

    def _error(self, id: str) -> str | None:
        task = self._live.get(id)
        if task is None or not task.done() or task.cancelled():
            return None
        error = task.exception()
        if error is None:
            return None
        return str(error) if isinstance(error, ProctorError) else f"{type(error).__name__}: the run failed"


def _refuse_unknown(error: StoreError) -> Refusal:
    return Refusal("NOT_FOUND", str(error), hint="list_runs shows what there is")


def _fits(files: RunFiles, id: str, wanted: RunFilter) -> bool:
    """Return whether a run has the requested name and tag."""
    try:
        header = files.open(id).header
    except StoreError:
        return False
    return wanted.name in (None, header.name) and (wanted.tag is None or wanted.tag in header.tags)
