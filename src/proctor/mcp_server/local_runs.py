"""Runs on the caller's machine, stored in the workspace like those of `proctor run`.

A run continues in the background; `get` returns its progress. When the server ends, its runs are interrupted and can be resumed with
`proctor run SUITE --resume RUN`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import msgspec

from proctor.actions.doctor.snapshots import EXAMINATION, read_examination, read_snapshot
from proctor.actions.history.chosen_runs import choose_pair
from proctor.actions.history.compare import compare
from proctor.actions.running.run import RunOptions, drive
from proctor.actions.workspace.run_history import find_home, open_run
from proctor.errors import ProctorError, StoreError
from proctor.mcp_server.arguments import RunRequest
from proctor.mcp_server.suites import read_suite_argument, refuse_empty
from proctor.model.evidence import Json
from proctor.report.blocks.exchange import add_exchanges
from proctor.report.builders.run import render_markdown
from proctor.report.data.json_text import render_json
from proctor.runner.limits import RunSettings
from proctor.service.access.callers import Caller
from proctor.service.refusals import Refusal
from proctor.service.runs.examinations import show_findings
from proctor.service.runs.run import RunSearch
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
        self._live: dict[str, asyncio.Task[object]] = {}
        self._starting = 0
        """Runs without an id yet."""

    async def start(self, caller: Caller, request: RunRequest, wait_s: float) -> dict[str, Json]:
        """Start a run, and wait a while for its end."""
        if request.case_ids or request.project_id is not None:
            raise Refusal("VALIDATION_ERROR", "cases of a service are run by the service", hint="name a suite by `path` or `document`")
        settings = RunSettings(repeat=request.repeat, concurrency=request.concurrency, timeout_s=request.timeout_s)

        async def start(opened: Callable[[str], None]) -> object:
            suite, _ = await read_suite_argument(msgspec.structs.asdict(request), folder=self.folder, trust=self.trust)
            refuse_empty(suite)
            options = RunOptions(
                settings=settings, note=request.note, name=request.name, tags=request.tags, opened=opened, trust=self.trust
            )
            return await drive(suite, options, target=request.target, home=self._home)

        return await self._start(start, caller, wait_s)

    async def _start(
        self, start: Callable[[Callable[[str], None]], Coroutine[Any, Any, object]], caller: Caller, wait_s: float
    ) -> dict[str, Json]:
        for id, task in list(self._live.items()):
            if task.done():
                del self._live[id]
                if not task.cancelled():
                    task.exception()  # retrieved, to avoid a warning
        if len(self._live) + self._starting >= MOST_LIVE:
            raise Refusal("CONFLICT", f"{MOST_LIVE} runs are in progress", hint="wait for one with get_run")
        # Counted before the suite is read.
        self._starting += 1
        try:
            run_id = await self._wait_for_id(start)
        finally:
            self._starting -= 1
        return await self.get(caller, run_id, wait_s=wait_s)

    async def examine(self, caller: Caller, arguments: dict[str, Json], wait_s: float) -> dict[str, Json]:
        """Examine an MCP server, and wait a while for the end."""
        from proctor.actions.doctor.examination import read_options, read_server, read_settings  # loads the doctor
        from proctor.actions.doctor.server_names import find_server, is_name
        from proctor.actions.running.examine_server import drive_examination
        from proctor.actions.running.run_builder import EXAMINED

        server: Json = arguments.pop("server")
        run_options = {name: arguments.pop(name) for name in ("name", "tags", "note") if name in arguments}
        settings = find_server(server, self._home, programs=bool(self.trust)) if isinstance(server, str) else read_server(server)
        if settings.transport == "stdio" and not self.trust and not (isinstance(server, str) and is_name(server)):
            raise Refusal(
                "FORBIDDEN",
                f"the command {settings.describe_place()!r} is started only for a server that proctor.yaml declares",
                hint="declare the server in proctor.yaml, or start the server with `proctor mcp --trust`",
            )
        options = read_options(read_settings({"type": EXAMINED, "server": {}, **arguments}))
        tags = tuple(cast("list[str]", run_options.pop("tags", ())))

        def start(opened: Callable[[str], None]) -> Coroutine[Any, Any, object]:
            run_settings = RunOptions(opened=opened, trust=self.trust, tags=tags, **run_options)
            return drive_examination(settings, options, run_settings, home=str(self._home))

        examined = await self._start(start, caller, wait_s)
        stored = read_examination(read_snapshot(self._open(str(examined["id"])).folder, EXAMINATION))
        return {**examined, "findings": None if stored is None else show_findings(stored)}

    async def list(self, caller: Caller, search: RunSearch, *, limit: int | None, cursor: str | None) -> dict[str, Json]:
        """Return a page of runs, newest first."""
        return await asyncio.to_thread(self._list_page, search, clamp_limit(limit), cursor)

    async def get(self, caller: Caller, id: str, *, wait_s: float = 0.0) -> dict[str, Json]:
        """Return one run with its current state."""
        folder = await asyncio.to_thread(self._open, id)
        # By its id from now on, because `latest` may change.
        task = self._live.get(folder.header.run_id)
        if task is not None and wait_s > 0:
            await asyncio.wait([task], timeout=wait_s)
        described = await asyncio.to_thread(self._describe_run, folder)
        result = await asyncio.to_thread(lambda: add_exchanges(*open_run(self._home, folder.header.run_id)))
        return {**described, "result": msgspec.json.decode(render_json(result))}

    async def compare(self, caller: Caller, base: str | None, candidate: str | None) -> dict[str, Json]:
        """Return the comparison of two runs, and their ids."""

        def work() -> dict[str, Json]:
            first, second = choose_pair(self._home, base, candidate)
            # Encoded and decoded: NaN becomes null.
            comparison = msgspec.json.decode(msgspec.json.encode(compare(self._home, first.run, second.run)))
            return {**comparison, "chosen": [run.note for run in (first, second) if run.note is not None]}

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
            # The folder of a run stores its ending; all must be closed.
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        self._live.clear()

    async def _wait_for_id(self, start: Callable[[Callable[[str], None]], Coroutine[Any, Any, object]]) -> str:
        """Start a run; return its id, or raise its error."""
        run_id: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(start(run_id.set_result))
        # Either the run has an id, or it ended earlier with an error.
        try:
            await asyncio.wait([task, run_id], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The caller is gone and will never know the id, so cancel it.
            task.cancel()
            raise
        if not run_id.done():
            # It has no id: target, judge or suite is unusable.
            run_id.cancel()
            await task
            raise Refusal("INTERNAL_ERROR", "the run ended before it began")
        self._live[run_id.result()] = task
        return run_id.result()

    def _open(self, id: str) -> RunFolder:
        try:
            return RunFiles(self._home).open(id)
        except StoreError as error:
            raise _refuse_unknown(error) from None

    def _list_page(self, search: RunSearch, limit: int, cursor: str | None) -> dict[str, Json]:
        files = RunFiles(self._home)
        found: list[dict[str, Json]] = []
        for id in files.list_ids():
            # Ids start with their time, so they are stable cursors.
            if cursor is not None and id >= cursor:
                continue
            try:
                run = files.open(id)
                if search.name in (None, run.header.name) and (search.tag is None or search.tag in run.header.tags):
                    found.append(self._describe_run(run))
            except StoreError as error:
                # An unreadable folder must not hide the other runs.
                if search.name is None and search.tag is None:
                    found.append({"id": id, "status": "broken", "error": str(error)})
            if len(found) > limit:
                break
        following = found[limit - 1]["id"] if len(found) > limit else None
        return {"data": found[:limit], "_meta": {"next": following, "prev": None, "limit": limit}}

    def _describe_run(self, run: RunFolder) -> dict[str, Json]:
        header = run.header
        task, error = self._live.get(header.run_id), self._find_error(header.run_id)
        status = "running" if task is not None and not task.done() else "failed" if error else run.find_ending()
        return {
            "id": header.run_id,
            "status": "interrupted" if status == "not_ended" else status,
            "suite": header.suite_name,
            **{name: getattr(header, name) for name in ("dialect", "target", "repeat", "note", "name")},
            "tags": list(header.tags),
            "started_at": header.started_at,
            "counts": Counter(entry.outcome for entry in run.entries()),
            **({} if error is None else {"error": error}),
        }

    def _find_error(self, id: str) -> str | None:
        task = self._live.get(id)
        if task is None or not task.done() or task.cancelled():
            return None
        error = task.exception()
        if error is None:
            return None
        return str(error) if isinstance(error, ProctorError) else f"{type(error).__name__}: the run failed"


def _refuse_unknown(error: StoreError) -> Refusal:
    return Refusal("NOT_FOUND", str(error), hint="list_runs shows what there is")
